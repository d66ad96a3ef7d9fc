package dashboard

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// A worker that sends to both environments of an app has two routes, each with a lamp.
func TestRoutesOfEnvironments(t *testing.T) {
	f := NewFeed()
	f.Add(told("a", start, events.State{Worker: "worker-a", Routes: []events.RouteState{
		{Provider: "apns", App: "shop", Environment: "production", Gate: "open", RateName: "apns/T/shop/production", Rate: 1000, Base: 1000},
		{Provider: "apns", App: "shop", Environment: "sandbox", Gate: "paused", Until: start.Add(time.Minute), RateName: "apns/T/shop/sandbox", Rate: 10, Base: 10}}}), start)
	s := f.Snapshot(start, Kind{}, 100)
	if len(s.Routes) != 2 || s.Routes[0].Environment != "sandbox" || s.Routes[0].Lamp != LampPaused || s.Routes[1].Lamp != LampOpen || s.Routes[1].Workers != 1 || s.Routes[1].Rate != 1000 {
		t.Errorf("routes %+v", s.Routes)
	}
}

// A time that JSON can read and not write, as a zone moves it out of the years, does not
// keep the page from everything else.
func TestTimesOutOfTheYears(t *testing.T) {
	for _, at := range []string{"0000-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"} {
		text := strings.ReplaceAll(`{"v":1,"source":"a","at":"AT","n":1,"failures":[{"id":"i","lane":"critical","state":"FAILED","at":"AT"}],"gap":{"from":"AT","to":"AT"},
			"rates":[{"name":"n","at":"AT"}],"state":{"worker":"w","started":"AT","lanes":[{"lane":"critical","topic":"push.critical","oldest":"AT"}],
			"routes":[{"provider":"apns","app":"shop","gate":"paused","until":"AT"}],"stalls":[{"reason":"r","since":"AT"}]}}`, "AT", at)
		e, err := events.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		f := NewFeed()
		f.Add(e, start)
		if _, err := json.Marshal(f.Snapshot(start, Kind{}, 100)); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// What a worker tells whose clock is wrong stands at wrong times: the page says so.
func TestWrongClocksAreSaid(t *testing.T) {
	for off, want := range map[time.Duration]bool{0: false, -time.Second: false, -3 * time.Hour: true, 3 * time.Hour: true, -10 * time.Second: true} {
		f := NewFeed()
		f.Add(told("a", start.Add(off), worker("worker-a", "open")), start)
		if s := f.Snapshot(start.Add(time.Second), Kind{}, 100); says(s.Approximate, "clock") != want {
			t.Errorf("%v off: %v", off, s.Approximate)
		}
	}
}

// A count that no worker can have does not spoil the sum of the others.
func TestCountsDoNotOverflow(t *testing.T) {
	f := NewFeed()
	for n := range int64(4) {
		f.Add(counted("a", n+1, start, sent("critical", "shop", 1<<62), sent("critical", "shop", 5)), start)
	}
	if s := f.Snapshot(start.Add(2*time.Second), Kind{}, 100); s.Outcomes.Total < 20 || s.Sum.Sent < 0 {
		t.Errorf("in all %d, now %v", s.Outcomes.Total, s.Sum.Sent)
	}
}

// A partition whose offsets nobody tells makes no queue, and none of all there ever was.
func TestPositionsNotKnownAreSaid(t *testing.T) {
	f := NewFeed()
	f.Positions([]Position{
		{Lane: "critical", Kind: TopicMain, Topic: "push.critical", Partition: 0, Committed: 60, End: 100},
		{Lane: "critical", Kind: TopicMain, Topic: "push.critical", Partition: 1, Committed: -1, Unknown: true},
	}, start)
	if s := f.Snapshot(start, Kind{}, 100); s.Sum.Queued != 40 || !says(s.Approximate, "the offsets of 1 partitions") {
		t.Errorf("queued %d, %v", s.Sum.Queued, s.Approximate)
	}
}

// A record of the past may say that it is of the future: its writer's clock was ahead.
// The feed's time does not follow it, as all workers would be gone until then.
func TestPastIsNotInTheFuture(t *testing.T) {
	for told, want := range map[time.Duration]time.Duration{-time.Minute: -time.Minute, 3 * time.Hour: 0} {
		if got := earlier(start.Add(told), start); !got.Equal(start.Add(want)) {
			t.Errorf("%v after now is heard %v after it", told, got.Sub(start))
		}
	}
}
