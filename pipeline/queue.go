package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// queue passes values between goroutines in groups of whatever has gathered. A
// channel cannot do that: it hands out one value at a time, and it blocks its writer,
// which may be the reader of a connection here. The trackers' windows bound how much
// a queue holds.
type queue[T any] struct {
	mu     sync.Mutex
	more   sync.Cond
	values []T
	closed bool
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.more.L = &q.mu
	return q
}

// put adds values and never blocks.
func (q *queue[T]) put(values ...T) {
	q.mu.Lock()
	q.values = append(q.values, values...)
	q.mu.Unlock()
	q.more.Signal()
}

// remove takes out every value for which goes reports true, without waiting.
func (q *queue[T]) remove(goes func(T) bool) (gone []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.values, gone = split(q.values, goes)
	return gone
}

// take waits for values and appends at most limit of them to buf[:0]. It
// returns an empty slice only when the queue is closed and empty.
func (q *queue[T]) take(buf []T, limit int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.values) == 0 && !q.closed {
		q.more.Wait()
	}
	n := min(limit, len(q.values))
	buf = append(buf[:0], q.values[:n]...)
	rest := copy(q.values, q.values[n:])
	clear(q.values[rest:])
	q.values = q.values[:rest]
	if rest > 0 {
		q.more.Signal()
	}
	return buf
}

// close lets takers return once the queue is empty. Nothing may be put after it.
func (q *queue[T]) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Broadcast()
}

// eachGroup starts n workers that take groups of values from q until it is closed
// and empty.
func eachGroup[T any](n int, q *queue[T], work func([]T)) *sync.WaitGroup {
	workers := new(sync.WaitGroup)
	for range n {
		workers.Go(func() {
			var group []T
			for {
				if group = q.take(group, settleGroup); len(group) == 0 {
					return
				}
				work(group)
				clear(group) // a batch that is done is not to stay until the next group
			}
		})
	}
	return workers
}

// split takes out of values, in place, those for which goes reports true.
func split[T any](values []T, goes func(T) bool) (stay, gone []T) {
	stay = slices.DeleteFunc(values, func(v T) bool {
		if !goes(v) {
			return false
		}
		gone = append(gone, v)
		return true
	})
	return stay, gone
}

// turns holds the deliveries that wait in one line. Those of one partition stay in
// order; the partitions are served round robin. So a partition that is new or has
// little to send does not wait behind everything that the others have open on a
// slow route: that could take minutes, and its offset would not move meanwhile.
// The trackers' windows bound how much it holds. A delivery stays here until it
// can be sent, so that remove finds it. All methods are safe for concurrent use,
// except take, which only one goroutine may call.
type turns struct {
	mu     sync.Mutex
	more   sync.Cond
	shares map[push.Partition]*share // of all that ever had something here; guarded by mu
	ring   []*share                  // those with something to take, the next one first; guarded by mu
	closed bool                      // guarded by mu
}

// share is what one partition has in a line.
type share struct {
	line    *line
	waiting []*Delivery // guarded by the mu of its turns
	// Deliveries since the start: handed to the line; come back after their turn;
	// come back without one.
	queued, completed, returned atomic.Uint64
}

func newTurns() *turns {
	q := &turns{shares: make(map[push.Partition]*share)}
	q.more.L = &q.mu
	return q
}

// put adds deliveries of one batch to those of its partition that already wait: behind
// those of earlier batches, and ahead of those of later ones, which the stages may
// have been through with first. Otherwise the first record of a partition could be the
// last to be sent. It never blocks.
func (q *turns) put(l *line, ds []*Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := ds[0].Item.batch.Tracker.Partition()
	s := q.shares[p]
	if s == nil {
		s = &share{line: l}
		q.shares[p] = s
	}
	for _, d := range ds {
		d.share = s
	}
	s.queued.Add(uint64(len(ds)))
	q.joins(s)
	at := len(s.waiting)
	for at > 0 && s.waiting[at-1].Item.Offset > ds[0].Item.Offset {
		at--
	}
	s.waiting = slices.Insert(s.waiting, at, ds...)
	q.more.Signal()
}

// putBack puts deliveries that were taken earlier back in front of the others of
// their partition. It does nothing and returns false if the turns are closed.
func (q *turns) putBack(s *share, ds []*Delivery) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.joins(s)
	s.waiting = slices.Insert(s.waiting, 0, ds...)
	q.more.Signal()
	return true
}

// joins puts a share that had nothing waiting at the end of the ring. The caller
// holds mu and then adds deliveries to the share.
func (q *turns) joins(s *share) {
	if len(s.waiting) == 0 {
		q.ring = append(q.ring, s)
	}
}

// await waits until there is something to take and returns true. It returns false
// once the turns are closed and empty.
func (q *turns) await() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ring) == 0 && !q.closed {
		q.more.Wait()
	}
	return len(q.ring) > 0
}

// next returns what take would return now, but leaves it in place, where remove
// finds it.
func (q *turns) next(buf []*Delivery, limit int) []*Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	buf = buf[:0]
	for _, s := range q.ring {
		if len(buf) == limit {
			break
		}
		buf = append(buf, s.waiting[:min(limit-len(buf), len(s.waiting))]...)
	}
	return buf
}

// take appends at most limit deliveries to buf[:0]: first those of the partition
// whose turn it is, then those of the next ones. It does not wait.
func (q *turns) take(buf []*Delivery, limit int) []*Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	buf = buf[:0]
	for len(buf) < limit && len(q.ring) > 0 {
		s := q.ring[0]
		n := min(limit-len(buf), len(s.waiting))
		buf = append(buf, s.waiting[:n]...)
		clear(s.waiting[:n])
		s.waiting = s.waiting[n:]
		q.ring[0] = nil
		q.ring = q.ring[1:]
		if len(s.waiting) > 0 {
			q.ring = append(q.ring, s)
		} else {
			s.waiting = nil
		}
	}
	return buf
}

// remove takes out every delivery for which goes returns true. It does not wait.
func (q *turns) remove(goes func(*Delivery) bool) (gone []*Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring = slices.DeleteFunc(q.ring, func(s *share) bool {
		var out []*Delivery
		s.waiting, out = split(s.waiting, goes)
		gone = append(gone, out...)
		return len(s.waiting) == 0
	})
	return gone
}

// partitions appends to ps the partitions that have something waiting, each once.
func (q *turns) partitions(ps []push.Partition) []push.Partition {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p, s := range q.shares {
		if len(s.waiting) > 0 && !slices.Contains(ps, p) {
			ps = append(ps, p)
		}
	}
	return ps
}

// progress returns how many deliveries each partition has in the line, and how
// many have been completed.
func (q *turns) progress() map[push.Partition]gates.Progress {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[push.Partition]gates.Progress, len(q.shares))
	for p, s := range q.shares {
		done, returned := s.completed.Load(), s.returned.Load() // first: never more than was queued
		all[p] = gates.Progress{Out: int(s.queued.Load() - done - returned), Completed: done}
	}
	return all
}

// taken adds to each topic how many of its deliveries have had their turn and have not
// come back.
func (q *turns) taken(all map[string]int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p, s := range q.shares {
		back := s.completed.Load() + s.returned.Load() // first: never more than was queued
		if n := int64(s.queued.Load()-back) - int64(len(s.waiting)); n > 0 {
			all[p.Topic] += n
		}
	}
}

// isClosed reports whether close has been called.
func (q *turns) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// close makes await return false once nothing waits. Nothing may be put after it.
func (q *turns) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Broadcast()
}
