package rates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// told is a worker as a script of the test's moves it: what it knows, and answers that
// it has not told: late ones to what was sent in an epoch before, and hidden when some
// of them came while it was away.
type told struct {
	store        *store
	knows        State
	good, failed int
	over         int
	late         int
	hidden       bool
	seen         seen
}

// windows is what a model knows of what the provider has taken: of each part of a window
// since when nothing is missing.
type windows struct {
	since  time.Time
	at     int64 // the part of the last ask
	parts  map[int64]int
	untold int // by workers that know nothing of windows, of the epoch that is going on
}

// ask counts what a worker tells at a time, or begins anew, and returns what is known.
// Of a fleet that is born nothing can be missing.
func (w *windows) ask(now time.Time, n int, anew, born bool) int {
	at := now.UnixMicro() / (window / parts).Microseconds()
	if gap := time.Duration(at-w.at-1) * (window / parts); anew || w.parts == nil || gap > memberFor {
		*w = windows{since: now, parts: map[int64]int{}}
	}
	if born {
		w.since = now.Add(-window)
	}
	w.at = at
	w.parts[at] += n + w.untold
	w.untold = 0
	if now.Sub(w.since) < window {
		return -1
	}
	sum := 0
	for i := at - parts - 1; i <= at; i++ {
		sum += w.parts[i]
	}
	return sum
}

// window is a provider's, of a test.
const window = time.Minute

// The rate in Redis, with workers that ask in any order, die, and find it empty or as it
// was a while ago, is that of a model in which all happens one after the other in one
// place: it changes by answers to sends of its own epoch alone, once for each epoch, and
// is never above what it was before a loss, and never a pinned base. What the provider has
// taken in the last minute is known as soon as nothing of it can be missing, and is that of
// one place, too; the last worker is of a release that does not tell it.
func TestTheSharedRateIsThatOfOnePlace(t *testing.T) {
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	client := shardstest.Connect(t, redis.Addr())
	tries := 0
	rapid.Check(t, func(t *rapid.T) {
		tries++
		f := DefaultFactors()
		const base = 1000.0
		clock := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		redis.Mini.SetTime(clock)
		workers := make([]*told, 3)
		born := func(i int) *told {
			w := &told{store: &store{client: client, key: fmt.Sprint("r:test:", tries), member: fmt.Sprint(i), base: base, window: window}, knows: State{Rate: base}, seen: seen{taken: -1}}
			if i == 2 {
				w.store.window = 0
			}
			return w
		}
		for i := range workers {
			workers[i] = born(i)
		}
		// The model: the state, what the answers of its epoch are, and since when.
		var one State
		var good, windowGood, windowFailed int
		var changed, began time.Time
		var taken windows
		asked := map[int]time.Time{} // by worker that Redis knows
		fresh := func(s State) {
			one, good, windowGood, windowFailed, changed, began = s, 0, 0, 0, clock, clock
			taken.untold = 0
		}
		for range rapid.IntRange(1, 60).Draw(t, "moves") {
			i := rapid.IntRange(0, len(workers)-1).Draw(t, "worker")
			w := workers[i]
			switch rapid.SampledFrom([]string{"ask", "ask", "ask", "answers", "answers", "time", "crash", "loss"}).Draw(t, "move") {
			case "answers":
				w.good += rapid.IntRange(0, 300).Draw(t, "good")
				w.failed += rapid.SampledFrom([]int{0, 0, 1, 50}).Draw(t, "failed")
				w.over += rapid.SampledFrom([]int{0, 0, 0, 1, 10_000}).Draw(t, "over")
				w.late += rapid.SampledFrom([]int{0, 0, 7}).Draw(t, "late")
				w.hidden = w.hidden || rapid.IntRange(0, 30).Draw(t, "hidden") == 30
			case "time":
				clock = clock.Add(time.Duration(rapid.IntRange(1, rapid.SampledFrom([]int{300, 4000, 4000, 70_000}).Draw(t, "most")).Draw(t, "ms")) * time.Millisecond)
				redis.Mini.SetTime(clock)
			case "crash":
				workers[i] = born(i)
			case "loss":
				redis.Mini.FlushAll()
				one, taken = State{}, windows{}
				clear(asked)
			case "ask":
				a := ask{known: w.knows, good: w.good, failed: w.failed, taken: w.good + w.late}
				if w.hidden {
					a.taken = -1
				}
				all := w.seen
				all.good, all.recentGood, all.recentFailed, all.overQuota = all.good+w.good, all.recentGood+w.good, all.recentFailed+w.failed, w.over
				all.refused = time.Minute
				next, cause := f.next(base, w.store.window, w.knows, all)
				if cause != "" {
					a.proposed = &next
				}
				g, err := w.store.exchange(context.Background(), &a)
				if err != nil {
					t.Fatal(err)
				}
				for j, at := range asked {
					if j != i && clock.Sub(at) >= memberFor {
						delete(asked, j)
					}
				}
				untold, there := taken.untold, !asked[i].IsZero()
				asked[i] = clock
				counts, lost, born := w.store.window > 0, false, one.Epoch == 0 && w.knows.Epoch == 0
				switch {
				case one.Epoch == 0: // lost, or never there
					lost = w.knows.Epoch > 0
					s := w.knows
					s.Epoch++
					fresh(s)
				case w.knows.Epoch > one.Epoch || w.knows.Epoch == one.Epoch && w.knows.Rate != one.Rate:
					s := one
					if w.knows.Rate < one.Rate {
						s = w.knows
					}
					s.Epoch, lost = max(w.knows.Epoch, one.Epoch)+1, true
					fresh(s)
				case w.knows.Epoch < one.Epoch: // its answers are stale
				case cause != "":
					fresh(next)
				default:
					if clock.Sub(began) > recently {
						began, windowGood, windowFailed = clock, 0, 0
					}
					good, windowGood, windowFailed = good+w.good, windowGood+w.good, windowFailed+w.failed
					if !counts {
						taken.untold += w.good
					}
				}
				want := seen{age: clock.Sub(changed), good: good, recentGood: windowGood, recentFailed: windowFailed, peak: g.seen.peak, taken: -1}
				if counts {
					taken.untold = untold
					want.taken = taken.ask(clock, max(a.taken, 0), lost || w.hidden || w.knows.Epoch > 0 && !there, born)
					w.hidden, w.late = false, 0
				}
				if g.state != one || g.seen != want {
					t.Fatalf("Redis has %+v and %+v, want %+v and %+v", g.state, g.seen, one, want)
				}
				w.knows, w.seen, w.good, w.failed, w.over = g.state, g.seen, 0, 0, 0
			}
		}
	})
}

