package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// narrow is a producer whose topics, but for the DLQ, take none of some ids.
type narrow struct {
	*world
	large func(id string) bool
}

func (p narrow) Produce(ctx context.Context, hs []pipeline.Handover) error {
	var taken []pipeline.Handover
	refused := &pipeline.PartlyError{Err: errors.New("message too large")}
	for i, h := range hs {
		if h.To != pipeline.ToDLQ && p.large(h.Item.ID) {
			refused.Refused = append(refused.Refused, i)
		} else {
			taken = append(taken, h)
		}
	}
	if err := p.world.Produce(ctx, taken); err != nil {
		return err
	}
	if len(refused.Refused) > 0 {
		return refused
	}
	return nil
}

// deferring puts off what is to be sent later than its topic waits.
type deferring struct{ *world }

func (s deferring) Apply(ctx context.Context, b *pipeline.Batch) error {
	if err := s.world.Apply(ctx, b); err != nil {
		return err
	}
	for i := range b.Items {
		if it := &b.Items[i]; i%10 == 4 && it.Verdict == push.Undecided {
			it.NotBefore = time.Now().Add(time.Hour)
			it.Decide(push.Deferred, push.NotDue, "")
		}
	}
	return nil
}

// TestCopiesThatAreTooLarge: what its retry, deferral, hold or feedback topic
// refuses for its size is a dead letter, or ends as its device has; nothing else waits for
// it, and nothing is tried for ever.
func TestCopiesThatAreTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(9, 2, 1000)
		large := map[string]bool{}
		for _, ids := range w.ids {
			for i, id := range ids {
				large[id] = i%3 == 0
			}
		}
		pr := &provider{w: w, out: sync.WaitGroup{}}
		p := w.pipelineTo(t, 300, pr, pr)
		p.Options().Stages[0] = deferring{w}
		p.Options().Producer = narrow{w, func(id string) bool { return large[id] }}
		stop := w.starts(t, p)
		w.wait(t)
		stop()
		pr.out.Wait()
		states := map[push.State]int{}
		for _, ids := range w.ids {
			for _, id := range ids {
				rows := w.rows[id]
				if len(rows) == 0 {
					t.Errorf("%s has no row", id)
				}
				for _, r := range rows {
					switch {
					case large[id] && r.State.HandedOver():
						t.Errorf("%s is %v although its record was refused", id, r.State)
					case r.State == push.StateDeadLettered && w.dead[id] == 0:
						t.Errorf("%s is DEAD_LETTERED without a copy in the DLQ", id)
					}
					if large[id] && r.Reason == string(push.TooLarge) {
						states[r.State]++
						if r.Device == "" {
							states[push.StateHeld]++ // of those that were put off
						}
					}
					if large[id] && r.Reason == "Unregistered" {
						states[r.State]++
					}
				}
			}
		}
		if states[push.StateDeadLettered] == 0 || states[push.StateFailed] == 0 || states[push.StateHeld] == 0 {
			t.Errorf("states of too large records: %v; want some dead, some deferred and some with a dead token", states)
		}
	})
}

// shy is a producer whose topics of one destination take nothing of some ids, in
// a call in which they take others, until it is over. It counts what was taken.
type shy struct {
	*world
	to   pipeline.Destination
	some func(id string) bool
	over func() bool

	mu    sync.Mutex
	taken map[pipeline.Destination]map[string]int // by id and devices
	tried map[pipeline.Destination]int
}

func (p *shy) Produce(ctx context.Context, hs []pipeline.Handover) error {
	var taken []pipeline.Handover
	partly := &pipeline.PartlyError{Err: errors.New("not authorized")}
	p.mu.Lock()
	for i, h := range hs {
		p.tried[h.To]++
		if h.To == p.to && p.some(h.Item.ID) && !p.over() {
			partly.Open = append(partly.Open, i)
			continue
		}
		taken = append(taken, h)
		if p.taken[h.To] == nil {
			p.taken[h.To] = make(map[string]int)
		}
		p.taken[h.To][h.Item.ID+h.Device.Hash+strings.Join(h.Devices, ",")]++
	}
	p.mu.Unlock()
	if err := p.world.Produce(ctx, taken); err != nil {
		return err
	}
	if len(partly.Open) > 0 {
		return partly
	}
	return nil
}

