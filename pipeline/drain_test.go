package pipeline

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

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

// What has been lost leaves like what is revoked, also when the partition is ours again
// before that is seen; and once nothing of it is in flight, it is forgotten.
func TestALostAssignmentIsKeptWhileItHasWork(t *testing.T) {
	var a assigned
	assign := func() (*Tracker, *Item) {
		tracker := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 10})
		items := make([]Item, 1)
		tracker.Admit(&Batch{Partition: tracker.Partition(), Tracker: tracker, Items: items})
		a.add(tracker)
		return tracker, &items[0]
	}
	lost, open := assign()
	lost.Fence()
	assign()
	if !a.leaving() {
		t.Error("nothing leaves, although work of the lost one is in flight")
	}
	lost.Abandon([]*Item{open})
	assign()
	if n := len(a.all()); n != 2 {
		t.Errorf("%d assignments are kept, want the 2 with work in flight", n)
	}
}

// A batch that comes when the worker was told to stop is the next owner's, although
// nobody has made its partition leave yet.
func TestABatchThatComesAfterTheStopLeaves(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	tracker := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 10})
	p := &Pipeline{opt: Options{Source: &lastBatch{batch: &Batch{Tracker: tracker}}, Metrics: NewMetrics(prometheus.NewRegistry())}}
	batches, failed := p.poll(ctx, stop)
	if b := <-batches; !b.Tracker.Draining() {
		t.Error("it does not leave")
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// lastBatch hands out one batch, also after the stop.
type lastBatch struct {
	Source
	batch *Batch
}

func (s *lastBatch) Next(ctx context.Context) (*Batch, error) {
	if b := s.batch; b != nil {
		s.batch = nil
		return b, nil
	}
	return nil, ctx.Err()
}
