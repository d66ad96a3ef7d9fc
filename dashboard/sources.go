package dashboard

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/events"
)

const (
	// silence is how long a worker may tell nothing before it is gone
	// (docs/events.md): it tells its state once a second.
	silence = 5 * time.Second
	// forgotten is how long copies of a silent source's records are still known.
	forgotten = 2 * time.Hour
	// maxSources bounds the sources that are known at once, at 3 KB each and their states.
	maxSources = 2048
	// maxEntries bounds the lanes, routes and stalls that are kept of a worker's state each.
	maxEntries = 500
	// maxStates bounds the lists of all states together in bytes: a thousand workers with a
	// hundred lanes and routes each have half of it. What tells more is kept without them.
	maxStates = 48 << 20
	// ofEntry is the bytes of a lane or a stall of a state without its names; a route has
	// three times as much.
	ofEntry = 96
	// maxGone is how many workers that are gone are named.
	maxGone = 50
	// window is among how many numbers of a source copies are found. The partitions of
	// push.events are read one after the other at first, so that numbers are in no order.
	window = 16_384
)

// source is a process that writes to push.events.
type source struct {
	id      string
	first   int64 // the least number that was heard
	newest  int64
	heardN  int64               // how many different numbers were heard
	seen    [window / 64]uint64 // the numbers of the window that ends with newest
	heard   time.Time           // when it last told something
	state   *events.State       // the newest one
	stateAt time.Time           // when it was told, by the clock of the source
	stateBy time.Time           // when it was heard
	size    int                 // of its lists in bytes, about
	sent    ring                // DELIVERED by second
	told    bool                // it has told a gap, to which numbers that are missing belong
	lacking time.Time           // since when numbers are missing; zero = none are
	gone    bool                // it is among the departed
}

// departed is a worker that is gone.
type departed struct {
	id, name string
	heard    time.Time
	last     bool // it ended in order, and told all
}

type sources struct {
	byID   map[string]*source
	gone   []departed // the last ones, oldest first
	second int64      // that advance has seen
	size   int        // of the lists of all states
}

func newSources() sources { return sources{byID: make(map[string]*source)} }

// hear notes that a source told the record of a number; false = it is a copy.
func (s *sources) hear(id string, number int64, at time.Time) (*source, bool) {
	one := s.byID[id]
	if one == nil {
		s.makeRoom()
		one = &source{id: id, first: greatest, sent: newRing(10)}
		s.byID[id] = one
	}
	if !one.note(number) {
		return one, false
	}
	if at.After(one.heard) {
		one.heard = at
	}
	switch {
	case one.missing() == 0:
		one.lacking = time.Time{}
	case one.lacking.IsZero():
		one.lacking = at
	}
	return one, true
}

// greatest is the greatest number that is taken for one: a process does not come so far.
const greatest = 1 << 52

// note marks a number as heard; false = it was.
func (s *source) note(number int64) bool {
	if number < 1 || number > greatest { // not as docs/events.md has it; nothing to find copies by
		return true
	}
	for n := max(s.newest+1, number-window+1); n <= number; n++ {
		s.mark(n, false)
	}
	s.newest, s.first = max(s.newest, number), min(s.first, number)
	if number <= s.newest-window { // too old to be told from a copy, as a producer repeats at once
		s.heardN++
		return true
	}
	if s.seen[number%window/64]>>(number%64)&1 == 1 {
		return false
	}
	s.mark(number, true)
	s.heardN++
	return true
}

func (s *source) mark(number int64, heard bool) {
	word, bit := &s.seen[number%window/64], uint64(1)<<(number%64)
	*word &^= bit
	if heard {
		*word |= bit
	}
}

// missing is how many numbers between the first and the newest were not heard.
func (s *source) missing() int64 { return max(0, s.newest-s.first+1-s.heardN) }

// makeRoom forgets the source that has been silent the longest, if there are too many.
func (s *sources) makeRoom() {
	if len(s.byID) < maxSources {
		return
	}
	var oldest *source
	for _, one := range s.byID {
		if oldest == nil || one.heard.Before(oldest.heard) {
			oldest = one
		}
	}
	s.forget(oldest)
}

func (s *sources) forget(one *source) {
	s.size -= one.size
	delete(s.byID, one.id)
}

// isOlder reports whether a state was told before the one that is kept. States have no
// numbers and come by any partition, but those of one moment are of one time: what is
// older by its source's clock is so by seconds, or was read along with the newer one, or
// as one of the past. By more, the clock was set back.
func (s *source) isOlder(told, heard time.Time) bool {
	if s.state == nil {
		return false
	}
	behind := s.stateAt.Sub(told)
	return heard.Before(s.stateBy) || behind > 0 && (behind < silence || heard.Equal(s.stateBy))
}

