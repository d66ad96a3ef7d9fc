package rates

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	critical, transactional, promotional = 0, 1, 2

	lanes = 3
)

// inLimited runs a test with workers that share a limit and have no route that is limited.
func inLimited(t *testing.T, limit float64, workers int, test func(f *fleet)) {
	inFleet(t, 0, 0, func(f *fleet) {
		f.limit = limit
		for range workers {
			f.join()
		}
		test(f)
	})
}

// waited is how long what a lane sends has waited.
type waited struct {
	mu      sync.Mutex // guards all
	sent    int
	longest time.Duration
}

// so is what there was so far.
func (w *waited) so() (sent int, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent, w.longest
}

// add notes sends, of which the first one came at a time.
func (w *waited) add(sends int, came, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent += sends
	w.longest = max(w.longest, now.Sub(came))
}

// push sends as much of a lane as perSecond says comes, one after the other, until the
// worker ends. What waits is sent by groups. keeps is the part that the route lets
// through; the rest is given back, and comes again.
func (w *worker) push(lane int, perSecond, keeps float64) *waited {
	of, seen := w.limit.Lane(lane), new(waited)
	random := rand.New(rand.NewPCG(uint64(lane), uint64(w.n)))
	ended := make(chan struct{})
	stop := w.stop
	w.stop = func() { close(ended); stop() }
	w.running.Go(func() {
		began := time.Now()
		for !w.ends() {
			select {
			case <-ended:
				return
			default:
			}
			now := time.Now()
			sent, _ := seen.so()
			n := min(int(perSecond*now.Sub(began).Seconds())-sent, 256)
			if n <= 0 {
				time.Sleep(time.Millisecond)
				continue
			}
			got, again := of.Take(now, n)
			if got == 0 {
				time.Sleep(min(again.Sub(now), 50*time.Millisecond)) // as pipeline.submit does
				continue
			}
			back := 0
			for range got {
				if random.Float64() >= keeps {
					back++
				}
			}
			of.Return(now, back)
			w.mu.Lock()
			for range got - back {
				w.sends = append(w.sends, sendingOf{at: now, worker: w.n, lane: lane, status: 200})
			}
			w.mu.Unlock()
			seen.add(got-back, began.Add(time.Duration(float64(sent+1)/perSecond*float64(time.Second))), now)
			if back > 0 {
				time.Sleep(2 * time.Millisecond) // as what waits for a route
			}
		}
	})
	return seen
}

// of counts what a lane of some workers, or of all, has sent in a time since the start.
func (f *fleet) of(lane int, from, to time.Duration, workers ...int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sends {
		if at := s.at.Sub(f.started); s.lane == lane && (len(workers) == 0 || slices.Contains(workers, s.worker)) && at >= from && at < to {
			n++
		}
	}
	return n
}

// under fails if more was sent within any time than the limit and two chunks allow: what
// was granted before, and what is granted ahead. A Redis that has lost all, at these times,
// forgets which slots it has granted: there is one chunk more each time.
func (f *fleet) under(limit float64, wiped ...time.Time) {
	f.t.Helper()
	for _, long := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second} {
		chunks := 2
		for i, from := range wiped {
			within := 0
			for _, at := range wiped[i:] {
				if at.Sub(from) < long {
					within++
				}
			}
			chunks = max(chunks, 2+within)
		}
		most := limit*long.Seconds() + float64(chunks)*limit*ahead.Seconds()
		if got := f.densest(long, -1); float64(got) > most {
			f.t.Errorf("%d sends within %v, want at most %v", got, long, most)
		}
	}
}

