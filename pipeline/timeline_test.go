package pipeline

import (
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

// Whatever becomes of a record, its timeline is told once: else its place is never free
// again.
func TestEachTimelineIsToldOnce(t *testing.T) {
	for _, tt := range []struct {
		why       string
		ends      func(*Tracker, []*Item)
		ended     bool
		committed bool
	}{
		{"done and committed", func(tr *Tracker, its []*Item) { tr.Done(its); tr.Committed(2); tr.Committed(2); tr.Fence() }, true, true},
		{"given back", func(tr *Tracker, its []*Item) { tr.Abandon(its); tr.Fence() }, false, false},
		{"done and lost", func(tr *Tracker, its []*Item) { tr.Done(its); tr.Fence(); tr.Fence() }, true, false},
		{"lost and done late", func(tr *Tracker, its []*Item) { tr.Fence(); tr.Done(its) }, true, false},
		{"committed before it was sent", func(tr *Tracker, its []*Item) { tr.Intend(its); tr.Committed(2); tr.Done(its) }, true, false},
	} {
		tr, items := trackedWith(2, false)
		told := 0
		var last *Timeline
		for _, it := range items {
			it.timeline = &Timeline{Offset: it.Offset, item: it, told: func(tl *Timeline) { told++; last = tl }}
			it.Verdict = push.Suppressed
		}
		tt.ends(tr, items)
		if told != 2 {
			t.Errorf("%s: told %d times, want 2", tt.why, told)
			continue
		}
		if last.Ended.IsZero() == tt.ended || last.Committed.IsZero() == tt.committed || last.item != nil || last.Outcome != "SUPPRESSED" || len(tr.timelines) != 0 {
			t.Errorf("%s: %+v", tt.why, last)
		}
	}
}