// tell keeps a state that was told and heard at these times, if it is the newest one,
// bounded.
func (s *sources) tell(one *source, state *events.State, told, heard time.Time) {
	if one.isOlder(told, heard) {
		return
	}
	kept := *state
	kept.Worker, kept.Release = cut(kept.Worker), cut(kept.Release)
	kept.Omitted += len(kept.Lanes) + len(kept.Routes) + len(kept.Stalls)
	kept.Lanes = slices.Clone(kept.Lanes[:min(len(kept.Lanes), maxEntries)])
	kept.Routes = slices.Clone(kept.Routes[:min(len(kept.Routes), maxEntries)])
	kept.Stalls = slices.Clone(kept.Stalls[:min(len(kept.Stalls), maxEntries)])
	kept.Omitted -= len(kept.Lanes) + len(kept.Routes) + len(kept.Stalls)
	s.size -= one.size
	if one.size = slim(&kept); s.size+one.size > maxStates {
		kept.Omitted += len(kept.Lanes) + len(kept.Routes) + len(kept.Stalls)
		kept.Lanes, kept.Routes, kept.Stalls, one.size = nil, nil, nil, 0
	}
	s.size += one.size
	one.state, one.stateAt, one.stateBy = &kept, told, heard
}

// slim bounds the names and numbers in the lists of a state, so that sums of them are
// numbers that JSON can express, and returns about how many bytes the lists take.
func slim(state *events.State) (size int) {
	words := func(list ...*string) {
		for _, word := range list {
			*word = cut(*word)
			size += len(*word)
		}
	}
	counts := func(list ...*int64) {
		for _, n := range list {
			*n = min(max(*n, 0), maxCount)
		}
	}
	for i := range state.Lanes {
		l := &state.Lanes[i]
		words(&l.Lane, &l.Topic)
		counts(&l.Open, &l.Pushes)
		size += ofEntry + 4*cap(l.Partitions)
	}
	for i := range state.Routes {
		r := &state.Routes[i]
		r.Answers = slices.Clone(r.Answers[:min(len(r.Answers), maxEntries)])
		words(&r.Provider, &r.App, &r.Environment, &r.Gate, &r.Word, &r.RateName)
		counts(&r.InFlight)
		r.Share, r.Rate, r.Base = between(r.Share, longest), between(r.Rate, longest), between(r.Base, longest)
		r.Connections, r.Streams = min(max(r.Connections, 0), math.MaxInt32), min(max(r.Streams, 0), math.MaxInt32)
		for j := range r.Answers {
			words(&r.Answers[j].Class, &r.Answers[j].Reason)
			counts(&r.Answers[j].N)
		}
		size += 3*ofEntry + ofEntry/2*cap(r.Answers)
	}
	for i := range state.Stalls {
		st := &state.Stalls[i]
		words(&st.Reason, &st.Lane, &st.Topic, &st.Route)
		size += ofEntry + 4
	}
	return size
}

// advance finds who is gone, once a second.
func (s *sources) advance(now time.Time) {
	if now.Unix() == s.second {
		return
	}
	s.second = now.Unix()
	for _, one := range s.byID {
		quiet := now.Sub(one.heard)
		if one.away(now) {
			if !one.gone {
				s.leave(departed{one.id, one.name(), one.heard, one.state.Last})
			}
			one.gone = true
		} else if one.gone { // it was late only
			one.gone = false
			s.gone = slices.DeleteFunc(s.gone, func(d departed) bool { return d.id == one.id })
		}
		if quiet > forgotten {
			s.forget(one)
		}
	}
}

func (s *sources) leave(d departed) {
	if len(s.gone) == maxGone {
		s.gone = append(s.gone[:0], s.gone[1:]...)
	}
	s.gone = append(s.gone, d)
}

// name is what a source is shown as.
func (s *source) name() string {
	if s.state != nil && s.state.Worker != "" {
		return s.state.Worker
	}
	return s.id
}

// away reports whether a worker has told its last state, or nothing for too long.
func (s *source) away(now time.Time) bool {
	return s.state != nil && (s.state.Last || now.Sub(s.heard) > silence)
}

// live are the workers that are there, by name, also within the second in which the last
// hour was read.
func (s *sources) live(now time.Time) (list []*source) {
	for _, one := range s.byID {
		if one.state != nil && !one.away(now) {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(x, y *source) int {
		return cmp.Or(strings.Compare(x.name(), y.name()), strings.Compare(x.id, y.id))
	})
	return list
}
