package gateway

import (
	"context"
	"sync"
	"time"
)

// Bounds of each kind of counts.
const (
	countsKept   = 256 // that serve others
	countsAtOnce = 4   // that are being made
)

// renewed are the latest counts of a kind, which are dear: one serves all who ask for it
// until it has come to its age. They are safe for concurrent use.
type renewed[K comparable, V any] struct {
	age    time.Duration
	places chan struct{} // a place for each that is being made

	mu     sync.Mutex
	latest map[K]*count[V] // guarded by mu; at most countsKept
}

// count is the latest one of something.
type count[V any] struct {
	turn chan struct{} // capacity 1: who makes it has put one in

	// Guarded by turn.
	answer V         // what it points to does not change
	made   time.Time // zero = there is none
}

func newRenewed[K comparable, V any](age time.Duration) *renewed[K, V] {
	return &renewed[K, V]{age: age, places: make(chan struct{}, countsAtOnce), latest: make(map[K]*count[V])}
}

func (c *renewed[K, V]) find(key K) *count[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.latest[key]
	if n == nil {
		if len(c.latest) == countsKept {
			clear(c.latest) // they are worth seconds
		}
		n = &count[V]{turn: make(chan struct{}, 1)}
		c.latest[key] = n
	}
	return n
}

// of returns the count of something, made by the caller if there is none that serves. err
// says that ctx ended before it was his turn.
func (c *renewed[K, V]) of(ctx context.Context, key K, make func() (V, *Problem)) (answer V, problem *Problem, err error) {
	n := c.find(key)
	if err := enter(ctx, n.turn); err != nil {
		return answer, nil, err
	}
	defer leave(n.turn)
	if !n.made.IsZero() && time.Since(n.made) < c.age {
		return n.answer, nil, nil
	}
	if err := enter(ctx, c.places); err != nil {
		return answer, nil, err
	}
	defer leave(c.places)
	at := time.Now()
	if answer, problem = make(); problem == nil {
		n.answer, n.made = answer, at
	}
	return answer, problem, nil
}