// While ten times as many promotions as the limit wait, critical sends are as before, and
// transactional ones have four times the promotions' share; the limit is kept, and used. A
// worker that dies takes a chunk with it and nothing else.
func TestALimitIsForCriticalSendsFirst(t *testing.T) {
	const limit = 400
	inLimited(t, limit, 4, func(f *fleet) {
		var passwords []*waited
		for _, w := range f.workers {
			w.push(promotional, 10*limit/4, 1)
			passwords = append(passwords, w.push(critical, 15, 1))
		}
		const alone, end = 10 * time.Second, 40 * time.Second
		time.Sleep(alone)
		f.under(limit)
		for i, p := range passwords {
			if sent, longest := p.so(); longest > 2*(every+apart+answered)+waits || sent < 140 {
				t.Errorf("worker %d: %d critical sends of 150, which waited up to %v", i, sent, longest)
			}
		}
		if n := f.of(critical, 2*time.Second, alone) + f.of(promotional, 2*time.Second, alone); float64(n) < 0.97*limit*8 {
			t.Errorf("%d sends in 8 s, want the limit of %d a second to be used", n, limit)
		}
		f.workers[3].stop()
		for _, w := range f.workers[:2] {
			w.push(transactional, 2*limit, 1)
		}
		time.Sleep(end - alone)
		f.under(limit)
		trans, promo := f.of(transactional, 15*time.Second, end), f.of(promotional, 15*time.Second, end)
		both := []int{0, 1}
		if a, b := f.of(transactional, 15*time.Second, end, both...), f.of(promotional, 15*time.Second, end, both...); a < 3*b || a > 5*b || trans < promo {
			t.Errorf("%d transactional sends and %d promotions of workers with both, %d and %d of all: want four times as many", a, b, trans, promo)
		}
		if n := trans + promo + f.of(critical, 15*time.Second, end); float64(n) < 0.97*limit*25 {
			t.Errorf("%d sends in 25 s after a worker has died, want the limit of %d a second to be used", n, limit)
		}
		for i, p := range passwords[:3] {
			if _, longest := p.so(); longest > 2*(every+apart+answered)+waits {
				t.Errorf("worker %d: critical sends waited up to %v", i, longest)
			}
		}
		t.Logf("%d transactional, %d promotional", trans, promo)
	})
}

// Critical sends of more than all that the limit lets through are the only ones.
func TestCriticalSendsMayTakeAll(t *testing.T) {
	inLimited(t, 200, 2, func(f *fleet) {
		f.workers[0].push(critical, 1000, 1)
		for _, w := range f.workers {
			w.push(promotional, 1000, 1)
		}
		time.Sleep(20 * time.Second)
		f.under(200)
		got, others := f.of(critical, 2*time.Second, 20*time.Second), f.of(promotional, 2*time.Second, 20*time.Second)
		if float64(got) < 0.75*200*18 {
			t.Errorf("%d critical sends and %d promotions in 18 s, want nearly all of 3600 to be critical", got, others)
		}
	})
}

// What a route does not take is there for who can use it.
func TestWhatIsReturnedIsUsedByOthers(t *testing.T) {
	const limit = 400
	inLimited(t, limit, 2, func(f *fleet) {
		for _, w := range f.workers {
			w.push(transactional, limit, 0.01)
			w.push(critical, limit, 0.01)
			w.push(promotional, limit, 1)
		}
		time.Sleep(20 * time.Second)
		f.under(limit)
		if n := f.of(promotional, 2*time.Second, 20*time.Second); float64(n) < 0.7*limit*18 {
			t.Errorf("%d promotions in 18 s, want most of %d", n, limit*18)
		}
	})
}

// A worker with another limit is bound by its own: what Redis has is no lower one that
// would have to grow first.
func TestARaisedLimitIsInForceAtOnce(t *testing.T) {
	inLimited(t, 100, 1, func(f *fleet) {
		f.workers[0].push(promotional, 1000, 1)
		time.Sleep(5 * time.Second)
		f.workers[0].stop()
		f.limit = 400
		f.join().push(promotional, 1000, 1)
		time.Sleep(5 * time.Second)
		if n := f.of(promotional, 6*time.Second, 10*time.Second); n < 1500 || n > 1700 {
			t.Errorf("%d sends in 4 s of a limit of 400 a second", n)
		}
		if len(f.changes) > 0 {
			t.Errorf("%v, want no change to be told", f.changes)
		}
	})
}

