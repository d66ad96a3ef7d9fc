package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// turns holds the deliveries that wait in one line. Those of one partition stay in
// order; the partitions are served round robin. So a partition that is new or has
// little to send does not wait behind everything that the others have open on a
// slow route: that could take minutes, and its offset would not move meanwhile.
// In a line whose lane sends first what expires first, those of one partition are in
// that order (earliest), and in each round the partition with the earliest goes first.
// The trackers' windows bound how much it holds. A delivery stays here until it
// can be sent, so that remove finds it. All methods are safe for concurrent use,
// except take, which only one goroutine may call.
type turns struct {
	mu     sync.Mutex
	more   sync.Cond
	shares map[push.Partition]*share // of all that ever had something here; guarded by mu
	ring   []*share                  // those with something to take, the next one first; guarded by mu
	closed bool                      // guarded by mu

	earliest bool // what expires first goes first
	now      func() time.Time
	round    uint64 // in which each partition has one turn, if so; guarded by mu
}

// share is what one partition has in a line.
type share struct {
	line    *line
	waiting waiting // guarded by the mu of its turns
	served  uint64  // the last round in which it had a turn; guarded by the mu of its turns
	// Deliveries since the start: handed to the line; come back after their turn;
	// come back without one.
	queued, completed, returned atomic.Uint64
}

// waiting is what one partition has in a line.
type waiting interface {
	len() int
	// put adds deliveries of one batch: behind those of earlier batches, and ahead of
	// those of later ones.
	put(ds []*Delivery)
	// putBack adds deliveries ahead of all others.
	putBack(ds []*Delivery)
	// take takes at most n deliveries and appends them to buf.
	take(buf []*Delivery, n int) []*Delivery
	// next appends at most n deliveries to buf, as many as take would, and leaves them.
	next(buf []*Delivery, n int) []*Delivery
	// remove takes out every delivery for which goes returns true.
	remove(goes func(*Delivery) bool) []*Delivery
}

// asCame are deliveries in the order of the log.
type asCame []*Delivery

func (w *asCame) len() int { return len(*w) }

func (w *asCame) put(ds []*Delivery) {
	at := len(*w)
	for at > 0 && (*w)[at-1].Item.Offset > ds[0].Item.Offset {
		at--
	}
	*w = slices.Insert(*w, at, ds...)
}

func (w *asCame) putBack(ds []*Delivery) { *w = slices.Insert(*w, 0, ds...) }

func (w *asCame) take(buf []*Delivery, n int) []*Delivery {
	n = min(n, len(*w))
	buf = append(buf, (*w)[:n]...)
	clear((*w)[:n])
	if *w = (*w)[n:]; len(*w) == 0 {
		*w = nil
	}
	return buf
}

func (w *asCame) next(buf []*Delivery, n int) []*Delivery {
	return append(buf, (*w)[:min(n, len(*w))]...)
}

func (w *asCame) remove(goes func(*Delivery) bool) (gone []*Delivery) {
	*w, gone = split(*w, goes)
	return gone
}

func newTurns(earliest bool) *turns {
	q := &turns{shares: make(map[push.Partition]*share), earliest: earliest, now: time.Now}
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
		s = &share{line: l, waiting: new(asCame)}
		if q.earliest {
			s.waiting = &earliest{line: l, now: q.now}
		}
		q.shares[p] = s
	}
	for _, d := range ds {
		d.share = s
	}
	s.queued.Add(uint64(len(ds)))
	q.joins(s)
	s.waiting.put(ds)
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
	s.waiting.putBack(ds)
	q.more.Signal()
	return true
}

// joins puts a share that had nothing waiting at the end of the ring. The caller
// holds mu and then adds deliveries to the share.
func (q *turns) joins(s *share) {
	if s.waiting.len() == 0 {
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

// next returns as many as take would return now, which may be others of the same
// partitions, and leaves them in place, where remove finds them.
func (q *turns) next(buf []*Delivery, limit int) []*Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	buf = buf[:0]
	for _, s := range q.ring {
		if len(buf) == limit {
			break
		}
		buf = s.waiting.next(buf, limit-len(buf))
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
		s := q.turn()
		buf = s.waiting.take(buf, limit-len(buf))
		if s.waiting.len() > 0 {
			q.ring = append(q.ring, s)
		}
	}
	return buf
}

// turn takes the share whose turn it is out of the ring, which is not empty. The caller
// holds mu.
func (q *turns) turn() *share {
	if q.earliest {
		q.earliestFirst()
	}
	s := q.ring[0]
	q.ring[0] = nil
	q.ring = q.ring[1:]
	return s
}

// earliestFirst puts the share to the front that has the earliest of those without a turn
// in this round; when all have had one, the next round begins. The caller holds mu.
func (q *turns) earliestFirst() {
	now := q.now()
	first, soonest := -1, uint32(0)
	for i, s := range q.ring {
		if s.served > q.round {
			continue
		}
		if u := s.waiting.(*earliest).urgency(now); first < 0 || u < soonest {
			first, soonest = i, u
		}
	}
	if first < 0 {
		q.round++
		q.earliestFirst()
		return
	}
	s := q.ring[first]
	s.served = q.round + 1
	copy(q.ring[1:], q.ring[:first])
	q.ring[0] = s
}

// remove takes out every delivery for which goes returns true. It does not wait.
func (q *turns) remove(goes func(*Delivery) bool) (gone []*Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring = slices.DeleteFunc(q.ring, func(s *share) bool {
		gone = append(gone, s.waiting.remove(goes)...)
		return s.waiting.len() == 0
	})
	return gone
}

// partitions appends to ps the partitions that have something waiting, each once.
func (q *turns) partitions(ps []push.Partition) []push.Partition {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p, s := range q.shares {
		if s.waiting.len() > 0 && !slices.Contains(ps, p) {
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
		if n := int64(s.queued.Load()-back) - int64(s.waiting.len()); n > 0 {
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
