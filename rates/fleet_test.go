package rates

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

func TestMain(m *testing.M) {
	shards.LogTo(slog.New(slog.DiscardHandler)) // of dials to a Redis that is away on purpose
	goleak.VerifyTestMain(m)
}

var shop = push.Route{Platform: push.FCM, App: "shop"}

const shopRate = "fcm/example-shop"

// fleet is workers that share one rate in virtual time, and the provider that they
// send to.
type fleet struct {
	t       *testing.T
	redis   *embedded.Redis
	base    float64
	limit   float64 // of the whole fleet, shared by lanes
	window  time.Duration
	ctx     context.Context
	log     bytes.Buffer
	logged  sync.Mutex // guards log
	running sync.WaitGroup
	workers []*worker
	started time.Time

	mu      sync.Mutex // guards all below
	answer  func(now time.Time) (status int)
	gate    *gated // nil = nothing stops for a 429
	latency time.Duration
	sends   []sendingOf // in the order of their times
	changes []Change
}

type sendingOf struct {
	at     time.Time
	worker int
	status int
	lane   int // 0 where nobody asked by lane
}

// Write makes fleet the target of a log.
func (f *fleet) Write(p []byte) (int, error) {
	f.logged.Lock()
	defer f.logged.Unlock()
	return f.log.Write(p)
}

// worker is one of a fleet: it has a rate, and as much to send as backlog says.
type worker struct {
	*fleet
	n     int
	rate  *Rate
	limit *Limit
	line  *line
	stop  context.CancelFunc
	ended sync.WaitGroup

	under int  // way, guarded by fleet.mu, as the next
	dead  bool // it has been killed
}

// streams is how many requests of a worker can be under way.
const streams = 1000

// inFleet runs a test with a fleet in virtual time.
func inFleet(t *testing.T, base float64, workers int, test func(f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		redis, err := embedded.StartPipeRedis()
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		f := &fleet{t: t, redis: redis, base: base, ctx: ctx, started: time.Now(), latency: 50 * time.Millisecond,
			answer: func(time.Time) int { return 200 }}
		for range workers {
			f.join()
		}
		test(f)
		stop()
		for _, w := range f.workers {
			w.ended.Wait()
		}
		f.running.Wait()
		redis.Close()
		synctest.Wait()
	})
}

// join adds a worker.
func (f *fleet) join() *worker {
	w := &worker{fleet: f, n: len(f.workers), line: &line{redis: f.redis}}
	o := shards.DefaultOptions()
	o.Addrs = []string{f.redis.Addr()}
	o.Dialer = w.line.Dial
	client, err := shards.Open(o)
	if err != nil {
		f.t.Fatal(err)
	}
	rs, err := New(client, map[push.Route]Counted{shop: {Name: shopRate, Base: f.base, Window: f.window}}, Options{
		Fleet: "test", Member: fmt.Sprint("w", w.n), Factors: DefaultFactors(), Metrics: NewMetrics(prometheus.NewRegistry()), Limit: f.limit, Lanes: lanes,
		Log: slog.New(slog.NewTextHandler(f, nil)), Tell: func(c Change) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.changes = append(f.changes, c)
		}})
	if err != nil {
		f.t.Fatal(err)
	}
	w.rate, w.limit = rs.Of(shop), rs.Limit()
	ctx, stop := context.WithCancel(f.ctx)
	w.stop = stop
	w.ended.Go(func() { rs.Run(ctx); _ = client.Close() })
	f.workers = append(f.workers, w)
	return w
}

// send sends as much as wants says there is, group by group, until the fleet ends.
// urgent sends are so.
func (w *worker) send(urgent bool, perSecond float64) {
	w.running.Go(func() {
		began, sent := time.Now(), 0
		for !w.ends() {
			now := time.Now()
			n := min(int(perSecond*now.Sub(began).Seconds())-sent, 256, w.room())
			if n <= 0 {
				time.Sleep(time.Millisecond)
				continue
			}
			if until := w.closed(now); !until.IsZero() {
				time.Sleep(until.Sub(now))
				continue
			}
			got, epoch, again := w.rate.Take(now, urgent, n)
			if got == 0 {
				time.Sleep(min(again.Sub(now), 50*time.Millisecond)) // as pipeline.submit does
				continue
			}
			sent += got
			w.reach(now, epoch, got)
		}
	})
}

