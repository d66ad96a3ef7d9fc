package quota

import "time"

// clock knows Redis's clock as a gateway can: between its own monotonic clock plus lo and plus
// hi. All times are nanoseconds: Redis's since 1970, its own since the Quotas were made. The
// zero value knows nothing.
type clock struct {
	set     bool
	guessed bool // by the wall clock: lo and hi are no bounds of Redis's
	lo, hi  int64
	at      int64 // when they were so
}

// carried is for how long the span widens while Redis is away. There are no leases then, and
// where the span gets as wide as a window, no moment would be certain to be in any.
const carried = 5 * time.Second

// drift is how far two clocks may have come apart in a time: one part in 1,024.
func drift(d int64) int64 { return max(d, 0) >> 10 }

// guess takes the wall clock for Redis's, as long as that has not been heard.
func (c *clock) guess(wall, now int64) {
	*c = clock{set: true, guessed: true, lo: wall - now, hi: wall - now, at: now}
}

// heard takes over what Redis's clock showed at some moment between two times.
func (c *clock) heard(redis, sent, received int64) {
	const microsecond = 1000 // Redis rounds down to it
	lo, hi := redis-received, redis+microsecond-sent
	if c.set && !c.guessed {
		// Both the former bounds and the new ones hold, unless Redis's clock was set.
		apart := drift(received - c.at)
		if l, h := max(lo, c.lo-apart), min(hi, c.hi+apart); l <= h {
			lo, hi = l, h
		}
	}
	*c = clock{set: true, lo: lo, hi: hi, at: received}
}

// span is what Redis's clock shows now: at the earliest and at the latest.
func (c *clock) span(now int64, away bool) (earliest, latest int64) {
	passed := now - c.at
	if away {
		passed = min(passed, int64(carried))
	}
	apart := drift(passed)
	return now + c.lo - apart, now + c.hi + apart
}
