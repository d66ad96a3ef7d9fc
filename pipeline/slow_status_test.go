package pipeline_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// slowStatus makes one row durable after the other, each in its own time, as a
// store does that is slow and has a partition for each of them. What it has not
// begun when a write's context ends it forgets.
type slowStatus struct {
	*world
	each  time.Duration
	turn  chan struct{} // buffered, capacity 1: the row that is being written
	state sync.Mutex
	wrote map[push.Row]int // how often each row was made durable
}

func newSlowStatus(w *world, each time.Duration) *slowStatus {
	return &slowStatus{world: w, each: each, turn: make(chan struct{}, 1), wrote: map[push.Row]int{}}
}

func (s *slowStatus) Write(ctx context.Context, rows []push.Row) error {
	for _, r := range rows {
		if ctx.Err() != nil { // a select would choose at random
			return ctx.Err()
		}
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		time.Sleep(s.each)
		err := s.world.Write(ctx, []push.Row{r})
		<-s.turn
		if err != nil {
			return err
		}
		r.At = time.Time{}
		s.state.Lock()
		s.wrote[r]++
		s.state.Unlock()
	}
	return ctx.Err()
}

// TestSlowStatusStoreWritesEachRowOnce: a store on which all rows of a group
// take far longer than the time-out gets them once each and is done in the time
// that they take; meanwhile the pipeline says what it waits for.
func TestSlowStatusStoreWritesEachRowOnce(t *testing.T) {
	for _, once := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := calm(3, 1, 1000)
			w.once = once
			p, pr := w.pipeline(t, 1000)
			slow := newSlowStatus(w, 20*time.Millisecond)
			p.Options().Status = slow
			ctx, stop := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = p.Run(ctx) })
			time.Sleep(10 * time.Second)
			if stalls, _ := p.Declared(); len(stalls) != 1 || stalls[0].Name != "status" && stalls[0].Name != "intents" {
				t.Errorf("once %v: stalls %v, want the status store's", once, stalls)
			}
			start := time.Now()
			w.wait(t)
			took := time.Since(start)
			time.Sleep(time.Minute) // of intents the offsets are ahead of their outcomes
			if stalls, _ := p.Declared(); len(stalls) != 0 {
				t.Errorf("once %v: got stalls %v after everything was done", once, stalls)
			}
			slow.state.Lock()
			for r, n := range slow.wrote {
				if n != 1 {
					t.Fatalf("once %v: %s was written %d times although it was acknowledged", once, r.ID, n)
				}
			}
			if most := time.Duration(len(slow.wrote)) * (slow.each + time.Millisecond); took > most {
				t.Errorf("once %v: took %v, want at most %v for %d rows", once, took, most, len(slow.wrote))
			}
			slow.state.Unlock()
			stop()
			run.Wait()
			pr.out.Wait()
			w.check(t)
		})
	}
}

// TestPartitionThatLeavesDoesNotWaitForIntents: they may take for ever, and
// nothing was sent for them.
func TestPartitionThatLeavesDoesNotWaitForIntents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 1, 100)
		w.once = true
		p, pr := w.pipeline(t, 1000)
		p.Options().Status = newSlowStatus(w, time.Second)
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		time.Sleep(20 * time.Second) // what needs no intent has its rows
		drain, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := w.trackers[0].Drain(drain); err != nil {
			t.Errorf("drain: %v", err)
		}
		if w.trackers[0].Open() == 0 {
			t.Error("setup: nothing is open, so nothing waited for its intents")
		}
		if n := w.sent(); n > 0 {
			t.Errorf("%d were sent before all intents were durable", n)
		}
		stop()
		run.Wait()
		pr.out.Wait()
	})
}
