package invariants

import (
	"fmt"
	"slices"
	"time"
)

// offsets checks I3, I5 and I7 on the samples of each partition.
func (c *checker) offsets() {
	byPlace := map[Partition]map[int64]*Produced{}
	for i := range c.Producer.Entries {
		p := &c.Producer.Entries[i]
		if byPlace[p.Partition] == nil {
			byPlace[p.Partition] = map[int64]*Produced{}
		}
		byPlace[p.Partition][p.Offset] = p
	}
	for p, samples := range c.samples {
		c.forward(p, samples)
		c.durable(p, samples, byPlace[p])
		c.moving(p, samples)
		last := samples[len(samples)-1]
		if last.End >= 0 && last.Committed != last.End {
			c.r.find(I7, "%s/%d is committed to %d of %d in the end", p.Topic, p.ID, last.Committed, last.End)
		}
	}
	c.back()
}

// forward checks I5, and that nobody looked away.
func (c *checker) forward(p Partition, samples []Sample) {
	for i := 1; i < len(samples); i++ {
		a, b := &samples[i-1], &samples[i]
		if b.Committed < a.Committed && !c.rewound(a.At, b.At) && !c.stale(samples, i) {
			c.r.find(I5, "%s/%d went from %d back to %d at %s", p.Topic, p.ID, a.Committed, b.Committed, b.At.Format(time.StampMilli))
		}
		gap := b.At.Sub(a.At)
		c.r.Worst.Sample = max(c.r.Worst.Sample, gap)
		if gap-c.excused(a.At, b.At) > c.limits.SampleGap {
			c.r.find(Incomplete, "the offset of %s/%d was not sampled for %v from %s on", p.Topic, p.ID, gap, a.At.Format(time.StampMilli))
		}
	}
}

// stale reports whether sample i is one of a broker that has just come back and told
// what was committed long before. Kafka 4.3 was seen to do that once,
// of all partitions of both groups in the same answer, while it loaded 14 MB of offsets on
// a starved machine: its log had no commit that was lower than the one before. The
// next sample must be at least where the one before was, so that no commit of a worker's
// passes for it.
func (c *checker) stale(samples []Sample, i int) bool {
	if i+1 == len(samples) || samples[i+1].Committed < samples[i-1].Committed {
		return false
	}
	a, b := samples[i-1].At, samples[i].At
	back := slices.ContainsFunc(c.Events, func(e Event) bool { return e.Loads && !e.Start.After(b) && !e.End.Add(c.limits.Heal).Before(a) })
	if back {
		c.r.Stale++
	}
	return back
}

// rewound reports whether offsets were set back by hand in a time.
func (c *checker) rewound(from, to time.Time) bool {
	return slices.ContainsFunc(c.Events, func(e Event) bool { return e.Rewinds && !e.Start.After(to) && !e.End.Before(from) })
}

// unread is a stretch of records that was passed while the status could not be
// read.
type unread struct {
	from, to int64
	seen     time.Time // that it was passed
}

// durable checks I3.
func (c *checker) durable(p Partition, samples []Sample, records map[int64]*Produced) {
	if samples[0].Waits {
		return // what it hands on has rows of its own, which I1 asks for
	}
	looked := slices.ContainsFunc(samples, func(s Sample) bool { return !s.Looked.IsZero() })
	if c.limits.StoreTimes && !looked {
		c.durableByTimes(samples, records)
		return
	}
	passed := int64(0)
	var open []unread
	for i := range samples {
		s := &samples[i]
		if s.Committed > passed {
			open = append(open, unread{passed, s.Committed, s.At})
			passed = s.Committed
		}
		if s.Looked.IsZero() {
			continue
		}
		for _, offset := range s.Unsettled {
			c.r.find(I3, "%s/%d was committed to %d by %s, and nothing durable was there of offset %d%s", p.Topic, p.ID, s.Committed,
				s.At.Format(time.StampMilli), offset, c.whose(records[offset]))
		}
		for _, u := range open {
			late := s.Looked.Sub(u.seen) - cover(c.Shut, u.seen, s.Looked)
			c.r.Worst.Look = max(c.r.Worst.Look, late)
			if late > c.limits.Look {
				c.r.find(Incomplete, "%s/%d was committed to %d at %s, and for %v anybody could write what is missing from %d on before it was read", p.Topic, p.ID,
					u.to, u.seen.Format(time.StampMilli), late.Round(time.Millisecond), u.from)
			}
		}
		open = nil
	}
	for _, u := range open {
		c.r.find(Incomplete, "%s/%d was committed from %d to %d at %s, and nobody has read whether that was durable", p.Topic, p.ID, u.from, u.to,
			u.seen.Format(time.StampMilli))
	}
}

// durableByTimes judges by the times at which the store has made the rows
// durable.
func (c *checker) durableByTimes(samples []Sample, records map[int64]*Produced) {
	passed := int64(0)
	for i := range samples {
		for s := &samples[i]; passed < s.Committed; passed++ {
			if r := records[passed]; r != nil {
				c.durableBy(r, s)
			}
		}
	}
}

