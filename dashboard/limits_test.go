package dashboard

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// What limits stop is told by rule, and its share as the alert sees it: of the last ten
// minutes, without what limits are not asked about.
func TestLimits(t *testing.T) {
	f := NewFeed()
	of := func(state, reason string, n int64) events.Count {
		return events.Count{Lane: "promotional", App: "shop", Type: "news", State: state, Reason: reason, N: n}
	}
	before, now := start, start.Add(20*time.Minute)
	f.Add(counted("a", 1, before, of(delivered, "", 50), of("SUPPRESSED", "limited:news-a-day", 50)), before)
	f.Add(counted("a", 2, now, of(delivered, "", 90), of("SUPPRESSED", "limited:news-a-day", 6), of("HELD", "limit_waits:night", 3), of("HELD", "limit_waits:news-a-day", 1), of("HELD", "limit_waits", 0), of("HELD", "quiet_hours", 100),
		of("RETRYING", "UNAVAILABLE", 1000), of("DUPLICATE", "", 1000), of("SUPPRESSED", "limited_edition", 0)), now)
	s := f.Snapshot(now, Kind{}, 100)
	l := s.Limits
	if math.Abs(l.Share-0.05) > 1e-9 || l.Minutes[hour-1] != 0.05 || l.Minutes[hour-21] != 0.5 || l.Minutes[hour-2] != 0 || len(l.Minutes) != hour {
		t.Errorf("share %v of minutes %v", l.Share, l.Minutes)
	}
	if len(l.Rules) != 2 || l.Rules[0] != (Rule{Rule: "news-a-day", Reason: "limited:news-a-day", Stopped: 56, PutOff: 1}) || l.Rules[1] != (Rule{Rule: "night", Reason: "limit_waits:night", PutOff: 3}) {
		t.Errorf("rules %+v", l.Rules)
	}
	if l := f.Snapshot(now, Kind{Lane: "critical"}, 100).Limits; l.Share != 0 || len(l.Rules) != 0 || l.Rules == nil {
		t.Errorf("of another lane: %+v", l)
	}
	f.Add(counted("b", 1, now, of("HELD", "limit_waits", 7)), now) // of an earlier version
	if l := f.Snapshot(now, Kind{}, 100).Limits; len(l.Rules) != 3 || l.Rules[1] != (Rule{Rule: other, Reason: "limit_waits", PutOff: 7}) {
		t.Errorf("with what an earlier worker tells: %+v", l.Rules)
	}
	if l := f.Snapshot(now, Kind{}, 5).Limits; len(l.Rules) != 1 {
		t.Errorf("bounded: %+v", l.Rules)
	}
}

// The share is that of ten minutes, the present one included. A rule that stops and puts off
// has the reason of what it stops.
func TestLimitsHaveEdges(t *testing.T) {
	for back, want := range map[time.Duration]float64{0: 0.5, 9 * time.Minute: 0.5, 10 * time.Minute: 0} {
		f := NewFeed()
		at := start.Add(-back)
		f.Add(counted("a", 1, at, sent("critical", "shop", 5), events.Count{Lane: "critical", State: "SUPPRESSED", Reason: "limited:cap", N: 3},
			events.Count{Lane: "critical", State: "HELD", Reason: "limit_waits:cap", N: 2}), at)
		for range 20 { // kinds are added up in any order
			if l := f.Snapshot(start, Kind{}, 100).Limits; l.Share != want || len(l.Rules) != 1 || l.Rules[0].Reason != "limited:cap" {
				t.Fatalf("%v ago: share %v, rules %+v", back, l.Share, l.Rules)
			}
		}
	}
}

// The line on the page is that of the alert.
func TestLimitLineIsTheAlerts(t *testing.T) {
	rules, err := os.ReadFile("../deploy/alerts/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(rules), "alert: PushManyLimited")
	rule, _, _ = strings.Cut(rule, "labels:")
	if limitLine != 0.05 || limitSpan != 10 || !strings.Contains(rule, "> 0.05") || strings.Count(rule, "[10m]") != 2 {
		t.Errorf("the alert is\n%s", rule)
	}
}
