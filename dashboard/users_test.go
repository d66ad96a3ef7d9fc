package dashboard

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/push"
)

// limitedUsers is an event of users, from one number to before another, that a rule limited.
func limitedUsers(source string, n int64, at time.Time, rule string, from, to int) *events.Event {
	s := new(events.Sketch)
	for u := from; u < to; u++ {
		s.Add(push.UserHash(fmt.Sprint("user-", u)))
	}
	return &events.Event{Version: events.Version, Source: source, Number: n, From: at.Add(-10 * time.Second), At: at,
		Limits: &events.Limits{Users: []events.LimitedUsers{{Rule: rule, Sketch: s}}}}
}

// rulesIn are the limits of a snapshot that was narrowed by a filter.
func rulesIn(f *Feed, at time.Time, filter Kind) map[string]Rule {
	rules := map[string]Rule{}
	for _, r := range f.Snapshot(at, filter, 100).Limits.Rules {
		rules[r.Rule] = r
	}
	return rules
}

func about(n, want int64) bool { return math.Abs(float64(n-want)) <= 0.1*float64(want) }

// Users that several workers limited count once, in the last five minutes and the last hour.
func TestLimitedUsers(t *testing.T) {
	f := NewFeed()
	of := func(reason string) events.Count {
		return events.Count{Lane: "promotional", App: "shop", State: "SUPPRESSED", Reason: reason, N: 9000}
	}
	f.Add(counted("c", 1, start, of("limited:news-a-day"), of("limited:night"), of("limited:earlier")), start)
	f.Add(limitedUsers("a", 1, start.Add(-40*time.Minute), "news-a-day", 0, 4000), start.Add(-40*time.Minute))
	f.Add(limitedUsers("a", 2, start.Add(-4*time.Minute), "news-a-day", 3000, 4000), start)
	f.Add(limitedUsers("b", 1, start, "news-a-day", 3500, 5000), start)
	f.Add(limitedUsers("b", 2, start, "night", 0, 12), start)
	f.Add(limitedUsers("b", 3, start.Add(-5*time.Minute), "night", 6, 30), start)
	rules := rulesIn(f, start, Kind{})
	if r := rules["news-a-day"]; !about(r.Users5m, 2000) || !about(r.Users1h, 5000) || r.Stopped != 9000 {
		t.Errorf("a day: %+v, want about 2000 and 5000", r)
	}
	if r := rules["night"]; !about(r.Users5m, 12) || !about(r.Users1h, 30) {
		t.Errorf("night: %+v, want about 12 and 30", r)
	}
	if r := rules["earlier"]; r.Users5m != 0 || r.Users1h != 0 {
		t.Errorf("one of which nobody tells users: %+v", r)
	}
	if s := f.Snapshot(start, Kind{}, 100); !says(s.Approximate, "users") {
		t.Errorf("approximate: %v", s.Approximate)
	}
	// Of a filter they know the rule alone.
	if r := rulesIn(f, start, Kind{Reason: "limited:night"})["night"]; !about(r.Users5m, 12) {
		t.Errorf("narrowed to the rule: %+v", r)
	}
	if r := rulesIn(f, start, Kind{Lane: "promotional"})["night"]; r.Users5m != 0 || r.Users1h != 0 || r.Stopped != 9000 {
		t.Errorf("narrowed to a lane: %+v", r)
	}
	if s := f.Snapshot(start, Kind{Lane: "promotional"}, 100); says(s.Approximate, "users") {
		t.Errorf("approximate: %v", s.Approximate)
	}

	// They leave with their minutes.
	rules = rulesIn(f, start.Add(21*time.Minute), Kind{})
	if r := rules["news-a-day"]; r.Users5m != 0 || !about(r.Users1h, 2000) {
		t.Errorf("21 minutes later: %+v, want 0 and about 2000", r)
	}
	if f.Snapshot(start.Add(2*time.Hour), Kind{}, 100); len(f.limiters.of) != 0 {
		t.Errorf("two hours later %d rules", len(f.limiters.of))
	}
	f.Add(limitedUsers("b", 4, start, "late", 0, 12), start.Add(2*time.Hour))
	f.Add(&events.Event{Source: "b", Number: 5, At: start.Add(2 * time.Hour), Limits: &events.Limits{Users: []events.LimitedUsers{{Rule: "none"}}}}, start.Add(2*time.Hour))
	if len(f.limiters.of) != 0 {
		t.Errorf("told too late, and nothing: %d rules", len(f.limiters.of))
	}
}

// However many rules there are, a bound is kept, and the snapshot keeps its size.
func TestLimitersAreBounded(t *testing.T) {
	f := NewFeed()
	bad := strings.Repeat("\x01", 200)
	for i := range int64(300) {
		rule := fmt.Sprint(i, bad)
		f.Add(limitedUsers("a", i+1, start, rule, 0, 1000), start)
		f.Add(counted("c", i+1, start, events.Count{Lane: "promotional", State: "SUPPRESSED", Reason: "limited:" + rule, N: 1}), start)
		f.Add(limited("s", i+1, start, hourly(rule, 1, 1, 1)), start)
	}
	if len(f.limiters.of) != maxLimiters {
		t.Errorf("%d rules", len(f.limiters.of))
	}
	if text, err := f.Encode(start, Kind{}); err != nil || len(text) > MaxSnapshot {
		t.Errorf("a snapshot of %d bytes, %v", len(text), err)
	}
}
