package pipeline

import (
	"cmp"
	"time"
)

// began is when this process did, on a clock that nobody sets.
var began = time.Now()

// Uptime is a time of this process as how long it had run by then, in 8 bytes without a
// pointer: see push.Instant; 0 = none. It is what time.Now's monotonic reading is: how long
// ago it was stays right when the wall clock is set, which decides whether a send may still
// be made. Other processes can do nothing with it.
type Uptime int64

// UptimeAt is the Uptime at t.
func UptimeAt(t time.Time) Uptime {
	if t.IsZero() {
		return 0
	}
	return cmp.Or(Uptime(t.Sub(began)), 1)
}

// Time is u as a time.Time to compare and subtract; none is the zero time.Time. If the
// clock has been set since the process began, its date is off by as much.
func (u Uptime) Time() time.Time {
	if u == 0 {
		return time.Time{}
	}
	return began.Add(time.Duration(u))
}

// IsZero reports whether u is none.
func (u Uptime) IsZero() bool { return u == 0 }