// What is granted to all stays under the rate and what can be granted ahead, whatever
// is asked; where nothing can be kept for urgent sends, one of these may go beyond.
func TestGrantsStayUnderTheRate(t *testing.T) {
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	client := shardstest.Connect(t, redis.Addr())
	tries := 0
	rapid.Check(t, func(t *rapid.T) {
		tries++
		base := rapid.SampledFrom([]float64{1, 7, 500, 10_000, 1e9}).Draw(t, "base")
		clock := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		redis.Mini.SetTime(clock)
		start, granted := clock, 0
		for range rapid.IntRange(1, 60).Draw(t, "asks") {
			s := &store{client: client, key: fmt.Sprint("r:grants:", tries), member: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "member"), base: base}
			most := int(2 * base)
			a := ask{known: State{Rate: base}, want: rapid.IntRange(0, most).Draw(t, "want"), urgent: rapid.IntRange(0, most).Draw(t, "urgent")}
			a.demand = a.want
			g, err := s.exchange(context.Background(), &a)
			if err != nil {
				t.Fatal(err)
			}
			granted += g.sends + g.urgent
			chunk := max(ahead, time.Duration(float64(time.Second)/base))
			beyond := 1.0
			if base*chunk.Seconds()*kept < 1 {
				beyond++
			}
			if most := base*(clock.Sub(start)+chunk+behind).Seconds() + beyond; float64(granted) > most {
				t.Fatalf("%d granted within %v at %v a second, want at most %v", granted, clock.Sub(start), base, most)
			}
			if g.sends > a.want+a.urgent || g.urgent > a.urgent {
				t.Fatalf("granted %+v to one who wants %+v", g, a)
			}
			clock = clock.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			redis.Mini.SetTime(clock)
		}
	})
}

// onEach runs a test on the embedded Redis, and on a real one, whose Lua is another.
func onEach(t *testing.T, test func(t *testing.T, client shards.Client)) {
	t.Run("embedded", func(t *testing.T) { test(t, shardstest.Start(t)) })
	t.Run("real", func(t *testing.T) { test(t, shardstest.Connect(t, localtest.Require(t).Redis)) })
}

