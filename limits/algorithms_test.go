package limits

import (
	"testing"
	"time"
)

// The count, and the first time with room, to the millisecond.
func TestAlgorithms(t *testing.T) {
	const w = 1000
	log := func(times []int64, t int64, limit int) (int, int64) { return slidingLog(times, t, w, limit) }
	counter := func(times []int64, t int64, limit int) (int, int64) { return slidingCounter(times, t, w, limit) }
	fixed := func(times []int64, t int64, limit int) (int, int64) { return fixedWindow(times, t, 2000, limit) }
	for _, c := range []struct {
		why     string
		ask     func(times []int64, t int64, limit int) (int, int64)
		times   []int64
		at      int64
		limit   int
		current int
		next    int64
	}{
		{"nothing yet", log, nil, 5000, 1, 0, 5000},
		{"one is a window old", log, []int64{4000}, 5000, 1, 0, 5000},
		{"and here not quite", log, []int64{4001}, 5000, 1, 1, 5001},
		{"the second oldest has to leave", log, []int64{4100, 4200, 4300}, 5000, 2, 3, 5200},
		{"room for one more", log, []int64{4500}, 5000, 2, 1, 5000},
		{"at the same moment", log, []int64{5000}, 5000, 1, 1, 6000},
		{"a later one shares a window", log, []int64{5999}, 5000, 1, 1, 6999},
		{"and here does not", log, []int64{6000}, 5000, 1, 0, 5000},
		{"two later ones, of which both windows are full", log, []int64{5500, 6499}, 5000, 1, 1, 7499},
		{"a window before a later one", log, []int64{4500, 5500}, 5000, 2, 1, 5000},
		{"a later one, and what is long gone", log, []int64{3000, 3500, 5500}, 5000, 2, 0, 5000},
		{"a full window ahead that it is in", log, []int64{5500, 5900}, 5000, 2, 2, 6500},
		{"a full window ahead that it is not in", log, []int64{6000, 6400}, 5000, 2, 0, 5000},
		{"none at all", log, nil, 5000, 0, 0, never},
		{"none at all any more", log, []int64{4000, 4500, 5500}, 5000, 0, 1, never},

		{"room in the window", fixed, []int64{1000}, 1500, 2, 1, 1500},
		{"the next one", fixed, []int64{1000, 1999}, 1500, 2, 2, 2000},
		{"none at all", fixed, nil, 1500, 0, 0, never},
		{"none at all any more", fixed, []int64{1000}, 1500, 0, 1, never},

		{"nothing yet", counter, nil, 5000, 1, 0, 5000},
		{"room for one more", counter, []int64{4500, 5000}, 5000, 3, 2, 5000},
		{"two windows ago", counter, []int64{3999}, 5000, 1, 0, 5000},
		{"the whole window before", counter, []int64{4000, 4999}, 5000, 3, 2, 5000},
		{"too much of it", counter, []int64{4000, 4999}, 5000, 2, 2, 5500},
		{"half of it", counter, []int64{4000, 4999}, 5500, 2, 1, 5500},
		{"all of this one", counter, []int64{5000, 5001}, 5500, 2, 2, 6500},
		{"weight has to fall, rounded up", counter, []int64{4000, 4001, 4002}, 5000, 2, 3, 5667},
		{"it would make a later one too many", counter, []int64{6000}, 5000, 1, 1, 8000},
		{"at the very start it is of this stretch", counter, []int64{4000, 5500}, 5000, 2, 2, 6000},
		{"nor one two stretches ahead", counter, []int64{7000}, 5000, 1, 0, 5000},
		{"it would not", counter, []int64{6000}, 5000, 2, 0, 5000},
		{"none at all", counter, nil, 5000, 0, 0, never},
		{"none at all any more", counter, []int64{4500}, 5000, 0, 1, never},
	} {
		current, next := c.ask(c.times, c.at, c.limit)
		// A search asks again from there.
		for range 5 {
			if next == never {
				break
			}
			_, next = c.ask(c.times, next, c.limit)
		}
		if current != c.current || next != c.next {
			t.Errorf("%s: %v at %d, limit %d: %d and room at %d, want %d and %d", c.why, c.times, c.at, c.limit, current, next, c.current, c.next)
		}
	}
}

