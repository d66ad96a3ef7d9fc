package h2

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Lane is a bounded queue of its own in front of the shared connections.
type Lane struct {
	Name string
	// Weight is its share of the connections while others wait too; at least 1.
	Weight int
	// Queue is how many requests may wait; Submit blocks beyond that.
	Queue int
}

// queue holds what waits for a connection. Connections that found no request
// wait in it too, and so do slots that would have to dial.
type queue struct {
	mu      sync.Mutex
	lanes   []lane
	waiting int // requests in all lanes
	closed  bool
	// Who waits for requests, by kind: the first kind that fits is woken.
	idle [kinds][]*waiter
}

// kind says what a waiter can do.
type kind uint8

const (
	canSend    kind = iota // it is open and has room
	canSendTop             // it has room for the first lane only
	canDial                // it would have to be opened
	kinds
)

// waiter is somebody who may wait for requests. Its goroutine sleeps on wake.
type waiter struct {
	wake chan struct{}

	// It stands in one of the queue's lists; both guarded by queue.mu.
	registered bool
	as         kind
}

func newWaiter() waiter { return waiter{wake: make(chan struct{}, 1)} }

// wakeUp never blocks: one token is enough.
func (w *waiter) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

type lane struct {
	Lane
	ring  ring
	room  sync.Cond
	score int // smooth weighted round robin
}

func newQueue(lanes []Lane) *queue {
	q := &queue{lanes: make([]lane, len(lanes))}
	for i := range lanes {
		q.lanes[i].Lane = lanes[i]
		q.lanes[i].room.L = &q.mu
	}
	return q
}

// push appends rs to a lane, waiting for room. It returns how many it took,
// and an error when that is not all.
func (q *queue) push(ctx context.Context, l int, rs []*Request) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := &q.lanes[l]
	var unhook func() bool
	for n := 0; n < len(rs); {
		switch {
		case q.closed:
			return n, ErrClosed
		case ctx.Err() != nil:
			return n, context.Cause(ctx)
		case ln.ring.len() >= ln.Queue:
			if unhook == nil {
				unhook = context.AfterFunc(ctx, func() {
					q.mu.Lock()
					defer q.mu.Unlock()
					ln.room.Broadcast()
				})
				defer unhook()
			}
			ln.room.Wait()
			continue
		}
		k := min(len(rs)-n, ln.Queue-ln.ring.len())
		for _, r := range rs[n : n+k] {
			ln.ring.pushBack(r)
		}
		n += k
		q.waiting += k
		q.wakeFor(l, k)
	}
	return len(rs), nil
}

// putBack places a request at the head of its lane, room or not: it had its
// place already. It reports false when the queue is closed.
func (q *queue) putBack(r *Request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.lanes[r.lane].ring.pushFront(r)
	q.waiting++
	q.wakeFor(r.lane, 1)
	return true
}

// take appends up to most requests to out, at most others of them from lanes
// other than the first. It chooses between waiting lanes by weight. When there
// is nothing for w it registers w to be woken; when some are left, it wakes
// another one for them, because w is about to be busy.
func (q *queue) take(w *waiter, out []*Request, most, others int) []*Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	had := len(out)
	for len(out)-had < most {
		ln := q.pick(others > 0)
		if ln == nil {
			break
		}
		if ln != &q.lanes[0] {
			others--
		}
		out = append(out, ln.ring.popFront())
		q.waiting--
		// A submitter is woken for an eighth of the lane, not for one place.
		if n := ln.ring.len(); n == ln.Queue-max(1, ln.Queue/8) || n == 0 {
			ln.room.Broadcast()
		}
	}
	switch {
	case len(out) > had:
		q.deregister(w)
		q.wakeLeft()
	case others > 0:
		q.register(w, canSend)
	default:
		q.register(w, canSendTop)
		q.wakeLeft()
	}
	return out
}

// pick chooses the lane of the next request, or nil: smooth weighted round
// robin.
func (q *queue) pick(all bool) *lane {
	if q.waiting == 0 {
		return nil
	}
	var best *lane
	total := 0
	for i := range q.lanes {
		ln := &q.lanes[i]
		if ln.ring.len() == 0 {
			ln.score = 0
			continue
		}
		if i > 0 && !all {
			continue
		}
		ln.score += ln.Weight
		total += ln.Weight
		if best == nil || ln.score > best.score {
			best = ln
		}
	}
	if best != nil {
		best.score -= total
	}
	return best
}

// demand reports whether anything waits; if not it registers w to be woken
// when something does and no open connection is free.
func (q *queue) demand(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting > 0 {
		q.deregister(w)
		return true
	}
	q.register(w, canDial)
	return false
}

func (q *queue) register(w *waiter, as kind) {
	if w.registered && w.as == as {
		return
	}
	q.deregister(w)
	w.registered, w.as = true, as
	q.idle[as] = append(q.idle[as], w)
}

func (q *queue) deregister(w *waiter) {
	if w.registered {
		w.registered = false
		list := q.idle[w.as]
		i := slices.Index(list, w)
		q.idle[w.as] = slices.Delete(list, i, i+1)
	}
}

// pass is called by a waiter that cannot take more. If it was, or would be,
// woken for a request, another one is woken instead.
func (q *queue) pass(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deregister(w)
	q.wakeLeft()
}

// leave is pass for a waiter that will not return.
func (q *queue) leave(w *waiter) { q.pass(w) }

// wakeLeft wakes one for what waits.
func (q *queue) wakeLeft() {
	if q.lanes[0].ring.len() > 0 {
		q.wakeOne(0)
	} else if q.waiting > 0 {
		q.wakeOne(1)
	}
}

// share is how many requests justify waking one more connection at once: about
// as many as fit into a write. A connection that leaves some wakes the next.
const share = 32

// wakeFor wakes waiters for n new requests of a lane.
func (q *queue) wakeFor(lane, n int) {
	for ; n > 0; n -= share {
		if !q.wakeOne(lane) {
			return
		}
	}
}

func (q *queue) wakeOne(lane int) bool {
	for as := range q.idle {
		list := q.idle[as]
		if len(list) == 0 || kind(as) == canSendTop && lane != 0 {
			continue
		}
		w := list[0]
		q.idle[as] = slices.Delete(list, 0, 1)
		w.registered = false
		w.wakeUp()
		return true
	}
	return false
}

// remove takes one request out, and reports whether it waited.
func (q *queue) remove(r *Request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := &q.lanes[r.lane]
	if !ln.ring.remove(r) {
		return false
	}
	q.waiting--
	ln.room.Broadcast()
	return true
}

// len is how many wait.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// overdue takes out what has waited past its deadline or expiry, or whose
// lease has lapsed; lease is the one of requests without their own.
func (q *queue) overdue(now time.Time, lease Lease, out []*Request) []*Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.lanes {
		ln := &q.lanes[i]
		before := len(out)
		out = ln.ring.removeOverdue(now, lease, out)
		if k := len(out) - before; k > 0 {
			q.waiting -= k
			ln.room.Broadcast()
		}
	}
	return out
}

// close refuses what comes and returns what waits.
func (q *queue) close() []*Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	var left []*Request
	for i := range q.lanes {
		ln := &q.lanes[i]
		for ln.ring.len() > 0 {
			left = append(left, ln.ring.popFront())
		}
		ln.room.Broadcast()
	}
	q.waiting = 0
	return left
}
