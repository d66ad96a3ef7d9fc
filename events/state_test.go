package events_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/events"
)

// whole is a state with something in every field.
func whole() events.State {
	partition := int32(3)
	return events.State{
		Worker: "worker-1", Release: "1.2.0", Started: startTime, Memory: 1 << 30, MemoryBound: 4 << 30, RepeatBound: 90_000,
		Lanes: []events.LaneState{{Lane: "critical", Topic: "push.critical", Partitions: []int32{0, 3}, Open: 40, Pushes: 12, Oldest: startTime}},
		Routes: []events.RouteState{{Provider: "fcm", App: "shop", Gate: "paused", Until: startTime.Add(time.Minute), Word: "UNAVAILABLE", RateName: "fcm/shop-1",
			Rate: 8000, Base: 10_000, Share: 4000.5, Connections: 20, Streams: 2000, InFlight: 77,
			Answers: []events.AnswerState{{Class: "delivered", N: 1000}, {Class: "again", Reason: "UNAVAILABLE", N: 20}}}},
		Stalls: []events.StallState{{Reason: "route_paused", Lane: "critical", Topic: "push.critical", Partition: &partition, Route: "fcm/shop", Since: startTime}},
	}
}

// A state reads as it was told. It has no number, and no other record's number is
// taken for it.
func TestAStateIsToldAsItIs(t *testing.T) {
	c, now := events.New("worker-a", startTime), startTime.Add(time.Second)
	want := whole()
	for range 2 {
		e := readEvent(t, c.State(want, now))
		if e.Version != 1 || e.Source != "worker-a" || e.Number != 0 || !e.At.Equal(now) || e.State == nil {
			t.Fatalf("told %+v", e)
		}
		got, err := json.Marshal(e.State)
		if err != nil {
			t.Fatal(err)
		}
		if told, err := json.Marshal(want); err != nil || string(got) != string(told) {
			t.Errorf("told\n%s\nwant\n%s, %v", got, told, err)
		}
	}
	c.Rate(events.Rate{Name: "fcm/shop-1", At: now})
	if e := readEvent(t, c.Take(now)[0]); e.Number != 1 {
		t.Errorf("the first record beside states has the number %d, want 1", e.Number)
	}
}

// Whatever names, numbers and times there are, a state fits in a record, and what is
// left out of it is counted.
func TestAStateFitsInARecord(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "shop", "\x00\xff<>\u2028", strings.Repeat("\x01", 300), strings.Repeat("\xff", 20_000), strings.Repeat("ä", 1<<18)}))
		at := rapid.SampledFrom([]time.Time{{}, startTime, time.UnixMilli(math.MaxInt64 / 2), time.UnixMilli(math.MinInt64 / 2), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)})
		number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}))
		many := rapid.SampledFrom([]int{0, 1, 3, 40})
		s := events.State{Worker: name.Draw(rt, "worker"), Release: name.Draw(rt, "release"), Started: at.Draw(rt, "started"), Last: rapid.Bool().Draw(rt, "last")}
		entries := 0
		lane := events.LaneState{Lane: name.Draw(rt, "lane"), Topic: name.Draw(rt, "topic"), Partitions: make([]int32, many.Draw(rt, "partitions")), Oldest: at.Draw(rt, "oldest")}
		for range many.Draw(rt, "lanes") {
			s.Lanes = append(s.Lanes, lane)
		}
		route := events.RouteState{Provider: "fcm", App: name.Draw(rt, "app"), Word: name.Draw(rt, "word"), RateName: name.Draw(rt, "rate"),
			Rate: number.Draw(rt, "now"), Base: number.Draw(rt, "base"), Share: number.Draw(rt, "share"), Until: at.Draw(rt, "until")}
		for range many.Draw(rt, "answers") {
			route.Answers = append(route.Answers, events.AnswerState{Class: "again", Reason: name.Draw(rt, "reason"), N: 1})
		}
		for range many.Draw(rt, "routes") {
			s.Routes = append(s.Routes, route)
		}
		stall := events.StallState{Reason: name.Draw(rt, "why"), Route: route.App, Since: at.Draw(rt, "since")}
		for range many.Draw(rt, "stalls") {
			s.Stalls = append(s.Stalls, stall)
		}
		entries = len(s.Lanes) + len(s.Routes)*(1+len(route.Answers)) + len(s.Stalls)

		e := readEvent(t, events.New("w", startTime).State(s, startTime))
		kept := len(e.State.Lanes) + len(e.State.Routes) + len(e.State.Stalls)
		for _, r := range e.State.Routes {
			kept += len(r.Answers)
		}
		if kept+e.State.Omitted != entries {
			rt.Errorf("%d entries told and %d omitted, want %d in all", kept, e.State.Omitted, entries)
		}
		if len(s.Routes) > 0 && s.Routes[0].Answers == nil && len(route.Answers) > 0 {
			rt.Error("the caller's state was changed")
		}
	})
}