// Without Redis workers go on under the limit, with the share that they had and then
// with equal parts; Redis comes back empty, and the limit is what it was.
func TestALimitWithoutRedis(t *testing.T) {
	const limit = 400
	inLimited(t, limit, 4, func(f *fleet) {
		for _, w := range f.workers {
			w.push(promotional, limit, 1)
			w.push(critical, 5, 1)
		}
		time.Sleep(10 * time.Second)
		f.redis.Close()
		time.Sleep(20 * time.Second)
		for from := 10 * time.Second; from < 30*time.Second; from += time.Second {
			n := f.of(promotional, from, from+time.Second) + f.of(critical, from, from+time.Second)
			if float64(n) > limit*(1+evenly) || from > 11*time.Second && float64(n) < 0.7*limit {
				t.Errorf("%d sends in the second from %v on", n, from)
			}
		}
		f.redis.Mini.FlushAll()
		if err := f.redis.Restart(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		f.under(limit)
		if n := f.of(promotional, 40*time.Second, 50*time.Second); float64(n) < 0.8*limit*10 {
			t.Errorf("%d sends in 10 s after Redis is back", n)
		}
		for _, c := range f.changes {
			if c.Rate == limitName && (c.From != limit || c.To != limit || c.Cause != CauseLost) {
				t.Errorf("told of %+v", c)
			}
		}
	})
}

// Whatever becomes of workers, and whatever is returned, the limit is kept. A Redis that
// loses all costs a chunk each time.
func TestSendsStayUnderALimit(t *testing.T) {
	for seed := range uint64(2) {
		inLimited(t, 500, 4, func(f *fleet) {
			random, wipes := rand.New(rand.NewPCG(seed, 14)), seed%2 == 1
			join := func(w *worker) {
				for lane := range lanes {
					w.push(lane, float64(random.IntN(800)+1), []float64{1, 0.5, 0.02}[random.IntN(3)])
				}
			}
			for _, w := range f.workers {
				join(w)
			}
			stopped := map[int]bool{}
			var wiped []time.Time
			for range 20 {
				time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
				switch i := random.IntN(len(f.workers)); random.IntN(3) {
				case 0:
					if len(f.workers) < 8 {
						join(f.join())
					}
				case 1:
					if !stopped[i] {
						stopped[i] = true
						f.workers[i].stop()
					}
				case 2:
					if wipes {
						f.redis.Mini.FlushAll()
						wiped = append(wiped, time.Now())
					}
				}
			}
			f.under(500, wiped...)
		})
	}
}

// What a push costs of the fleet's limit: lanes take by turns, in groups, and return a
// part.
func BenchmarkLimit(b *testing.B) {
	const group = 64
	o := Options{Fleet: "f", Member: "m", Factors: DefaultFactors(), Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), Limit: 1e9, Lanes: lanes}
	rs, err := New(refusing{}, nil, o)
	if err != nil {
		b.Fatal(err)
	}
	l, now := rs.Limit(), time.Now()
	l.rate.out.others = []slot{{from: now.Add(-time.Hour), lapses: now.Add(math.MaxInt64), sends: 1 << 60}}
	of := []*Lane{l.Lane(critical), l.Lane(transactional), l.Lane(promotional)}
	b.ReportAllocs()
	for n := 0; n < b.N; n += group {
		now = now.Add(time.Millisecond)
		lane := of[n/group%lanes]
		if got, _ := lane.Take(now, group); got == 0 {
			b.Fatal("nothing is left")
		}
		lane.Return(now, group/4)
	}
}