func (w *worker) room() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return streams - w.under
}

// closed is until when the worker sends nothing; zero = it may send.
func (w *worker) closed(now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate == nil {
		return time.Time{}
	}
	return w.gate.closed(w.n, now)
}

// reach lets the provider have n sends, and answers them.
func (f *worker) reach(now time.Time, epoch uint32, n int) {
	f.mu.Lock()
	good, over, failed := 0, 0, 0
	for range n {
		status := f.answer(now)
		switch {
		case status == 429:
			over++
		case status >= 500:
			failed++
		default:
			good++
		}
		f.sends = append(f.sends, sendingOf{at: now, worker: f.n, status: status})
	}
	f.under += n
	latency := f.latency + rand.N(f.latency+1)/5
	f.mu.Unlock()
	f.running.Go(func() {
		time.Sleep(latency)
		f.mu.Lock()
		f.under -= n
		if over > 0 && f.gate != nil {
			f.gate.refused(f.n, time.Now())
		}
		f.mu.Unlock()
		f.rate.Answered(time.Now(), epoch, good, over, failed)
	})
}

// between counts sends by their answers, of a time since the start.
func (f *fleet) between(from, to time.Duration) (accepted, over int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sends {
		if at := s.at.Sub(f.started); at >= from && at < to {
			if s.status == 429 {
				over++
			} else if s.status == 200 {
				accepted++
			}
		}
	}
	return accepted, over
}