// FuzzState holds a state of any names to the bound.
func FuzzState(f *testing.F) {
	f.Add("worker", "shop", "UNAVAILABLE", 3)
	f.Add("\xff", strings.Repeat("\x02", 4000), "\u2028", 200)
	f.Fuzz(func(t *testing.T, worker, app, reason string, n int) {
		s := events.State{Worker: worker, Release: app}
		for range min(max(n, 0), 200) {
			s.Routes = append(s.Routes, events.RouteState{App: app, Answers: []events.AnswerState{{Class: app, Reason: reason}}})
			s.Stalls = append(s.Stalls, events.StallState{Reason: reason, Lane: app})
			s.Lanes = append(s.Lanes, events.LaneState{Lane: reason, Topic: app})
		}
		e := readEvent(t, events.New("w", startTime).State(s, startTime))
		if e.State.Omitted > 4*len(s.Routes) || len(e.State.Routes) > 0 && e.State.Omitted == 4*len(s.Routes) {
			t.Errorf("%d omitted of %d, and %d routes told", e.State.Omitted, 4*len(s.Routes), len(e.State.Routes))
		}
	})
}

// A state without number is no copy of the one before, also where both came twice.
func TestDecoderTellsEachState(t *testing.T) {
	var d events.Decoder
	c := events.New("a", startTime)
	for i := range 3 {
		record := c.State(whole(), startTime.Add(time.Duration(i)*time.Second))
		for range 2 {
			if e, err := d.Decode(record); err != nil || e == nil || e.State == nil {
				t.Fatalf("state %d: %+v, %v", i, e, err)
			}
		}
	}
	if e, err := d.Decode([]byte(`{"v":1,"source":"a","n":1}`)); err != nil || e == nil {
		t.Errorf("the first counts after states: %+v, %v", e, err)
	}
}

// A worker is there for five seconds after what it told last, by the reader's clock, and
// no longer than until its last word.
func TestAFleetKnowsWhoIsThere(t *testing.T) {
	var f events.Fleet
	now := startTime
	tell := func(source, name string, at time.Time, last bool) {
		f.Hear(&events.Event{Source: source, At: at, State: &events.State{Worker: name, Last: last}}, now)
	}
	there := func(want ...string) {
		t.Helper()
		var got []string
		for _, w := range f.Workers(now) {
			got = append(got, w.State.Worker+"/"+w.Source)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %v: %q, want %q", now.Sub(startTime), got, want)
		}
	}
	there()
	tell("s2", "b", now.Add(-time.Hour), false) // its clock is wrong
	tell("s1", "b", now, false)
	tell("s3", "a", now, false)
	f.Hear(&events.Event{Source: "s4", At: now}, now) // counts
	there("a/s3", "b/s1", "b/s2")

	now = now.Add(4 * time.Second)
	tell("s1", "b", now, false)
	tell("s3", "a", now, true)
	tell("s3", "a", now.Add(-time.Second), false) // late
	there("b/s1", "b/s2")
	now = now.Add(1001 * time.Millisecond)
	there("b/s1")
	now = now.Add(4 * time.Second)
	there()
	tell("s2", "b", now, false)
	there("b/s2")
}

// However many sources a topic has, a fleet is bounded, and the next one has room when
// they are gone.
func TestAFleetIsBounded(t *testing.T) {
	var f events.Fleet
	for i := range 10_500 {
		f.Hear(&events.Event{Source: fmt.Sprint(i), At: startTime, State: &events.State{}}, startTime)
	}
	if n := len(f.Workers(startTime)); n != 10_000 {
		t.Errorf("%d workers, want 10,000", n)
	}
	later := startTime.Add(time.Minute)
	f.Workers(later)
	f.Hear(&events.Event{Source: "new", At: later, State: &events.State{}}, later)
	if there := f.Workers(later); len(there) != 1 || there[0].Source != "new" {
		t.Errorf("%+v, want the new one", there)
	}
}
