package pauses_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// workers are a fleet in virtual time that shares a Redis and sends to one provider.
type workers struct {
	t     *testing.T
	redis *embedded.Redis
	all   []*sender
	apart bool // who joins judges alone, as before an upgrade
	log   bytes.Buffer
	logs  sync.Mutex // guards log

	mu    sync.Mutex // guards all below
	down  bool       // the provider
	sends []send
}

// Write makes workers the target of a log.
func (f *workers) Write(p []byte) (int, error) {
	f.logs.Lock()
	defer f.logs.Unlock()
	return f.log.Write(p)
}

// send is what a worker sent, and what became of it.
type send struct {
	at     time.Time
	worker int
	bad    bool
}

// sender is one worker.
type sender struct {
	*workers
	n       int
	gates   *gates.Gates
	gate    *gates.Gate
	stop    context.CancelFunc
	running sync.WaitGroup

	cut bool // from the provider; guarded by workers.mu
}

const answersAfter = 50 * time.Millisecond

// inFleet runs a test with workers that send perSecond each.
func inFleet(t *testing.T, n int, perSecond float64, test func(f *workers)) {
	synctest.Test(t, func(t *testing.T) {
		redis, err := embedded.StartPipeRedis()
		if err != nil {
			t.Fatal(err)
		}
		f := &workers{t: t, redis: redis}
		for range n {
			f.join(perSecond)
		}
		test(f)
		for _, w := range f.all {
			w.kill()
		}
		time.Sleep(2 * time.Second) // go-redis looks once more for a server that was away
		redis.Close()
		synctest.Wait()
	})
}

func (f *workers) join(perSecond float64) *sender {
	w := &sender{workers: f, n: len(f.all)}
	o := shards.DefaultOptions()
	o.Addrs, o.Dialer = []string{f.redis.Addr()}, f.redis.Dial
	client, err := shards.Open(o)
	if err != nil {
		f.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(f, nil))
	options := gates.DefaultOptions()
	options.Together = !f.apart
	store, err := pauses.New(client, pauses.Options{Fleet: fleet, Longest: time.Hour, Log: log, Member: fmt.Sprint("w", w.n), Probes: options.FirstProbes,
		ProbeTimeout: options.ProbeTimeout, FirstPause: options.FirstPause, LongestPause: options.LongestPause})
	if err != nil {
		f.t.Fatal(err)
	}
	w.gates, err = gates.New([]push.Route{fcmShop}, options, gates.NewMetrics(prometheus.NewRegistry()), log, time.Now())
	if err != nil {
		f.t.Fatal(err)
	}
	w.gate = w.gates.Of(fcmShop)
	var ctx context.Context
	ctx, w.stop = context.WithCancel(f.t.Context())
	w.running.Go(func() { w.gates.Share(ctx, store); _ = client.Close() })
	w.running.Go(func() { w.send(ctx, perSecond) })
	f.all = append(f.all, w)
	return w
}

// kill ends a worker, with what it has leased.
func (w *sender) kill() {
	w.stop()
	w.running.Wait()
}

