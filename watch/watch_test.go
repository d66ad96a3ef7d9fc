package watch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/watch"
)

var (
	startTime = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

	fcmShop  = push.Route{Platform: push.FCM, App: "shop"}
	apnsShop = push.Route{Platform: push.APNS, App: "shop", Environment: push.Production}
)

// watching asks a Watch every second.
type watching struct {
	*watch.Watch
	now      time.Time
	moved    time.Time // when p0's watermark last moved
	waiting  watch.Waiting
	stalls   gates.Stalls
	lines    []gates.LineProgress
	dead     time.Duration // since moved; 0 = not
	alerts   []string
	quietest time.Duration // the greatest Quiet
}

func newWatching() *watching {
	return &watching{Watch: watch.New(watch.DefaultOptions()), now: startTime, moved: startTime}
}

// standing lets d pass without a movement of p0, and calls each before every
// look.
func (w *watching) standing(d time.Duration, each func()) *watching {
	for range d / time.Second {
		w.now = w.now.Add(time.Second)
		if each != nil {
			each()
		}
		stalls, ended := w.stalls.Declared()
		f := w.Look(w.now, watch.Sight{
			Standstills: []watch.Standstill{{Partition: push.Partition{Topic: "t"}, Lag: 5, Since: w.moved, Waiting: w.waiting}},
			Stalls:      stalls, Ended: ended, Lines: w.lines,
		})
		for _, a := range f.Alerts {
			w.alerts = append(w.alerts, fmt.Sprintf("%s%s %v", a.Partition.Topic, a.Name, a.For))
		}
		if f.Dead != nil && w.dead == 0 {
			w.dead = w.now.Sub(w.moved)
		}
		w.quietest = max(w.quietest, f.Quiet)
	}
	return w
}

// lineWith is a line with so much of p0 in it, and so much of another partition.
func lineWith(l gates.Line, own, other int) gates.LineProgress {
	return gates.LineProgress{Line: l, Progress: gates.Progress{Out: own + other}, Turn: 5000,
		Partitions: map[push.Partition]gates.Progress{{Topic: "t"}: {Out: own}, {Topic: "t", ID: 1}: {Out: other}}}
}

// completes lets deliveries come back from a line: of p0, and of another
// partition, which puts as many in.
func completes(l *gates.LineProgress, own, other int) {
	p0, p1 := push.Partition{Topic: "t"}, push.Partition{Topic: "t", ID: 1}
	mine, others := l.Partitions[p0], l.Partitions[p1]
	mine.Out, mine.Completed = mine.Out-own, mine.Completed+uint64(own)
	others.Completed += uint64(other)
	l.Partitions[p0], l.Partitions[p1] = mine, others
	l.Out, l.Completed = l.Out-own, l.Completed+uint64(own+other)
}

