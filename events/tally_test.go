package events_test

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// deliveredFrom is an event with one range, each of whose offsets came to DELIVERED but the
// first one, which came to FAILED.
func deliveredFrom(from, to int64) *events.Event {
	return &events.Event{Version: events.Version, Source: "s", At: startTime, Ranges: &events.Ranges{Lane: "critical",
		Kinds: []events.RangeKind{{State: "DELIVERED"}, {State: "FAILED"}},
		Of:    []events.Range{{Place: events.Place{Topic: "push.critical", From: from, To: to}, Counts: []int64{0, to - from - 1, 1, 1}}}}}
}

// Each row of ranges is what a reader finds, in order.
func TestTallyGoesByPlace(t *testing.T) {
	for _, tt := range []struct {
		why       string
		ranges    [][2]int64
		delivered int64
		failed    int64
		missing   int64
	}{
		{"one after the other", [][2]int64{{0, 10}, {10, 20}}, 18, 2, 0},
		{"Kafka has one twice", [][2]int64{{0, 10}, {0, 10}, {10, 20}, {10, 20}, {0, 10}}, 18, 2, 0},
		{"the next owner comes further", [][2]int64{{0, 10}, {0, 25}}, 24, 1, 0},
		{"the next owner comes one further", [][2]int64{{0, 10}, {0, 11}, {11, 15}}, 13, 2, 0},
		{"the next owner comes as far", [][2]int64{{0, 10}, {0, 10}, {10, 12}}, 10, 2, 0},
		{"the next owner does not come as far yet", [][2]int64{{0, 10}, {0, 4}}, 9, 1, 0},
		{"it does in several ranges", [][2]int64{{0, 10}, {0, 4}, {4, 7}, {7, 15}}, 12, 3, 0},
		{"it ends where the dead one did", [][2]int64{{0, 10}, {0, 4}, {4, 10}, {10, 15}}, 12, 3, 0},
		{"and is killed too, before its commit", [][2]int64{{0, 10}, {0, 4}, {4, 7}, {4, 12}}, 10, 2, 0},
		{"and again, with less", [][2]int64{{0, 10}, {0, 6}, {0, 4}, {4, 12}}, 10, 2, 0},
		{"the third owner begins at the second's commit", [][2]int64{{0, 10}, {0, 4}, {4, 11}, {4, 13}}, 11, 2, 0},
		{"copies among what is told again", [][2]int64{{0, 10}, {0, 4}, {0, 4}, {4, 7}, {0, 4}, {4, 7}, {7, 15}}, 12, 3, 0},
		{"a range is missing", [][2]int64{{0, 10}, {15, 20}}, 13, 2, 5},
		{"it comes late", [][2]int64{{0, 10}, {15, 20}, {10, 15}}, 17, 3, 0},
		{"a part of it comes late", [][2]int64{{0, 10}, {20, 30}, {13, 16}}, 20, 3, 7},
		{"all of it, in parts", [][2]int64{{0, 10}, {20, 30}, {13, 16}, {10, 13}, {16, 20}}, 25, 5, 0},
		{"offsets were set back", [][2]int64{{0, 10}, {10, 20}, {2, 8}, {8, 19}, {19, 30}, {30, 40}}, 27, 3, 10},
		{"the former owner is cut off, and tells late, and further than the next one, who goes on", [][2]int64{{0, 10}, {10, 15}, {10, 20}, {15, 30}}, 27, 3, 0},
		{"and the next one needs several ranges", [][2]int64{{0, 10}, {10, 15}, {10, 20}, {15, 18}, {18, 30}}, 26, 4, 0},
		{"and is told again", [][2]int64{{0, 10}, {10, 14}, {10, 20}, {14, 16}, {14, 25}, {16, 30}}, 26, 4, 0},
		{"the former owner is the one who goes on", [][2]int64{{0, 10}, {10, 15}, {10, 20}, {20, 30}}, 27, 3, 0},
		{"a third owner goes on, before whom two were killed", [][2]int64{{0, 10}, {10, 12}, {10, 15}, {10, 20}, {15, 30}}, 27, 3, 0},
		{"it tells later still", [][2]int64{{0, 10}, {10, 15}, {15, 18}, {10, 20}, {18, 30}}, 26, 4, 0},
		{"it tells after it was replaced", [][2]int64{{0, 10}, {10, 30}, {10, 20}, {30, 40}}, 37, 3, 0},
		{"no range at all", [][2]int64{{5, 5}, {7, 3}, {-4, 2}}, 0, 0, 0},
	} {
		var tally events.Tally
		got := map[string]int64{}
		for _, r := range tt.ranges {
			tally.Add(deliveredFrom(r[0], r[1]), func(c *events.Count, at time.Time) {
				if c.Lane != "critical" || !at.Equal(startTime) {
					t.Errorf("%s: %+v at %v", tt.why, c, at)
				}
				got[c.State] += c.N
			})
		}
		maps.DeleteFunc(got, func(_ string, n int64) bool { return n == 0 })
		if got["DELIVERED"] != tt.delivered || got["FAILED"] != tt.failed || tally.Missing() != tt.missing {
			t.Errorf("%s: %v and %d missing; want %d delivered, %d failed, %d missing", tt.why, got, tally.Missing(), tt.delivered, tt.failed, tt.missing)
		}
	}
}

