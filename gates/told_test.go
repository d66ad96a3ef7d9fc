package gates_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// board is a pause store in memory that can fail or hang.
type board struct {
	mu    sync.Mutex
	until map[push.Route]time.Time // guarded by mu, like all below
	why   map[push.Route]gates.PauseReason
	tells int
	fails bool
	hangs bool
	slow  time.Duration // how long a Tell takes
	calls []context.Context
	stuck bool // it can be read, not written
}

func newBoard() *board {
	return &board{until: map[push.Route]time.Time{}, why: map[push.Route]gates.PauseReason{}}
}

func (b *board) away(ctx context.Context) error {
	b.mu.Lock()
	fails, hangs := b.fails, b.hangs
	b.calls = append(b.calls, ctx)
	b.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	case fails:
		return errors.New("connection refused")
	}
	return nil
}

func (b *board) Tell(ctx context.Context, ps []gates.Pause) error {
	if err := b.away(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	slow, stuck := b.slow, b.stuck
	b.mu.Unlock()
	if stuck {
		return errors.New("READONLY")
	}
	time.Sleep(slow)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tells++
	for _, p := range ps {
		if until := time.Now().Add(p.Left); until.After(b.until[p.Route]) {
			b.until[p.Route], b.why[p.Route] = until, p.Reason
		}
	}
	return nil
}

func (b *board) Told(ctx context.Context) (ps []gates.Pause, err error) {
	if err := b.away(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, until := range b.until {
		if left := time.Until(until); left > 0 {
			ps = append(ps, gates.Pause{Route: r, Reason: b.why[r], Left: left})
		}
	}
	return ps, nil
}

func (b *board) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// workerOf makes the gates of one worker, which shares them through b until
// stop.
func workerOf(t *testing.T, b *board) (gate *gateway, stop func()) {
	t.Helper()
	g := &gateway{t: t, now: time.Now(), reg: prometheus.NewRegistry()}
	var err error
	if g.gates, err = gates.New([]push.Route{fcmShop, apnsShop}, gateOptions(), gates.NewMetrics(g.reg), slog.New(slog.NewTextHandler(&g.log, nil)), g.now); err != nil {
		t.Fatal(err)
	}
	g.gate = g.gates.Of(fcmShop)
	ctx, cancel := context.WithCancel(t.Context())
	g.gates.Recall(ctx, b)
	var sharing sync.WaitGroup
	sharing.Go(func() { g.gates.Share(ctx, b) })
	return g, func() { cancel(); sharing.Wait() }
}

// pause is how long the route is still closed.
func (g *gateway) pause(r push.Route) time.Duration {
	if until := g.gates.Of(r).Until(time.Now()); !until.IsZero() {
		return time.Until(until)
	}
	return 0
}

// sendNow sends n now and answers them.
func (g *gateway) sendNow(n int, r push.Result) {
	g.t.Helper()
	g.now = time.Now()
	g.send(n, r)
}

// A provider says stop, and the process that heard it dies. Neither its
// successor nor any other worker sends before the pause is over.
func TestAPauseOutlivesWhoHeardIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		other, stopOther := workerOf(t, b)
		defer stopOther()
		other.sendNow(100, good)

		asked, kill := workerOf(t, b)
		asked.sendNow(1, askedFor(37*time.Second))
		synctest.Wait() // shared at once: no time passes
		kill()

		next, stopNext := workerOf(t, b)
		defer stopNext()
		if left := next.pause(fcmShop); left != 37*time.Second {
			t.Errorf("got a pause of %v for the successor, want 37 s", left)
		}
		if left := next.pause(apnsShop); left != 0 {
			t.Errorf("got a pause of %v for the other route, want none", left)
		}
		time.Sleep(1100 * time.Millisecond)
		if left := other.pause(fcmShop); left != 35900*time.Millisecond {
			t.Errorf("got a pause of %v for another worker a second later, want the rest of 37 s", left)
		}
		time.Sleep(36 * time.Second)
		for _, g := range []*gateway{other, next} { // the provider does not repeat it
			for n := 1; n <= 128; n *= 2 {
				g.sendNow(n, good)
				time.Sleep(time.Second)
			}
			g.sendNow(1000, good)
		}
	})
}

// A shared pause can only lengthen a pause, never shorten it.
func TestTheLongerPauseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		here, stopHere := workerOf(t, b)
		defer stopHere()
		there, stopThere := workerOf(t, b)
		defer stopThere()
		flying := there.admit(1)
		here.sendNow(1, askedFor(10*time.Second))
		time.Sleep(2500 * time.Millisecond)
		there.now = time.Now()
		there.answer(flying, askedFor(60*time.Second)) // sent before it read the shared pause
		time.Sleep(1500 * time.Millisecond)
		if left := here.pause(fcmShop); left != 58500*time.Millisecond {
			t.Errorf("got a pause of %v, want the rest of the longer one, 58.5 s", left)
		}
		b.set(func() { b.until[fcmShop] = time.Now().Add(time.Second) })
		time.Sleep(1500 * time.Millisecond)
		if left := here.pause(fcmShop); left != 57*time.Second {
			t.Errorf("got a pause of %v, want 57 s: another worker must not shorten it", left)
		}
	})
}

