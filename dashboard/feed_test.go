package dashboard

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

var start = time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)

// counted is an event of counts.
func counted(source string, n int64, at time.Time, counts ...events.Count) *events.Event {
	return &events.Event{Version: events.Version, Source: source, Number: n, From: at.Add(-time.Second), At: at, Counts: counts}
}

func sent(lane, app string, n int64) events.Count {
	return events.Count{Lane: lane, App: app, Type: "order", Provider: "apns", State: delivered, N: n}
}

// says reports whether a list has an entry with this text.
func says(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, text) })
}

// Each count is counted once, under its lane, and what is narrowed adds up.
func TestFeedCounts(t *testing.T) {
	f := NewFeed()
	f.Ready()
	now := start
	for i := range int64(120) {
		now = start.Add(time.Duration(i) * time.Second)
		e := counted("a", i+1, now, sent("critical", "shop", 100), sent("critical.retry", "bank", 7),
			events.Count{Lane: "promotional", App: "shop", Type: "news", Provider: "fcm", State: "FAILED", Reason: "UNREGISTERED", N: 3},
			events.Count{Lane: "promotional", App: "shop", Type: "news", State: "SUPPRESSED", Reason: "opted_out_type", N: 2})
		f.Add(e, now)
		f.Add(e, now) // a copy
	}
	s := f.Snapshot(now.Add(time.Second), Kind{}, 100)
	if s.Outcomes.Total != 120*112 || s.Sum.Sent != 107 || s.Sum.Failed != 3 || len(s.Lanes) != 2 {
		t.Errorf("total %d, now %+v", s.Outcomes.Total, s.Sum)
	}
	want := []Share{{delivered, 120 * 107}, {"FAILED", 360}, {"SUPPRESSED", 240}}
	if got := s.Outcomes.By["state"]; !slices.Equal(got, want) {
		t.Errorf("by state: %v, want %v", got, want)
	}
	if r := s.Outcomes.Rows[0]; r.Kind != (Kind{Lane: "critical", App: "shop", Type: "order", Provider: "apns", State: delivered}) || r.N != 12_000 {
		t.Errorf("the most frequent: %+v", r)
	}
	if s.Meanings["UNREGISTERED"] == "" || s.Meanings["opted_out_type"] == "" {
		t.Errorf("meanings: %v", s.Meanings)
	}
	if !s.Since.Equal(start.Add(-57 * time.Minute)) {
		t.Errorf("counted since %v", s.Since)
	}
	s = f.Snapshot(now, Kind{Lane: "promotional", App: "shop"}, 100)
	if s.Outcomes.Total != 600 || len(s.Outcomes.By["provider"]) != 1 || s.Sum.Sent != 0 || s.Sum.Failed != 3 || s.Curves[0].Lane != "promotional" {
		t.Errorf("narrowed: %+v, %+v", s.Outcomes, s.Sum)
	}
	if !says(s.Approximate, "know lanes and nothing else") {
		t.Errorf("approximate: %v", s.Approximate)
	}

	// The curves have the same sums, and end now.
	all := f.Snapshot(now, Kind{}, 100).Curves
	if all[0].Lane != "" || all[0].What != "sent" || total(all[0].Quarter) != 120*107 || total(all[0].Day) != 120*107 || all[0].Quarter[quarterCount-1] != 5*107 {
		t.Errorf("curve of all: %+v", all[0])
	}
	if all[1].What != "failed" || total(all[1].Day) != 360 {
		t.Errorf("curve of failures: %v", all[1])
	}
}

