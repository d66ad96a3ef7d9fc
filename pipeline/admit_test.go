package pipeline_test

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// stopping is a provider that asks for a pause once, after some answers, and
// notes what it is sent meanwhile.
type stopping struct {
	provider
	after time.Duration // what it asks for
	left  int           // answers before it asks; guarded by w.mu

	until  time.Time // end of the pause; guarded by w.mu
	within int       // sends that began in it; guarded by w.mu
}

func (p *stopping) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.w.mu.Lock()
		began := time.Now()
		if began.Before(p.until) {
			p.within++
		}
		p.left--
		asks := p.left == 0
		p.w.mu.Unlock()
		p.out.Go(func() {
			time.Sleep(20 * time.Millisecond)
			d.Result = push.Result{Class: push.Delivered}
			p.w.mu.Lock()
			if asks {
				d.Result = push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: p.after, Reason: "TooManyRequests"}
				p.until = time.Now().Add(p.after)
			} else {
				p.w.accepted[d.Device.Hash]++
			}
			p.w.mu.Unlock()
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}

// A provider that names a time is not called before it is over. A short time is
// waited for in place; for a long one the records go to the hold topic, which
// counts no attempt, and the offsets move on. The other route of the same
// partitions is not held up.
func TestARouteThatAsksForAPauseGetsIt(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration
		held  bool
	}{
		{"short: they wait", 3 * time.Second, false},
		{"long: they are held", time.Minute, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calm(1, 2, 1500)
				asked := &stopping{provider: provider{w: w}, after: tt.after, left: 100}
				other := &stopping{provider: provider{w: w}}
				p := w.pipelineTo(t, 50, asked, other)
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = p.Run(ctx) })
				w.wait(t)
				stop()
				run.Wait()
				asked.out.Wait()
				other.out.Wait()

				if asked.within > 0 || asked.until.IsZero() {
					t.Errorf("%d sends started during the pause (provider asked for one: %v), want 0", asked.within, !asked.until.IsZero())
				}
				held, retried := 0, 0
				for _, rows := range w.rows {
					for _, r := range rows {
						switch {
						case r.State == push.StateHeld && r.Platform == push.FCM:
							t.Errorf("%s was held although nobody stopped its route", r.ID)
						case r.State == push.StateHeld:
							held++
							if w.held[r.ID] == 0 {
								t.Errorf("%s is HELD without a record in the hold topic", r.ID)
							}
						case r.State == push.StateRetrying:
							retried++
						}
					}
				}
				if (held > 0) != tt.held || retried != 1 {
					t.Errorf("got %d devices held and %d to be retried; want some held: %v, and 1 to be retried", held, retried, tt.held)
				}
			})
		})
	}
}

// However often they were held before and whenever in the pause they came: what
// one pause holds is due at its end, and so nobody in the hold topic waits behind
// another.
func TestWhatOnePauseHoldsIsDueTogether(t *testing.T) {
	for _, tt := range []struct {
		asked, least, most time.Duration // what the provider asks for; when it is due, from then
	}{
		{2 * time.Minute, 2 * time.Minute, 2*time.Minute + 5*time.Second},
		{10 * time.Second, 30 * time.Second, 31 * time.Second},
		{time.Hour, 5 * time.Minute, 5*time.Minute + time.Second},
	} {
		t.Run(tt.asked.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calm(1, 2, 1500)
				for _, b := range w.batches {
					for i := range b.Items {
						b.Items[i].Hops = i % 7
					}
				}
				asked := &stopping{provider: provider{w: w}, after: tt.asked, left: 100}
				p := w.pipelineTo(t, 50, asked, &stopping{provider: provider{w: w}})
				p.Options().Stages[0] = oneDevice{}
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = p.Run(ctx) })
				w.wait(t)
				stop()
				run.Wait()
				asked.out.Wait()
				from := asked.until.Add(-tt.asked)
				first, last := from.Add(time.Hour), from
				for _, due := range w.due {
					first, last = earliest(first, due), latest(last, due)
				}
				if len(w.due) < 1000 || first.Before(from.Add(tt.least)) || last.After(from.Add(tt.most)) {
					t.Errorf("got %d held, due %v to %v after the provider's request; want at least 1000, due %v to %v", len(w.due), first.Sub(from), last.Sub(from), tt.least, tt.most)
				}
				if tt.asked == 2*time.Minute && !first.Equal(last) {
					t.Errorf("records of one pause are due %v apart, want all at the same time", last.Sub(first))
				}
			})
		})
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// hesitant gives everything back unsent a few times before it delivers.
type hesitant struct {
	provider
	times int
	given map[*pipeline.Delivery]int // guarded by w.mu
}