// Refused credentials concern only the refused worker. They keep its successor
// from starting with another refusal, once, and have no effect on workers that
// have sent.
func TestARefusedKeyStopsNoFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		healthy, stopHealthy := workerOf(t, b)
		defer stopHealthy()
		healthy.sendNow(100, good)
		wrong, stopWrong := workerOf(t, b)
		defer stopWrong()
		wrong.sendNow(1, badKey)
		synctest.Wait()
		next, stopNext := workerOf(t, b)
		defer stopNext()
		if left := next.pause(fcmShop); left != 30*time.Second {
			t.Errorf("got a wait of %v for a new worker, want the 30 s of the halt", left)
		}
		time.Sleep(2 * time.Second)
		if left := healthy.pause(fcmShop); left != 0 {
			t.Errorf("the wrong key stopped a working worker for %v", left)
		}
		time.Sleep(28 * time.Second)
		wrong.sendNow(1, badKey) // its probe: the pause doubles
		time.Sleep(2 * time.Second)
		if a, b := healthy.pause(fcmShop), next.pause(fcmShop); a != 0 || b != 0 {
			t.Errorf("the wrong key stopped a working worker for %v, and one that had waited for %v more", a, b)
		}
		next.sendNow(1, good)
	})
}

// A store that hangs or fails delays neither the start nor sends. A pause that
// could not be shared is shared when the store is back, unless it is over.
func TestAPauseStoreThatIsAway(t *testing.T) {
	for _, how := range []string{"hangs", "refuses"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard()
				b.until[fcmShop], b.why[fcmShop] = time.Now().Add(time.Minute), gates.PauseAsked
				b.fails, b.hangs = how == "refuses", how == "hangs"
				start := time.Now()
				g, stop := workerOf(t, b)
				if took := time.Since(start); took > time.Second {
					t.Errorf("got a wait of %v at start", took)
				}
				g.sendNow(100, good)
				g.sendNow(1, askedFor(20*time.Second))
				apns := sendings(1)
				admit(g.gates.Of(apnsShop), time.Now(), apns)
				apns[0].Result = askedFor(time.Hour)
				returned(time.Now(), apns)
				time.Sleep(30 * time.Second)
				b.set(func() { b.fails, b.hangs = false, false; clear(b.until) })
				time.Sleep(3 * time.Second)
				b.set(func() {
					if !b.until[fcmShop].IsZero() {
						t.Errorf("told about a pause that is over: until %v", b.until[fcmShop])
					}
					if left := time.Until(b.until[apnsShop]); left < 59*time.Minute || left > time.Hour {
						t.Errorf("got told a pause of %v, want the rest of an hour", left)
					}
				})
				stop()
				if n := strings.Count(g.log.String(), "cannot be shared"); n != 2 {
					t.Errorf("got %d log lines about the store, want one at the start and one when it fails:\n%s", n, &g.log)
				}
				if n := strings.Count(g.log.String(), "shared again"); n != 1 {
					t.Errorf("got %d log lines about its return, want 1:\n%s", n, &g.log)
				}
			})
		})
	}
}

func TestParseRoute(t *testing.T) {
	for _, r := range []push.Route{fcmShop, apnsShop, {Platform: push.APNS, App: "a.b-c_d", Environment: push.Sandbox}} {
		if got, ok := push.ParseRoute(r.String()); !ok || got != r {
			t.Errorf("wrote %v, read %v, %v", r, got, ok)
		}
	}
	for _, s := range []string{"", "/", "fcm", "fcm/", "apns//production", "apns/shop/", "wns/shop", "none/shop", "FCM/shop", " fcm/shop"} {
		if r, ok := push.ParseRoute(s); ok {
			t.Errorf("read %[2]v of %[1]q", s, r)
		}
	}
}

// A pause that arrives while the store writes earlier ones is shared next.
func TestWhatIsAskedMeanwhileIsToldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		b.slow = 300 * time.Millisecond
		g, stop := workerOf(t, b)
		defer stop()
		flying := g.admit(2)
		g.answer(flying[:1], askedFor(10*time.Second))
		time.Sleep(100 * time.Millisecond)
		g.now = time.Now()
		g.answer(flying[1:], askedFor(time.Minute))
		time.Sleep(900 * time.Millisecond)
		b.set(func() {
			if left := time.Until(b.until[fcmShop]); left < 59*time.Second {
				t.Errorf("got a pause of %v at the others, want a minute", left)
			}
		})
	})
}