// What a killed worker told of a range is told again by its heir, up to where that came: it
// is counted once, as the heir tells it.
func TestFeedCountsRangesOnce(t *testing.T) {
	f := NewFeed()
	f.Ready()
	tell := func(source string, number, from, to int64) {
		now := start.Add(time.Duration(number) * time.Second)
		f.Add(&events.Event{Version: events.Version, Source: source, Number: number, From: now.Add(-time.Second), At: now, Ranged: true,
			Counts: []events.Count{sent("critical", "shop", to-from)},
			Ranges: &events.Ranges{Lane: "critical", Kinds: []events.RangeKind{{App: "shop", Type: "order", Provider: "apns", State: delivered}},
				Of: []events.Range{{Place: events.Place{Topic: "push.critical", Partition: 3, From: from, To: to}, Counts: []int64{0, to - from}}}}}, now)
	}
	for _, told := range []struct {
		source           string
		number, from, to int64
		total            int64
	}{{"a", 1, 0, 100, 100}, {"a", 2, 100, 150, 150}, {"b", 1, 100, 150, 150}, {"b", 2, 150, 400, 400}, {"c", 1, 150, 500, 500}} {
		tell(told.source, told.number, told.from, told.to)
		if s := f.Snapshot(start.Add(5*time.Second), Kind{}, 100); s.Outcomes.Total != told.total {
			t.Errorf("%+v: %d in all", told, s.Outcomes.Total)
		}
	}
}

// ranged is an event of a range, each of whose records was delivered, as some type.
func ranged(source string, n int64, at time.Time, from, to int64, typ string) *events.Event {
	return &events.Event{Version: events.Version, Source: source, Number: n, At: at, Ranges: &events.Ranges{Lane: "critical", Kinds: []events.RangeKind{{App: "shop", Type: typ, State: delivered}},
		Of: []events.Range{{Place: events.Place{Topic: "push.critical", From: from, To: to}, Counts: []int64{0, to - from}}}}}
}

// What was counted of a worker whose clock is ahead, and is told again by its heir, is taken
// from the minute in which it was counted: no minute is left with less than nothing.
func TestWhatIsToldAgainLeavesNoMinuteInDebt(t *testing.T) {
	f := NewFeed()
	now := start.Add(59 * time.Second)
	f.Add(ranged("ahead", 1, now.Add(2*time.Minute), 0, 100, "order"), now)
	now = now.Add(30 * time.Second)
	f.Add(ranged("heir", 1, now, 0, 200, "order"), now)
	for _, after := range []time.Duration{0, time.Minute, 58 * time.Minute, 59 * time.Minute} {
		if s := f.Snapshot(now.Add(after), Kind{}, 100); s.Outcomes.Total != 200 {
			t.Errorf("after %v: %d in the hour, want 200", after, s.Outcomes.Total)
		}
	}
}

// So it is of what was counted as other, because there were more kinds than are told apart,
// and is told again when there is room. What nothing is left of is not shown.
func TestWhatIsToldAgainLeavesNoKindInDebt(t *testing.T) {
	f := NewFeed()
	for i := range maxKinds {
		f.Add(counted("a", int64(i)+1, start, events.Count{Lane: "critical", App: fmt.Sprint(i), State: delivered, N: 1}), start)
	}
	then, now := start.Add(59*time.Minute), start.Add(time.Hour)
	f.Add(ranged("killed", 1, then, 0, 100, "new"), then)
	f.Add(ranged("heir", 1, now, 0, 200, "newer"), now)
	s := f.Snapshot(now, Kind{}, 100)
	if len(s.Outcomes.Rows) != 1 || s.Outcomes.Rows[0].N != 200 || len(s.Outcomes.By["type"]) != 1 {
		t.Errorf("outcomes %+v", s.Outcomes.Rows)
	}
}

func total(list []int64) (n int64) {
	for _, one := range list {
		n += one
	}
	return n
}

// What is an hour old leaves the totals, and what is a day old the curves.
func TestFeedForgets(t *testing.T) {
	f := NewFeed()
	f.Add(counted("a", 1, start, sent("critical", "shop", 5)), start)
	for _, tt := range []struct {
		after                time.Duration
		hour, quarter, daily int64
	}{
		{time.Second, 5, 5, 5}, {14 * time.Minute, 5, 5, 5}, {16 * time.Minute, 5, 0, 5}, {59 * time.Minute, 5, 0, 5},
		{61 * time.Minute, 0, 0, 5}, {23 * time.Hour, 0, 0, 5}, {25 * time.Hour, 0, 0, 0},
	} {
		s := f.Snapshot(start.Add(tt.after), Kind{}, 100)
		if s.Outcomes.Total != tt.hour || total(s.Curves[0].Quarter) != tt.quarter || total(s.Curves[0].Day) != tt.daily {
			t.Errorf("after %v: %d in the hour, %d in 15 minutes, %d in the day", tt.after, s.Outcomes.Total, total(s.Curves[0].Quarter), total(s.Curves[0].Day))
		}
	}
	// What comes late counts where it belongs, and nowhere if that is over.
	f.Add(counted("a", 2, start.Add(25*time.Hour-30*time.Minute), sent("critical", "shop", 3)), start.Add(25*time.Hour))
	f.Add(counted("a", 3, start.Add(-time.Hour), sent("critical", "shop", 9)), start.Add(25*time.Hour))
	if s := f.Snapshot(start.Add(25*time.Hour), Kind{}, 100); s.Outcomes.Total != 3 || total(s.Curves[0].Day) != 3 {
		t.Errorf("late ones: %d in the hour, %d in the day", s.Outcomes.Total, total(s.Curves[0].Day))
	}
}

