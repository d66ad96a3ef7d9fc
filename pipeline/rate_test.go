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

// leasedRate allows everything for a while, from a moment after it was asked for in vain,
// as a rate that is shared does.
type leasedRate struct {
	slowRate
	asked time.Time // guarded by mu
}

func (r *leasedRate) Take(now time.Time, _ bool, n int) (int, uint32, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const answered, lapses = 100 * time.Millisecond, 700 * time.Millisecond
	if r.asked.IsZero() || now.Sub(r.asked) >= lapses {
		r.asked = now
	}
	if now.Sub(r.asked) < answered {
		return 0, 0, r.asked.Add(answered)
	}
	return n, 0, time.Time{}
}

// After a long pause the first probe waits for its route's rate, which has nothing left
// from before: it is not held. It would come back when what was granted has lapsed, and
// nothing would ever probe a route with little to send.
func TestAProbeWaitsForARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(1, 1, 10)
		apns := push.Route{Platform: push.APNS, App: "shop"}
		rate := &leasedRate{}
		o := gates.DefaultOptions()
		o.Rates = map[push.Route]gates.Rate{apns: rate}
		gate := w.open(t, o).Of(apns)
		gate.Admit(time.Now(), gates.Free, false, 1)
		time.Sleep(100 * time.Millisecond)
		ticket, n, _, _ := gate.Admit(time.Now(), gates.Free, false, 1)
		if n != 1 {
			t.Fatal("nothing was let through")
		}
		asked := push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: 2 * o.HoldAfter}
		gates.Return(time.Now(), []gates.Answer{{Ticket: ticket, Result: &asked}})
		time.Sleep(3 * o.HoldAfter)
		slow, other := &stopping{provider: provider{w: w}}, &stopping{provider: provider{w: w}}
		p := w.pipelineTo(t, 50, slow, other)
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		w.wait(t)
		stop()
		run.Wait()
		slow.out.Wait()
		other.out.Wait()
		if len(w.held) > 0 {
			t.Errorf("%d were held, want them to wait for the rate", len(w.held))
		}
	})
}