func (c *checker) durableBy(r *Produced, s *Sample) {
	at, ok := c.rows[r.ID].settled(r.Devices, c.limits.Mode == AtMostOnce)
	switch {
	case !ok:
		c.r.find(I3, "%s/%d was committed to %d, past %s without a durable outcome", r.Partition.Topic, r.Partition.ID, s.Committed, c.describe(r))
	case at.After(s.At):
		c.r.find(I3, "%s/%d was committed to %d at %s, and %s was durable %v later", r.Partition.Topic, r.Partition.ID, s.Committed,
			s.At.Format(time.StampMilli), c.describe(r), at.Sub(s.At))
	}
}

func (c *checker) whose(r *Produced) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf(", %s: %s", r.ID, c.story(r.ID))
}

// moving checks I7: with lag, the committed offset moves.
func (c *checker) moving(p Partition, samples []Sample) {
	if samples[0].Waits {
		return // its records wait for their time
	}
	since := samples[0].At
	for i := 1; i < len(samples); i++ {
		a, b := &samples[i-1], &samples[i]
		lag := b.End > b.Committed || b.End < 0
		if b.Committed == a.Committed && lag && i < len(samples)-1 {
			continue
		}
		still := b.At.Sub(since)
		excused := c.excused(since, b.At)
		if excused > 0 {
			c.r.Worst.Excused = max(c.r.Worst.Excused, still)
		}
		if still -= excused; a.End > a.Committed || b.Committed > a.Committed {
			c.r.Worst.Standstill = max(c.r.Worst.Standstill, still)
			if still > c.limits.Standstill {
				c.r.find(I7, "%s/%d stood still at %d of %d for %v from %s on", p.Topic, p.ID, a.Committed, a.End, still.Round(time.Millisecond), since.Format(time.StampMilli))
			}
			c.explained(p, a, since, b.At)
		}
		since = b.At
	}
}

// explained: a partition stood still up to a moment only for reasons of its own.
func (c *checker) explained(p Partition, at *Sample, since, to time.Time) {
	if c.unobserved(Reasons) {
		return
	}
	all, word := c.reasons(p, since, to)
	c.r.Worst.Declared = max(c.r.Worst.Declared, word)
	if still := to.Sub(since) - all; still > c.limits.Standstill {
		c.r.find(Reasons, "%s/%d, of %q, stood still at %d of %d for %v from %s on, and %v of that without a reason of its own", p.Topic, p.ID, c.owners[p].at(to),
			at.Committed, at.End, to.Sub(since).Round(time.Millisecond), since.Format(time.StampMilli), still.Round(time.Millisecond))
	}
}

// excused is how much of a time events allow partitions to stand still in.
func (c *checker) excused(from, to time.Time) time.Duration {
	var spans []Span
	for i := range c.Events {
		if e := &c.Events[i]; e.Stalls {
			spans = append(spans, Span{e.Start, e.End.Add(c.limits.Heal)})
		}
	}
	return cover(spans, from, to)
}

// cover is how much of the time from one moment to another lies in spans.
func cover(spans []Span, from, to time.Time) (sum time.Duration) {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return a.From.Compare(b.From) })
	done := from
	for _, s := range spans {
		if s.From.Before(done) {
			s.From = done
		}
		if s.To.After(to) {
			s.To = to
		}
		if s.To.After(s.From) {
			sum += s.To.Sub(s.From)
			done = s.To
		}
	}
	return sum
}

// back is how long after each event the first commit came, of those that had
// anything to commit.
func (c *checker) back() {
	for i := range c.Events {
		e := &c.Events[i]
		if !e.ComesBack {
			continue
		}
		took, waiting := time.Duration(0), false
		for _, samples := range c.samples {
			after := slices.IndexFunc(samples, func(s Sample) bool { return s.At.After(e.End) })
			if after < 0 || samples[after].Waits || samples[after].End == samples[after].Committed {
				continue
			}
			waiting = true
			for _, s := range samples[after:] {
				if s.Committed > samples[max(0, after-1)].Committed {
					if d := s.At.Sub(e.End); took == 0 || d < took {
						took = d
					}
					break
				}
			}
		}
		c.r.Events[i].Back = took
		c.r.Worst.Back = max(c.r.Worst.Back, took)
		if waiting && c.limits.Back > 0 && (took == 0 || took > c.limits.Back) {
			c.r.find(I7, "after the %s of %s ended at %s, the first commit took %v, more than %v", e.Kind, e.Target, e.End.Format(time.StampMilli), took, c.limits.Back)
		}
	}
}

// Settled reports whether rows of one notification let the offset of its record
// be committed: everything that is known of has a row that ends it or hands it
// over. With intents a durable intent is enough, as in lanes that send at most
// once. An observer that looks at once uses it; see Sample.Looked.
func Settled(rows []Row, devices []string, intents bool) bool {
	h := history{}
	for _, r := range rows {
		h[r.Device] = append(h[r.Device], r)
	}
	_, ok := h.settled(devices, intents)
	return ok
}

// Intents counts the devices whose latest step is an intent without a result.
func Intents(rows []Row) (open int) {
	type steps struct{ intent, result int } // the latest, from 1
	devices := map[Pair]steps{}
	for _, r := range rows {
		d := devices[r.Pair]
		if r.State == Sending {
			d.intent = max(d.intent, r.Step+1)
		} else {
			d.result = max(d.result, r.Step+1)
		}
		devices[r.Pair] = d
	}
	for _, d := range devices {
		if d.intent > d.result {
			open++
		}
	}
	return open
}