// What comes late counts in the oldest minute of the hour, and a minute before that nowhere:
// its place is that of the present one.
func TestTheHourHasAnEdge(t *testing.T) {
	for back, want := range map[time.Duration]int64{59 * time.Minute: 1, time.Hour: 0, 61 * time.Minute: 0} {
		f := NewFeed()
		f.Snapshot(start, Kind{}, 100)
		user := new(events.Sketch)
		user.Add(1)
		e := counted("a", 1, start.Add(-back), events.Count{Lane: "critical", State: "SUPPRESSED", Reason: "limited:cap", N: 1})
		e.Limits = &events.Limits{Senders: []events.SenderLimit{{Rule: "rule", Sender: "orders", Limit: 10, Window: 60, Fills: 1e6, Share: 1, Limited: 1}}, Users: []events.LimitedUsers{{Rule: "cap", Sketch: user}}}
		f.Add(e, start)
		f.Add(counted("a", 2, start, events.Count{Lane: "critical", State: "SUPPRESSED", Reason: "limited:cap", N: 1}), start)
		s := f.Snapshot(start, Kind{}, 100)
		if s.Outcomes.Total != 1+want || s.Limits.Rules[0].Stopped != 1+want || s.Limits.Rules[0].Users1h != want || int64(len(s.Limits.Senders)) != want {
			t.Errorf("%v ago: %d counted, limits %+v", back, s.Outcomes.Total, s.Limits)
		}
	}
}

// A worker whose clock is ahead is counted now, and not in the future.
func TestFeedClockAhead(t *testing.T) {
	f := NewFeed()
	f.Add(counted("a", 1, start.Add(2*time.Hour), sent("critical", "shop", 5)), start)
	if s := f.Snapshot(start.Add(2*time.Second), Kind{}, 100); s.Outcomes.Total != 5 || total(s.Curves[0].Quarter) != 5 {
		t.Errorf("%d in the hour", s.Outcomes.Total)
	}
}

// A dashboard whose clock was ahead, by less or more than what it shows, shows what comes once
// the clock is right, and says that it was not. Who was there then is gone if it tells nothing.
func TestTheClockIsSetBack(t *testing.T) {
	for _, ahead := range []time.Duration{30 * time.Minute, 25 * time.Hour} {
		f := NewFeed()
		f.Ready()
		limited := events.Count{Lane: "critical", App: "shop", State: "SUPPRESSED", Reason: "limited:cap", N: 1}
		tell := func(n int64, by, at time.Time) {
			e := counted("a", n, by, sent("critical", "shop", 10), limited)
			user := new(events.Sketch)
			user.Add(uint64(n) << 54)
			e.Limits = &events.Limits{Senders: []events.SenderLimit{{Rule: "rule", Sender: "orders", Limit: 10, Window: 60, Fills: 60, Share: 0.5, Now: 0.5, Limited: 2}},
				Users: []events.LimitedUsers{{Rule: "cap", Sketch: user}}}
			f.Add(e, at)
		}
		wrong := start.Add(ahead)
		tell(1, start.Add(-time.Second), wrong)
		tell(2, wrong, wrong) // by a worker of the same machine
		f.Add(told("gone", wrong, worker("gone", "open")), wrong)
		f.PassOver()
		f.Snapshot(wrong, Kind{}, 100)
		now := start.Add(2 * time.Second)
		f.Positions(nil, now)
		for i := range int64(5) {
			tell(3+i, now, now)
			now = now.Add(time.Second)
		}
		now = now.Add(time.Second)
		s := f.Snapshot(now, Kind{}, 100)
		want := int64(5)
		if ahead < time.Hour {
			want++ // the first one has its place in this hour
		}
		if s.Sum.Sent != 10 || s.Outcomes.Total != 11*want || !s.Since.Equal(start.Add(-59*time.Minute)) || !says(s.Approximate, "was ahead until it was set back at 10:30:02") {
			t.Errorf("ahead by %v: %+v, %d since %v, %v", ahead, s.Sum, s.Outcomes.Total, s.Since, s.Approximate)
		}
		if len(s.Limits.Senders) != 1 || s.Limits.Senders[0].Limited < 10 || len(s.Limits.Rules) != 1 || s.Limits.Rules[0].Users5m != want || s.Limits.Rules[0].Users1h != want {
			t.Errorf("ahead by %v: %+v", ahead, s.Limits)
		}
		if len(s.Workers) != 0 || len(s.Gone) != 1 || s.Gone[0].Worker != "gone" || s.Gone[0].Heard.After(now) {
			t.Errorf("ahead by %v: workers %+v, gone %+v", ahead, s.Workers, s.Gone)
		}
		if s = f.Snapshot(now.Add(24*time.Hour), Kind{}, 100); says(s.Approximate, "was ahead") || s.Outcomes.Total != 0 {
			t.Errorf("a day after: %d, %v", s.Outcomes.Total, s.Approximate)
		}
	}
}

