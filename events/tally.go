package events

import (
	"slices"
	"time"
)

// Tally adds up what events tell, each record of a lane once, whoever told of it and
// however often. Ranges come as they stand in their partition of push.events. The zero
// Tally is ready for use. Not safe for concurrent use.
//
// Counts that are told by ranges too are passed over. A range goes by its place:
//
//	begins where the last one ended    it is added
//	begins later                       what lies between is missing, until it is told late
//	begins where the last one began    its owner was killed before the commit, or Kafka has
//	                                   it twice: the one that reaches further counts
//	begins elsewhere                   a copy: it is passed over
//
// The next owner may tell again in several ranges what the dead one told in one. Once they
// reach as far, they take its place: for the records in both, both say the same. And what
// a former owner, who was cut off, tells late may reach further than the next one's first
// range; the next one goes on where that ends.
type Tally struct {
	chains  map[chainName]*chain
	kept    int   // bytes of the counts that chains keep
	missing int64 // offsets in all holes, and in what is forgotten
}

// chainName is a partition of a topic.
type chainName struct {
	topic, id string
	partition int32
}

const (
	// maxChains bounds the partitions that are followed.
	maxChains = 20_000
	// maxKept bounds the bytes of counts that are kept because they may be told again. A fleet
	// has about ten of each partition, of some 200 bytes each.
	maxKept = 32 << 20
	// ofCount is the bytes of a count without its names.
	ofCount = 136
	// longestTopic is the length of a topic's name, or its id, that Kafka allows.
	longestTopic = 249
	// mostHoles bounds how many missing ranges of a partition may be told late.
	mostHoles = 64
)

// chain is what was told of a partition.
type chain struct {
	last  segment // the newest range that is counted
	again *again  // what is told besides last; nil = nothing
	holes []hole  // ascending
}

// again is what else is told from the beginning of the last range on, and does not reach
// its end so far. It is not counted.
type again struct {
	before   []timed // of the ranges before last, which are committed
	last     segment
	replaced bool // it was counted, until a longer one came
}

func (a *again) size() int { return sizeOf(a.before) + sizeOf(a.last.counts) }

// segment is a range and its counts.
type segment struct {
	from, to int64
	at       time.Time // when it was told
	counts   []timed
	unknown  bool // its counts are not kept
}

// timed is a count and when it was told.
type timed struct {
	Count
	at time.Time
}

// hole is a range of offsets that was not told, and when what is behind it was.
type hole struct {
	from, to int64
	at       time.Time
}

// Add calls count with what an event adds, and with what it takes away again: then N is
// negative, and at is the time at which it was added.
func (t *Tally) Add(e *Event, count func(c *Count, at time.Time)) {
	if !e.Ranged {
		for i := range e.Counts {
			if e.Counts[i].N > 0 {
				count(&e.Counts[i], e.At)
			}
		}
	}
	if e.Ranges == nil {
		return
	}
	for i := range e.Ranges.Of {
		if r := &e.Ranges.Of[i]; r.From >= 0 && r.From < r.To && len(r.Topic) <= longestTopic && len(r.TopicID) <= longestTopic {
			t.addRange(r, e.Ranges.counts(r, e.At), e.At, count)
		}
	}
}

// Missing is how many offsets lie between ranges that were told, and in none.
func (t *Tally) Missing() int64 { return t.missing }

// MissingSince is how many of them lie before ranges that were told at a time or later, or
// before it is not known which.
func (t *Tally) MissingSince(since time.Time) int64 {
	n := t.missing
	for _, c := range t.chains {
		for _, h := range c.holes {
			if h.at.Before(since) {
				n -= h.to - h.from
			}
		}
	}
	return n
}

// sizeOf is how many bytes counts take, about.
func sizeOf(counts []timed) (bytes int) {
	for i := range counts {
		c := &counts[i]
		bytes += ofCount + len(c.Lane) + len(c.App) + len(c.Type) + len(c.Provider) + len(c.State) + len(c.Reason)
	}
	return bytes
}

// counts returns the counts of a range; pairs that are none are passed over.
func (r *Ranges) counts(of *Range, at time.Time) (counts []timed) {
	for i := 0; i+1 < len(of.Counts); i += 2 {
		k, n := of.Counts[i], of.Counts[i+1]
		if k < 0 || k >= int64(len(r.Kinds)) || n <= 0 {
			continue
		}
		kind := &r.Kinds[k]
		counts = append(counts, timed{Count{Lane: r.Lane, App: kind.App, Type: kind.Type, Provider: kind.Provider, State: kind.State, Reason: kind.Reason, N: n}, at})
	}
	return counts
}