func TestWatch(t *testing.T) {
	const minute = time.Minute
	apns, fcm := gates.Line{Route: apnsShop}, gates.Line{Route: fcmShop}
	retries := gates.Line{Route: fcmShop, Charge: "retry"}
	here, elsewhere := []push.Partition{{Topic: "t"}, {Topic: "t", ID: 1}}, []push.Partition{{Topic: "t", ID: 1}, {Topic: "u"}}
	for _, row := range []struct {
		why    string
		run    func(*watching)
		dead   time.Duration
		alerts []string
	}{
		{"59 s without a reason may still go on", func(w *watching) { w.standing(60*time.Second, nil) }, 0, nil},
		{"a minute without a reason", func(w *watching) { w.standing(2*minute, nil) }, 61 * time.Second, nil},
		{"a movement in between", func(w *watching) {
			for range 10 {
				w.standing(50*time.Second, nil)
				w.moved = w.now
			}
		}, 0, nil},
		{"a store is down for 3 minutes, and what waited for it needs a while", func(w *watching) {
			over := w.stalls.Declare(w.now, "status", "")
			w.standing(3*minute, nil)
			over(w.now)
			w.standing(59*time.Second, nil)
		}, 0, nil},
		{"but not for ever", func(w *watching) {
			over := w.stalls.Declare(w.now, "status", "")
			w.standing(3*minute, nil)
			over(w.now)
			w.standing(2*minute, nil)
		}, 4 * minute, nil},
		{"a stall between two looks counts", func(w *watching) {
			w.standing(50*time.Second, nil)
			w.stalls.Declare(w.now, "redis", "")(w.now)
			w.standing(59*time.Second, nil)
		}, 0, nil},
		{"any reason alerts after 10 minutes, and every 10 from there", func(w *watching) {
			w.stalls.Declare(w.now, "status", "")
			w.standing(25*minute, nil)
		}, 0, []string{"status 10m0s", "status 20m0s"}},
		{"the next time it alerts anew", func(w *watching) {
			over := w.stalls.Declare(w.now, "status", "")
			w.standing(10*minute, nil)
			over(w.now)
			w.stalls.Declare(w.now, "status", "")
			w.standing(10*minute, nil)
		}, 0, []string{"status 10m0s", "status 10m0s"}},
		{"not due: the longest tier is 2 h, and nothing is wrong", func(w *watching) {
			w.waiting = watch.WaitingDue
			w.standing(2*time.Hour, nil)
		}, 0, nil},
		{"due, after half an hour: the time runs from then", func(w *watching) {
			w.waiting = watch.WaitingDue
			w.standing(30*minute, nil)
			w.waiting = watch.WaitingNothing
			w.standing(2*minute, nil)
		}, 31 * minute, nil},
		{"the previous owner does not come to an end", func(w *watching) {
			w.waiting = watch.WaitingOwner
			w.standing(11*minute, nil)
		}, 0, []string{"tprevious_owner 10m0s"}},
		{"a stopped partition does not end the others' process", func(w *watching) {
			w.waiting = watch.WaitingStopped
			w.standing(11*minute, nil)
		}, 0, []string{"tstopped 10m0s"}},
		{"full, and a slow route empties it", func(w *watching) {
			w.waiting = watch.WaitingRoom
			w.lines = []gates.LineProgress{lineWith(apns, 100_000, 0), lineWith(fcm, 0, 0)}
			w.standing(9*minute, func() { completes(&w.lines[0], 1, 0) })
		}, 0, nil},
		{"full, and the route completes nothing", func(w *watching) {
			w.waiting = watch.WaitingRoom
			w.lines = []gates.LineProgress{lineWith(apns, 100, 0), lineWith(fcm, 0, 0)}
			w.standing(3*minute, nil)
		}, 61 * time.Second, nil},
		{"full, one of two routes completes nothing", func(w *watching) {
			w.waiting = watch.WaitingRoom
			w.lines = []gates.LineProgress{lineWith(apns, 100_000, 0), lineWith(fcm, 100, 0)}
			w.standing(3*minute, func() { completes(&w.lines[0], 1, 0) })
		}, 61 * time.Second, nil},
		{"full, and a route without anything of it completes nothing", func(w *watching) {
			w.waiting = watch.WaitingRoom
			w.lines = []gates.LineProgress{lineWith(apns, 100_000, 0), lineWith(fcm, 0, 100)}
			w.standing(9*minute, func() { completes(&w.lines[0], 1, 0) })
		}, 0, nil},
		{"full, and that route is stopped, which was declared", func(w *watching) {
			w.waiting, w.lines = watch.WaitingRoom, []gates.LineProgress{lineWith(apns, 100, 0)}
			w.stalls.Declare(w.now, "route_paused", "")
			w.standing(3*minute, nil)
		}, 0, nil},
		{"full, with nothing on its way: what fills it is lost", func(w *watching) {
			w.waiting, w.lines = watch.WaitingRoom, []gates.LineProgress{lineWith(apns, 0, 100)}
			w.standing(2*minute, func() { completes(&w.lines[0], 0, 10) })
		}, 61 * time.Second, nil},
		{"full, and the others have had their turns: its own are lost", func(w *watching) {
			w.waiting, w.lines = watch.WaitingRoom, []gates.LineProgress{lineWith(apns, 10_000, 100)}
			w.standing(3*minute, func() { completes(&w.lines[0], 0, 1000) })
		}, 66 * time.Second, nil},
		{"full, and the others' turns are long, but it has its own", func(w *watching) {
			w.waiting, w.lines = watch.WaitingRoom, []gates.LineProgress{lineWith(apns, 10_000, 100)}
			second := 0
			w.standing(9*minute, func() {
				second++
				completes(&w.lines[0], max(0, second%20-18), 250)
			})
		}, 0, nil},
		{"full, and was overtaken only while its line was stalled for others", func(w *watching) {
			w.waiting, w.lines = watch.WaitingRoom, []gates.LineProgress{lineWith(apns, 10_000, 100)}
			over := w.stalls.DeclareLine(w.now, "retry_budget", apns, here)
			w.standing(minute, func() { completes(&w.lines[0], 0, 1000) })
			over(w.now)
			w.standing(3*minute, func() { completes(&w.lines[0], 0, 10) })
		}, 0, nil},
		{"overtaken before it had anything in the line", func(w *watching) {
			w.waiting, w.lines = watch.WaitingDue, []gates.LineProgress{lineWith(apns, 0, 100)}
			w.standing(4*minute, func() { completes(&w.lines[0], 0, 50) })
			w.waiting = watch.WaitingRoom
			w.lines[0].Out, w.lines[0].Partitions[here[0]] = 110, gates.Progress{Out: 10}
			w.standing(90*time.Second, func() { completes(&w.lines[0], 0, 50) })
		}, 0, nil},
		{"a line that had nothing to do for long has as long for its first answer as any", func(w *watching) {
			w.lines = []gates.LineProgress{lineWith(apns, 0, 0)}
			w.standing(50*time.Second, nil)
			w.lines[0] = lineWith(apns, 10, 0)
			w.standing(59*time.Second, nil)
		}, 0, nil},
		{"one of its lines goes on, and what it has in the other is on its way while that is stalled for others", func(w *watching) {
			w.waiting, w.lines = watch.WaitingRoom, []gates.LineProgress{lineWith(apns, 100_000, 0), lineWith(fcm, 100, 100)}
			w.stalls.DeclareLine(w.now, "route_paused", fcm, elsewhere)
			w.standing(9*minute, func() { completes(&w.lines[0], 1, 0) })
		}, 0, nil},
		{"its records wait for another app's retry budget", func(w *watching) {
			w.standing(3*minute, func() { w.stalls.DeclareLine(w.now, "retry_budget", retries, here)(w.now) })
		}, 0, nil},
		{"the records of others do: that explains nothing here", func(w *watching) {
			w.standing(3*minute, func() { w.stalls.DeclareLine(w.now, "retry_budget", retries, elsewhere)(w.now) })
		}, 61 * time.Second, nil},
		{"also while it is declared", func(w *watching) {
			w.stalls.DeclareLine(w.now, "retry_budget", retries, elsewhere)
			w.standing(3*minute, nil)
		}, 61 * time.Second, nil},
		{"full, and only a line that has nothing of it moves, for tokens now and then: what fills it is lost", func(w *watching) {
			w.waiting, w.lines = watch.WaitingRoom, []gates.LineProgress{lineWith(apns, 0, 0), lineWith(retries, 0, 100_000)}
			w.stalls.DeclareLine(w.now, "retry_budget", retries, elsewhere)
			w.standing(3*minute, func() { completes(&w.lines[1], 0, 10) })
		}, 61 * time.Second, nil},
		{"full, and its own slow line goes on beside that one", func(w *watching) {
			w.waiting, w.lines = watch.WaitingRoom, []gates.LineProgress{lineWith(apns, 100_000, 0), lineWith(retries, 0, 100_000)}
			w.stalls.DeclareLine(w.now, "retry_budget", retries, elsewhere)
			w.standing(9*minute, func() { completes(&w.lines[0], 1, 0) })
		}, 0, nil},
		{"the others' room is full, and it has nothing open: they are the ones to judge", func(w *watching) {
			w.waiting = watch.WaitingTurn
			w.standing(11*minute, nil)
		}, 0, []string{"tothers_back_pressure 10m0s"}},
		{"the process itself stood still: nothing is held against it", func(w *watching) {
			w.standing(30*time.Second, nil)
			w.now = w.now.Add(2 * minute)
			w.standing(60*time.Second, nil)
		}, 0, nil},
		{"and it is seen only at the second look from then: what its line did not do meanwhile says nothing", func(w *watching) {
			w.lines = []gates.LineProgress{lineWith(apns, 100, 0)}
			w.standing(30*time.Second, nil)
			w.now = w.now.Add(2 * minute)
			w.Look(w.now, watch.Sight{Lines: w.lines})
			w.standing(59*time.Second, nil)
		}, 0, nil},
	} {
		w := newWatching()
		row.run(w)
		if w.dead != row.dead {
			t.Errorf("%s: dead after %v, want %v", row.why, w.dead, row.dead)
		}
		if !slices.Equal(w.alerts, row.alerts) {
			t.Errorf("%s: alerts %q, want %q", row.why, w.alerts, row.alerts)
		}
	}
}

