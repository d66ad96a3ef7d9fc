package calls

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// deliveries are n that have a minute to be answered in.
func deliveries(n int) []*pipeline.Delivery {
	ds := make([]*pipeline.Delivery, n)
	for i := range ds {
		ds[i] = &pipeline.Delivery{Item: &pipeline.Item{}, Deadline: pipeline.UptimeAt(time.Now().Add(time.Minute)), Result: push.Result{Reason: "none yet"}}
	}
	return ds
}

// taken counts how often each delivery was handed to done.
type taken struct {
	mu     sync.Mutex
	times  map[*pipeline.Delivery]int
	groups []int // sizes
}

func (k *taken) done(ds []*pipeline.Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.times == nil {
		k.times = make(map[*pipeline.Delivery]int)
	}
	for _, d := range ds {
		k.times[d]++
	}
	k.groups = append(k.groups, len(ds))
}

// each reports deliveries that did not come back exactly once.
func (k *taken) each(t *testing.T, ds []*pipeline.Delivery) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, d := range ds {
		if k.times[d] != 1 {
			t.Errorf("delivery %d came back %d times", i, k.times[d])
		}
	}
}

func TestCallerSendsSoManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		c := NewCaller(3, func(context.Context, *pipeline.Delivery) push.Result {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return push.Result{Class: push.Delivered, Certainty: push.Accepted}
		})
		ds, back := deliveries(10), &taken{}
		start := time.Now()
		if n, err := c.Submit(t.Context(), ds, back.done); n != 10 || err != nil {
			t.Errorf("took %d, %v", n, err)
		}
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("Submit took %v: the tenth has a place after three rounds", waited)
		}
		c.Wait()
		back.each(t, ds)
		if most.Load() != 3 {
			t.Errorf("%d calls at once, want 3", most.Load())
		}
		for _, d := range ds {
			if d.Result.Class != push.Delivered {
				t.Errorf("result %+v", d.Result)
			}
		}
	})
}

func TestCallerStopsTakingWhenTheWorkerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		c := NewCaller(2, func(context.Context, *pipeline.Delivery) push.Result {
			time.Sleep(time.Second)
			return push.Result{Class: push.Delivered}
		})
		ds, back := deliveries(5), &taken{}
		time.AfterFunc(1500*time.Millisecond, stop)
		n, err := c.Submit(ctx, ds, back.done)
		if n != 4 || !errors.Is(err, context.Canceled) {
			t.Errorf("took %d, %v: two at once, and two a second later", n, err)
		}
		c.Wait()
		back.each(t, ds[:n])
		if back.times[ds[4]] != 0 || ds[4].Result.Reason != "none yet" {
			t.Errorf("the one not taken has %+v", ds[4].Result)
		}
		// With free places too: what comes after the end is not begun.
		for range 30 {
			if n, err := c.Submit(ctx, deliveries(1), back.done); n != 0 || err == nil {
				t.Fatalf("took %d, %v after the end", n, err)
			}
		}
	})
}

func TestCallerChecksRightBeforeTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := 0
		c := NewCaller(1, func(context.Context, *pipeline.Delivery) push.Result {
			called++
			time.Sleep(2 * time.Second)
			return push.Result{Class: push.Delivered}
		})
		ds, back := deliveries(5), &taken{}
		ds[4].Deadline = pipeline.UptimeAt(time.Now().Add(4 * time.Second)) // its turn comes in this very moment
		ds[1].Expires = push.At(time.Now().Add(time.Second))                // when its turn comes it is too late
		ds[2].Deadline = pipeline.UptimeAt(time.Now().Add(time.Second))     // likewise, and nothing was written
		ds[3].Expires = push.At(time.Now().Add(2 * time.Second))            // just in time
		if _, err := c.Submit(t.Context(), ds, back.done); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		back.each(t, ds)
		if got := ds[1].Result; got != Expired() {
			t.Errorf("past its expiry: %+v", got)
		}
		if got, want := ds[2].Result, (push.Result{Class: push.Again, Scope: push.ScopeConnection, Reason: string(push.Timeout)}); got != want {
			t.Errorf("past its deadline, unsent: %+v", got)
		}
		if called != 3 || ds[3].Result.Class != push.Delivered || ds[4].Result.Class != push.Delivered {
			t.Errorf("%d calls, the last ones are %+v and %+v", called, ds[3].Result, ds[4].Result)
		}
	})
}

// lapsed is a lease that is over.
type lapsed struct{}

func (lapsed) Lapsed(time.Time) bool { return true }

// A delivery whose partition may have another owner comes back unsent.
func TestCallerSendsNothingWithoutALease(t *testing.T) {
	b := &pipeline.Batch{Items: make([]pipeline.Item, 1), Tracker: pipeline.NewTracker(pipeline.TrackerOptions{Capacity: 1, Lease: lapsed{}})}
	b.Items[0].ID = "a"
	if b.Tracker.Admit(b) != 1 {
		t.Fatal("not admitted")
	}
	c := NewCaller(1, func(context.Context, *pipeline.Delivery) push.Result {
		t.Error("sent")
		return push.Result{}
	})
	ds, back := deliveries(1), &taken{}
	ds[0].Item = &b.Items[0]
	if _, err := c.Submit(t.Context(), ds, back.done); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	back.each(t, ds)
	if ds[0].Result != (push.Result{Class: push.Unsent}) {
		t.Errorf("result %+v", ds[0].Result)
	}
}

func TestCallerEndsAtTheDeadlineAndBearsPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCaller(2, func(ctx context.Context, d *pipeline.Delivery) push.Result {
			if d.Item.ID == "poison" {
				panic("cannot bear " + d.Item.ID)
			}
			<-ctx.Done()
			return Unanswered(fmt.Errorf("asking: %w", ctx.Err()))
		})
		ds, back := deliveries(2), &taken{}
		ds[0].Item.ID = "poison"
		if _, err := c.Submit(t.Context(), ds, back.done); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		back.each(t, ds)
		if got := ds[0].Result; got.Class != push.Again || got.Certainty != push.Ambiguous || got.Panic == nil || got.Reason != string(push.Panicked) {
			t.Errorf("of the panic: %+v", got)
		}
		ambiguous := push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: push.Ambiguous, Reason: string(push.Timeout)}
		if got := ds[1].Result; got != ambiguous {
			t.Errorf("without an answer: %+v", got)
		}
		if now := time.Now(); now.Before(ds[1].Deadline.Time()) || now.After(ds[1].Deadline.Time()) {
			t.Errorf("ended at %v, the deadline was %v", now, ds[1].Deadline)
		}
		ambiguous.Reason = string(push.ConnectionLost)
		if got := Unanswered(errors.New("reset")); got != ambiguous {
			t.Errorf("cut: %+v", got)
		}
		if got := NotConnected(); got != (push.Result{Class: push.Again, Scope: push.ScopeConnection, Reason: string(push.NotConnected)}) {
			t.Errorf("nothing written: %+v", got)
		}
	})
}

// What is answered while a group is handed over makes the next group.
func TestAnswersComeInGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCaller(9, func(context.Context, *pipeline.Delivery) push.Result { return push.Result{Class: push.Delivered} })
		ds, back := deliveries(9), &taken{}
		slow := func(ds []*pipeline.Delivery) {
			time.Sleep(time.Second)
			back.done(ds)
		}
		if _, err := c.Submit(t.Context(), ds, slow); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		back.each(t, ds)
		if len(back.groups) != 2 || back.groups[0]+back.groups[1] != 9 {
			t.Errorf("groups of %v, want what was there and then all others", back.groups)
		}
	})
}
