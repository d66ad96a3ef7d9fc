package pipeline

import (
	"context"
	"testing"

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