// state is an event of a worker's state.
func state(source string, n int64, at time.Time, s events.State) *events.Event {
	return &events.Event{Version: events.Version, Source: source, Number: n, At: at, State: &s}
}

// worker is what a worker tells of two partitions of critical and a paused route.
func worker(name string, gate string) events.State {
	return events.State{Worker: name, Release: "v1", Started: start.Add(-time.Hour), Memory: 1 << 30, MemoryBound: 4 << 30, RepeatBound: 2000,
		Lanes: []events.LaneState{
			{Lane: "critical", Topic: "push.critical", Partitions: []int32{0, 1}, Open: 40, Pushes: 12, Oldest: start.Add(-3 * time.Second)},
			{Lane: "critical", Topic: "push.critical.retry.30s", Partitions: []int32{0}, Open: 9},
		},
		Routes: []events.RouteState{{Provider: "apns", App: "shop", Gate: gate, Until: start.Add(time.Minute), Word: "TooManyRequests", RateName: "apns/team", Rate: 800,
			Base: 1000, Share: 300, Connections: 2, Streams: 2000, InFlight: 12, Answers: []events.AnswerState{{Class: "accepted", N: 90}, {Class: "throttled", Reason: "TooManyRequests", N: 4}}}},
		Stalls: []events.StallState{{Reason: "route_paused", Lane: "critical", Topic: "push.critical", Route: "apns/shop", Since: start.Add(-2 * time.Second)}},
	}
}