// TestOneTopicThatTakesNothing: for half a minute one destination refuses, all of
// it or one partition. What goes to the others is handed over meanwhile; what
// waits is handed over when it is taken again; and nothing is handed over twice.
func TestOneTopicThatTakesNothing(t *testing.T) {
	all := func(string) bool { return true }
	for name, tt := range map[string]struct {
		to   pipeline.Destination
		some func(string) bool
	}{
		"DLQ": {pipeline.ToDLQ, all}, "retry": {pipeline.ToRetry, all}, "deferral": {pipeline.ToDefer, all}, "feedback": {pipeline.ToFeedback, all},
		"one partition of a retry topic": {pipeline.ToRetry, func(id string) bool { return strings.HasSuffix(id, "7") }},
	} {
		to := tt.to
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calm(11, 2, 1000)
				pr := &provider{w: w}
				p := w.pipelineTo(t, 5000, pr, pr) // what waits holds its place
				p.Options().Stages[0] = deferring{w}
				began := time.Now()
				producer := &shy{world: w, to: to, some: tt.some, over: func() bool { return time.Since(began) > 30*time.Second },
					taken: make(map[pipeline.Destination]map[string]int), tried: make(map[pipeline.Destination]int)}
				p.Options().Producer = producer
				stop := w.starts(t, p)
				time.Sleep(25 * time.Second)
				producer.mu.Lock()
				if producer.tried[to] == 0 {
					t.Error("setup: nothing was handed over to this destination")
				}
				before := make(map[pipeline.Destination]int)
				for d, ids := range producer.taken {
					before[d] = len(ids)
				}
				producer.mu.Unlock()
				w.wait(t)
				stop()
				pr.out.Wait()
				for d, ids := range producer.taken {
					if d != to && d != pipeline.ToEnds && before[d] < len(ids) { // senders are told when all of a record has ended
						t.Errorf("destination %d: %d of %d were handed over while another one refused", d, before[d], len(ids))
					}
					for id, n := range ids {
						if n > 1 {
							t.Fatalf("destination %d: %s was handed over %d times", d, id, n)
						}
					}
				}
			})
		})
	}
}

// mute is a producer whose records get no answer: its client goes on trying, as
// the real one does while a partition has no leader or too few replicas.
type mute struct{ *world }

func (mute) Produce(ctx context.Context, _ []pipeline.Handover) error {
	<-ctx.Done()
	return ctx.Err()
}

// What waits for its hand-over stands still for a reason, and the watchdog has
// to hear it before its minute is over.
func TestAHandOverWithoutAnAnswerIsDeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(5, 1, 500)
		p, pr := w.pipeline(t, 1000)
		p.Options().Producer = mute{w}
		stop := w.starts(t, p)
		time.Sleep(50 * time.Second)
		open, _ := p.Declared()
		if !slices.ContainsFunc(open, func(s gates.Stall) bool { return s.Name == "hand-over" }) {
			t.Errorf("stalls after 50 s without a hand-over: %v", open)
		}
		stop()
		pr.out.Wait()
		for id, rows := range w.rows {
			for _, r := range rows {
				if r.State.HandedOver() || r.State == push.StateDeadLettered {
					t.Errorf("%s is %v although no record was accepted", id, r.State)
				}
			}
		}
	})
}

// oneHold is a producer of which one platform's hold topic takes nothing.
type oneHold struct {
	*world
	taken map[push.Platform]int
}

func (p oneHold) Produce(ctx context.Context, hs []pipeline.Handover) error {
	var taken []pipeline.Handover
	partly := &pipeline.PartlyError{Err: errors.New("not authorized")}
	for i, h := range hs {
		if h.To == pipeline.ToHold && h.Platform == push.APNS {
			partly.Open = append(partly.Open, i)
			continue
		}
		p.mu.Lock()
		if h.To == pipeline.ToHold {
			p.taken[h.Platform]++
		}
		p.mu.Unlock()
		taken = append(taken, h)
	}
	if err := p.world.Produce(ctx, taken); err != nil || len(partly.Open) == 0 {
		return err
	}
	return partly
}

// One hold topic refuses. What goes to the other provider's, another topic, is
// handed over meanwhile and has its row.
func TestOneHoldTopicHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(5, 1, 1000)
		held := func(d *pipeline.Delivery) push.Result {
			return push.Result{Class: push.Held, Scope: push.ScopeRoute, Reason: string(push.RouteStopped)}
		}
		apns, fcm := &slow{w: w, wait: time.Millisecond, answer: held}, &slow{w: w, wait: time.Second, answer: held}
		p := w.pipelineTo(t, 2000, apns, fcm)
		producer := oneHold{w, map[push.Platform]int{}}
		p.Options().Producer = producer
		stop := w.starts(t, p)
		time.Sleep(25 * time.Second)
		w.mu.Lock()
		rows := 0
		for _, rs := range w.rows {
			for _, r := range rs {
				if r.State == push.StateHeld && r.Platform == push.FCM {
					rows++
				}
			}
		}
		if producer.taken[push.FCM] < 500 || rows < 500 {
			t.Errorf("only the hold topic of APNs refuses, but for FCM %d were handed over and %d have a row", producer.taken[push.FCM], rows)
		}
		w.mu.Unlock()
		stop()
		apns.out.Wait()
		fcm.out.Wait()
	})
}
