package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pushfleet/pushfleet/push"
)

// turns is what waits in one line: the deliveries of each partition in order,
// and the partitions by turns. A partition that has just come, or has little,
// does not wait behind all that the others have open on a slow route: that can
// be minutes, in which its offset would not move. What it holds is bounded by
// the trackers' windows. What waits for its turn to come or to be possible stays
// here, where remove finds it. All methods may be called at once, take by one
// goroutine only.
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
	// What was handed to the line, what has come back of that when it had had its
	// turn, and what without, since the start.
	queued, completed, returned atomic.Uint64
}

func newTurns() *turns {
	q := &turns{shares: make(map[push.Partition]*share)}
	q.more.L = &q.mu
	return q
}

// put adds deliveries of one partition behind its others, and never blocks.
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
	s.waiting = append(s.waiting, ds...)
	q.more.Signal()
}

// putBack adds deliveries that were taken before ahead of the others of their
// partition, unless nothing more is put, and says whether it did.
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

// joins gives a share that had nothing to take the last turn. The caller holds
// mu and adds something.
func (q *turns) joins(s *share) {
	if len(s.waiting) == 0 {
		q.ring = append(q.ring, s)
	}
}

// await waits until something is there to be taken, and says whether there is:
// only when the turns are closed and empty there is not.
func (q *turns) await() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ring) == 0 && !q.closed {
		q.more.Wait()
	}
	return len(q.ring) > 0
}

// next is what take would return now. It stays where it is: remove finds it.
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

// take appends at most limit deliveries to buf[:0], and does not wait: those of
// the partition whose turn it is, and while there is room those of the next
// ones.
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

// remove takes out, without waiting, every delivery that is to go.
func (q *turns) remove(goes func(*Delivery) bool) (gone []*Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring = slices.DeleteFunc(q.ring, func(s *share) bool {
		s.waiting = slices.DeleteFunc(s.waiting, func(d *Delivery) bool {
			if !goes(d) {
				return false
			}
			gone = append(gone, d)
			return true
		})
		return len(s.waiting) == 0
	})
	return gone
}

// partitions adds those that have something waiting, each once.
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

// progress is what each partition has in the line and has had completed.
func (q *turns) progress() map[push.Partition]Progress {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[push.Partition]Progress, len(q.shares))
	for p, s := range q.shares {
		done, returned := s.completed.Load(), s.returned.Load() // first: never more than was queued
		all[p] = Progress{Out: int(s.queued.Load() - done - returned), Completed: done}
	}
	return all
}

// isClosed reports whether nothing more is put.
func (q *turns) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// close lets take return once nothing waits. Nothing may be put after.
func (q *turns) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Broadcast()
}
