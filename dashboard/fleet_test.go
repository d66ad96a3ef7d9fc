package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// Of what several workers say of a route and a lane the worst is shown, whoever says it: the
// latest end of a pause, the least rate, the oldest record, the word of who is stopped.
func TestTheWorstIsShown(t *testing.T) {
	type says struct {
		gate, word string
		until      time.Duration
		rate       float64
		oldest     time.Duration
	}
	list := []says{{"paused", "Slow", time.Minute, 800, time.Second}, {"halted", "Forbidden", 3 * time.Minute, 0, 0}, {"open", "", 2 * time.Minute, 500, 3 * time.Second}, {"of a later version", "New", 0, 600, 2 * time.Second}}
	for turn := range list {
		f := NewFeed()
		for i := range list {
			w := list[(turn+i)%len(list)]
			st := events.State{Worker: fmt.Sprint("worker-", i), Lanes: []events.LaneState{{Lane: "critical", Topic: laneTopic, Open: 5}},
				Routes: []events.RouteState{{Provider: "fcm", App: "shop", Gate: w.gate, Word: w.word, Until: start.Add(w.until), Rate: w.rate, Base: 1000}},
				Stalls: []events.StallState{{Reason: w.gate, Since: start.Add(-w.oldest)}}}
			if w.oldest > 0 {
				st.Lanes[0].Oldest = start.Add(-w.oldest)
			}
			f.Add(told(fmt.Sprint(i), start, st), start)
		}
		f.Positions([]Position{{Lane: "critical", Kind: TopicMain, Topic: laneTopic, Committed: 90, End: 100}}, start)
		s := f.Snapshot(start, Kind{}, 100)
		if r := s.Routes[0]; r.Lamp != LampHalted || r.At != 1 || r.Workers != 4 || r.Word != "Forbidden" || !r.Until.Equal(start.Add(3*time.Minute)) || r.Rate != 500 {
			t.Errorf("from %d on: route %+v", turn, r)
		}
		if l := s.Lanes[0]; !l.Oldest.Equal(start.Add(-3*time.Second)) || l.InProgress != 20 || l.Queued != 0 {
			t.Errorf("from %d on: lane %+v", turn, l)
		}
		if len(s.Stalls) != 4 || s.Stalls[0].Reason != "open" || s.Stalls[3].Reason != "halted" {
			t.Errorf("from %d on: stalls %+v", turn, s.Stalls)
		}
	}
	f := NewFeed()
	f.Add(told("a", start, events.State{Worker: "a", Routes: []events.RouteState{{Provider: "fcm", App: "shop", Gate: "of a later version", Rate: 5, Base: 5}}}), start)
	if r := f.Snapshot(start, Kind{}, 100).Routes[0]; r.Lamp != LampOpen || r.At != 1 {
		t.Errorf("a gate that is not known: %+v", r)
	}
}