// densest is the most sends in any stretch of time so long.
func (f *fleet) densest(long time.Duration, worker int) (most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var at []time.Time
	for _, s := range f.sends {
		if worker < 0 || s.worker == worker {
			at = append(at, s.at)
		}
	}
	slices.SortFunc(at, func(a, b time.Time) int { return a.Compare(b) })
	for first, last := 0, 0; last < len(at); last++ {
		for at[last].Sub(at[first]) >= long {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// quota is a provider's: a bucket of a tenth of a second.
type quota struct {
	perSecond float64
	tokens    float64
	at        time.Time
}

func (q *quota) answer(now time.Time) int {
	if now.After(q.at) {
		q.tokens = min(q.tokens+q.perSecond*now.Sub(q.at).Seconds(), q.perSecond/10)
		q.at = now
	}
	if q.tokens < 1 {
		return 429
	}
	q.tokens--
	return 200
}

// Four workers with more to send than the provider takes.
func TestAFleetKeepsAQuota(t *testing.T) {
	const perSecond = 500
	for _, tt := range []struct {
		why   string
		base  float64
		usage float64
	}{
		{"the base is the quota", perSecond, 0.99},
		{"the base is four times the quota", 4 * perSecond, 0.8},
	} {
		t.Run(tt.why, func(t *testing.T) {
			inFleet(t, tt.base, 4, func(f *fleet) {
				f.answer = (&quota{perSecond: perSecond, at: time.Now()}).answer
				for _, w := range f.workers {
					w.send(false, 3*perSecond)
				}
				const settled, end = 30 * time.Second, 170 * time.Second
				time.Sleep(end)
				all, allOver := f.between(0, end)
				got, over := f.between(settled, end)
				most := perSecond * (end - settled).Seconds()
				t.Logf("accepted %d (%d refused) in all; settled %.1f %% of the quota, %.2f %% of the sends refused; %d changes",
					all, allOver, 100*float64(got)/most, 100*float64(over)/float64(got+over), len(f.changes))
				if limit := perSecond * end.Seconds() * 1.02; float64(all) > limit {
					t.Errorf("accepted %d, want at most %v", all, limit)
				}
				if float64(got) < tt.usage*most {
					t.Errorf("settled it uses %.3f of the quota, want %v", float64(got)/most, tt.usage)
				}
				if float64(over) > 0.01*float64(got+over) {
					t.Errorf("settled %d of %d sends were refused, want under 1 %%", over, got+over)
				}
				if most := f.densest(100*time.Millisecond, -1); tt.base == perSecond && float64(most) > evenly*perSecond+4 {
					t.Errorf("%d sends within 100 ms, want at most %v and one a worker", most, evenly*perSecond)
				}
			})
		})
	}
}

// rateNow is what a worker knows.
func (w *worker) rateNow() State {
	w.rate.mu.Lock()
	defer w.rate.mu.Unlock()
	return w.rate.state
}

// One worker's 429 is known to all within a second, and a storm of them is one step.
func TestAStormOfOneMomentIsOneStep(t *testing.T) {
	inFleet(t, 10_000, 4, func(f *fleet) {
		time.Sleep(2 * time.Second)
		epoch := f.workers[0].rateNow().Epoch
		for _, w := range f.workers[:2] {
			w.rate.Answered(time.Now(), epoch, 0, 5000, 0)
		}
		time.Sleep(time.Second)
		for _, w := range f.workers {
			if s := w.rateNow(); s.Rate != 8000 || s.Epoch != epoch+1 {
				t.Errorf("worker %d has %+v a second later, want one step to 8000", w.n, s)
			}
			w.rate.Answered(time.Now(), epoch, 0, 5000, 0) // late answers to what was sent before
		}
		time.Sleep(10 * time.Second)
		if s := f.workers[3].rateNow(); s.Rate != 8000 || len(f.changes) != 1 {
			t.Errorf("after answers of the epoch before: %+v, %v; want that they change nothing", s, f.changes)
		}
	})
}

// A provider of which one in a thousand answers is 503 is as fast as before; of one in
// ten it is not, and when it is well again the rate is back within seconds.
func TestAProviderThatFails(t *testing.T) {
	inFleet(t, 1000, 2, func(f *fleet) {
		n, every := 0, 1000
		f.answer = func(time.Time) int {
			if n++; n%every == 0 {
				return 503
			}
			return 200
		}
		for _, w := range f.workers {
			w.send(false, 600)
		}
		time.Sleep(time.Minute)
		if len(f.changes) > 0 {
			t.Errorf("a steady 0.1 %% of 503: %v, want no change", f.changes)
		}
		f.mu.Lock()
		every = 10
		f.mu.Unlock()
		time.Sleep(10 * time.Second)
		if s := f.workers[0].rateNow(); s.Rate > 500 {
			t.Errorf("with 10 %% of 503 the rate is %v, want at most half", s.Rate)
		}
		f.mu.Lock()
		every = 1000
		f.mu.Unlock()
		time.Sleep(20 * time.Second)
		if s := f.workers[0].rateNow(); s.Rate != 1000 {
			t.Errorf("20 s after it was well the rate is %v, want all of it", s.Rate)
		}
	})
}

// Without a base there is no limit until a 429, which begins where the fleet has been,
// and none when that has recovered.
func TestALimitWithoutABaseVanishes(t *testing.T) {
	inFleet(t, 0, 2, func(f *fleet) {
		f.workers[0].send(false, 1500)
		f.workers[1].send(false, 500)
		time.Sleep(30 * time.Second)
		if s := f.workers[1].rateNow(); s.Rate != 0 {
			t.Fatalf("%+v, want no limit", s)
		}
		f.workers[1].rate.Answered(time.Now(), f.workers[1].rateNow().Epoch, 0, 1, 0)
		time.Sleep(time.Second)
		if s := f.workers[0].rateNow(); s.Rate < 0.75*2000 || s.Rate > 0.85*2000 {
			t.Errorf("after a 429 at 2000 a second the limit is %v, want 0.8 of that", s.Rate)
		}
		time.Sleep(3 * time.Minute)
		for _, w := range f.workers {
			if s := w.rateNow(); s.Rate != 0 || s.Mark != 0 || s.Start != 0 {
				t.Errorf("worker %d has %+v three minutes later, want no limit", w.n, s)
			}
		}
	})
}

// Urgent sends wait for others' little, however many these are.
func TestUrgentSendsComeFirst(t *testing.T) {
	inFleet(t, 1000, 2, func(f *fleet) {
		for _, w := range f.workers {
			w.send(false, 5000)
		}
		time.Sleep(5 * time.Second)
		longest := time.Duration(0)
		for range 50 {
			asked := time.Now()
			for {
				got, epoch, again := f.workers[1].rate.Take(time.Now(), true, 1)
				if got > 0 {
					f.workers[1].reach(time.Now(), epoch, got)
					break
				}
				time.Sleep(time.Until(again))
			}
			longest = max(longest, time.Since(asked))
			time.Sleep(170 * time.Millisecond)
		}
		if longest > every+apart+2*answered+spreadSlice {
			t.Errorf("an urgent send waited %v, want no longer than until the next ask", longest)
		}
	})
}

// While Redis is away the workers together stay under the rate, and their own answers
// lower it; what they know then is what it begins with when it comes back empty.
func TestRedisIsAway(t *testing.T) {
	inFleet(t, 1000, 4, func(f *fleet) {
		for _, w := range f.workers[:3] {
			w.send(false, 1000)
		}
		time.Sleep(20 * time.Second)
		f.redis.Close()
		time.Sleep(5 * time.Second)
		f.workers[3].send(false, 1000) // has had nothing to send until now
		for from := 20 * time.Second; from < 40*time.Second; from += time.Second {
			time.Sleep(time.Until(f.started.Add(from + time.Second)))
			got, _ := f.between(from, from+time.Second)
			if most := 1000 * (1 + evenly); float64(got) > most {
				t.Errorf("%d sends in the second from %v on, want at most %v", got, from, most)
			}
			if from > 21*time.Second && got < 300 {
				t.Errorf("%d sends in the second from %v on, want that they go on", got, from)
			}
		}
		w := f.workers[2]
		w.rate.Answered(time.Now(), w.rateNow().Epoch, 0, 1, 0)
		time.Sleep(time.Second)
		if s := w.rateNow(); s.Rate != 800 {
			t.Errorf("after a 429 of its own a worker has %+v, want 800", s)
		}
		f.redis.Mini.FlushAll()
		if err := f.redis.Restart(); err != nil {
			t.Fatal(err)
		}
		for !f.agree() {
			time.Sleep(100 * time.Millisecond)
		}
		if s := f.workers[0].rateNow(); s.Rate > 900 {
			t.Errorf("an empty Redis has %+v, want the least that a worker knew, 800, or one round more", s)
		}
	})
}

// agree reports whether all workers know the same.
func (f *fleet) agree() bool {
	for _, w := range f.workers[1:] {
		if w.rateNow() != f.workers[0].rateNow() {
			return false
		}
	}
	return true
}

// Whatever becomes of workers and Redis, sends stay under the rate and one chunk a
// worker; a worker that is gone takes no more than its chunk with it.
func TestSendsStayUnderTheRate(t *testing.T) {
	inFleet(t, 500, 3, func(f *fleet) {
		random := rand.New(rand.NewPCG(14, 14))
		for _, w := range f.workers {
			w.send(random.IntN(2) == 0, 400)
		}
		for range 20 {
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			switch random.IntN(3) {
			case 0:
				if len(f.workers) < 6 {
					f.join().send(random.IntN(2) == 0, 400)
				}
			case 1:
				f.workers[random.IntN(len(f.workers))].stop()
			case 2:
				f.redis.Mini.FlushAll()
			}
		}
		for _, long := range []time.Duration{time.Second, 5 * time.Second} {
			// A flush forgets which slots were granted: those of one chunk are there twice.
			most := 500*long.Seconds() + 2*500*ahead.Seconds()
			if got := f.densest(long, -1); float64(got) > most {
				t.Errorf("%d sends within %v, want at most %v", got, long, most)
			}
		}
		for _, w := range f.workers {
			if got := f.densest(100*time.Millisecond, w.n); float64(got) > evenly*500 {
				t.Errorf("worker %d has sent %d within 100 ms, want at most %v", w.n, got, evenly*500)
			}
		}
	})
}