// The worst word of a route counts; queues are less what is in progress; sums are over
// the workers that are there.
func TestFeedStates(t *testing.T) {
	f := NewFeed()
	f.Positions([]Position{
		{Lane: "critical", Kind: TopicMain, Topic: "push.critical", Partition: 0, Start: 50, Committed: -1, End: 150},
		{Lane: "critical", Kind: TopicMain, Topic: "push.critical", Partition: 1, Committed: 60, End: 100},
		{Lane: "critical", Kind: TopicRetry, Topic: "push.critical.retry.30s", Committed: 1, End: 10},
		{Lane: "critical", Kind: TopicDLQ, Topic: "push.critical.dlq", Start: 3, Committed: -1, End: 5},
	}, start)
	f.Add(state("a", 1, start, worker("worker-a", "open")), start)
	f.Add(state("b", 1, start, worker("worker-b", "paused")), start)
	f.Add(&events.Event{Source: "a", Number: 2, At: start, Rates: []events.Rate{{Name: "apns/team", From: 1000, To: 800, Cause: "over_quota", At: start}}}, start)
	s := f.Snapshot(start, Kind{}, 100)
	want := Lane{Lane: "critical", InProgress: 80, Pushes: 24, Queued: 60, Waiting: 9, Oldest: start.Add(-3 * time.Second)}
	if len(s.Lanes) != 1 || s.Lanes[0] != want {
		t.Errorf("lane %+v, want %+v", s.Lanes, want)
	}
	if len(s.Topics) != 2 || s.Topics[1] != (Topic{"critical", TopicDLQ, "push.critical.dlq", 2}) {
		t.Errorf("topics %+v", s.Topics)
	}
	r := s.Routes[0]
	if r.Lamp != LampPaused || r.At != 1 || r.Workers != 2 || r.Word != "TooManyRequests" || !r.Until.Equal(start.Add(time.Minute)) || r.Rate != 800 || r.Base != 1000 ||
		r.Cause != "over_quota" || r.Share != 600 || r.Streams != 4000 || len(r.Answers) != 2 || r.Answers[0] != (Answer{"accepted", "", 180}) {
		t.Errorf("route %+v", r)
	}
	if len(s.Stalls) != 2 || s.Stalls[0].Worker != "worker-a" {
		t.Errorf("stalls %+v", s.Stalls)
	}
	if w := s.Workers[1]; len(s.Workers) != 2 || w.Worker != "worker-b" || w.Partitions != 2 || w.Of != 2 || w.Open != 40 || w.Memory != 1<<30 || w.RepeatBound != 2000 {
		t.Errorf("workers %+v", s.Workers)
	}

	// b tells nothing more; the route is slowed only, and b is gone.
	for i := range int64(6) {
		at := start.Add(time.Duration(i+1) * time.Second)
		f.Add(state("a", i+3, at, worker("worker-a", "open")), at)
	}
	s = f.Snapshot(start.Add(6*time.Second), Kind{}, 100)
	if len(s.Workers) != 1 || len(s.Gone) != 1 || s.Gone[0].Worker != "worker-b" || s.Gone[0].Last || s.Routes[0].Lamp != LampSlowed || s.Lanes[0].InProgress != 40 {
		t.Errorf("after b: %+v, gone %+v, %+v", s.Workers, s.Gone, s.Routes)
	}
	if !says(s.Approximate, "1 workers ended without a word") {
		t.Errorf("approximate: %v", s.Approximate)
	}
	// It was late only.
	f.Add(state("b", 2, start.Add(7*time.Second), worker("worker-b", "open")), start.Add(7*time.Second))
	if s = f.Snapshot(start.Add(8*time.Second), Kind{}, 100); len(s.Workers) != 2 || len(s.Gone) != 0 {
		t.Errorf("b is back: %+v, gone %+v", s.Workers, s.Gone)
	}
	// It ends in order.
	end := worker("worker-b", "open")
	end.Last = true
	f.Add(state("b", 3, start.Add(9*time.Second), end), start.Add(9*time.Second))
	if s = f.Snapshot(start.Add(10*time.Second), Kind{}, 100); len(s.Workers) != 1 || len(s.Gone) != 1 || !s.Gone[0].Last || says(s.Approximate, "without a word") {
		t.Errorf("b has ended: %+v, gone %+v, %v", s.Workers, s.Gone, s.Approximate)
	}
	// An older state that comes late changes nothing.
	f.Add(state("a", 1000, start.Add(10*time.Second), worker("worker-a", "halted")), start.Add(10*time.Second))
	f.Add(state("a", 999, start.Add(9*time.Second), worker("worker-a", "open")), start.Add(10*time.Second))
	if s = f.Snapshot(start.Add(10*time.Second), Kind{}, 100); s.Routes[0].Lamp != LampHalted {
		t.Errorf("the newest state is halted, and shown is %+v", s.Routes)
	}
}

