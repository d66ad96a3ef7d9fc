package dashboard

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// limited is an event of what a worker tells of limits.
func limited(source string, n int64, at time.Time, senders ...events.SenderLimit) *events.Event {
	return &events.Event{Version: events.Version, Source: source, Number: n, From: at.Add(-10 * time.Second), At: at, Limits: &events.Limits{Senders: senders}}
}

// hourly is a sender under a rule of 60 an hour with a burst of 20, which fill in 20 min.
func hourly(sender string, share, now float64, limited int64) events.SenderLimit {
	return events.SenderLimit{Rule: "hourly", Sender: sender, Limit: 60, Window: 3600, Fills: 1200, Share: share, Now: now, Limited: limited}
}

// A sender's share is that of the newest answer of any worker, less what has come back
// since; by minute it is the greatest; and what several workers put off adds up, once.
func TestSenders(t *testing.T) {
	f := NewFeed()
	at := start.Add(-10 * time.Minute)
	first := limited("a", 1, at, hourly("orders", 1.5, 1.25, 12), hourly("ads", 0.1, 0.1, 0))
	for range 2 { // a copy
		f.Add(first, at)
	}
	f.Add(limited("b", 1, at.Add(-time.Second), hourly("orders", 0.9, 0.2, 3)), at) // told before, heard after
	f.Add(limited("b", 2, start.Add(-30*time.Second), hourly("orders", 0.95, 0.9, 0)), start)
	f.Add(limited("c", 1, start.Add(-2*time.Minute), hourly("orders", 0.1, 0.1, 0)), start) // too late to stand for now
	list := f.Snapshot(start, Kind{}, 100).Limits.Senders
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	o := list[0]
	if o.Sender != "orders" || o.Rule != "hourly" || o.Limit != 60 || o.Window != 3600 || o.Share != 0.875 || o.Wait != 0 || o.Limited != 15 {
		t.Errorf("orders: %+v", o)
	}
	// Five points a minute come back. What b told in the minute before this one was less.
	want := append(make([]int, 48), 90, 150, 145, 140, 135, 130, 125, 120, 115, 110, 105, 100)
	if !slices.Equal(o.Minutes, want) {
		t.Errorf("by minute %v, want %v", o.Minutes, want)
	}
	if a := list[1]; a.Sender != "ads" || a.Share != 0 || a.Limited != 0 || a.Minutes[49] != 10 || a.Minutes[50] != 5 || a.Minutes[51] != 0 {
		t.Errorf("ads: %+v", a)
	}

	// What is owed is waited for, and then for a token.
	f.Add(limited("a", 2, start, hourly("orders", 3, 2, 1)), start)
	if o := f.Snapshot(start.Add(2*time.Minute), Kind{}, 100).Limits.Senders[0]; o.Share != 1.9 || o.Wait != 0.9*1200+60 || o.Minutes[57] != mostPercent || o.Limited != 16 {
		t.Errorf("who owes: %+v", o)
	}
	// A filter by a rule narrows them; other words do not.
	for filter, n := range map[Kind]int{{Lane: "critical"}: 2, {Reason: "limit_waits:hourly"}: 2, {Reason: "limited:others"}: 0, {Reason: "opted_out_type"}: 2} {
		if list := f.Snapshot(start, filter, 100).Limits.Senders; len(list) != n || list == nil {
			t.Errorf("%+v: %+v", filter, list)
		}
	}
	if s := f.Snapshot(start, Kind{}, 5); len(s.Limits.Senders) != 1 || s.Omitted["senders"] != 1 {
		t.Errorf("bounded: %+v, %v", s.Limits.Senders, s.Omitted)
	}
	// After an hour it is over.
	if o := f.Snapshot(start.Add(59*time.Minute), Kind{}, 100).Limits; len(o.Senders) != 1 || o.Senders[0].Limited != 1 {
		t.Errorf("after 59 minutes: %+v", o.Senders)
	}
	if o := f.Snapshot(start.Add(60*time.Minute), Kind{}, 100).Limits; len(o.Senders) != 0 {
		t.Errorf("after 60 minutes: %+v", o.Senders)
	}
	if o := f.Snapshot(start.Add(61*time.Minute), Kind{}, 100).Limits; len(o.Senders) != 0 || len(f.buckets.of) != 0 {
		t.Errorf("after an hour: %+v", o.Senders)
	}
	f.Add(limited("a", 3, start, hourly("late", 1, 1, 1)), start.Add(2*time.Hour))
	if o := f.Snapshot(start.Add(2*time.Hour), Kind{}, 100).Limits; len(o.Senders) != 0 {
		t.Errorf("told two hours late: %+v", o.Senders)
	}
}