// Days of five zones, also those that the clock makes longer or shorter, or
// begins late.
func TestDays(t *testing.T) {
	for _, c := range []struct {
		zone, at, start, end string // UTC
		why                  string
	}{
		{"UTC", "2026-11-21T12:00:00Z", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z", "plain"},
		{"Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "23 hours"},
		{"Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "25 hours"},
		{"America/New_York", "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "1:30 comes twice, the first"},
		{"America/New_York", "2026-11-01T06:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "the second"},
		{"Africa/Cairo", "2025-04-25T12:00:00Z", "2025-04-24T22:00:00Z", "2025-04-25T21:00:00Z", "there is no midnight: it begins at 1:00"},
		{"Africa/Cairo", "2025-04-24T21:59:59Z", "2025-04-23T22:00:00Z", "2025-04-24T22:00:00Z", "the day before"},
		{"America/Havana", "2025-11-02T12:00:00Z", "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z", "midnight comes twice: it begins at the first"},
		{"America/Havana", "2025-11-02T04:30:00Z", "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z", "between both"},
		{"America/Sao_Paulo", "2018-02-17T12:00:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z", "23:00 comes twice"},
		{"America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z", "the second 23:00"},
		{"America/St_Johns", "2006-10-29T12:00:00Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z", "midnight comes again a minute after it: it begins at the first"},
		{"Asia/Kathmandu", "2026-11-21T18:15:00Z", "2026-11-21T18:15:00Z", "2026-11-22T18:15:00Z", "an odd offset, at its midnight"},
		{"Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "the day before the one that was left out"},
		{"Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", "the day after it"},
	} {
		parse := func(s string) int64 {
			at, err := time.Parse(time.RFC3339, s)
			if err != nil {
				t.Fatal(err)
			}
			return at.UnixMilli()
		}
		got, want := dayOf(zone(t, c.zone), parse(c.at)), span{dayUnit, parse(c.start), parse(c.end)}
		if got != want {
			t.Errorf("%s at %s: %v to %v, want %s to %s: %s", c.zone, c.at, time.UnixMilli(got.start).UTC(), time.UnixMilli(got.end).UTC(), c.start, c.end, c.why)
		}
	}
}

func TestHoursAndMinutes(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 34, 56, 789e6, time.UTC).UnixMilli()
	c := calendar{zone: zone(t, "Asia/Kathmandu"), days: &days{}} // 18:19:56
	if got, want := c.window(hourUnit, at), (span{hourUnit, at - 19*60_000 - 56_789, at + 40*60_000 + 3_211}); got != want {
		t.Errorf("hour %v, want %v", got, want)
	}
	if got, want := c.window(minuteUnit, at), (span{minuteUnit, at - 56_789, at + 3_211}); got != want {
		t.Errorf("minute %v, want %v", got, want)
	}
	// The hour that the clock goes through twice is two hours.
	berlin := calendar{zone: zone(t, "Europe/Berlin"), days: &days{}}
	first := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)
	if a, b := berlin.window(hourUnit, first.UnixMilli()), berlin.window(hourUnit, first.Add(time.Hour).UnixMilli()); a.end != b.start || a.contains(b.start) {
		t.Errorf("2:30 is in %v, then in %v", a, b)
	}
}

// Who moves to another zone has the window that runs, and then the new zone's
// from there on.
func TestAZoneChangesAtTheEndOfTheWindow(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).UnixMilli()
	const hour = int64(3_600_000)
	c := calendar{zone: zone(t, "Asia/Tokyo"), days: &days{}}
	c.pin(dayUnit, at) // until 15:00 UTC
	c.zone = zone(t, "America/New_York")
	running := span{dayUnit, at - 21*hour, at + 3*hour}
	for _, x := range []struct {
		after int64
		want  span
		why   string
	}{
		{0, running, "it runs"},
		{3*hour - 1, running, "to its last moment"},
		{3 * hour, span{dayUnit, at + 3*hour, at + 17*hour}, "then New York's day, from there on"},
		{17 * hour, span{dayUnit, at + 17*hour, at + 41*hour}, "a whole day"},
		{-22 * hour, span{dayUnit, at - 31*hour, at - 21*hour}, "a slow clock before it"},
	} {
		if got := c.window(dayUnit, at+x.after); got != x.want {
			t.Errorf("after %d h: %v, want %v: %s", x.after/hour, got, x.want, x.why)
		}
	}
	c.pin(dayUnit, at-22*hour)
	if c.running[0] != running {
		t.Errorf("an older window replaced it: %v", c.running)
	}
	c.pin(dayUnit, at+3*hour)
	if want := (span{dayUnit, at + 3*hour, at + 17*hour}); len(c.running) != 1 || c.running[0] != want {
		t.Errorf("running %v, want %v", c.running, want)
	}
}