// Gaps and numbers that are missing are said; numbers in another order are not missing.
func TestFeedDoubts(t *testing.T) {
	f := NewFeed()
	f.Ready()
	for _, n := range []int64{3, 1, 2, 7, 6} { // 4 and 5 are missing
		f.Add(counted("a", n, start, sent("critical", "shop", 1)), start)
	}
	for _, n := range []int64{20_000, 1, 19_999, 2} { // one partition after the other
		f.Add(counted("b", n, start, sent("critical", "shop", 1)), start)
		f.Add(counted("b", n, start, sent("critical", "shop", 1)), start.Add(time.Millisecond))
	}
	f.Add(&events.Event{Source: "b", Number: 3, At: start, Gap: &events.Gap{From: start.Add(-time.Minute), To: start}}, start)
	f.PassOver()
	f.NoPositions("no broker answers", start)
	s := f.Snapshot(start.Add(time.Second), Kind{}, 100)
	if says(s.Approximate, "are missing, and no gap") {
		t.Errorf("missing before they can be late: %v", s.Approximate)
	}
	s = f.Snapshot(start.Add(time.Minute), Kind{}, 100)
	for _, want := range []string{"2 records of push.events are missing", "has gaps", "1 records of push.events could not be read", "queues are not known: no broker answers", "no worker tells its state"} {
		if !says(s.Approximate, want) {
			t.Errorf("approximate: %v, want %q", s.Approximate, want)
		}
	}
	if len(s.Gaps) != 1 || s.Gaps[0].Source != "b" || says(s.Approximate, "still being read") {
		t.Errorf("gaps %+v, %v", s.Gaps, s.Approximate)
	}
	f.Add(counted("a", 4, start, sent("critical", "shop", 1)), start)
	f.Add(counted("a", 5, start, sent("critical", "shop", 1)), start)
	if s = f.Snapshot(start.Add(2*time.Minute), Kind{}, 100); says(s.Approximate, "are missing, and no gap") {
		t.Errorf("all have come: %v", s.Approximate)
	}
	for _, n := range []int64{0, -1 << 63, 1<<63 - 1} { // not as the format has it
		f.Add(counted("c", n, start, sent("hostile", "shop", 1)), start)
	}
	f.Add(counted("c", 1, start, sent("hostile", "shop", -5)), start)
	if s = f.Snapshot(start.Add(2*time.Minute), Kind{Lane: "hostile"}, 100); s.Outcomes.Total != 3 {
		t.Errorf("%d of 3 with odd numbers", s.Outcomes.Total)
	}
}

// What was in doubt is in doubt as long as it is shown: outcomes for an hour, curves for a
// day. Then the page is exact again.
func TestDoubtsEnd(t *testing.T) {
	f := NewFeed()
	f.Ready()
	f.Positions(nil, start)
	f.Add(told("killed", start, worker("killed", "open")), start)
	f.Add(ranged("a", 1, start, 0, 100, "order"), start)
	f.Add(ranged("a", 2, start, 150, 200, "order"), start)
	f.Add(&events.Event{Source: "a", Number: 3, At: start, Gap: &events.Gap{From: start.Add(-time.Minute), To: start}}, start)
	f.PassOver()
	at := func(after time.Duration) *Snapshot { return f.Snapshot(start.Add(after), Kind{}, 100) }
	at(10 * time.Second)
	const outcomes = "of 50 offsets nobody told"
	doubts := []string{"1 workers ended without a word", "push.events has gaps", "1 records of push.events could not be read"}
	for _, tt := range []struct {
		after       time.Duration
		hour, daily bool
	}{{time.Minute, true, true}, {59 * time.Minute, true, true}, {61 * time.Minute, false, true}, {23*time.Hour + 59*time.Minute, false, true}, {24*time.Hour + time.Minute, false, false}} {
		s := at(tt.after)
		if says(s.Approximate, outcomes) != tt.hour {
			t.Errorf("after %v: %v", tt.after, s.Approximate)
		}
		for _, doubt := range doubts {
			if says(s.Approximate, doubt) != tt.daily {
				t.Errorf("after %v: %q, want %q: %v", tt.after, s.Approximate, doubt, tt.daily)
			}
		}
		if len(s.Gaps) == 1 != tt.daily {
			t.Errorf("after %v: gaps %v", tt.after, s.Gaps)
		}
	}
	if s := at(25 * time.Hour); len(s.Approximate) != 2 { // queued is never exact, and there is no worker
		t.Errorf("after a day: %v", s.Approximate)
	}
}

