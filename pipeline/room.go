package pipeline

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// room is the room of a stage: how many records it works on at once. Small batches of many
// partitions share it, as each of them waits for its store; a large one has it alone, since
// several at once would only take memory, and the processor from those that follow.
type room struct {
	records *semaphore.Weighted
	size    int64 // in records
}

func newRoom(records int) *room {
	return &room{semaphore.NewWeighted(int64(records)), int64(records)}
}

// enter waits for room for the batch, which is as much as there is for one that is larger, in the
// order of the calls. It reports whether there is, and not if ctx has ended or the batch's partition leaves
// before. leave gives it back, and may be called in either case.
func (r *room) enter(ctx context.Context, b *Batch) (leave func(), entered bool) {
	n := min(int64(len(b.Items)), r.size)
	leave = func() { r.records.Release(n) }
	if r.records.TryAcquire(n) {
		return leave, true
	}
	waiting, stop := context.WithCancel(ctx)
	var leaving sync.WaitGroup
	leaving.Go(func() {
		select {
		case <-b.Tracker.leaving:
			stop()
		case <-waiting.Done():
		}
	})
	err := r.records.Acquire(waiting, n)
	stop()
	leaving.Wait()
	if err != nil {
		return func() {}, false
	}
	return leave, true
}
