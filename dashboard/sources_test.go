package dashboard

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

// told is a state as workers tell it: without a number.
func told(source string, at time.Time, s events.State) *events.Event {
	return &events.Event{Version: events.Version, Source: source, At: at, State: &s}
}

// Records have no keys, so that the states of a worker come by any partition and in any
// order: the one that was told last counts, and a last word stays the last.
func TestNewestStateCounts(t *testing.T) {
	f := NewFeed()
	last, before := worker("worker-a", "open"), worker("worker-a", "paused")
	last.Last = true
	f.Add(told("a", start.Add(2*time.Second), last), start.Add(3*time.Second))
	f.Add(told("a", start.Add(time.Second), before), start.Add(3*time.Second))
	s := f.Snapshot(start.Add(4*time.Second), Kind{}, 100)
	if len(s.Workers) != 0 || len(s.Gone) != 1 || !s.Gone[0].Last || says(s.Approximate, "without a word") {
		t.Errorf("who has ended in order: workers %+v, gone %+v, %v", s.Workers, s.Gone, s.Approximate)
	}
	// So it is when many are read at once, after a time without Kafka.
	f.Add(told("a", start.Add(-time.Minute), before), start.Add(3*time.Second))
	if s = f.Snapshot(start.Add(5*time.Second), Kind{}, 100); len(s.Workers) != 0 {
		t.Errorf("workers %+v", s.Workers)
	}
	// The last hour is read one partition after the other, and again after an error.
	f = NewFeed()
	f.Add(told("a", start, worker("worker-a", "halted")), start)
	f.Add(told("a", start.Add(-time.Minute), before), start.Add(-time.Minute))
	if s = f.Snapshot(start.Add(time.Second), Kind{}, 100); s.Routes[0].Lamp != LampHalted {
		t.Errorf("a state of a minute ago is shown: %+v", s.Routes)
	}
	// A clock that was set back by an hour does not hide what comes after.
	f.Add(told("a", start.Add(-time.Hour), worker("worker-a", "open")), start.Add(time.Second))
	if s = f.Snapshot(start.Add(2*time.Second), Kind{}, 100); s.Routes[0].Lamp == LampHalted {
		t.Errorf("a state of before the clock was set back is shown: %+v", s.Routes)
	}
}

// A worker that was killed stays known as such when its successor of the same name is
// late and comes back.
func TestGoneAreToldApartByTheirSource(t *testing.T) {
	f := NewFeed()
	f.Add(told("killed", start, worker("worker-0", "open")), start)
	f.Add(told("successor", start.Add(10*time.Second), worker("worker-0", "open")), start.Add(10*time.Second))
	f.Snapshot(start.Add(20*time.Second), Kind{}, 100) // both are silent
	f.Add(told("successor", start.Add(21*time.Second), worker("worker-0", "open")), start.Add(21*time.Second))
	s := f.Snapshot(start.Add(22*time.Second), Kind{}, 100)
	if len(s.Workers) != 1 || len(s.Gone) != 1 || !says(s.Approximate, "1 workers ended without a word") {
		t.Errorf("workers %+v, gone %+v, %v", s.Workers, s.Gone, s.Approximate)
	}
}

// Copies are told from records that are late within a window of numbers, to its edge: what is
// later counts, as it may be no copy. A number beyond all reason does not take long.
func TestCopiesAreFoundInAWindow(t *testing.T) {
	f := NewFeed()
	const newest = 20_000
	want := int64(1)
	f.Add(counted("a", newest, start, sent("critical", "shop", 1)), start)
	for _, late := range []int64{1, window / 4, window/2 - 1, window / 2, window/2 + 1, window - 65, window - 1} {
		want++
		for range 2 {
			f.Add(counted("a", newest-late, start, sent("critical", "shop", 1)), start)
		}
	}
	if s := f.Snapshot(start, Kind{}, 100); s.Outcomes.Total != want {
		t.Errorf("%d counted, want %d", s.Outcomes.Total, want)
	}
	f.Add(counted("a", newest-window, start, sent("critical", "shop", 1)), start)
	f.Add(counted("a", greatest, start, sent("critical", "shop", 1)), start)
	if s := f.Snapshot(start, Kind{}, 100); s.Outcomes.Total != want+2 {
		t.Errorf("%d counted, want %d", s.Outcomes.Total, want+2)
	}
}

