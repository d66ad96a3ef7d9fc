package pipeline

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// working is a stage whose batches take a second each, and how many records it worked on at
// once at the most.
type working struct {
	mu        sync.Mutex
	now, most int              // records
	order     []push.Partition // as they were begun
}

func (*working) Name() Step { return "working" }

func (w *working) Apply(_ context.Context, b *Batch) error {
	w.mu.Lock()
	w.now += len(b.Items)
	w.most = max(w.most, w.now)
	w.order = append(w.order, b.Partition)
	w.mu.Unlock()
	time.Sleep(time.Second)
	w.mu.Lock()
	w.now -= len(b.Items)
	w.mu.Unlock()
	return nil
}

// batchOf is an admitted batch of a partition of its own.
func batchOf(id int32, records int) *Batch {
	p := push.Partition{Topic: "push", ID: id}
	b := &Batch{Partition: p, Items: make([]Item, records), Tracker: NewTracker(TrackerOptions{Partition: p, Capacity: records})}
	for i := range b.Items {
		b.Items[i].Offset = int64(i)
	}
	b.Tracker.Admit(b)
	return b
}

// Small batches are worked on at once, and large ones as far as there is room; a batch that is
// larger than the room has it alone.
func TestTheRoomOfAStage(t *testing.T) {
	for _, row := range []struct {
		why     string
		room    int // StageRecords
		records []int
		most    int
		seconds int
	}{
		{"small batches of four partitions", 100, []int{10, 10, 10, 10}, 40, 1},
		{"full ones, each alone", 100, []int{100, 100, 100, 100}, 100, 4},
		{"one that is larger than the room", 100, []int{300, 50}, 300, 2},
		{"as many as fit", 100, []int{50, 50, 50}, 100, 2},
		{"unbounded", 0, []int{300, 300, 300, 300}, 1200, 1},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := goodOptions()
				o.StageWorkers, o.StageRecords = 4, row.room
				p, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				began, s, in := time.Now(), new(working), make(chan *Batch)
				out := p.through(t.Context(), s, in)
				go func() {
					defer close(in)
					for i, n := range row.records {
						in <- batchOf(int32(i), n)
						synctest.Wait()
					}
				}()
				for b := range out {
					b.Tracker.Fence()
				}
				if took := time.Since(began); s.most != row.most || took != time.Duration(row.seconds)*time.Second {
					t.Errorf("%d records at once at the most, in %v; want %d, in %d s", s.most, took, row.most, row.seconds)
				}
			})
		})
	}
}

// A batch that waits for room is given back when its partition leaves, and not when there is
// room; those behind it go on.
func TestAPartitionLeavesWhileItsBatchWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := goodOptions()
		o.StageWorkers, o.StageRecords = 4, 100
		p, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		s, in := new(working), make(chan *Batch)
		out := p.through(t.Context(), s, in)
		batches := []*Batch{batchOf(0, 90), batchOf(1, 50), batchOf(2, 10)}
		for _, b := range batches {
			in <- b
			synctest.Wait()
		}
		if len(s.order) != 1 {
			t.Fatalf("%d batches have room, want one: the third waits behind the second", len(s.order))
		}
		began := time.Now()
		if err := batches[1].Tracker.Drain(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("its partition has drained after %v, %v; want at once", time.Since(began), err)
		}
		synctest.Wait()
		if want := []push.Partition{batches[0].Partition, batches[2].Partition}; !slices.Equal(s.order, want) {
			t.Errorf("begun: %v, want %v", s.order, want)
		}
		close(in)
		for range out {
		}
	})
}

// What waits for room is given back when the pipeline stops.
func TestThePipelineStopsWhileABatchWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(10)
		leave, entered := r.enter(t.Context(), batchOf(0, 10))
		if !entered {
			t.Fatal("there is no room in an empty stage")
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if none, entered := r.enter(ctx, batchOf(1, 1)); entered {
			t.Error("it has room in a stage that is full")
		} else {
			none()
		}
		leave()
		if leave, entered = r.enter(t.Context(), batchOf(1, 10)); !entered {
			t.Error("what was left is not there again")
		}
		leave()
	})
}
