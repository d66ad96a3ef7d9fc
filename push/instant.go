package push

import (
	"math"
	"time"
)

// Instant is a time of the wall clock in 8 bytes, without the pointer that makes the garbage
// collector look at every time.Time. Tens of thousands of records wait in a worker, each
// with several times. 0 = none, as the zero time.Time; else the nanoseconds since 1970,
// from 1970 on one more, because a record may say that it is of that very moment. Of two
// Instants the later is the greater.
//
// It has no monotonic reading and no zone. What must stay right when a clock is set, such as
// how long ago something was read, is no Instant.
type Instant int64

// greatestSecond is as many seconds from 1970 as fit whole into an Instant: to 2262.
const greatestSecond = math.MaxInt64 / int64(time.Second)

// At is the Instant of t. A time that does not fit becomes the earliest or the latest that
// does, so that it is before or after all others still.
func At(t time.Time) Instant {
	switch s := t.Unix(); {
	case t.IsZero():
		return 0
	case s >= greatestSecond:
		return math.MaxInt64
	case s < -greatestSecond:
		return math.MinInt64
	case s >= 0:
		return Instant(t.UnixNano()) + 1
	}
	return Instant(t.UnixNano())
}

// Time is i as a time.Time in the local zone.
func (i Instant) Time() time.Time {
	switch {
	case i == 0:
		return time.Time{}
	case i > 0:
		i--
	}
	return time.Unix(0, int64(i))
}

// IsZero reports whether i is none.
func (i Instant) IsZero() bool { return i == 0 }