// What stands in Redis and no worker wrote is no rate: it makes way for what workers know.
func TestWhatNoWorkerWroteMakesWay(t *testing.T) {
	onEach(t, func(t *testing.T, client shards.Client) {
		s := &store{client: client, key: "r:test:strange", member: "a", base: 1000}
		known := State{Epoch: 7, Rate: 640, Mark: 800}
		for why, write := range map[string]func() error{
			"a text":          func() error { return client.Set(t.Context(), s.key, "x", 0).Err() },
			"words":           func() error { return client.HSet(t.Context(), s.key, "e", "x", "r", "y", "k", "", "s", "nan?").Err() },
			"half of it":      func() error { return client.HSet(t.Context(), s.key, "e", "9").Err() },
			"a member's junk": func() error { return client.HSet(t.Context(), s.key, "mb", "soon").Err() },
		} {
			client.Del(t.Context(), s.key)
			if err := write(); err != nil {
				t.Fatal(err)
			}
			g, err := s.exchange(t.Context(), &ask{known: known})
			if err != nil || g.state.Rate != known.Rate || g.state.Epoch <= known.Epoch || g.changed != "lost" {
				t.Errorf("%s: %+v, %v; want what the worker knew", why, g, err)
			}
		}
		client.Del(context.Background(), s.key)
	})
}

// A step is made once for an epoch, whoever proposes it; what another worker knows from
// before is passed over, and what it knows from later, because Redis has lost it, is
// believed if it is lower.
func TestAStepIsMadeOncePerEpoch(t *testing.T) {
	onEach(t, func(t *testing.T, client shards.Client) {
		key := "r:test:steps"
		client.Del(t.Context(), key)
		a, b := &store{client: client, key: key, member: "a", base: 1000}, &store{client: client, key: key, member: "b", base: 1000}
		ask := func(s *store, a ask, want State, changed string, members int) {
			t.Helper()
			if g, err := s.exchange(t.Context(), &a); err != nil || g.state != want || g.changed != changed || g.members != members {
				t.Fatalf("%+v, %v; want %+v, changed %q, %d members", g, err, want, changed, members)
			}
		}
		fresh, one := State{Rate: 1000}, State{Epoch: 1, Rate: 1000}
		two, three := State{Epoch: 2, Rate: 800.5, Mark: 1000}, State{Epoch: 3, Rate: 640.25, Mark: 800.5}
		ask(a, askOf(fresh), one, "", 1)
		ask(b, askOf(fresh), one, "", 2)
		proposal := askOf(one)
		proposal.proposed = &two
		ask(a, proposal, two, "proposed", 2)
		ask(b, proposal, two, "", 2) // the same, too late
		ask(b, askOf(two), two, "", 2)
		proposal = askOf(two)
		proposal.proposed = &three
		ask(b, proposal, three, "proposed", 2)
		client.Del(t.Context(), key)
		ask(a, askOf(two), State{Epoch: 3, Rate: 800.5, Mark: 1000}, "lost", 1)
		ask(b, askOf(three), State{Epoch: 4, Rate: 640.25, Mark: 800.5}, "lost", 2)
		if err := b.leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		four := State{Epoch: 4, Rate: 640.25, Mark: 800.5}
		ask(a, askOf(four), four, "", 1)
		want := askOf(four)
		want.want, want.demand, want.urgent = 1<<40, 1<<40, 3
		if g, err := a.exchange(t.Context(), &want); err != nil || g.urgent != 3 || g.sends < 80 || g.sends > 130 {
			t.Errorf("granted %+v, %v; want 3 urgent ones and a fifth of a second but for what is kept", g, err)
		}
		client.Del(context.Background(), key)
	})
}

