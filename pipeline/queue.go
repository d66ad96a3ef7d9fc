package pipeline

import (
	"slices"
	"sync"
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