// A store that can only be read is as good as away to the others, and the log says so.
func TestAPauseStoreThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		g, stop := workerOf(t, b)
		defer stop()
		b.set(func() { b.stuck = true })
		g.sendNow(1, askedFor(time.Minute))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if log := g.log.String(); strings.Count(log, "cannot be shared") != 1 || !strings.Contains(log, "sharing pauses: READONLY") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// Of what could not be told yet, the pause that ends last is told.
func TestTheLongestUntoldPauseIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		g, stop := workerOf(t, b)
		defer stop()
		b.set(func() { b.fails = true })
		flying := g.admit(3)
		for i, asked := range []time.Duration{20 * time.Second, time.Minute, 10 * time.Second} {
			g.answer(flying[i:i+1], askedFor(asked))
		}
		time.Sleep(2500 * time.Millisecond)
		b.set(func() { b.fails = false })
		time.Sleep(time.Second)
		b.set(func() {
			if left := time.Until(b.until[fcmShop]); left != 56500*time.Millisecond {
				t.Errorf("got a pause of %v at the others, want the rest of a minute", left)
			}
		})
	})
}

// The end of a pause that was this worker's own stops no route again; who hears of
// another one says so in the log.
func TestWhatIsLeftOfAPauseMayBeAnEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		b.until[fcmShop], b.why[fcmShop] = time.Now().Add(100*time.Millisecond), gates.PauseAsked
		b.until[apnsShop], b.why[apnsShop] = time.Now().Add(101*time.Millisecond), gates.PauseAsked
		g, stop := workerOf(t, b)
		defer stop()
		if echo, other := g.pause(fcmShop), g.pause(apnsShop); echo != 0 || other != 101*time.Millisecond {
			t.Errorf("got pauses of %v and %v, want none and 101 ms", echo, other)
		}
		if log := g.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "route=apns/shop/production reason=told answer=retry_after") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// In a storm of answers that say stop, the store is written ten times a second.
// The last pause is shared too, even by a worker that ends at once.
func TestAStormIsToldInFewWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		g, stop := workerOf(t, b)
		flying := g.admit(2000)
		for i := range flying {
			time.Sleep(time.Millisecond)
			g.now = time.Now()
			g.answer(flying[i:i+1], askedFor(time.Minute))
		}
		stop()
		b.set(func() {
			if b.tells > 25 || b.tells < 15 {
				t.Errorf("got %d messages in 2 s", b.tells)
			}
			if left := time.Until(b.until[fcmShop]); left != time.Minute {
				t.Errorf("the last told pause ends in %v, want a minute", left)
			}
		})
	})
}

// The context of a call to the store ends with the call: no timer outlives it. A
// store that hangs delays the end of a worker by a quarter of a second.
func TestCallsOfThePauseStoreLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		g, stop := workerOf(t, b)
		ended := func(what string, calls int) {
			t.Helper()
			b.set(func() {
				if len(b.calls) != calls {
					t.Errorf("%s: got %d calls, want %d", what, len(b.calls), calls)
				}
				for i, ctx := range b.calls {
					if ctx.Err() == nil {
						t.Errorf("%s: the context of call %d lives on", what, i)
					}
				}
			})
		}
		b.set(func() { b.fails = true })
		g.sendNow(1, askedFor(time.Minute))
		synctest.Wait()
		ended("recalled and told", 2)
		b.set(func() { b.hangs = true })
		end := time.Now()
		stop() // tells once more what the store refused
		ended("the last word", 3)
		if took := time.Since(end); took != 250*time.Millisecond {
			t.Errorf("got an end after %v, want 250 ms", took)
		}
	})
}

// What the store has is not told again, and a store that works is not worth a word.
func TestAPauseIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		g, stop := workerOf(t, b)
		defer stop()
		synctest.Wait()
		if g.log.Len() > 0 {
			t.Errorf("the log of a start:\n%s", &g.log)
		}
		g.sendNow(1, askedFor(time.Minute))
		time.Sleep(5 * time.Second)
		b.set(func() {
			if b.tells != 1 {
				t.Errorf("told %d times, want 1", b.tells)
			}
		})
	})
}

// What a worker takes from the store is bounded, and only about its own routes.
func TestWhatIsToldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		b.until[push.Route{Platform: push.FCM, App: "unknown"}] = time.Now().Add(time.Hour)
		b.until[fcmShop], b.why[fcmShop] = time.Now().Add(time.Hour+time.Minute), gates.PauseAsked
		b.until[apnsShop], b.why[apnsShop] = time.Now().Add(time.Hour), gates.PauseAsked
		g, stop := workerOf(t, b)
		defer stop()
		if left := g.pause(fcmShop); left != 0 {
			t.Errorf("an overlong pause was obeyed for %v", left)
		}
		if left := g.pause(apnsShop); left != time.Hour {
			t.Errorf("got a pause of %v, want an hour", left)
		}
	})
}
