package dashboard

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// What was told while the clock was ahead hides nothing that comes after it was set back, and
// does not stand there when the time comes at which it was told.
func TestWhatWasAheadIsInNobodysWay(t *testing.T) {
	f := NewFeed()
	f.Ready()
	n := int64(0)
	tell := func(at time.Time, share float64, gate string) {
		n++
		st := worker("worker-a", gate)
		e := counted("a", n, at, sent("critical", "shop", 10))
		e.State = &st
		e.Limits = &events.Limits{Senders: []events.SenderLimit{{Rule: "rule", Sender: "orders", Limit: 10, Window: 600, Fills: 600, Share: share, Now: share}}}
		f.Add(e, at)
	}
	wrong := start.Add(30 * time.Minute)
	tell(wrong, 0.9, "open")
	n++ // is missing
	tell(wrong, 0.9, "open")
	f.PassOver()
	now := start
	f.Positions(nil, now)
	for range 6 {
		now = now.Add(time.Second)
		tell(now, 0.2, "halted")
	}
	now = now.Add(time.Second)
	s := f.Snapshot(now, Kind{}, 100)
	if s.Outcomes.Total != 60 || total(s.Curves[0].Day) != 60 || total(s.Curves[0].Quarter) < 50 || len(s.Workers) != 1 || s.Workers[0].Sent != 10 || s.Routes[0].Lamp != LampHalted {
		t.Errorf("%d counted, workers %+v, routes %+v", s.Outcomes.Total, s.Workers, s.Routes)
	}
	if list := s.Limits.Senders; len(list) != 1 || math.Abs(list[0].Share-0.2) > 0.01 {
		t.Errorf("senders %+v", list)
	}
	if s = f.Snapshot(now.Add(2*time.Minute), Kind{}, 100); !says(s.Approximate, "1 records of push.events are missing") {
		t.Errorf("of a record that is missing: %v", s.Approximate)
	}
	s = f.Snapshot(wrong.Add(time.Minute), Kind{}, 100)
	if total(s.Curves[0].Day) != 60 || total(s.Curves[0].Quarter) != 0 || says(s.Approximate, "could not be read") {
		t.Errorf("when it was told: %d in the day, %d in 15 minutes, %v", total(s.Curves[0].Day), total(s.Curves[0].Quarter), s.Approximate)
	}
	if list := s.Limits.Senders; len(list) != 1 || slices.Max(list[0].Minutes[40:]) != 0 {
		t.Errorf("when it was told: senders %+v", list)
	}
}
