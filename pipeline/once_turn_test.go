package pipeline

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/pushfleet/pushfleet/push"
)

// A worker of an at_most_once lane sees a new assignment at each rebalance, for as long
// as it runs. Nothing may keep those that have ended.
func TestOnceForgetsAssignmentsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pipeline{toSettle: newQueue[*Delivery]()}
		batches, over := make(chan *Batch), make(chan struct{})
		go func() {
			defer close(over)
			p.sendOnce(context.Background(), batches)
		}()
		assigned := func(partition int32) weak.Pointer[Tracker] {
			tracker := NewTracker(TrackerOptions{Partition: push.Partition{ID: partition}, Capacity: 1})
			tracker.Leave() // its batch is given back at once
			batches <- &Batch{Tracker: tracker}
			synctest.Wait()
			return weak.Make(tracker)
		}
		first := assigned(1)
		assigned(2)
		runtime.GC()
		runtime.GC()
		if first.Value() != nil {
			t.Error("the tracker of an assignment that is over is still held")
		}
		close(batches)
		<-over
	})
}
