package pipeline

import (
	"slices"
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

// A place is counted once: who has taken it leaves none for others, and those of what was given
// back come out once, when nothing of their partition is in flight any more.
func TestPlacesAreTakenOnce(t *testing.T) {
	items := []*Item{{Place: 3}, {}, {Place: 5}}
	if got := takePlaces(items); !slices.Equal(got, []uint32{3, 5}) {
		t.Errorf("got %v", got)
	}
	if got := takePlaces(items); len(got) > 0 {
		t.Errorf("once more: %v", got)
	}

	var g givenBack
	tr, other := NewTracker(TrackerOptions{Capacity: 10}), NewTracker(TrackerOptions{Capacity: 10})
	b := &Batch{Partition: push.Partition{Topic: "push"}, Tracker: tr, Items: make([]Item, 1)}
	tr.Admit(b)
	g.add(tr, []uint32{3})
	g.add(tr, []uint32{5})
	g.add(other, []uint32{7})
	if got := g.over(tr); len(got) > 0 {
		t.Errorf("one of its items is in flight: %v", got)
	}
	tr.Abandon([]*Item{&b.Items[0]})
	if got := g.over(tr); !slices.Equal(got, []uint32{3, 5}) {
		t.Errorf("nothing of it is in flight: %v", got)
	}
	if got := g.over(tr); len(got) > 0 || len(g.of) != 1 {
		t.Errorf("once more: %v, and there are places of %d partitions", got, len(g.of))
	}
	g.add(tr, nil)
	if len(g.of) != 1 {
		t.Error("what has no places is kept")
	}
}
