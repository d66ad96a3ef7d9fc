package quota

// clock knows Redis's clock as a gateway can: between its own monotonic clock plus lo and plus
// hi. All times are nanoseconds: Redis's since 1970, its own since the Quotas were made. The
// zero value knows nothing.
type clock struct {
	set    bool
	lo, hi int64
	at     int64 // when they were so
}

// drift is how far two clocks may have come apart in a time: one part in 1,024.
func drift(d int64) int64 { return max(d, 0) >> 10 }

// heard takes over what Redis's clock showed at some moment between two times.
func (c *clock) heard(redis, sent, received int64) {
	const microsecond = 1000 // Redis rounds down to it
	lo, hi := redis-received, redis+microsecond-sent
	if c.set {
		// Both the former bounds and the new ones hold, unless Redis's clock was set.
		apart := drift(received - c.at)
		if l, h := max(lo, c.lo-apart), min(hi, c.hi+apart); l <= h {
			lo, hi = l, h
		}
	}
	*c = clock{true, lo, hi, received}
}

// span is what Redis's clock shows now: at the earliest and at the latest.
func (c *clock) span(now int64) (earliest, latest int64) {
	apart := drift(now - c.at)
	return now + c.lo - apart, now + c.hi + apart
}