// send sends one push after the other, as long as the gate lets it.
func (w *sender) send(ctx context.Context, perSecond float64) {
	gap := time.Duration(float64(time.Second) / perSecond)
	select {
	case <-time.After(time.Duration(rand.Float64() * float64(gap))):
	case <-ctx.Done():
	}
	var answers sync.WaitGroup
	defer answers.Wait()
	for ctx.Err() == nil {
		now := time.Now()
		ticket, n, again, _ := w.gate.Admit(now, gates.Free, false, 1)
		wait := gap
		if n == 0 {
			wait = min(again.Sub(now), 50*time.Millisecond) // as pipeline.submit does
		} else {
			w.mu.Lock()
			bad := w.down || w.cut
			w.sends = append(w.sends, send{now, w.n, bad})
			conn := uint32(1 + len(w.sends)%2)
			w.mu.Unlock()
			answers.Go(func() {
				time.Sleep(answersAfter)
				r := push.Result{Class: push.Delivered, Certainty: push.Accepted, Conn: conn}
				if bad {
					r = push.Result{Class: push.Again, Scope: push.ScopeRoute, Certainty: push.Ambiguous, Conn: conn}
				}
				gates.Return(time.Now(), []gates.Answer{{Ticket: ticket, Result: &r}})
			})
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (f *workers) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// since returns the sends since a time, in their order.
func (f *workers) since(at time.Time) (sends []send) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sends {
		if !s.at.Before(at) {
			sends = append(sends, s)
		}
	}
	return sends
}

// rounds groups sends by pauses between them of at least half a second, and returns how many
// there are and of how many workers.
func rounds(sends []send) (rounds [][2]int) {
	var last time.Time
	of := map[int]bool{}
	for _, s := range sends {
		if last.IsZero() || s.at.Sub(last) > 500*time.Millisecond {
			rounds = append(rounds, [2]int{})
			clear(of)
		}
		last, of[s.worker] = s.at, true
		r := &rounds[len(rounds)-1]
		r[0]++
		r[1] = len(of)
	}
	return rounds
}

// open reports how many workers send freely.
func (f *workers) open() (n int) {
	at := time.Now().Add(-2 * time.Second)
	sent := map[int]bool{}
	for _, s := range f.since(at) {
		sent[s.worker] = sent[s.worker] || !s.bad
	}
	for _, ok := range sent {
		if ok {
			n++
		}
	}
	return n
}

// 18 workers send three probes together, of two of them, and are all back soon after
// the provider is.
func TestAFleetProbesTogether(t *testing.T) {
	inFleet(t, 18, 50, func(f *workers) {
		time.Sleep(5 * time.Second)
		f.set(func() { f.down = true })
		time.Sleep(9 * time.Second) // more than half of ten seconds' answers are bad
		from := time.Now()
		time.Sleep(3 * time.Minute)
		all := rounds(f.since(from))
		for i, r := range all {
			if r[0] > 3 || r[1] > 2 {
				t.Errorf("round %d is of %d probes of %d workers, want at most 3 of 2", i, r[0], r[1])
			}
		}
		if len(all) < 4 || len(all) > 12 {
			t.Errorf("%d rounds in 3 minutes: %v", len(all), all)
		}
		f.set(func() { f.down = false })
		back := time.Now()
		for f.open() < 18 && time.Since(back) < 3*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("rounds in the outage: %v; all are back after %v", all, time.Since(back))
		if took := time.Since(back); took > 75*time.Second {
			t.Errorf("all are back after %v, want at most the longest pause and some seconds", took)
		}
	})
}

// While a fleet is upgraded some judge together and others alone. The former probe in rounds of
// their own, also when Redis has forgotten all of them, and everybody is back after an outage.
func TestSomeJudgeTogether(t *testing.T) {
	inFleet(t, 3, 20, func(f *workers) {
		f.apart = true
		f.join(20)
		f.join(20)
		time.Sleep(3 * time.Second)
		f.set(func() { f.down = true })
		time.Sleep(7 * time.Second)
		from := time.Now()
		time.Sleep(20 * time.Second)
		f.redis.Wipe()
		time.Sleep(20 * time.Second)
		var together []send
		for _, s := range f.since(from) {
			if s.worker < 3 {
				together = append(together, s)
			}
		}
		for i, r := range rounds(together) {
			if r[0] > 3 || r[1] > 2 {
				t.Errorf("round %d is of %d probes of %d workers, want at most 3 of 2", i, r[0], r[1])
			}
		}
		f.set(func() { f.down = false })
		back := time.Now()
		for f.open() < 5 && time.Since(back) < 3*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(back); took > 75*time.Second {
			t.Errorf("all are back after %v, want at most the longest pause and some seconds", took)
		}
	})
}

// What only one worker sees closes its route and nobody else's.
func TestOneWorkersTroubleIsItsOwn(t *testing.T) {
	inFleet(t, 6, 50, func(f *workers) {
		time.Sleep(5 * time.Second)
		f.set(func() { f.all[2].cut = true })
		from := time.Now()
		time.Sleep(2 * time.Minute)
		each := map[int]int{}
		for _, s := range f.since(from) {
			each[s.worker]++
		}
		for n, w := range f.all {
			switch {
			case n == 2 && (each[n] > 400 || each[n] == 0):
				t.Errorf("the worker with the trouble has sent %d, want some", each[n])
			case n != 2 && each[n] < 50*115:
				t.Errorf("worker %d has sent %d in two minutes, want as before", w.n, each[n])
			}
		}
		f.set(func() { f.all[2].cut = false })
		time.Sleep(70 * time.Second)
		if n := f.open(); n != 6 {
			t.Errorf("%d workers send, want all 6", n)
		}
	})
}

// A worker that sends next to nothing hears from two others, and sends no more than a probe
// now and then.
func TestEvidenceOfTwoClosesAnIdleRoute(t *testing.T) {
	inFleet(t, 2, 50, func(f *workers) {
		idle := f.join(0.001)
		time.Sleep(5 * time.Second)
		f.set(func() { f.all[0].cut = true })
		time.Sleep(9 * time.Second)
		if closed := !idle.gate.Until(time.Now()).IsZero(); closed {
			t.Error("one worker's evidence closes the route of another")
		}
		f.set(func() { f.down = true })
		closed := false
		for range 200 {
			time.Sleep(50 * time.Millisecond)
			closed = closed || !idle.gate.Until(time.Now()).IsZero()
		}
		if !closed {
			t.Error("not closed within ten seconds, although two workers see nothing else")
		}
	})
}

// A worker that is killed with probes delays the others by the time-out of a probe.
func TestAWorkerThatDiesHoldingProbes(t *testing.T) {
	inFleet(t, 4, 50, func(f *workers) {
		time.Sleep(5 * time.Second)
		f.set(func() { f.down = true })
		time.Sleep(10 * time.Second)
		from, holding := time.Now(), map[int]bool{}
		for len(holding) < 2 { // a round begins, and both die before their answers
			time.Sleep(time.Millisecond)
			for _, s := range f.since(from) {
				if !holding[s.worker] {
					holding[s.worker] = true
					f.all[s.worker].stop()
				}
			}
		}
		f.set(func() { f.down = false })
		died := time.Now()
		for f.open() < 2 && time.Since(died) < 5*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("the others are back after %v", time.Since(died))
		if took := time.Since(died); took > 15*time.Second+35*time.Second {
			t.Errorf("the others are back after %v", took)
		}
	})
}

// Without Redis each worker is alone, and with it again they are together.
func TestRedisIsAwayInTheMiddle(t *testing.T) {
	inFleet(t, 6, 50, func(f *workers) {
		time.Sleep(5 * time.Second)
		f.set(func() { f.down = true })
		time.Sleep(20 * time.Second)
		f.redis.Close()
		time.Sleep(3 * time.Minute)
		alone := map[int]int{}
		for _, s := range f.since(time.Now().Add(-2 * time.Minute)) {
			alone[s.worker]++
		}
		if len(alone) != 6 {
			t.Errorf("%v sent without Redis, want that each probes by itself", alone)
		}
		f.set(func() { f.down = false })
		time.Sleep(75 * time.Second)
		if n := f.open(); n != 6 {
			t.Errorf("%d workers send a minute after the provider is back, want all", n)
		}
		if err := f.redis.Restart(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		f.set(func() { f.down = true })
		time.Sleep(8 * time.Second)
		from := time.Now()
		time.Sleep(2 * time.Minute)
		for i, r := range rounds(f.since(from)) {
			if r[0] > 3 {
				t.Errorf("round %d is of %d probes", i, r[0])
			}
		}
	})
}

// Whatever happens: once the provider answers well, all that are not cut from it send again,
// within the longest pause and two time-outs of a probe for each pair of workers.
func TestNoRouteStaysClosedForEver(t *testing.T) {
	for seed := range uint64(4) {
		inFleet(t, 5, 20, func(f *workers) {
			random := rand.New(rand.NewPCG(14, seed))
			away := false
			for range 15 {
				time.Sleep(time.Duration(random.IntN(20_000)) * time.Millisecond)
				switch random.IntN(5) {
				case 0, 1:
					f.set(func() { f.down = !f.down })
				case 2:
					w := f.all[random.IntN(len(f.all))]
					f.set(func() { w.cut = !w.cut })
				case 3:
					f.redis.Wipe()
				case 4:
					if away {
						if err := f.redis.Restart(); err != nil {
							t.Fatal(err)
						}
					} else {
						f.redis.Close()
					}
					away = !away
				}
			}
			if away {
				if err := f.redis.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			f.set(func() {
				f.down = false
				f.all[0].cut = true
				f.all[1].cut = true
				f.all[2].cut = false
				f.all[3].cut = false
				f.all[4].cut = false
			})
			healed := time.Now()
			well := func() bool {
				ok := map[int]int{}
				for _, s := range f.since(time.Now().Add(-2 * time.Second)) {
					if !s.bad {
						ok[s.worker]++
					}
				}
				return ok[2] > 20 && ok[3] > 20 && ok[4] > 20
			}
			for !well() && time.Since(healed) < time.Hour {
				time.Sleep(time.Second)
			}
			if took := time.Since(healed); took > 5*time.Minute {
				t.Errorf("seed %d: all are back after %v", seed, took)
			}
		})
	}
}