func (p *hesitant) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.out.Go(func() {
			time.Sleep(time.Millisecond)
			p.w.mu.Lock()
			p.given[d]++
			d.Result = push.Result{}
			if p.given[d] > p.times {
				d.Result.Class = push.Delivered
				p.w.accepted[d.Device.Hash]++
			}
			p.w.mu.Unlock()
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}

// What was paid for attempts that were not made is given back: last tries that
// come back unsent ten times cost no more than those that are sent at once.
func TestUnsentAttemptsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(1, 1, 20)
		for _, b := range w.batches {
			for i := range b.Items {
				b.Items[i].Attempt = 3
			}
		}
		apns := &hesitant{provider: provider{w: w}, times: 10, given: map[*pipeline.Delivery]int{}}
		fcm := &hesitant{provider: provider{w: w}, times: 10, given: map[*pipeline.Delivery]int{}}
		o := gates.DefaultOptions()
		o.Retries = gates.BudgetOptions{Floor: 1e-6, Burst: 100}
		o.DeadLetters = gates.BudgetOptions{Floor: 1e-6, Burst: 100}
		gates := w.open(t, o)
		p := w.pipelineTo(t, 50, apns, fcm)
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		w.wait(t)
		stop()
		run.Wait()
		apns.out.Wait()
		fcm.out.Wait()
		left, _ := gates.Of(push.Route{Platform: push.APNS, App: "shop"}).DeadLetters.Take(time.Now(), 1000)
		retries, _ := gates.Of(push.Route{Platform: push.APNS, App: "shop"}).Retries.Take(time.Now(), 1000)
		sent := 0
		for d := range apns.given {
			if d.Route.Platform == push.APNS {
				sent++
			}
		}
		if sent == 0 || left != 100 || retries != 100-sent {
			t.Errorf("after %d successful last tries, %d of 100 DLQ tokens and %d of 100 retry tokens are left", sent, left, retries)
		}
	})
}

// While nothing succeeds, last tries wait long for a token each, and other
// retries for theirs. They wait for their own kind only: retries are not behind
// last tries, and what is no attempt is behind neither.
func TestWhatMustPayHoldsUpOnlyItsOwnKind(t *testing.T) {
	for _, tt := range []struct {
		why                  string
		retries, deadLetters float64 // tokens there are
		sent                 [4]int  // by attempts before, of 5 each
	}{
		{"no token at all: what was held goes, it is no attempt", 0, 0, [4]int{5, 0, 0, 0}},
		{"no dead letter: every other retry goes", 100, 0, [4]int{5, 5, 5, 0}},
		{"some of both", 100, 2, [4]int{5, 5, 5, 2}},
		{"no retry, and a last try needs that too", 0, 100, [4]int{5, 0, 0, 0}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calm(1, 1, 20)
				for i := range w.batches[0].Items { // the last tries come first
					it := &w.batches[0].Items[i]
					it.Verdict, it.Attempt = push.Undecided, 3-i/5
				}
				o := gates.DefaultOptions()
				o.Retries = gates.BudgetOptions{Floor: 1e-6, Burst: 100}
				o.DeadLetters = o.Retries
				gate := w.open(t, o).Of(push.Route{Platform: push.APNS, App: "shop"})
				gate.Retries.Take(time.Now(), 100-int(tt.retries))
				gate.DeadLetters.Take(time.Now(), 100-int(tt.deadLetters))
				apns := &counting{provider: provider{w: w}}
				p := w.pipelineTo(t, 50, apns, apns)
				p.Options().Stages[0] = oneDevice{}
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = p.Run(ctx) })
				time.Sleep(time.Minute)
				w.mu.Lock()
				if apns.sent != tt.sent {
					t.Errorf("got sends per attempt %v, want %v", apns.sent, tt.sent)
				}
				w.mu.Unlock()
				stop()
				run.Wait()
				apns.out.Wait()
			})
		})
	}
}

// What waits for tokens is told by partition: of the deliveries that are next,
// and of all that stand behind them. The others have no reason to stand still.
func TestAnEmptyBudgetExcusesOnlyWhoWaitsForIt(t *testing.T) {
	for why, n := range map[string]int{"some stand behind": 100, "all are next": 3} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calm(1, 4, n)
				retried := map[int32]bool{1: true, 2: true}
				for _, b := range w.batches {
					for i := range b.Items {
						b.Items[i].Verdict, b.Items[i].Attempt = push.Undecided, 0
						if retried[b.Partition.ID] {
							b.Items[i].Attempt = 1
						}
					}
				}
				o := gates.DefaultOptions()
				o.Retries = gates.BudgetOptions{Floor: 1e-6, Burst: 1}
				w.open(t, o)
				apns := &counting{provider: provider{w: w}}
				p := w.pipelineTo(t, 50, apns, apns)
				p.Options().Stages[0] = oneDevice{}
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = p.Run(ctx) })
				defer run.Wait()
				defer stop()
				time.Sleep(time.Second)
				p.Declared()
				for range 3 {
					time.Sleep(time.Second)
					open, ended := p.Declared()
					for _, stalls := range [][]gates.Stall{open, ended} {
						if len(stalls) != 1 || stalls[0].Name != "retry_budget" || stalls[0].Line != (gates.Line{Route: push.Route{Platform: push.APNS, App: "shop"}, Charge: "retry"}) {
							t.Fatalf("got declared %+v and ended %+v, want only the line of the retries", open, ended)
						}
						got := map[int32]bool{}
						for _, part := range stalls[0].Partitions {
							got[part.ID] = true
						}
						if !maps.Equal(got, retried) {
							t.Errorf("the stall names partitions %v, want those with retries: %v", got, retried)
						}
					}
				}
				for _, l := range p.Progress() {
					if waits := l.Line.Charge == "retry" && l.Line.Route.Platform == push.APNS; waits != (l.Out > 0) {
						t.Errorf("%+v: %d out", l.Line, l.Out)
					}
				}
			})
		})
	}
}

