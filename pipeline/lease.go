package pipeline

import (
	"math"
	"sync/atomic"
	"time"
)

// Lease is a group member's right to send: a deadline that each answer of the
// coordinator moves on. A member that the coordinator has not heard from for a whole
// session may have lost its partitions without knowing it, so it sends nothing from
// then on. The lease is read on the monotonic clock, which goes on while a process
// is stopped. All methods are safe for concurrent use.
type Lease struct {
	start time.Time
	until atomic.Int64 // nanoseconds after start
}

// NewLease makes a lease that has not begun.
func NewLease() *Lease {
	l := &Lease{start: time.Now()}
	l.End()
	return l
}

// Extend moves the deadline to until, never back. until must have a monotonic clock
// reading, as the times of time.Now do.
func (l *Lease) Extend(until time.Time) {
	to := int64(until.Sub(l.start))
	for {
		was := l.until.Load()
		if was >= to || l.until.CompareAndSwap(was, to) {
			return
		}
	}
}

// End ends the lease at once, because the partitions are lost. Extend renews it.
func (l *Lease) End() { l.until.Store(math.MinInt64) }

// Lapsed reports whether the deadline has passed.
func (l *Lease) Lapsed(now time.Time) bool { return int64(now.Sub(l.start)) > l.until.Load() }
