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

	"github.com/pushfleet/pushfleet/push"
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
				w.lives.check(t)
				w.check(t)
				for device := range w.accepted {
					id := device[:strings.LastIndex(device, "-d")]
					if !slices.ContainsFunc(w.rows[id], func(r push.Row) bool { return r.Device == device && r.State == push.StateSending }) {
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
			t.Errorf("got %v after the fence", err)
		}
		intents := 0
		for _, rows := range w.rows {
			for _, r := range rows {
				if r.State != push.StateSending {
					continue
				}
				intents++
				h := push.History{Rows: rows}
				if s, _ := h.DeviceState(r.Device); s != push.StateUnknown {
					t.Errorf("the intent for %s, which was not sent, ended as %v", r.Device, s)
				}
			}
		}
		if n := w.sent(); n > 0 || intents == 0 {
			t.Errorf("got %d sends and %d intents; want 0 sends and some intents", n, intents)
		}
		stop()
		run.Wait()
		pr.out.Wait()
		w.lives.check(t)
	})
}

// TestOnceLeavesNothingUnknown: a partition that leaves in order takes to its
// end what is committed, and writes no intent for the rest: its next owner sends
// that.
func TestOnceLeavesNothingUnknown(t *testing.T) {
	for after := range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := calm(5, 1, 2000)
			w.once = true
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
				t.Fatalf("setup: %d sent and %d open, want the partition to leave midway", sent, w.trackers[0].Open())
			}
			for id, rows := range w.rows {
				h := push.History{Rows: rows}
				for _, r := range rows {
					if s, _ := h.DeviceState(r.Device); s == push.StateUnknown || s == push.StateSending {
						t.Errorf("%s on %s is %v although no worker died", id, r.Device, s)
					}
				}
			}
			stop()
			run.Wait()
			pr.out.Wait()
			w.lives.check(t)
		})
	}
}

// TestNothingIsIntendedWithoutALease: a worker that the coordinator has not
// answered for a session writes no intent. Its heir has looked for them by then,
// and they would stand open for ever.
func TestNothingIsIntendedWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		w.faults, w.once, w.lease = false, true, new(lease)
		w.lease.Extend(time.Now().Add(2 * time.Second))
		w.fill(1, 1000)
		pr := &slow{w: w, wait: 300 * time.Millisecond}
		stop := w.starts(t, w.pipelineTo(t, 100, pr, pr))
		intents := func() (n int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, rows := range w.rows {
				for _, r := range rows {
					if r.State == push.StateSending {
						n++
					}
				}
			}
			return n
		}
		time.Sleep(2100 * time.Millisecond)
		before := intents()
		time.Sleep(time.Minute)
		if n := intents(); before == 0 || n != before {
			t.Errorf("got %d intents at the end of the lease and %d a minute later; want some, and no more of them", before, n)
		}
		w.lease.Extend(time.Now().Add(time.Hour))
		time.Sleep(time.Second)
		if n := intents(); n == before {
			t.Error("no new intents after the lease was renewed")
		}
		stop()
		pr.out.Wait()
		w.lives.check(t)
		w.checkStopped(t)
	})
}

// TestOnceRunEndsWithoutTheProvider: nor does one that never answers hold up
// the end of a lane of intents.
func TestOnceRunEndsWithoutTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 2, 300)
		w.once = true
		pr := &slow{w: w, wait: time.Hour}
		p := w.pipelineTo(t, 50, pr, pr)
		stop := w.starts(t, p)
		time.Sleep(2 * time.Second)
		if took := stop(); took > p.Options().Drain {
			t.Errorf("stopping took %v, the drain budget is %v", took, p.Options().Drain)
		}
		pr.out.Wait() // its answers come an hour later, and hit nobody
	})
}

// panickingIntents panics when intents are disowned.
type panickingIntents struct{ *world }

func (s panickingIntents) Write(ctx context.Context, rows []push.Row) error {
	if slices.ContainsFunc(rows, func(r push.Row) bool { return r.Reason == string(push.IntentLost) }) {
		panic("index out of range")
	}
	return s.world.Write(ctx, rows)
}

// TestPanicOverLostIntentsEndsNothing: they are disowned as well as can be.
func TestPanicOverLostIntentsEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(5)
		w.faults, w.once, w.frozen = false, true, true
		w.fill(1, 300)
		pr := &slow{w: w, wait: 100 * time.Millisecond}
		p := w.pipelineTo(t, 50, pr, pr)
		p.Options().Status = panickingIntents{w}
		stop := w.starts(t, p)
		time.Sleep(2 * time.Second)
		w.trackers[0].Fence()
		time.Sleep(time.Second)
		if err := w.trackers[0].Drain(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		pr.out.Wait()
		w.lives.check(t)
	})
}
