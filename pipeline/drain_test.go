package pipeline

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/pushfleet/pushfleet/push"
)

// While one partition still waits for its answers, all others leave too, and who asks
// what leaves is not held up. The stop can come so late that the drain is first.
func TestEveryPartitionLeavesBeforeOneIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a assigned
		trackers := make([]*Tracker, 3)
		for i := range trackers {
			tracker := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push", ID: int32(i)}, Capacity: 10})
			tracker.Admit(&Batch{Partition: tracker.Partition(), Tracker: tracker, Items: make([]Item, 1)})
			a.add(tracker)
			trackers[i] = tracker
		}
		writing, stop := context.WithCancel(t.Context())
		defer stop()
		go a.drain(writing)
		synctest.Wait()
		for i, tracker := range trackers {
			if !tracker.Draining() {
				t.Errorf("partition %d does not leave", i)
			}
		}
		if !a.mu.TryLock() {
			t.Fatal("the drain holds the lock while it waits")
		}
		a.mu.Unlock()
	})
}

// What comes after the stop leaves at once, whoever adds it.
func TestAPartitionThatIsAddedAfterTheStopLeaves(t *testing.T) {
	var a assigned
	a.leave()
	tracker := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 10})
	if a.add(tracker); !tracker.Draining() {
		t.Error("it does not leave")
	}
	if a.leaving() {
		t.Error("it has nothing in flight, and is waited for")
	}
}