// Room is made for a source by that which has been silent the longest; who tells nothing for
// two hours is forgotten.
func TestSilentSourcesAreForgotten(t *testing.T) {
	f := NewFeed()
	at := func(i int) time.Time { return start.Add(time.Duration(i) * time.Millisecond) }
	for i := range maxSources {
		f.Add(counted(fmt.Sprint(i), 1, at(i), sent("critical", "shop", 1)), at(i))
	}
	f.Add(counted("0", 2, at(maxSources), sent("critical", "shop", 1)), at(maxSources))
	f.Add(counted("another", 1, at(maxSources), sent("critical", "shop", 1)), at(maxSources))
	if f.sources.byID["0"] == nil || f.sources.byID["1"] != nil || f.sources.byID["2"] == nil || len(f.sources.byID) != maxSources {
		t.Errorf("known: %v, %v, %v, %d", f.sources.byID["0"] != nil, f.sources.byID["1"] != nil, f.sources.byID["2"] != nil, len(f.sources.byID))
	}
	f.Snapshot(start.Add(forgotten-time.Second), Kind{}, 100)
	if len(f.sources.byID) != maxSources {
		t.Errorf("before two hours %d are known", len(f.sources.byID))
	}
	if f.Snapshot(start.Add(forgotten+5*time.Second), Kind{}, 100); len(f.sources.byID) != 0 {
		t.Errorf("after two hours %d are known", len(f.sources.byID))
	}
}

// A thousand sources with states as large as a record may be, without two names alike.
func TestStatesAreBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := NewFeed()
	long := strings.Repeat("\x01", 400)
	for w := range 1000 {
		st := events.State{Worker: fmt.Sprint("worker-", w), Started: start}
		for i := range 150 {
			name := fmt.Sprint(w, "-", i, long)
			st.Lanes = append(st.Lanes, events.LaneState{Lane: name, Topic: name, Partitions: make([]int32, 100)})
			st.Routes = append(st.Routes, events.RouteState{Provider: "apns", App: name, Gate: name, Answers: []events.AnswerState{{Class: name, Reason: name, N: 1}}})
			st.Stalls = append(st.Stalls, events.StallState{Reason: name, Topic: name, Since: start})
		}
		f.Add(told(fmt.Sprint("source-", w), start, st), start)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if heap := int64(after.HeapAlloc) - int64(before.HeapAlloc); heap > 100<<20 {
		t.Errorf("%d MiB of states", heap>>20)
	}
	text, err := f.Encode(start.Add(time.Second), Kind{})
	if err != nil || len(text) > MaxSnapshot {
		t.Errorf("a snapshot of %d bytes, %v", len(text), err)
	}
	if s := f.Snapshot(start.Add(time.Second), Kind{}, 100); s.Omitted["workers"] != 900 || s.Workers[99].Omitted == 0 && s.Workers[0].Omitted == 0 {
		t.Errorf("omitted %v, %+v", s.Omitted, s.Workers[99])
	}
	runtime.KeepAlive(f)
}

// Who is gone is not shown in the second in which the last hour is read: pushctl top --once
// shows no other.
func TestGoneAreNotShownAtOnce(t *testing.T) {
	f := NewFeed()
	now := start.Add(time.Minute)
	last := worker("ended", "open")
	last.Last = true
	f.Add(told("here", now, worker("here", "open")), now)
	f.Add(told("ended", start, last), start)
	f.Add(told("killed", start, worker("killed", "open")), start)
	if s := f.Snapshot(now, Kind{}, 100); len(s.Workers) != 1 || s.Workers[0].Worker != "here" {
		t.Errorf("workers %+v", s.Workers)
	}
}

// Numbers beyond all reason in one worker's states leave the page with numbers of all: no
// sum of them is one that JSON cannot express, or below nothing.
func TestStatesHaveSums(t *testing.T) {
	f := NewFeed()
	f.Positions([]Position{{Lane: "critical", Kind: TopicMain, Topic: "push.critical", End: 10}}, start)
	for i := range 3 {
		st := worker(fmt.Sprint("worker-", i), "open")
		l, r := &st.Lanes[0], &st.Routes[0]
		l.Open, l.Pushes = math.MaxInt64, math.MinInt64
		r.Share, r.Rate, r.Base, r.InFlight, r.Connections, r.Streams = math.MaxFloat64, -math.MaxFloat64, math.MaxFloat64, math.MaxInt64, math.MaxInt, -1
		r.Answers = []events.AnswerState{{Class: "accepted", N: math.MaxInt64}}
		f.Add(told(fmt.Sprint("source-", i), start, st), start)
	}
	if _, err := f.Encode(start, Kind{}); err != nil {
		t.Fatal(err)
	}
	s := f.Snapshot(start, Kind{}, 100)
	if r := s.Routes[0]; r.InFlight < 0 || r.Connections < 0 || r.Streams < 0 || r.Answers[0].N < 0 || r.Rate < 0 {
		t.Errorf("route %+v", r)
	}
	if s.Sum.InProgress < 0 || s.Sum.Pushes < 0 || s.Workers[0].Open < 0 || s.Workers[0].Pushes < 0 {
		t.Errorf("sum %+v, worker %+v", s.Sum, s.Workers[0])
	}
}