// What is missing is so since the range behind it was told, until it is told too; of what is
// too much to be told late nobody knows since when.
func TestTallyKnowsSinceWhenSomethingIsMissing(t *testing.T) {
	var tally events.Tally
	add := func(after time.Duration, from, to int64) {
		e := deliveredFrom(from, to)
		e.At = startTime.Add(after)
		tally.Add(e, func(*events.Count, time.Time) {})
	}
	add(0, 0, 10)
	add(time.Minute, 15, 20)
	add(time.Hour, 27, 30)
	add(time.Hour+time.Minute, 11, 13)
	add(time.Hour+time.Minute, 20, 22)
	for after, want := range map[time.Duration]int64{0: 8, time.Minute: 8, 2 * time.Minute: 5, time.Hour: 5, time.Hour + 1: 0} {
		if got := tally.MissingSince(startTime.Add(after)); got != want || tally.Missing() != 8 {
			t.Errorf("%d are missing since %v, want %d; %d in all", got, after, want, tally.Missing())
		}
	}
	for i := range int64(100) {
		add(2*time.Hour, 40+10*i, 45+10*i)
	}
	if got := tally.MissingSince(startTime.Add(3 * time.Hour)); got <= 0 || got >= tally.Missing() {
		t.Errorf("%d of %d", got, tally.Missing())
	}
}

// Partitions, topics and topics of the same name are apart; what is no pair of counts is
// passed over.
func TestTallyTellsPartitionsApart(t *testing.T) {
	var tally events.Tally
	var sum int64
	add := func(change func(*events.Range)) {
		e := deliveredFrom(0, 10)
		change(&e.Ranges.Of[0])
		tally.Add(e, func(c *events.Count, _ time.Time) { sum += c.N })
	}
	add(func(*events.Range) {})
	add(func(r *events.Range) { r.Partition = 1 })
	add(func(r *events.Range) { r.Topic = "push.other" })
	add(func(r *events.Range) { r.TopicID = "made anew" })
	if sum != 40 {
		t.Errorf("counted %d, want 40", sum)
	}
	sum = 0
	add(func(r *events.Range) { r.Partition, r.Counts = 2, []int64{-1, 5, 2, 5, 0, -3, 1, 4, 0} })
	if sum != 4 {
		t.Errorf("counted %d of counts that are none, want 4", sum)
	}
}

// Counts of workers that tell no ranges are summed up, others are not.
func TestTallyPassesOverRangedCounts(t *testing.T) {
	var tally events.Tally
	var sum int64
	for _, ranged := range []bool{false, true} {
		tally.Add(&events.Event{At: startTime, Ranged: ranged, Counts: []events.Count{{State: "DELIVERED", N: 7}, {State: "DELIVERED", N: -2}}}, func(c *events.Count, _ time.Time) { sum += c.N })
	}
	if sum != 7 {
		t.Errorf("counted %d, want 7", sum)
	}
}

// What is told of more kinds than are kept cannot be taken back: then what the next owner
// tells in its place is missing, and nothing counts twice.
func TestTallyIsBounded(t *testing.T) {
	var tally events.Tally
	var sum int64
	add := func(partition int32, from, to int64) {
		e := deliveredFrom(from, to)
		r := &e.Ranges.Of[0]
		r.Partition, r.Counts = partition, nil
		for range 500 {
			r.Counts = append(r.Counts, 0, 1)
		}
		tally.Add(e, func(c *events.Count, _ time.Time) { sum += c.N })
	}
	for p := range int32(1000) {
		add(p, 0, 500)
	}
	if sum != 500_000 {
		t.Fatalf("counted %d", sum)
	}
	add(0, 0, 600)
	add(999, 0, 600)
	if sum != 500_000 || tally.Missing() != 100 {
		t.Errorf("counted %d, %d missing; want the first in place of what is kept, the last one missing", sum, tally.Missing())
	}
	for p := range int32(30_000) {
		tally.Add(&events.Event{Ranges: &events.Ranges{Of: []events.Range{{Place: events.Place{Topic: strings.Repeat("t", 9), Partition: p, To: 1}}}}}, func(*events.Count, time.Time) {})
	}
	if got := tally.Missing(); got != 100+30_000-19_000 {
		t.Errorf("%d missing, want those of partitions beyond the bound", got)
	}
}

// So are the names that it keeps, whatever somebody wrote into the topic.
func TestTallyIsBoundedInBytes(t *testing.T) {
	var tally events.Tally
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for p := range int32(1000) {
		e, long := deliveredFrom(0, 10), strings.Repeat("n", 400<<10)
		e.Ranges.Kinds[0].App, e.Ranges.Of[0].Partition = long, p
		tally.Add(e, func(*events.Count, time.Time) {})
		e = deliveredFrom(0, 10)
		e.Ranges.Of[0].Topic = strings.Repeat("t", 400<<10) + fmt.Sprint(p)
		tally.Add(e, func(*events.Count, time.Time) {})
		e.Ranges.Of[0].Topic, e.Ranges.Of[0].TopicID = "t", strings.Repeat("i", 400<<10)+fmt.Sprint(p)
		tally.Add(e, func(*events.Count, time.Time) {})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if heap := int64(after.HeapAlloc) - int64(before.HeapAlloc); heap > 48<<20 {
		t.Errorf("%d MiB are kept", heap>>20)
	}
	runtime.KeepAlive(&tally)
}
