package pipeline

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// What this worker will not send is the next owner's, so that its offset stays;
// only what is committed, and so nobody else's, is answered for.
func TestUnsent(t *testing.T) {
	ours, next := &Delivery{Item: &Item{committed: true}}, &Delivery{Item: &Item{}}
	unsent([]*Delivery{ours, next})
	if !next.abandoned || next.Result.Class != push.Unsent {
		t.Errorf("uncommitted delivery: abandoned %v, class %v; want true, unsent", next.abandoned, next.Result.Class)
	}
	if ours.abandoned || ours.Result.Class != push.Held || ours.Result.Reason != string(push.WorkerStopped) || ours.Result.Scope != push.ScopeRoute {
		t.Errorf("committed delivery: abandoned %v, %+v; want it held", ours.abandoned, ours.Result)
	}
}

// Only what came back unsent and is still ours goes to its line again, with its place
// in the window free.
func TestSendLater(t *testing.T) {
	for _, tt := range []struct {
		why   string
		edit  func(*Delivery)
		later bool
	}{
		{"unsent", func(*Delivery) {}, true},
		{"given back: the next owner has it, and this worker would write no row", func(d *Delivery) { d.abandoned = true }, false},
		{"the recheck has decided it", func(d *Delivery) { d.Verdict = push.Suppressed }, false},
		{"decided as a whole: it never was in a line", func(d *Delivery) { d.Verdict, d.share, d.inWindow = push.Dead, nil, false }, false},
		{"answered", func(d *Delivery) { d.Result.Class = push.Delivered }, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			r := newRoute(push.Route{Platform: push.APNS, App: "shop"}, nil, nil, 20, false, NewMetrics(prometheus.NewRegistry()))
			p, l := &Pipeline{opt: Options{Window: 20}}, r.lines[gates.Free]
			l.waiting.put(l, waitingFor("a", 1))
			ds := p.enter(t.Context(), t.Context(), l, nil)
			d := ds[0]
			tt.edit(d)
			stay := p.sendLater(ds, time.Now())
			again := l.waiting.next(nil, 20)
			if tt.later != (len(stay) == 0) || tt.later != (len(again) == 1) || tt.later == d.inWindow && d.share != nil {
				t.Errorf("got %d in the line, %d staying, in the window %v; want it to be sent later: %v", len(again), len(stay), d.inWindow, tt.later)
			}
		})
	}
}
