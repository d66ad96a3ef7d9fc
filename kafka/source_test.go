package kafka

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

func TestCommitFollowsTheContiguousWatermark(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10})
	c.produce("push", 0, 0, 30)
	bs := nextItems(t, s, 30)
	all := itemsOf(bs[0])
	for _, b := range bs[1:] {
		all = append(all, itemsOf(b)...)
	}
	tr := bs[0].Tracker

	steps := []struct {
		reason string
		done   []int
		want   int64
	}{
		{"nothing done: nothing committed", nil, -1},
		{"the last one first: a gap before it", []int{29}, -1},
		{"the first", []int{0}, 1},
		{"a gap at 2", []int{1, 3, 4}, 2},
		{"the gap closes", []int{2}, 5},
		{"the rest but one", []int{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27}, 28},
		{"all", []int{28}, 30},
	}
	for _, step := range steps {
		for _, i := range step.done {
			tr.Done(all[i : i+1])
		}
		if err := s.Commit(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if got := c.committed("g", "push", 0); got != step.want {
			t.Errorf("%s: got commit %d, want %d", step.reason, got, step.want)
		}
	}
}

func TestUncommittedRecordsComeAgain(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	first := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Drain: mortal})
	c.produce("push", 0, 0, 20)
	bs := nextItems(t, first, 20)
	bs[0].Tracker.Done(itemsOf(bs[0])[:7])

	if err := first.Close(t.Context()); err != nil { // nobody finishes the rest
		t.Errorf("close: %v", err)
	}
	if _, err := first.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Next after Close gave %v, want ErrClosed", err)
	}
	if got := c.committed("g", "push", 0); got != 7 {
		t.Errorf("got commit %d, want 7: everything done before Close", got)
	}
	second := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10})
	again := nextItems(t, second, 13)
	if got := again[0].Items[0].Offset; got != 7 {
		t.Errorf("got start %d for the next owner, want 7", got)
	}
	if !again[0].Items[0].Confirm {
		t.Error("a record that a dead owner may have sent is not marked for a confirm read")
	}
}

// A commit frees places in windows. It wakes those that wait for them, so that they do
// not wait for their next recheck.
func TestACommitWakesWhoWaitsForPlaces(t *testing.T) {
	s := newSource(*options(nil), slog.New(slog.DiscardHandler))
	wake := s.wake
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-wake:
	default:
		t.Error("no waiter was woken")
	}
}

// A retry topic's partition whose next record is a second copy of an id that is open
// here has to wait. Its neighbour does not: Next goes on to it at once.
func TestNextGoesOnAfterWhatCannotBeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(*options(func(o *SourceOptions) { o.Topics = tier("push.retry", time.Minute) }), slog.New(slog.DiscardHandler))
		s.onAssigned(t.Context(), nil, map[string][]int32{"push.retry": {0, 1}})
		item := func(p int32, offset int64, id string) pipeline.Item {
			return pipeline.Item{Partition: push.Partition{Topic: "push.retry", ID: p}, Offset: offset, Message: push.Message{ID: id, UserID: "u1"}}
		}
		waits, goes := s.parts[push.Partition{Topic: "push.retry", ID: 1}], s.parts[push.Partition{Topic: "push.retry", ID: 0}]
		for _, a := range s.parts {
			a.begin(stand{committed: 0, unresolved: -1}, 0)
		}
		if waits.tracker.Admit(&pipeline.Batch{Partition: waits.partition, Tracker: waits.tracker, Retry: true, Items: []pipeline.Item{item(1, 0, "twice")}}) != 1 {
			t.Fatal("setup: the first copy was not taken")
		}
		waits.rest, goes.rest = []pipeline.Item{item(1, 1, "twice")}, []pipeline.Item{item(0, 0, "once")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		b, err := s.Next(ctx)
		if err != nil || b.Partition.ID != 0 || len(b.Items) != 1 {
			t.Fatalf("got %+v (error %v), want the record of partition 0", b, err)
		}
		if !time.Now().Equal(began) || !waits.restAt.After(began) {
			t.Errorf("got it after %v; partition 1 is asked again at %v", time.Since(began), waits.restAt)
		}
	})
}
