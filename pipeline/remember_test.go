package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/push"
)

// seenOnce takes no ids the first time.
type seenOnce struct {
	Seen
	first func()
	took  []string
}

func (s *seenOnce) Add(_ context.Context, ids []string) error {
	if s.first != nil {
		s.first()
		s.first = nil
		return errors.New("away")
	}
	s.took = append(s.took, ids...)
	return nil
}

// While the filter takes no ids, a partition that leaves waits for it no longer: what
// has ended of it is given back, and only that of the others is done.
func TestAPartitionThatLeavesDoesNotWaitForTheFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var items []*Item
		trackers := make([]*Tracker, 2)
		for n, id := range []string{"leaves", "stays"} {
			trackers[n] = NewTracker(TrackerOptions{Partition: push.Partition{ID: int32(n)}, Capacity: 10})
			b := &Batch{Tracker: trackers[n], Items: []Item{{Message: push.Message{ID: id, UserID: "u"}}}}
			trackers[n].Admit(b)
			items = append(items, &b.Items[0])
		}
		seen := &seenOnce{first: trackers[0].Leave}
		p := &Pipeline{toRemember: newQueue[*Item](), opt: Options{Lane: "x", Seen: seen, Log: slog.New(slog.DiscardHandler),
			Metrics: NewMetrics(prometheus.NewRegistry()), Events: noEvents{}}}
		p.remember(t.Context(), items)
		if len(seen.took) != 1 || seen.took[0] != "stays" {
			t.Errorf("the filter got %q, want only the items that stay", seen.took)
		}
		for n, want := range []int64{-1, 1} {
			if next, _ := trackers[n].Watermark(); next != want || trackers[n].inFlight() {
				t.Errorf("%s: watermark %d, want %d; in flight %d", items[n].ID, next, want, trackers[n].active)
			}
		}
	})
}

// While the filter takes no ids and the worker stops, what has ended is given back: its
// next owner must find it neither committed nor, as it trusts the filter, lost.
func TestWhatTheFilterNeverTookIsNotDone(t *testing.T) {
	tracker := NewTracker(TrackerOptions{Capacity: 10})
	b := &Batch{Tracker: tracker, Items: []Item{{Message: push.Message{ID: "a", UserID: "u"}}}}
	tracker.Admit(b)
	ctx, stop := context.WithCancel(t.Context())
	m := NewMetrics(prometheus.NewRegistry())
	p := &Pipeline{toRemember: newQueue[*Item](), opt: Options{Lane: "x", Seen: &seenOnce{first: stop}, Log: slog.New(slog.DiscardHandler),
		Metrics: m, Events: noEvents{}}}
	p.remember(ctx, []*Item{&b.Items[0]})
	if got := testutil.ToFloat64(m.missedAdds); got != 1 {
		t.Errorf("got %v missed ids counted, want 1", got)
	}
	if next, ok := tracker.Watermark(); ok || tracker.inFlight() {
		t.Errorf("watermark %d, in flight: %v; want that it was given back", next, tracker.inFlight())
	}
}

// told counts what push.events is told.
type told struct {
	noEvents
	copies []string
}

func (e *told) Group(string) Endings { return e }
func (e *told) Duplicate(it *Item)   { e.copies = append(e.copies, it.ID) }

// An item ends as a copy when another record has all of its devices, and each copy is told
// of, unless it is the same record once more.
func TestCopiesAreTold(t *testing.T) {
	devices := func(classes ...push.Class) (ds []Delivery) {
		for _, c := range classes {
			ds = append(ds, Delivery{Result: push.Result{Class: c}})
		}
		return ds
	}
	items := []*Item{
		{Message: push.Message{ID: "claimed"}, Deliveries: devices(push.Claimed, push.Claimed)},
		{Message: push.Message{ID: "partly"}, Deliveries: devices(push.Claimed, push.Delivered)},
		{Message: push.Message{ID: "copy"}, Verdict: push.Duplicate},
		{Message: push.Message{ID: "again"}, Verdict: push.Duplicate, Reread: true},
		{Message: push.Message{ID: "quiet"}, Verdict: push.Suppressed},
	}
	e := &told{}
	p := &Pipeline{opt: Options{Lane: "x", Metrics: NewMetrics(prometheus.NewRegistry()), Events: e}}
	p.ending(items)
	if want := []string{"claimed", "copy"}; !slices.Equal(e.copies, want) {
		t.Errorf("told of the copies %q, want %q", e.copies, want)
	}
	if items[0].Verdict != push.Duplicate || items[1].Verdict != push.Undecided {
		t.Errorf("got verdicts %v and %v, want that only the first is a copy", items[0].Verdict, items[1].Verdict)
	}
}

// The filter learns ids by which nothing but their own records can be found.
func TestSeenIDs(t *testing.T) {
	item := func(id string, r push.Reason) *Item { return &Item{Message: push.Message{ID: id}, Reason: r} }
	got := seenIDs([]*Item{item("a", ""), item("", push.BadJSON), item("b", push.BadJSON), item("c", push.IDReused), item("", push.IDReused)})
	if want := []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q: those of records with an id that is their own", got, want)
	}
}

// notes is what keeps the newest of collapse keys.
type notes struct {
	err  error
	told []string
}

func (n *notes) Begin([]Item) {}
func (n *notes) End([]uint32) {}

func (n *notes) HandedOver(ctx context.Context, items []*Item) error { return n.Accepted(ctx, items) }

func (n *notes) Accepted(_ context.Context, items []*Item) error {
	for _, it := range items {
		n.told = append(n.told, it.ID)
	}
	return n.err
}

// Only of who has a collapse key of its sender's is told, once, and it is counted if that fails.
func TestNoteLatest(t *testing.T) {
	for _, tt := range []struct {
		why      string
		err      error
		failures float64
	}{
		{"noted", nil, 0},
		{"redis is away", errors.New("redis is away"), 1},
	} {
		m, latest := NewMetrics(prometheus.NewRegistry()), &notes{err: tt.err}
		p := &Pipeline{opt: Options{Lane: "critical", Latest: latest, Metrics: m}}
		items := make([]*Item, 3)
		for i, key := range []string{"", "own", "derived"} {
			items[i] = &Item{Message: push.Message{ID: key + "-id", CollapseKey: key}, Derived: key == "derived"}
		}
		p.noteLatest(t.Context(), items)
		p.noteLatest(t.Context(), items[:1])
		var group []*Delivery
		for _, it := range items {
			for _, s := range []push.State{push.StateRetrying, push.StateHeld, push.StateDeadLettered} {
				group = append(group, &Delivery{Item: it, ending: Ending{State: s}})
			}
		}
		told := slices.Clone(latest.told)
		latest.told, latest.err = nil, nil
		<-p.openKeys(t.Context(), group)
		for _, got := range [][]string{told, latest.told} {
			if want := []string{"own-id"}; !slices.Equal(got, want) {
				t.Errorf("%s: told of %q, want %q", tt.why, got, want)
			}
		}
		latest.told, latest.err = nil, tt.err
		<-p.openKeys(t.Context(), group[:1])
		feedback := Delivery{Item: items[1], Result: push.Result{Class: push.Gone}, ending: Ending{State: push.StateFailed}}
		<-p.openKeys(t.Context(), []*Delivery{&feedback})
		if len(latest.told) > 0 {
			t.Errorf("%s: told of %q that no record carries on", tt.why, latest.told)
		}
		if got := testutil.ToFloat64(m.failures.WithLabelValues("critical", string(StepLatest))); got != tt.failures {
			t.Errorf("%s: got %v failures counted, want %v", tt.why, got, tt.failures)
		}
	}
}