// Of several partitions the one that has stood still longest is named, and one
// that went away is forgotten.
func TestWatchNamesTheWorst(t *testing.T) {
	w := watch.New(watch.DefaultOptions())
	still := func(id int32, since time.Time) watch.Standstill {
		return watch.Standstill{Partition: push.Partition{Topic: "t", ID: id}, Lag: 1, Since: since}
	}
	var f watch.Finding
	for s := range time.Duration(100) {
		now := startTime.Add(s * time.Second)
		seen := []watch.Standstill{still(1, startTime.Add(20*time.Second)), still(2, startTime), still(3, startTime.Add(30*time.Second))}
		if s == 50 {
			seen = seen[1:] // revoked for a moment: another assignment
		}
		f = w.Look(now, watch.Sight{Standstills: seen})
	}
	if f.Dead == nil || f.Dead.Partition.ID != 2 || f.Quiet != 99*time.Second {
		t.Errorf("found %+v", f)
	}
	if f = w.Look(startTime.Add(100*time.Second), watch.Sight{}); f.Dead != nil || f.Quiet != 0 {
		t.Errorf("with all moving: %+v", f)
	}
}

func TestWatchedMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := watch.NewMetrics(reg)
	stalls := []gates.Stall{{Name: "status", Since: startTime}}
	m.Saw("critical", startTime.Add(90*time.Second), stalls, watch.Finding{Quiet: 7 * time.Second, Excuses: []watch.Excuse{
		{Partition: push.Partition{Topic: "push.critical", ID: 3}, Name: "status", Since: startTime.Add(20 * time.Second)}}})
	m.Saw("main", startTime.Add(95*time.Second), nil, watch.Finding{}) // another lane's look changes nothing
	want := func(stall, quiet int) {
		t.Helper()
		if err := testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`# HELP push_stall_seconds How long something has waited for a reason: a store away, a route stopped. 0 = it does not.
# TYPE push_stall_seconds gauge
push_stall_seconds{lane="critical",reason="status"} %d
# HELP push_standstill_seconds The longest that a partition with lag has not moved without a reason. At 60 the worker ends itself.
# TYPE push_standstill_seconds gauge
push_standstill_seconds{lane="critical"} %d
push_standstill_seconds{lane="main"} 0
`, stall, quiet)), "push_stall_seconds", "push_standstill_seconds"); err != nil {
			t.Error(err)
		}
	}
	want(90, 7)
	reasons := `# HELP push_partition_stall_seconds How long a partition with lag has stood still for a reason; no series where there is none.
# TYPE push_partition_stall_seconds gauge
push_partition_stall_seconds{lane="critical",partition="3",reason="status",topic="push.critical"} 70
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(reasons), "push_partition_stall_seconds"); err != nil {
		t.Error(err)
	}
	m.Saw("critical", startTime.Add(100*time.Second), nil, watch.Finding{})
	want(0, 0)
	if n, err := testutil.GatherAndCount(reg, "push_partition_stall_seconds"); n != 0 || err != nil {
		t.Errorf("%d partitions stand still, %v", n, err)
	}
}

// Each partition has its own reasons: all have a store's, a line's have those
// whose records wait in it, and a source's is of one.
func TestExcusesOfPartitions(t *testing.T) {
	at := func(sec int) time.Time { return startTime.Add(time.Duration(sec) * time.Second) }
	part := func(id int32) push.Partition { return push.Partition{Topic: "t", ID: id} }
	w := watch.New(watch.DefaultOptions())
	line := gates.Stall{Name: "route_paused", Since: at(5), Line: gates.Line{Route: apnsShop}, Partitions: []push.Partition{part(1)}}
	still := []watch.Standstill{
		{Partition: part(1), Lag: 1, Since: at(1)}, {Partition: part(2), Lag: 1, Since: at(8)}, {Partition: part(3), Lag: 1, Since: at(2), Waiting: watch.WaitingStopped},
	}
	f := w.Look(at(9), watch.Sight{Standstills: still, Stalls: []gates.Stall{line}})
	if want := []watch.Excuse{{part(1), "route_paused", at(5)}, {part(3), "stopped", at(9)}}; !slices.Equal(f.Excuses, want) {
		t.Errorf("excuses %v, want %v", f.Excuses, want)
	}
	f = w.Look(at(10), watch.Sight{Standstills: still[1:], Stalls: []gates.Stall{{Name: "status", Since: at(6)}}})
	if want := []watch.Excuse{{part(2), "status", at(8)}, {part(3), "status", at(6)}, {part(3), "stopped", at(9)}}; !slices.Equal(f.Excuses, want) {
		t.Errorf("excuses %v, want %v", f.Excuses, want)
	}
}

// A partition with little in a line, and room for more, waits for its turn
// behind many others on a slow route. The line goes on, and nobody has had more
// than a turn: nothing is lost.
func TestWatchBearsALongTurnOfAPartitionWithRoom(t *testing.T) {
	for _, waiting := range []watch.Waiting{watch.WaitingRoom, watch.WaitingNothing} {
		w := newWatching()
		w.waiting = waiting
		w.lines = []gates.LineProgress{lineWith(gates.Line{Route: apnsShop}, 1, 100_000)}
		w.lines[0].Turn = 40*250 + 1000 // 40 partitions, 1000 in flight, answers after 10 s
		w.standing(100*time.Second, func() { completes(&w.lines[0], 0, 100) })
		if w.dead != 0 {
			t.Errorf("waiting %q: dead after %v, with 100 a second of the %d of a turn", waiting, w.dead, w.lines[0].Turn)
		}
	}
}
