package model

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(minutes ...int) (out []Entry) {
	for i, m := range minutes {
		out = append(out, Entry{ID: string(rune('a' + i)), At: noon.Add(time.Duration(m) * time.Minute)})
	}
	return out
}

func hours(t time.Time) (time.Time, time.Time) {
	start := t.Truncate(time.Hour)
	return start, start.Add(time.Hour)
}

func TestRecipients(t *testing.T) {
	for _, c := range []struct {
		why     string
		limit   Limit
		entries []Entry
		minute  int
		want    bool
	}{
		{"two in an hour", SlidingLog{2, time.Hour}, at(0), 59, true},
		{"a third within it", SlidingLog{2, time.Hour}, at(0, 30), 59, false},
		{"the first is an hour old", SlidingLog{2, time.Hour}, at(0, 30), 60, true},
		{"two that are later share a window with it", SlidingLog{2, time.Hour}, at(50, 55), 0, false},
		{"and here do not", SlidingLog{2, time.Hour}, at(60, 65), 0, true},
		{"half of 4 still counts, and one more", SlidingCounter{3, time.Hour}, at(0, 0, 0, 0), 90, true},
		{"and two more", SlidingCounter{3, time.Hour}, at(0, 0, 0, 0, 90), 90, false},
		{"a hair more than half", SlidingCounter{3, time.Hour}, at(0, 0, 0, 0), 89, false},
		{"it is too full later, but not by this one", SlidingLog{1, time.Hour}, at(60, 60), 0, true},
		{"it is too full later, and this one adds to it", SlidingLog{1, time.Hour}, at(59, 59), 0, false},
		{"full", FixedWindow{2, hours}, at(0, 59), 30, false},
		{"the next window", FixedWindow{2, hours}, at(0, 59), 60, true},
		{"the same id", EventSet{Max: 1, Window: time.Hour}, []Entry{{"a", noon}, {"a", noon}}, 70, true},
		{"another id", EventSet{Max: 1, Window: time.Hour}, at(0), 30, false},
		{"an hour later", EventSet{Max: 1, Window: time.Hour}, at(0), 60, true},
		{"another id of the window", EventSet{Max: 1, Of: hours}, at(0), 59, false},
		{"of the next", EventSet{Max: 1, Of: hours}, at(59), 60, true},
	} {
		if got := Fits(c.limit, c.entries, Entry{"new", noon.Add(time.Duration(c.minute) * time.Minute)}); got != c.want {
			t.Errorf("%s: fits %v", c.why, got)
		}
	}
}

func TestSenders(t *testing.T) {
	type take struct {
		second int
		wait   time.Duration
		ok     bool
	}
	for _, c := range []struct {
		why    string
		bucket interface {
			Take(now time.Time) (time.Duration, bool)
		}
		takes []take
	}{
		{"a burst of two, then one in ten seconds", &TokenBucket{Burst: 2, Every: 10 * time.Second, Wait: 15 * time.Second}, []take{
			{0, 0, true}, {0, 0, true}, {0, 10 * time.Second, true}, {0, 20 * time.Second, false},
			{5, 15 * time.Second, true}, {25, 5 * time.Second, true}, {100, 0, true}, {100, 0, true}, {100, 10 * time.Second, true},
		}},
		{"a slow clock waits for the same moment", &TokenBucket{Burst: 1, Every: 10 * time.Second, Wait: time.Minute}, []take{
			{10, 0, true}, {10, 10 * time.Second, true}, {5, 25 * time.Second, true},
		}},
		{"never two at once", &LeakyBucket{Every: 10 * time.Second, Wait: 15 * time.Second}, []take{
			{0, 0, true}, {0, 10 * time.Second, true}, {0, 20 * time.Second, false}, {12, 8 * time.Second, true}, {100, 0, true}, {100, 10 * time.Second, true},
		}},
	} {
		for i, s := range c.takes {
			wait, ok := c.bucket.Take(noon.Add(time.Duration(s.second) * time.Second))
			if wait != s.wait || ok != s.ok {
				t.Errorf("%s: take %d waits %v, %v; want %v, %v", c.why, i, wait, ok, s.wait, s.ok)
			}
		}
	}
}
