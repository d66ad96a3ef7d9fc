package kafka

import (
	"math"
	"sync/atomic"
	"time"
)

// lease is a group member's right to send: a deadline that each heartbeat moves on which
// the coordinator answers. A member that it has not heard from for a whole session may
// have lost its partitions without knowing it, so it sends nothing from then on. It is
// read on the monotonic clock, which goes on while a process is stopped. All methods are
// safe for concurrent use.
type lease struct {
	start time.Time
	until atomic.Int64 // nanoseconds after start
}

// newLease makes a lease that has not begun.
func newLease() *lease {
	l := &lease{start: time.Now()}
	l.end()
	return l
}

// extend moves the deadline to until, never back. until must have a monotonic clock
// reading, as the times of time.Now do.
func (l *lease) extend(until time.Time) {
	to := int64(until.Sub(l.start))
	for {
		was := l.until.Load()
		if was >= to || l.until.CompareAndSwap(was, to) {
			return
		}
	}
}

// end ends the lease at once, because the partitions are lost. extend renews it.
func (l *lease) end() { l.until.Store(math.MinInt64) }

// Lapsed implements pipeline.Lease: it reports whether the deadline has passed.
func (l *lease) Lapsed(now time.Time) bool { return int64(now.Sub(l.start)) > l.until.Load() }
