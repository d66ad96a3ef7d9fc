package pipeline

import (
	"math"
	"sync/atomic"
	"time"
)

// Lease is a group member's right to send: a deadline that the coordinator's
// answers keep moving. A member that the coordinator has not heard of for a
// session may have lost its partitions to others, without knowing: from that
// moment on it sends nothing. It is read on the monotonic clock, which a
// stopped process's does not stop for. All methods may be called at once.
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

// Extend moves the deadline to until, never back. It must come from a time
// with a monotonic reading, as time.Now's has.
func (l *Lease) Extend(until time.Time) {
	to := int64(until.Sub(l.start))
	for {
		was := l.until.Load()
		if was >= to || l.until.CompareAndSwap(was, to) {
			return
		}
	}
}

// End ends the lease at once: the partitions are lost. Extend begins it anew.
func (l *Lease) End() { l.until.Store(math.MinInt64) }

// Lapsed reports whether the deadline has passed.
func (l *Lease) Lapsed(now time.Time) bool { return int64(now.Sub(l.start)) > l.until.Load() }