// The last thousand failures are kept, and are narrowed as counts are.
func TestFeedFailures(t *testing.T) {
	f := NewFeed()
	for i := range int64(1500) {
		f.Add(&events.Event{Source: "a", Number: i + 1, At: start, Failures: []events.Failure{
			{ID: fmt.Sprint("id-", i), Lane: "critical.retry", App: "shop", State: "DEAD_LETTERED", Reason: "bad_json:@61", At: start}}}, start)
	}
	s := f.Snapshot(start, Kind{Lane: "critical", Reason: "bad_json"}, 100)
	if len(f.failures) != maxFailures || len(s.Failures) != 50 || s.Failures[0].ID != "id-1499" || s.Failures[49].ID != "id-1450" || s.Omitted["failures"] != 950 {
		t.Errorf("%d kept, %d shown, %d omitted", len(f.failures), len(s.Failures), s.Omitted["failures"])
	}
	if s = f.Snapshot(start, Kind{Lane: "promotional"}, 100); len(s.Failures) != 0 {
		t.Errorf("of another lane: %v", s.Failures)
	}
}

// A page is told the meaning of every reason that the documentation has.
func TestEveryReasonHasAMeaning(t *testing.T) {
	text, err := os.ReadFile("../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)").FindAllStringSubmatch(string(text), -1)
	if len(codes) < 30 {
		t.Fatalf("found only %d reasons", len(codes))
	}
	for _, m := range codes {
		f := NewFeed()
		f.Add(counted("a", 1, start, events.Count{Lane: "critical", State: "FAILED", Reason: m[1], N: 1}), start)
		if s := f.Snapshot(start, Kind{}, 100); s.Meanings[m[1]] == "" {
			t.Errorf("%s has no meaning", m[1])
		}
	}
}

// A day at 200,000 a second stays small, whatever names producers make up; and so does
// what is sent to a page.
func TestFeedIsBounded(t *testing.T) {
	f := NewFeed()
	long := strings.Repeat("\x01", 200)
	began := time.Now()
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const workers = 2
	now := start
	for i := range int64(24 * 3600) {
		now = start.Add(time.Duration(i) * time.Second)
		for w := range int64(workers) {
			source := fmt.Sprintf("source-%d-%d", w, i/600) // each is replaced every 10 minutes
			e := counted(source, i%600*2+1, now)
			for l := range int64(3) {
				e.Counts = append(e.Counts, events.Count{Lane: fmt.Sprint("lane-", l), App: "shop", Type: "t", Provider: "fcm", State: delivered, N: 33_000})
			}
			for k := range 4 * int64(max(0, 1-i%4)) { // names without end
				e.Counts = append(e.Counts, events.Count{Lane: "lane-0", App: fmt.Sprint(i, "-", w, "-", k, long), Type: long, Provider: "fcm", State: "FAILED", Reason: fmt.Sprint(i) + long, N: 1000})
			}
			f.Add(e, now)
			if i%60 == 0 {
				st := worker(fmt.Sprint("worker-", w), "open")
				for r := range 2000 {
					st.Routes = append(st.Routes, events.RouteState{Provider: "fcm", App: fmt.Sprint("app-", r), Gate: "open"})
				}
				fails := make([]events.Failure, 50)
				for j := range fails {
					fails[j] = events.Failure{ID: long, Lane: long, App: long, Type: long, State: "FAILED", Reason: long}
				}
				f.Add(&events.Event{Source: source, Number: i%600*2 + 2, At: now, State: &st, Failures: fails}, now)
			}
		}
	}
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d kinds, %d sources, %d MiB of heap, %d MiB from the system, in %v", len(f.totals.cells), len(f.sources.byID), heap>>20, after.Sys>>20, time.Since(began))
	if after.Sys > 256<<20 {
		t.Errorf("%d MiB from the system", after.Sys>>20)
	}
	s := f.Snapshot(now, Kind{}, 100)
	if want := int64(3600) * workers * 100_000; s.Outcomes.Total != want {
		t.Errorf("%d in the last hour, want %d", s.Outcomes.Total, want)
	}
	text, err := f.Encode(now, Kind{})
	if err != nil || len(text) > MaxSnapshot {
		t.Errorf("a snapshot of %d bytes, %v", len(text), err)
	}
	var back Snapshot
	if err := json.Unmarshal(text, &back); err != nil || back.Omitted["outcomes"] == 0 || len(back.Lanes) < 3 || back.Outcomes.Total != s.Outcomes.Total {
		t.Errorf("it reads as %d lanes, %v, %v", len(back.Lanes), back.Omitted, err)
	}
}
