package pipeline_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// narrow is a producer whose topics, but for the DLQ, take none of some ids.
type narrow struct {
	*world
	large func(id string) bool
}

func (p narrow) Produce(ctx context.Context, hs []pipeline.Handover) error {
	var taken []pipeline.Handover
	refused := &pipeline.RefusedError{Err: errors.New("message too large")}
	for i, h := range hs {
		if h.To != pipeline.ToDLQ && p.large(h.Item.ID) {
			refused.Handovers = append(refused.Handovers, i)
		} else {
			taken = append(taken, h)
		}
	}
	if err := p.world.Produce(ctx, taken); err != nil {
		return err
	}
	if len(refused.Handovers) > 0 {
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
		if it := &b.Items[i]; i%10 == 4 && it.Verdict == pipeline.Undecided {
			it.NotBefore = time.Now().Add(time.Hour)
			it.Decide(pipeline.Deferred, pipeline.NotDue, "")
		}
	}
	return nil
}

// TestCopiesThatAreTooLarge: what its retry, hold or feedback topic refuses for
// its size is a dead letter, or ends as its device has; nothing else waits for
// it, and nothing is tried for ever.
func TestCopiesThatAreTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(9)
		w.faults = false
		w.fill(2, 1000)
		large := map[string]bool{}
		for _, ids := range w.ids {
			for i, id := range ids {
				large[id] = i%3 == 0
			}
		}
		pr := &provider{w: w, out: sync.WaitGroup{}}
		p := w.pipelineTo(t, 300, pr, pr)
		p.Stages[0] = deferring{w}
		p.Producer = narrow{w, func(id string) bool { return large[id] }}
		stop := w.starts(t, p)
		w.wait(t)
		stop()
		pr.out.Wait()
		states := map[pipeline.State]int{}
		for _, ids := range w.ids {
			for _, id := range ids {
				rows := w.rows[id]
				if len(rows) == 0 {
					t.Errorf("%s has no row", id)
				}
				for _, r := range rows {
					switch {
					case large[id] && r.State.HandedOver():
						t.Errorf("%s is %v, and its record was refused", id, r.State)
					case r.State == pipeline.StateDeadLettered && w.dead[id] == 0:
						t.Errorf("%s is DEAD_LETTERED without a copy in the DLQ", id)
					}
					if large[id] && r.Reason == string(pipeline.TooLarge) {
						states[r.State]++
						if r.Device == "" {
							states[pipeline.StateHeld]++ // of those that were put off
						}
					}
					if large[id] && r.Reason == "Unregistered" {
						states[r.State]++
					}
				}
			}
		}
		if states[pipeline.StateDeadLettered] == 0 || states[pipeline.StateFailed] == 0 || states[pipeline.StateHeld] == 0 {
			t.Errorf("too large to be handed over: %v; want some dead, some of them put off, and some whose token is dead", states)
		}
	})
}
