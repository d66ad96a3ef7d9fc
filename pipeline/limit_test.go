package pipeline_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// purse is a fleet's limit with so many sends a second, of which it knows how many were
// taken and not returned.
type purse struct {
	perSecond int
	mu        sync.Mutex
	began     time.Time // guarded by mu, as all below
	taken     int
	returned  int
	idle      int // how often it was asked for nothing
}

func (l *purse) Take(now time.Time, n int) (int, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.IsZero() {
		l.began = now
	}
	if n <= 0 {
		l.idle++
	}
	n = min(n, int(now.Sub(l.began).Seconds()*float64(l.perSecond))-l.taken)
	if n <= 0 {
		return 0, now.Add(10 * time.Millisecond)
	}
	l.taken += n
	return n, time.Time{}
}

func (l *purse) Return(_ time.Time, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken -= n
	l.returned += n
}

// limited runs a pipeline of w to two providers under a limit, calls look after a time,
// and waits until all of w has ended.
func (w *world) limited(t *testing.T, l pipeline.Limit, after time.Duration, look func(p *pipeline.Pipeline)) {
	slow, other := &stopping{provider: provider{w: w}}, &stopping{provider: provider{w: w}}
	w.limit = l
	p := w.pipelineTo(t, 50, slow, other)
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = p.Run(ctx) })
	time.Sleep(after)
	look(p)
	w.wait(t)
	stop()
	run.Wait()
	slow.out.Wait()
	other.out.Wait()
}

// What the fleet's limit does not allow waits in place, for longer than a route may be
// stopped: it is no attempt and is not held, and the wait is a declared stall. What a
// route's rate does not let through costs the fleet nothing.
func TestWhatWaitsForTheFleetsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(1, 2, 300)
		o := gates.DefaultOptions()
		apns := push.Route{Platform: push.APNS, App: "shop"}
		o.Rates = map[push.Route]gates.Rate{apns: &slowRate{perSecond: 30}}
		w.open(t, o)
		limit := &purse{perSecond: 60}
		w.limited(t, limit, 5*time.Second, func(p *pipeline.Pipeline) {
			open, ended := p.Declared()
			if !slices.ContainsFunc(append(open, ended...), func(s gates.Stall) bool {
				return s.Name == string(gates.LimitSpent) && len(s.Partitions) > 0
			}) {
				t.Errorf("the wait is not declared: %v, %v", open, ended)
			}
		})
		sends := 0
		for _, rows := range w.rows {
			for _, r := range rows {
				if r.State == push.StateDelivered {
					sends++
				}
			}
		}
		if len(w.held)+len(w.retried) > 0 {
			t.Errorf("handed over: %d held, %d retried", len(w.held), len(w.retried))
		}
		if limit.taken != sends || limit.returned == 0 {
			t.Errorf("%d taken of the limit and not returned, %d returned; %d were sent", limit.taken, limit.returned, sends)
		}
	})
}

// A route that is stopped for long does not ask the limit, not even for no sends: it would
// be taken for one that waits. What is for it is held as without a limit.
func TestAStoppedRouteTakesNothingOfTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(1, 1, 10)
		o := gates.DefaultOptions()
		apns := push.Route{Platform: push.APNS, App: "shop"}
		gate := w.open(t, o).Of(apns)
		ticket, _, _, _ := gate.Admit(time.Now(), gates.Free, false, 1)
		asked := push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: time.Hour}
		gates.Return(time.Now(), []gates.Answer{{Ticket: ticket, Result: &asked}})
		limit := &purse{perSecond: 1000}
		w.limited(t, limit, time.Second, func(*pipeline.Pipeline) {})
		if len(w.held) == 0 || limit.returned+limit.idle > 0 {
			t.Errorf("%d are held, %d sends were returned, and none was asked for %d times; want what is for the stopped route to be held, and nothing taken for it", len(w.held), limit.returned, limit.idle)
		}
	})
}
