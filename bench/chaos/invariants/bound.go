package invariants

import "time"

// Exposure is what a hard kill of a worker would have let be sent again at a
// moment, and what the worker took, beside the bounds that it prints.
type Exposure struct {
	Worker string
	At     time.Time
	// Exposed are pushes that the providers had accepted from it and of which no
	// row told; Bound is what its push_duplicate_bound said; 0 = not known.
	Exposed, Bound int
	// Bytes is its resident memory, and MemoryBound what it printed at its start;
	// 0 = not seen.
	Bytes, MemoryBound int64
}

// bounds: at every look, no worker had more accepted without a row than it
// says that a kill can repeat, and none took more memory than it says.
func (c *checker) bounds() {
	if c.unobserved(Bound) {
		return
	}
	switch l := &c.Exposures; {
	case !l.Sealed:
		c.r.find(Incomplete, "the ledger of what was exposed is not sealed: %s", l.Missing)
	case len(l.Entries) == 0:
		c.r.find(Incomplete, "nobody looked at what was exposed")
	}
	for i := range c.Exposures.Entries {
		e := &c.Exposures.Entries[i]
		c.r.Worst.Exposed, c.r.Worst.Memory = max(c.r.Worst.Exposed, e.Exposed), max(c.r.Worst.Memory, e.Bytes)
		switch {
		case e.Bound <= 0:
			c.r.find(Bound, "%s printed no bound at %s", e.Worker, e.At.Format(time.StampMilli))
		case c.limits.Windows > 0 && e.Bound != c.limits.Windows:
			c.r.find(Bound, "%s printed a bound of %d at %s, and its windows hold %d", e.Worker, e.Bound, e.At.Format(time.StampMilli), c.limits.Windows)
		case e.Exposed > e.Bound:
			c.r.find(Bound, "at %s, %d pushes of %s were accepted without a row; it printed a bound of %d", e.At.Format(time.StampMilli), e.Exposed, e.Worker, e.Bound)
		}
		if e.MemoryBound > 0 && e.Bytes > e.MemoryBound {
			c.r.find(Memory, "%s took %d MiB at %s; it printed a bound of %d", e.Worker, e.Bytes>>20, e.At.Format(time.StampMilli), e.MemoryBound>>20)
		}
	}
}

// Covered reports whether rows tell of a push that was accepted at a moment: it
// is DELIVERED, or something was written about its device since. An intent
// tells of nothing. Where the times in the rows count, they are the worker's.
func Covered(rows []Row, device string, accepted time.Time) bool {
	for _, r := range rows {
		if r.Device == device && (r.State == Delivered || r.State != Sending && !r.At.Before(accepted.Truncate(time.Millisecond))) {
			return true
		}
	}
	return false
}
