package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// watched is a stage that calls f, and counts the records that it works on at once.
type watched struct {
	f         func(ctx context.Context, b *Batch) error
	mu        sync.Mutex
	now, most int
	over      int // how often several batches had more than there is room for
	batches   int
	room      int
}

func (*watched) Name() Step { return "watched" }

func (s *watched) Apply(ctx context.Context, b *Batch) error {
	n := len(b.Items)
	if n == 0 {
		return s.f(ctx, b)
	}
	s.mu.Lock()
	s.now += n
	s.batches++
	s.most = max(s.most, s.now)
	if s.now > s.room && s.batches > 1 {
		s.over++
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now -= n
		s.batches--
		s.mu.Unlock()
	}()
	return s.f(ctx, b)
}

func roomy(t *testing.T, room, workers int) *Pipeline {
	t.Helper()
	o := goodOptions()
	o.StageWorkers, o.StageRecords = workers, room
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A store that fails for one full batch keeps no batch of another partition waiting, while
// there is another worker.
func TestOneFailingBatchHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := roomy(t, 100, 4)
		began, in := time.Now(), make(chan *Batch)
		s := &watched{room: 1 << 30, f: func(_ context.Context, b *Batch) error {
			if b.Partition.ID == 0 && time.Since(began) < 5*time.Minute {
				return errors.New("its shard is down")
			}
			return nil
		}}
		out := p.through(t.Context(), s, in)
		go func() {
			defer close(in)
			in <- batchOf(0, 100)
			synctest.Wait()
			in <- batchOf(1, 1)
		}()
		var order []int32
		for b := range out {
			order = append(order, b.Partition.ID)
			if took := time.Since(began); b.Partition.ID == 1 && took > time.Second {
				t.Errorf("a batch of one record of another partition took %v", took)
			}
		}
		if !slices.Equal(order, []int32{1, 0}) {
			t.Errorf("got batches %v, want both", order)
		}
	})
}

// What a stage has decided not to work on, as its partition leaves, leaves its room.
func TestAnAbandonedBatchLeavesItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := roomy(t, 100, 2)
		in := make(chan *Batch)
		s := &watched{room: 100, f: func(_ context.Context, b *Batch) error {
			if b.Partition.ID == 0 {
				b.Tracker.Leave()
				return errors.New("down")
			}
			return nil
		}}
		out := p.through(t.Context(), s, in)
		go func() {
			in <- batchOf(0, 100)
			synctest.Wait()
			in <- batchOf(1, 100)
			close(in)
		}()
		n := 0
		for range out {
			n++
		}
		if n != 1 {
			t.Errorf("%d batches came through, want the second", n)
		}
	})
}

// Whatever happens, nothing is lost, the room is kept, and what is free at the end is the whole room.
func TestWhateverHappensInARoom(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			in64 := func(n int) int { mu.Lock(); defer mu.Unlock(); return r.IntN(n) }
			room := 1 + r.IntN(100)
			p := roomy(t, room, 1+r.IntN(5))
			p.opt.Once = seed%7 == 3
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var stages []*watched
			in := make(chan *Batch)
			var out <-chan *Batch = in
			for range 3 {
				s := &watched{room: room, f: func(context.Context, *Batch) error {
					switch in64(10) {
					case 0:
						return errors.New("down")
					case 1:
						panic("a stage")
					}
					time.Sleep(time.Duration(in64(50)) * time.Millisecond)
					return nil
				}}
				stages = append(stages, s)
				out = p.through(ctx, s, out)
			}
			n := 80
			var all []*Batch
			for i := range n {
				size := in64(room + 20)
				if in64(3) == 0 {
					size = in64(4)
				}
				if in64(8) == 0 {
					size = room
				}
				b := batchOf(int32(i), max(1, size))
				if size == 0 {
					b.Items = nil
					b.Tracker = NewTracker(TrackerOptions{Capacity: 1})
				}
				all = append(all, b)
			}
			go func() {
				defer close(in)
				for _, b := range all {
					in <- b
					time.Sleep(time.Duration(in64(10)) * time.Millisecond)
				}
			}()
			var leaving sync.WaitGroup
			leaving.Go(func() {
				for range 25 {
					time.Sleep(time.Duration(in64(40)) * time.Millisecond)
					b := all[in64(n)]
					if in64(2) == 0 {
						b.Tracker.Fence()
					} else {
						b.Tracker.Leave()
					}
				}
			})
			if seed%3 == 0 {
				time.AfterFunc(time.Duration(in64(800))*time.Millisecond, func() {
					for _, b := range all {
						b.Tracker.Leave()
					}
					stop()
				})
			}
			var order []int32
			for b := range out {
				order = append(order, b.Partition.ID)
				time.Sleep(time.Duration(in64(10)) * time.Millisecond)
				p.abandonBatch(b)
			}
			leaving.Wait()
			for i, b := range all {
				if b.Tracker.inFlight() || b.Tracker.active != 0 {
					t.Errorf("seed %d: batch %d has %d in flight at the end", seed, i, b.Tracker.active)
				}
			}
			for i, s := range stages {
				if s.over > 0 {
					t.Errorf("seed %d: stage %d worked on %d records at once, and has room for %d", seed, i, s.most, room)
				}
			}
			if p.opt.Once && !slices.IsSorted(order) {
				t.Errorf("seed %d: once: out of order %v", seed, order)
			}
		})
	}
}