func (t *Tally) addRange(r *Range, counts []timed, at time.Time, count func(*Count, time.Time)) {
	name := chainName{r.Topic, r.TopicID, r.Partition}
	c, s := t.chains[name], segment{from: r.From, to: r.To, at: at, counts: counts}
	if c == nil {
		if t.chains == nil {
			t.chains = make(map[chainName]*chain)
		}
		if len(t.chains) >= maxChains {
			t.missing += s.to - s.from
			return
		}
		c = &chain{last: segment{from: s.from, to: s.from}}
		t.chains[name] = c
	}
	switch l := &c.last; {
	case s.from >= l.to:
		t.open(c, hole{l.to, s.from, s.at})
		tell(s.counts, 1, count)
		t.follow(c, s)
	case t.fills(c, &s):
		tell(s.counts, 1, count)
	case s.from == l.from && s.to > l.to:
		t.replace(c, s.counts, s, count)
	case s.from == l.from && s.to < l.to && (c.again == nil || c.again.last.from == l.from):
		t.retell(c, &again{last: s})
	case c.again != nil && s.from == c.again.last.from && s.to != c.again.last.to:
		t.reaches(c, &again{before: c.again.before, last: s}, count)
	case c.again != nil && s.from == c.again.last.to:
		t.reaches(c, &again{before: slices.Concat(c.again.before, c.again.last.counts), last: s}, count)
	}
}

// tell passes counts on, times +1 or -1.
func tell(counts []timed, times int64, count func(*Count, time.Time)) {
	for i := range counts {
		c := counts[i].Count
		c.N *= times
		count(&c, counts[i].at)
	}
}

// replace counts other counts in place of the last range's, and goes on with s.
func (t *Tally) replace(c *chain, counts []timed, s segment, count func(*Count, time.Time)) {
	if c.last.unknown {
		t.open(c, hole{c.last.to, s.to, s.at})
		t.follow(c, segment{from: s.to, to: s.to})
		return
	}
	tell(c.last.counts, -1, count)
	tell(counts, 1, count)
	// Whose range is the shorter one may be the owner, and goes on where it ends.
	shorter := c.last
	if c.again != nil && !c.again.replaced { // it was told later
		shorter = c.again.last
	}
	t.follow(c, s)
	if shorter.from == s.from {
		t.retell(c, &again{last: shorter, replaced: true})
	}
}

// reaches goes on with what is told once more: where it reaches the end of the last
// range, it takes its place.
func (t *Tally) reaches(c *chain, a *again, count func(*Count, time.Time)) {
	if a.last.to < c.last.to {
		t.retell(c, a)
		return
	}
	t.replace(c, slices.Concat(a.before, a.last.counts), a.last, count)
}

// follow makes s the last range of a chain, and keeps its counts if there is room.
func (t *Tally) follow(c *chain, s segment) {
	t.retell(c, nil)
	t.kept -= sizeOf(c.last.counts)
	if t.kept+sizeOf(s.counts) > maxKept {
		s.counts, s.unknown = nil, true
	}
	t.kept += sizeOf(s.counts)
	c.last = s
}

// retell keeps what is told once more, if there is room; nil = nothing is.
func (t *Tally) retell(c *chain, a *again) {
	if c.again != nil {
		t.kept -= c.again.size()
	}
	c.again = nil
	if a == nil || t.kept+a.size() > maxKept {
		return
	}
	c.again = a
	t.kept += a.size()
}

// open notes a hole. Of too many the oldest is missing for good.
func (t *Tally) open(c *chain, h hole) {
	if h.from >= h.to {
		return
	}
	t.missing += h.to - h.from
	if len(c.holes) == mostHoles {
		c.holes = append(c.holes[:0], c.holes[1:]...)
	}
	c.holes = append(c.holes, h)
}

// fills reports whether a range lies in a hole, and closes it as far as the range goes.
func (t *Tally) fills(c *chain, s *segment) bool {
	i := slices.IndexFunc(c.holes, func(h hole) bool { return h.from <= s.from && s.to <= h.to })
	if i < 0 {
		return false
	}
	h := c.holes[i]
	c.holes = slices.Delete(c.holes, i, i+1)
	for _, rest := range []hole{{s.to, h.to, h.at}, {h.from, s.from, h.at}} {
		if rest.from < rest.to {
			c.holes = slices.Insert(c.holes, i, rest)
		}
	}
	t.missing -= s.to - s.from
	return true
}