// A limit of gateways counts in fixed windows: what is used of one stays until it ends, and
// who has used it up waits for that.
func TestSendersOfGateways(t *testing.T) {
	f := NewFeed()
	window := func(sender string, of time.Duration, share, now float64) events.SenderLimit {
		return events.SenderLimit{Rule: "gateway/window", Sender: sender, Limit: 1000, Window: of.Seconds(), Share: share, Now: now}
	}
	hour := start.Truncate(time.Hour)
	now := hour.Add(20*time.Minute + 30*time.Second)
	f.Add(limited("g", 1, hour.Add(-5*time.Minute), window("orders", time.Hour, 0.8, 0.8)), now)
	f.Add(limited("g", 2, hour.Add(10*time.Minute+10*time.Second), window("orders", time.Hour, 0.3, 0.3), window("codes", time.Second, 0.6, 0.1)), now)
	f.Add(limited("g", 3, hour.Add(15*time.Minute), window("orders", time.Hour, 1, 1)), now)
	list := f.Snapshot(now, Kind{}, 100).Limits.Senders
	if len(list) != 2 || list[0].Share != 1 || list[0].Wait != (39*time.Minute+30*time.Second).Seconds() || list[1].Share != 0 || list[1].Wait != 0 {
		t.Fatalf("%+v", list)
	}
	// 35 minutes before anything; 5 of the last hour; then nothing until it was told of again.
	var want []int
	for _, part := range []struct{ minutes, percent int }{{34, 0}, {5, 80}, {10, 0}, {5, 30}, {6, 100}} {
		want = append(want, slices.Repeat([]int{part.percent}, part.minutes)...)
	}
	if got := list[0].Minutes; !slices.Equal(got, want) {
		t.Errorf("by minute\n%v, want\n%v", got, want)
	}
	if got := list[1].Minutes; slices.Max(got) != 60 || got[50] != 0 {
		t.Errorf("of a second, by minute %v", got)
	}
	if list := f.Snapshot(hour.Add(time.Hour), Kind{}, 100).Limits.Senders; list[0].Share != 0 || list[0].Wait != 0 {
		t.Errorf("in the next hour: %+v", list[0])
	}
}

// A clock that is ahead, and numbers that no worker has, spoil nothing.
func TestOddSenders(t *testing.T) {
	f := NewFeed()
	f.Add(limited("a", 1, start.Add(time.Hour), hourly("ahead", 1, 1, 1)), start)
	f.Add(limited("b", 1, start,
		events.SenderLimit{Rule: "r", Sender: "negative", Limit: -5, Window: -1, Fills: -1, Share: -1, Now: -1, Limited: -7},
		events.SenderLimit{Rule: "r", Sender: "huge", Limit: math.MaxInt, Window: math.MaxFloat64, Fills: math.MaxFloat64, Share: math.MaxFloat64, Now: math.MaxFloat64, Limited: math.MaxInt64},
		events.SenderLimit{Rule: "r", Sender: "at once", Limit: 1, Window: 1e-300, Fills: 1e-300, Share: 1, Now: 1}), start)
	s := f.Snapshot(start.Add(time.Second), Kind{}, 100)
	if len(s.Limits.Senders) != 4 {
		t.Errorf("%+v", s.Limits.Senders)
	}
	for _, one := range s.Limits.Senders {
		if one.Share < 0 || one.Wait < 0 || one.Limited < 0 || slices.Min(one.Minutes) < 0 || slices.Max(one.Minutes) > mostPercent {
			t.Errorf("%+v", one)
		}
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// Who was told of stays where there is no room, and makes room for who is fuller alone. Of a
// minute the greatest share is kept, also if a lesser one is told after it.
func TestRoomForSenders(t *testing.T) {
	f := NewFeed()
	for i := range int64(maxSenders) {
		f.Add(limited("a", i+1, start, hourly(fmt.Sprint(i), 0.5, 0.5, 0)), start)
	}
	f.Add(limited("b", 1, start, hourly("0", 0.9, 0.9, 0)), start)
	f.Add(limited("b", 2, start, hourly("0", 0.4, 0.4, 0), hourly("as full", 0.5, 0.5, 0), hourly("fuller", 0.6, 0.6, 0)), start)
	of := func(sender string) *bucket { return f.buckets.of[underRule{sender, "hourly"}] }
	if of("0") == nil || of("as full") != nil || of("fuller") == nil || len(f.buckets.of) != maxSenders {
		t.Errorf("kept: %v, %v, %v of %d", of("0") != nil, of("as full") != nil, of("fuller") != nil, len(f.buckets.of))
	}
	if list := f.Snapshot(start, Kind{}, 1000).Limits.Senders; list[0].Sender != "fuller" || list[len(list)-1].Sender != "0" || list[len(list)-1].Minutes[hour-1] != 90 {
		t.Errorf("%+v, %+v", list[0], list[len(list)-1])
	}
}

// However many senders workers tell of, a bound are kept, the fullest, and the snapshot
// keeps its size, with names as bad as can be and all else that is there besides.
func TestSendersAreBounded(t *testing.T) {
	f := NewFeed()
	bad := strings.Repeat("\x01", 200)
	for i := range int64(500) {
		st := worker(fmt.Sprint("worker-", i, bad), "open")
		f.Add(&events.Event{Source: fmt.Sprint("w", i), Number: 1, At: start, State: &st}, start)
		f.Add(counted("c", i+1, start, events.Count{Lane: "promotional", App: fmt.Sprint(i, bad), Type: bad, State: "SUPPRESSED", Reason: fmt.Sprint("limited:", i, bad), N: 1}), start)
		share := float64(i%250) / 100
		f.Add(limited("a", i+1, start, hourly(fmt.Sprint(i, bad), share, share, 1)), start)
	}
	f.Add(limited("a", 1000, start, hourly("empty", 0.01, 0.01, 1)), start)
	if f.buckets.of[underRule{"empty", "hourly"}] != nil || len(f.buckets.of) != maxSenders {
		t.Errorf("%d kept, and one that is less full than they", len(f.buckets.of))
	}
	for _, one := range f.Snapshot(start, Kind{}, 1000).Limits.Senders[:50] {
		if one.Share < 1.9 { // those of 2 and more are a hundred and look alike
			t.Errorf("kept %.10q with %v", one.Sender, one.Share)
		}
	}
	text, err := f.Encode(start, Kind{})
	if err != nil || len(text) > MaxSnapshot {
		t.Errorf("a snapshot of %d bytes, %v", len(text), err)
	}
}