// What a 429 has to say is not lost because another worker, which saw none, steps up while
// it waits for the answers to what else was under way.
func TestA429ThatWaitsStopsAStepUp(t *testing.T) {
	onEach(t, func(t *testing.T, client shards.Client) {
		key := "r:test:waits"
		client.Del(t.Context(), key)
		a, b := &store{client: client, key: key, member: "a", base: 1000, window: window}, &store{client: client, key: key, member: "b", base: 1000, window: window}
		low, up, down := State{Epoch: 3, Rate: 200, Mark: 400}, State{Epoch: 4, Rate: 360, Mark: 400}, State{Epoch: 5, Rate: 100, Mark: 100}
		ask := func(s *store, a ask, want State) {
			t.Helper()
			if g, err := s.exchange(t.Context(), &a); err != nil || g.state != want {
				t.Fatalf("%+v, %v; want %+v", g, err, want)
			}
		}
		ask(a, askOf(State{Epoch: 2, Rate: 200, Mark: 400}), low)
		waits := askOf(low)
		waits.judging = true
		ask(a, waits, low)
		steps := askOf(low)
		steps.proposed, steps.good = &up, 30
		g, err := b.exchange(t.Context(), &steps)
		if err != nil || g.state != low || g.seen.good != 30 {
			t.Fatalf("a step up beside a 429 that waits: %+v, %v; want %+v, and that the answers count", g, err, low)
		}
		lowers := askOf(low)
		lowers.proposed = &down
		down.Epoch = 4
		ask(a, lowers, down)
		client.HDel(t.Context(), key, "ow") // long ago
		up.Epoch = 5
		steps.known = down
		ask(b, steps, up)
		client.Del(context.Background(), key)
	})
}

