package pipeline

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// What is committed, waits for a place until nothing more is submitted, and gets
// none, goes to the hold topic: its line ends, also when it is longer than a group.
func TestCommittedDeliveriesWithoutAPlaceAreHeldAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := push.Route{Platform: push.APNS, App: "shop"}
		r := newRoute(shop, nil, nil, 20, false, NewMetrics(prometheus.NewRegistry()))
		p := &Pipeline{opt: Options{Window: 20, Drain: 5 * time.Second, SendDeadline: time.Second, StatusTimeout: time.Second, CommitTimeout: time.Second}, toSettle: newQueue[*Delivery]()}
		l := r.lines[gates.Free]
		if !r.window.TryAcquire(20) {
			t.Fatal("setup: the window is not empty")
		}
		ds := waitingFor("a", 12) // groups of 5
		for _, d := range ds {
			d.Item.committed = true
		}
		l.waiting.put(l, ds)
		polling, stop := context.WithCancel(t.Context())
		submitting, stopSubmitting := context.WithCancel(t.Context())
		defer stopSubmitting()
		ended := make(chan struct{})
		go func() { p.dispatch(polling, submitting, l); close(ended) }()
		synctest.Wait()
		ds[0].Item.batch.Tracker.Leave()
		p.giveBackLeaving(l)
		stop()
		synctest.Wait()
		l.waiting.close()
		if got := len(l.waiting.next(nil, 100)); got != 12 {
			t.Errorf("got %d committed deliveries waiting after the stop, want 12", got)
		}
		stopSubmitting()
		<-ended
		p.toSettle.close()
		held := p.toSettle.take(nil, 100)
		for _, d := range held {
			if d.Result.Class != push.Held || d.abandoned {
				t.Errorf("%s: %+v", d.Device.Hash, d.Result)
			}
		}
		if len(held) != 12 {
			t.Errorf("got %d deliveries held, want 12", len(held))
		}
		r.leaveWindow(20)
		if !r.window.TryAcquire(20) {
			t.Error("not all places of the window were given back")
		}
	})
}

// The gauge of a window says how many places are taken, also when they are free again.
func TestTheGaugeFollowsTheWindow(t *testing.T) {
	r := newRoute(push.Route{Platform: push.APNS, App: "shop"}, nil, nil, 20, false, NewMetrics(prometheus.NewRegistry()))
	p := &Pipeline{opt: Options{Window: 20}}
	l := r.lines[gates.Free]
	l.waiting.put(l, waitingFor("a", 3))
	taken := p.enter(t.Context(), t.Context(), l, nil)
	if got := testutil.ToFloat64(r.inUse); got != 3 {
		t.Errorf("got %v places in use, want 3", got)
	}
	r.leaveWindow(len(taken))
	if got := testutil.ToFloat64(r.inUse); got != 0 {
		t.Errorf("got %v places in use, want 0", got)
	}
}

// Charges share a route's window. A line that has become empty does not wait in the
// queue for its places: what comes to it next would get its turn later.
func TestAnEmptyLineDoesNotQueueForTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoute(push.Route{Platform: push.APNS, App: "shop"}, nil, nil, 20, false, NewMetrics(prometheus.NewRegistry()))
		p := &Pipeline{opt: Options{Window: 20}}
		if !r.window.TryAcquire(20) {
			t.Fatal("setup: the window is not empty")
		}
		other := r.lines[gates.Retry]
		other.waiting.put(other, waitingFor("a", 1))
		var entering sync.WaitGroup
		defer entering.Wait()
		defer r.leaveWindow(20)
		entering.Go(func() { p.enter(t.Context(), t.Context(), other, nil) })
		synctest.Wait() // it is in the queue
		returned := false
		entering.Go(func() {
			p.enter(t.Context(), t.Context(), r.lines[gates.Free], nil)
			returned = true
		})
		synctest.Wait()
		if !returned {
			t.Error("a line without deliveries waits for places")
		}
	})
}
