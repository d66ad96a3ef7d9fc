package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// TestOnceSendsOnlyWhatIsCommitted: in a lane of intents, everything ends as in
// the others, and no send is seen before its intent is durable and its offset
// committed.
func TestOnceSendsOnlyWhatIsCommitted(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(seed)
				w.once = true
				w.fill(3, 500)
				p, pr := w.pipeline(t, 300)
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() {
					if err := p.Run(ctx); err != nil {
						t.Errorf("Run: %v", err)
					}
				})
				w.wait(t)
				time.Sleep(time.Minute) // offsets are ahead of their outcomes
				stop()
				run.Wait()
				pr.out.Wait()
				w.check(t)
				for device := range w.accepted {
					id := device[:strings.LastIndex(device, "-d")]
					if !slices.ContainsFunc(w.rows[id], func(r pipeline.Row) bool { return r.Device == device && r.State == pipeline.StateSending }) {
						t.Errorf("%s was sent without an intent", device)
					}
				}
			})
		})
	}
}

// TestOnceDoesNotSendWhatItCannotCommit: a partition leaves while its commit is
// refused. Nothing is sent, and each intent ends UNKNOWN: its next owner may
// have looked for it before it was written.
func TestOnceDoesNotSendWhatItCannotCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(5)
		w.faults, w.once, w.frozen = false, true, true
		w.fill(1, 300)
		p, pr := w.pipeline(t, 300)
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		time.Sleep(time.Minute)
		tracker := w.trackers[0]
		drain, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := tracker.Drain(drain); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain with a commit under way: %v, want that it waits for it", err)
		}
		tracker.Fence()
		time.Sleep(time.Second)
		if err := tracker.Drain(ctx); err != nil {
			t.Errorf("after the fence: %v", err)
		}
		intents := 0
		for _, rows := range w.rows {
			for _, r := range rows {
				if r.State != pipeline.StateSending {
					continue
				}
				intents++
				h := pipeline.History{Rows: rows}
				if s, _ := h.DeviceState(r.Device); s != pipeline.StateUnknown {
					t.Errorf("the intent for %s, which was not sent, ended %v", r.Device, s)
				}
			}
		}
		if n := w.sent(); n > 0 || intents == 0 {
			t.Errorf("%d sent, %d intents: want none, and some", n, intents)
		}
		stop()
		run.Wait()
		pr.out.Wait()
	})
}

// TestOnceLeavesNothingUnknown: a partition that leaves in order takes to its
// end what is committed, and writes no intent for the rest: its next owner sends
// that.
func TestOnceLeavesNothingUnknown(t *testing.T) {
	for after := range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(5)
			w.faults, w.once = false, true
			w.fill(1, 2000)
			p, pr := w.pipeline(t, 50)
			ctx, stop := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = p.Run(ctx) })
			time.Sleep(time.Second + time.Duration(after)*37*time.Millisecond)
			drain, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if err := w.trackers[0].Drain(drain); err != nil {
				t.Fatalf("drain: %v", err)
			}
			if sent := w.sent(); sent == 0 || w.trackers[0].Open() == 0 {
				t.Fatalf("%d sent, %d open: want it to leave in the middle", sent, w.trackers[0].Open())
			}
			for id, rows := range w.rows {
				h := pipeline.History{Rows: rows}
				for _, r := range rows {
					if s, _ := h.DeviceState(r.Device); s == pipeline.StateUnknown || s == pipeline.StateSending {
						t.Errorf("%s on %s is %v, and nobody died", id, r.Device, s)
					}
				}
			}
			stop()
			run.Wait()
			pr.out.Wait()
		})
	}
}
