package kafka

import (
	"sync/atomic"
	"time"
)

// lease is a group member's right to send: a deadline that each heartbeat moves on which
// the coordinator answers. A member that it has not heard from for a whole session may
// have lost its partitions without knowing it, so it sends nothing from then on.
//
// The deadline is read on two clocks, and the first to reach it ends the lease. The
// monotonic one goes on while a process is stopped, and nobody sets it; but Linux stops it
// while the machine is suspended (clock_gettime(2), CLOCK_MONOTONIC). The wall clock knows
// of that once it is right again. If it is set ahead by mistake, the member sends nothing
// until its next heartbeat. All methods are safe for concurrent use.
type lease struct {
	start time.Time
	until atomic.Pointer[deadline] // nil = there is no lease
}

type deadline struct {
	monotonic time.Duration // after start
	wall      int64         // nanoseconds since 1970
}

// newLease makes a lease that has not begun.
func newLease() *lease { return &lease{start: time.Now()} }

// extend moves the deadline to the earliest of some times, never back. These must have a
// monotonic clock reading, as the times of time.Now do.
func (l *lease) extend(first time.Time, others ...time.Time) {
	to := &deadline{first.Sub(l.start), first.UnixNano()}
	for _, t := range others { // each clock may have another one that is the earliest
		to.monotonic, to.wall = min(to.monotonic, t.Sub(l.start)), min(to.wall, t.UnixNano())
	}
	for {
		was := l.until.Load()
		if was != nil && was.monotonic >= to.monotonic || l.until.CompareAndSwap(was, to) {
			return
		}
	}
}

// end ends the lease at once, because the partitions are lost. extend renews it.
func (l *lease) end() { l.until.Store(nil) }

// Lapsed implements pipeline.Lease: it reports whether the deadline has passed.
func (l *lease) Lapsed(now time.Time) bool {
	until := l.until.Load()
	return until == nil || now.Sub(l.start) > until.monotonic || now.UnixNano() > until.wall
}
