package senders

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxStandings bounds the pairs of a rule and a sender that are kept, of some 400 bytes
	// each: producers may write any sender.
	maxStandings = 1000
	// sampled is among how many of them a newcomer takes the place of the least full.
	sampled = 8
)

// Standing is how full a sender's bucket was since the last Take. A share of 1 is a bucket
// without tokens, and what is above that is owed: so many wait for their turn.
type Standing struct {
	Rule   Rule
	Sender string
	Full   time.Duration // in which an empty bucket fills
	// Greatest is the greatest share that was taken of the bucket, and Now what is taken at
	// the time of the Take, if nobody else took any meanwhile.
	Greatest, Now float64
	Limited       int64 // answers that put something off, or refused it, because of this bucket
}

// Fullest keeps how full the buckets of senders were, as far as they were asked about, of
// those that were the fullest. The zero value is ready for use, and is bounded whatever
// senders there are. It is safe for concurrent use.
type Fullest struct {
	mu        sync.Mutex // guards what follows
	standings map[owner]*standing
}

// owner is whose bucket it is, by which rule.
type owner struct{ rule, sender string }

type standing struct {
	of       *bucket
	greatest int64 // us that the bucket lacked
	last     int64 // the same, after the last answer
	at       time.Time
	limited  int64
	heard    bool // since the last Take
}

// note takes an answer: what the bucket of a sender lacks after it, in us, and how many
// requests it put off. It keeps no string of the caller's. f may be nil.
func (f *Fullest) note(b *bucket, sender string, lacks, limited int64, at time.Time) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.standings[owner{b.Name, sender}]
	if s == nil {
		if s = f.place(b, sender, lacks); s == nil {
			return
		}
	}
	if s.of.full != b.full {
		s.greatest = 0 // the rule was changed
	}
	s.of = b
	s.greatest = max(s.greatest, lacks)
	if !at.Before(s.at) {
		s.last, s.at = lacks, at
	}
	s.limited += limited
	s.heard = true
}

// place makes room for a bucket; nil = all that were looked at are as full. What is the
// fullest of all never makes room. The caller holds the lock.
func (f *Fullest) place(b *bucket, sender string, lacks int64) *standing {
	if f.standings == nil {
		f.standings = make(map[owner]*standing)
	}
	s := &standing{}
	if len(f.standings) >= maxStandings {
		var least owner
		n := 0
		for o, other := range f.standings { // in random order
			if n == 0 || other.share() < s.share() {
				least, s = o, other
			}
			if n++; n == sampled {
				break
			}
		}
		if s.share() >= share(lacks, b.full) {
			return nil
		}
		delete(f.standings, least)
	}
	*s = standing{of: b}
	f.standings[owner{b.Name, strings.Clone(sender)}] = s
	return s
}

func (s *standing) share() float64 { return share(s.greatest, s.of.full) }

func share(lacks, full int64) float64 { return float64(lacks) / float64(full) }

// Take returns the most standings since the last Take, the fullest first, and how many
// there were besides. It starts over.
func (f *Fullest) Take(now time.Time, most int) (list []Standing, more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for o, s := range f.standings {
		if !s.heard {
			delete(f.standings, o)
			continue
		}
		passed := max(now.Sub(s.at).Microseconds(), 0)
		list = append(list, Standing{Rule: s.of.Rule, Sender: o.sender, Full: time.Duration(s.of.full) * time.Microsecond,
			Greatest: s.share(), Now: share(max(s.last-passed, 0), s.of.full), Limited: s.limited})
		*s = standing{of: s.of, last: s.last, at: s.at}
	}
	slices.SortFunc(list, func(x, y Standing) int {
		return cmp.Or(cmp.Compare(y.Greatest, x.Greatest), cmp.Compare(y.Limited, x.Limited), cmp.Compare(x.Rule.Name, y.Rule.Name), cmp.Compare(x.Sender, y.Sender))
	})
	return list[:min(len(list), most)], max(len(list)-most, 0)
}
