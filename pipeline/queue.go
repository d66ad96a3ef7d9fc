package pipeline

import (
	"slices"
	"sync"
)

// queue passes values between goroutines in groups of whatever has gathered.
// A channel could not: it hands out one at a time, and it blocks its writer,
// who here may be a connection's reader. What it holds is bounded by the
// trackers' windows.
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

// remove takes out, without waiting, every value that is to go.
func (q *queue[T]) remove(goes func(T) bool) (gone []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.values = slices.DeleteFunc(q.values, func(v T) bool {
		if !goes(v) {
			return false
		}
		gone = append(gone, v)
		return true
	})
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

// close lets takers return once the queue is empty. Nothing may be put after.
func (q *queue[T]) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Broadcast()
}
