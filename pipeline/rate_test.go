package pipeline_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// slowRate allows so many a second, one after the other.
type slowRate struct {
	perSecond int
	mu        sync.Mutex
	next      time.Time // guarded by mu
}

func (r *slowRate) Take(now time.Time, _ bool, n int) (int, uint32, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.next) {
		return 0, 0, r.next
	}
	r.next = now.Add(time.Second / time.Duration(r.perSecond))
	return min(n, 1), 0, r.next
}

func (*slowRate) Epoch() uint32 { return 0 }

func (*slowRate) Answered(time.Time, uint32, int, int, int) {}

// What its route's rate does not allow waits, for longer than a route may be stopped:
// nothing of it is held or handed over, the wait is a declared stall, and the other
// route goes on.
func TestWhatWaitsForARateWaitsInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(1, 2, 1500)
		o := gates.DefaultOptions()
		apns := push.Route{Platform: push.APNS, App: "shop"}
		o.Rates = map[push.Route]gates.Rate{apns: &slowRate{perSecond: 20}}
		w.open(t, o)
		slow, other := &stopping{provider: provider{w: w}}, &stopping{provider: provider{w: w}}
		p := w.pipelineTo(t, 50, slow, other)
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		time.Sleep(20 * time.Second)
		open, ended := p.Declared()
		if !slices.ContainsFunc(append(open, ended...), func(s gates.Stall) bool {
			return s.Name == string(gates.RateSpent) && s.Line.Route == apns && len(s.Partitions) > 0
		}) {
			t.Errorf("the wait is not declared: %v, %v", open, ended)
		}
		w.wait(t)
		stop()
		run.Wait()
		slow.out.Wait()
		other.out.Wait()
		for id, rows := range w.rows {
			for _, r := range rows {
				if r.Platform == push.APNS && r.State != push.StateDelivered {
					t.Fatalf("%s: %v (%s)", id, r.State, r.Reason)
				}
			}
		}
		if len(w.held)+len(w.retried) > 0 {
			t.Errorf("handed over: %d held, %d retried", len(w.held), len(w.retried))
		}
	})
}