// What a lane did not ask for while others sent it cannot make up for: neither one that
// begins, nor one that was content with less.
func TestNoLaneSavesUpItsShare(t *testing.T) {
	const limit = 400
	inLimited(t, limit, 1, func(f *fleet) {
		w := f.workers[0]
		w.push(transactional, limit/2, 1)
		time.Sleep(60 * time.Second)
		w.push(promotional, 10*limit, 1)
		time.Sleep(10 * time.Second)
		if n := f.of(transactional, 61*time.Second, 70*time.Second); float64(n) < 0.9*limit/2*9 {
			t.Errorf("%d transactional sends in 9 s after promotions have begun, want nearly all of %d", n, limit/2*9)
		}
	})
	inLimited(t, limit, 1, func(f *fleet) {
		w := f.workers[0]
		w.push(transactional, 10, 1)
		w.push(promotional, 10*limit, 1)
		time.Sleep(60 * time.Second)
		w.push(transactional, 10*limit, 1)
		time.Sleep(20 * time.Second)
		if n := f.of(promotional, 65*time.Second, 80*time.Second); float64(n) < 0.15*limit*15 {
			t.Errorf("%d promotions in 15 s beside many transactional sends, want about a fifth of %d", n, limit*15)
		}
	})
}

// What the first lane sends at one worker, by its weight, keeps nothing from another one's
// promotions that it does not use itself.
func TestWhatCriticalSendsLeaveIsUsed(t *testing.T) {
	const limit = 4000
	inLimited(t, limit, 2, func(f *fleet) {
		passwords := f.workers[0].push(critical, limit/5, 1)
		f.workers[1].push(promotional, 10*limit, 1)
		time.Sleep(20 * time.Second)
		f.under(limit)
		got, others := f.of(critical, 5*time.Second, 20*time.Second), f.of(promotional, 5*time.Second, 20*time.Second)
		if float64(got+others) < 0.95*limit*15 || float64(got) < 0.99*limit/5*15 {
			t.Errorf("%d critical sends and %d promotions in 15 s, want all of %d to be critical and the rest of %d to be promotions", got, others, limit/5*15, limit*15)
		}
		if _, longest := passwords.so(); longest > 2*(every+apart+answered)+waits {
			t.Errorf("critical sends waited up to %v", longest)
		}
	})
}

// While the first lane waits no other one of its worker takes anything, however much the
// first one has had.
func TestTheFirstLaneGoesFirstWhateverItHad(t *testing.T) {
	o := Options{Fleet: "f", Member: "m", Factors: DefaultFactors(), Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), Limit: 1e6, Lanes: lanes}
	rs, err := New(refusing{}, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	l, now := rs.Limit(), time.Now()
	l.rate.out.others = []slot{{from: now.Add(-time.Second), step: time.Millisecond, lapses: now.Add(time.Hour), sends: 1 << 20}}
	passwords, promotions := l.Lane(critical), l.Lane(promotional)
	if got, _ := passwords.Take(now, 1001); got != 1001 {
		t.Fatalf("%d taken of the 1001 that are due", got)
	}
	if got, _ := passwords.Take(now, 1); got != 0 {
		t.Fatal("more is taken than is due")
	}
	now = now.Add(10 * time.Millisecond)
	if got, again := promotions.Take(now, 10); got != 0 || !again.After(now) {
		t.Errorf("%d promotions go before a critical send that waits; next at %v", got, again.Sub(now))
	}
	if got, _ := passwords.Take(now, 1); got != 1 {
		t.Error("the critical send still waits")
	}
	if got, _ := promotions.Take(now, 10); got != 9 {
		t.Errorf("%d promotions go when none waits, want the 9 that are left", got)
	}
}

// What is returned is there for as long as it was granted, and no longer.
func TestWhatIsReturnedLapses(t *testing.T) {
	o := Options{Fleet: "f", Member: "m", Factors: DefaultFactors(), Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), Limit: 1e6, Lanes: lanes}
	rs, err := New(refusing{}, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	l, now := rs.Limit(), time.Now()
	lapses := now.Add(unused)
	l.rate.out.others = []slot{{from: now, lapses: lapses, sends: 10}}
	lane := l.Lane(promotional)
	if got, _ := lane.Take(now, 10); got != 10 {
		t.Fatalf("%d taken of 10", got)
	}
	lane.Return(now, 10)
	if got, _ := lane.Take(lapses.Add(-time.Millisecond), 1); got != 1 {
		t.Error("what was returned cannot be taken again")
	}
	if got, _ := lane.Take(lapses.Add(time.Millisecond), 10); got != 0 {
		t.Errorf("%d taken of what has lapsed", got)
	}
}