// A worker says that it has 429s which are not judged yet, until they are.
func TestA429WaitsForOtherAnswers(t *testing.T) {
	o := Options{Fleet: "f", Member: "m", Factors: DefaultFactors(), Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
	rs, err := New(refusing{}, map[push.Route]Counted{shop: {shopRate, 1000, window}}, o)
	if err != nil {
		t.Fatal(err)
	}
	r, now := rs.Of(shop), time.Now()
	r.seen.taken, r.told = 30_000, now.Add(-time.Hour)
	r.Answered(now, 0, 0, 1, 0)
	if a, cause := r.ask(now); !a.judging || cause != "" {
		t.Errorf("right after a 429: %+v, %q; want that it waits", a, cause)
	}
	if a, cause := r.ask(now.Add(settling)); a.judging || cause != CauseQuota || a.proposed.Mark != 500 {
		t.Errorf("half a second later: %+v, %q; want a step to what was taken", a, cause)
	}
}

// When Redis has lost all and a new worker asks first, it is not a new fleet whose sends of
// the last minute are all known: the next worker that was there before shows it.
func TestAnEmptiedRedisIsNoNewFleet(t *testing.T) {
	onEach(t, func(t *testing.T, client shards.Client) {
		key := "r:test:emptied"
		client.Del(t.Context(), key)
		old, fresh := &store{client: client, key: key, member: "old", base: 1000, window: window}, &store{client: client, key: key, member: "new", base: 1000, window: window}
		one := State{Epoch: 1, Rate: 1000}
		tell := func(s *store, known State, n, taken int) {
			t.Helper()
			a := ask{known: known, taken: n}
			if g, err := s.exchange(t.Context(), &a); err != nil || g.state != one || g.seen.taken != taken {
				t.Fatalf("%+v, %v; want %+v and %d taken", g, err, one, taken)
			}
		}
		tell(old, State{Rate: 1000}, 50_000, 50_000)
		client.Del(t.Context(), key)
		tell(fresh, State{Rate: 1000}, 0, 0)
		tell(old, one, 100, -1)
		tell(fresh, one, 100, -1)
		client.Del(context.Background(), key)
	})
}

func askOf(s State) ask { return ask{known: s} }

func TestAnswersThatAreNoGrant(t *testing.T) {
	good := []string{"3", "100", "0", "0", "0", "0", "0", "0", "0", "1", "0", "5", "0", "0", "-1", ""}
	if g, ok := readGrant(good); !ok || g.state != (State{Epoch: 3, Rate: 100}) || g.sends != 5 {
		t.Fatalf("%+v, %v", g, ok)
	}
	for i, bad := range map[int]string{0: "x", 1: "-1", 4: "nan", 9: "0", 11: "-1", 13: "1e300"} {
		answer := append([]string(nil), good...)
		answer[i] = bad
		if g, ok := readGrant(answer); ok {
			t.Errorf("value %d = %s: %+v", i, bad, g)
		}
	}
	if _, ok := readGrant(good[1:]); ok {
		t.Error("took an answer that is too short")
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	client := shardstest.Start(t)
	bank := push.Route{Platform: push.FCM, App: "bank"}
	good := map[push.Route]Counted{shop: {shopRate, 500, 0}, bank: {shopRate, 500, 0}}
	options := func() Options {
		return Options{Fleet: "f", Member: "m", Factors: DefaultFactors(), Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
	}
	rs, err := New(client, good, options())
	if err != nil || rs.Of(shop) == nil || rs.Of(shop) != rs.Of(bank) || rs.Of(push.Route{}) != nil {
		t.Fatalf("%+v, %v; want that two apps of a project share a rate", rs, err)
	}
	for why, spoil := range map[string]func(o *Options) map[push.Route]Counted{
		"no fleet":  func(o *Options) map[push.Route]Counted { o.Fleet = ""; return good },
		"no member": func(o *Options) map[push.Route]Counted { o.Member = ""; return good },
		"no step":   func(o *Options) map[push.Route]Counted { o.Factors.OverQuota = 1; return good },
		"no share":  func(o *Options) map[push.Route]Counted { o.Factors.FailingShare = 0; return good },
		"no floor":  func(o *Options) map[push.Route]Counted { o.Factors.Floor = 0; return good },
		"no growth": func(o *Options) map[push.Route]Counted { o.Factors.Growth = 1; return good },
		"no name":   func(*Options) map[push.Route]Counted { return map[push.Route]Counted{shop: {"", 5, 0}} },
		"too slow":  func(*Options) map[push.Route]Counted { return map[push.Route]Counted{shop: {"a", 0.5, 0}} },
		"two bases": func(*Options) map[push.Route]Counted {
			return map[push.Route]Counted{shop: {"a", 5, 0}, bank: {"a", 6, 0}}
		},
		"two windows": func(*Options) map[push.Route]Counted {
			return map[push.Route]Counted{shop: {"a", 5, time.Minute}, bank: {"a", 5, 0}}
		},
		"short window": func(*Options) map[push.Route]Counted { return map[push.Route]Counted{shop: {"a", 5, time.Millisecond}} },
		"endless time": func(o *Options) map[push.Route]Counted { o.Factors.GrowthAfter = 0; return good },
	} {
		o := options()
		if _, err := New(client, spoil(&o), o); err == nil {
			t.Errorf("%s: got no error", why)
		}
	}
}

// refusing is a Redis that is away.
type refusing struct{ shards.Client }

var errAway = errors.New("away")

// A worker that has never reached Redis knows nothing of the others: it takes so little that a
// hundred of them keep the rate.
func TestAWorkerThatHasNeverReachedRedis(t *testing.T) {
	o := Options{Fleet: "f", Member: "m", Factors: DefaultFactors(), Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
	rs, err := New(refusing{}, map[push.Route]Counted{shop: {shopRate, 1000, 0}}, o)
	if err != nil {
		t.Fatal(err)
	}
	r, now, sent := rs.Of(shop), time.Now(), 0
	for end := now.Add(20 * time.Second); now.Before(end); now = now.Add(10 * time.Millisecond) {
		if now.Sub(r.asked) >= every {
			a, cause := r.ask(now)
			r.mu.Lock()
			r.alone(now, &a, cause, errAway)
			r.mu.Unlock()
		}
		got, _, _ := r.Take(now, false, 256)
		sent += got
	}
	if sent < 150 || sent > 200+10 {
		t.Errorf("sent %d in 20 s, want 10 a second less what is kept for urgent sends, and at most a second's ahead", sent)
	}
}

// What a push costs of the shared rate: takes and answers come in groups.
func BenchmarkRate(b *testing.B) {
	const group = 64
	for _, base := range []float64{0, 1e9} {
		b.Run(fmt.Sprint("base=", base), func(b *testing.B) {
			o := Options{Fleet: "f", Member: "m", Factors: DefaultFactors(), Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
			rs, err := New(refusing{}, map[push.Route]Counted{shop: {shopRate, base, 0}}, o)
			if err != nil {
				b.Fatal(err)
			}
			r, now := rs.Of(shop), time.Now()
			r.mu.Lock()
			r.out.others = []slot{{from: now.Add(-time.Hour), lapses: now.Add(math.MaxInt64), sends: 1 << 60}}
			r.mu.Unlock()
			b.ReportAllocs()
			for n := 0; n < b.N; n += group {
				now = now.Add(time.Millisecond)
				got, epoch, _ := r.Take(now, false, group)
				if got != group {
					b.Fatalf("took %d", got)
				}
				if r.Epoch() == epoch {
					r.Answered(now, epoch, group, 0, 0)
				}
			}
		})
	}
}
