package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/push"
)

// committing commits what a tracker's watermark says.
type committing struct {
	Source
	tracker *Tracker
}

func (c committing) Commit(context.Context) error {
	if next, ok := c.tracker.Watermark(); ok {
		c.tracker.Committed(next)
	}
	return nil
}

// A batch of an at_most_once lane is sent only when all of it is committed: what lies
// behind a record without an outcome is read again by the next owner, and would be
// sent by it too.
func TestABatchIsCommittedThroughItsLastItem(t *testing.T) {
	for _, tt := range []struct {
		why     string
		outcome bool // of the record between the two that are intended
		through bool
	}{
		{"nothing is open between them", true, true},
		{"one between them was given back", false, false},
	} {
		tracker := NewTracker(TrackerOptions{Capacity: 10})
		b := &Batch{Tracker: tracker, Items: make([]Item, 3)}
		for i := range b.Items {
			b.Items[i].Offset, b.Items[i].Message = int64(i), push.Message{ID: string(rune('a' + i)), UserID: "u"}
		}
		tracker.Admit(b)
		between, intended := []*Item{&b.Items[1]}, []*Item{&b.Items[2], &b.Items[0]} // in any order
		if tt.outcome {
			tracker.Done(between)
		} else {
			tracker.Abandon(between)
		}
		tracker.Intend(intended)
		p := &Pipeline{opt: Options{Source: committing{tracker: tracker}}}
		if got := p.commitThrough(t.Context(), tracker, intended); got != tt.through {
			t.Errorf("%s: committed through %t, want %t", tt.why, got, tt.through)
		}
	}
}

// refusing is a source whose first commits are refused.
type refusing struct {
	committing
	left *int
}

func (r refusing) Commit(ctx context.Context) error {
	if *r.left--; *r.left >= 0 {
		return errors.New("not the coordinator")
	}
	return r.committing.Commit(ctx)
}

// A batch that is to be sent waits for its commit, and each one that is refused shows.
func TestRefusedCommitsOfABatchAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := NewTracker(TrackerOptions{Capacity: 10})
		b := &Batch{Tracker: tracker, Items: make([]Item, 1)}
		tracker.Admit(b)
		items := []*Item{&b.Items[0]}
		tracker.Intend(items)
		m, left := NewMetrics(prometheus.NewRegistry()), 3
		p := &Pipeline{opt: Options{Lane: "critical", Metrics: m, Source: refusing{committing{tracker: tracker}, &left}}}
		through := p.commitThrough(t.Context(), tracker, items)
		if got := testutil.ToFloat64(m.failures.WithLabelValues("critical", string(StepCommit))); !through || got != 3 {
			t.Errorf("committed through: %v, with %v failures counted; want it after 3", through, got)
		}
	})
}