// A partition that leaves does not wait for tokens that others are waiting for
// ahead of it: what it has in the line is given back at once.
func TestALeavingPartitionDoesNotWaitBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(1, 2, 300)
		for _, b := range w.batches {
			for i := range b.Items {
				b.Items[i].Verdict, b.Items[i].Attempt = push.Undecided, 3
			}
		}
		o := gates.DefaultOptions()
		o.Retries = gates.BudgetOptions{Floor: 1e-6, Burst: 1}
		w.open(t, o)
		apns := &counting{provider: provider{w: w}}
		p := w.pipelineTo(t, 50, apns, apns)
		p.Options().Stages[0] = oneDevice{}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		time.Sleep(time.Second)
		drain, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := w.trackers[1].Drain(drain); err != nil {
			t.Errorf("draining the partition whose retries wait behind another's: %v", err)
		}
		if n := w.trackers[0].Open(); n < 299 {
			t.Errorf("got %d open records in the partition that stays, want nearly all of them: there are no tokens", n)
		}
		stop()
		run.Wait()
		apns.out.Wait()
	})
}

// open gives the routes of the world gates with these options.
func (w *world) open(t *testing.T, o gates.Options) *gates.Gates {
	t.Helper()
	routes := []push.Route{{Platform: push.APNS, App: "shop"}, {Platform: push.FCM, App: "shop"}}
	gates, err := gates.New(routes, o, gates.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.gates = gates
	return gates
}

// full is a provider whose queue takes nothing.
type full struct{}

func (full) Submit(ctx context.Context, _ []*pipeline.Delivery, _ func([]*pipeline.Delivery)) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// The lane stops while a probe waits in front of its provider's queue: the probe
// is given back to the gate, which other lanes go on asking, and is no answer
// that did not come.
func TestAProbeThatIsNotTakenMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.faults = false
		o := gates.DefaultOptions()
		o.FirstProbes = 1
		o.Jitter = func(time.Duration) time.Duration { return 0 }
		gate := w.open(t, o).Of(push.Route{Platform: push.APNS, App: "shop"})
		ticket, _, _, _ := gate.Admit(time.Now(), gates.Free, false, 1)
		gates.Return(time.Now(), []gates.Answer{{Ticket: ticket, Result: &push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: 2 * time.Second}}})
		time.Sleep(2 * time.Second)
		stop := w.starts(t, w.pipelineFrom(t, newPartition(w, 1, 1, 0), full{}, full{}))
		time.Sleep(time.Second)
		if _, n, _, _ := gate.Admit(time.Now(), gates.Free, false, 1); n != 0 {
			t.Fatal("setup: there is still room for a second probe")
		}
		stop()
		if _, n, _, _ := gate.Admit(time.Now(), gates.Free, false, 1); n != 1 {
			t.Errorf("got %d probes after the lane stopped, want 1", n)
		}
	})
}

// oneDevice gives each item one device.
type oneDevice struct{}

func (oneDevice) Name() pipeline.Step { return "devices" }

func (oneDevice) Apply(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Items {
		it := &b.Items[i]
		it.Deliveries = []pipeline.Delivery{{Item: it, Route: push.Route{Platform: push.APNS, App: "shop"},
			Device: pipeline.Device{Hash: it.ID}, Expires: push.At(time.Now().Add(time.Hour))}}
	}
	return nil
}

// counting answers that nothing was accepted, so that no token is earned, and
// counts.
type counting struct {
	provider
	sent [4]int // by attempts before; guarded by w.mu
}

func (p *counting) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.w.mu.Lock()
		p.sent[d.Item.Attempt]++
		p.w.mu.Unlock()
		p.out.Go(func() {
			time.Sleep(time.Millisecond)
			d.Result = push.Result{Class: push.Again, Reason: "ServiceUnavailable"}
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}
