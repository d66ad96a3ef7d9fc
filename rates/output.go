package rates

import (
	"math"
	"slices"
	"time"
)

const (
	// unused is how long after its end, or after it came, what a slot has left may
	// still be sent: until the next grant at the least.
	unused = 200 * time.Millisecond
	// evenly is the most that a worker sends in any 100 ms, as a part of what the
	// rate is a second.
	evenly = 0.15
	// spreadSlice is how finely that is counted, and spreadSlices how many such
	// slices cover any 100 ms.
	spreadSlice  = 10 * time.Millisecond
	spreadSlices = 11
)

// slot is sends one after the other, step apart, from a time on. The first is due at
// once.
type slot struct {
	from, lapses time.Time
	step         time.Duration
	sends        int
	epoch        uint32 // of the rate under which it was granted
}

// due is how many of a slot's sends may have been made by now, of as many as there
// are left.
func (s *slot) due(now time.Time) int {
	passed := now.Sub(s.from)
	switch {
	case passed < 0:
		return 0
	case s.step <= 0:
		return s.sends
	}
	return int(min(int64(passed/s.step)+1, int64(s.sends)))
}

// spend takes n sends out of a slot.
func (s *slot) spend(n int) {
	s.sends -= n
	s.from = s.from.Add(time.Duration(n) * s.step)
}

// output is what one worker may send: the slots that it was granted. Not safe for
// concurrent use.
type output struct {
	urgent, others []slot

	rate  float64   // the fleet's, for evenness; 0 = no limit
	born  time.Time // the first time that was passed in: slices are counted from it
	slice int64     // number of the newest one of sent
	sent  [spreadSlices]int
	total int // of sent

	lapses time.Time // when the slot lapses that was taken of last
}

// add puts slots behind those that there are.
func (o *output) add(urgent, others slot) {
	if urgent.sends > 0 {
		o.urgent = append(o.urgent, urgent)
	}
	if others.sends > 0 {
		o.others = append(o.others, others)
	}
}

// take takes up to n sends, all of one slot. Urgent ones have slots of their own, and
// the others'. If none is due, again is when one may be; zero = when there is a grant.
func (o *output) take(now time.Time, urgent bool, n int) (got int, epoch uint32, again time.Time) {
	room := o.room(now)
	if room == 0 {
		return 0, 0, now.Add(spreadSlice)
	}
	lists := [...]*[]slot{&o.urgent, &o.others}
	for i := range lists {
		if i == 0 && !urgent {
			continue
		}
		s := o.first(now, lists[i])
		if s == nil {
			continue
		}
		if got = min(n, room, s.due(now)); got > 0 {
			epoch, o.lapses = s.epoch, s.lapses
			s.spend(got)
			o.sent[o.slice%spreadSlices] += got
			o.total += got
			return got, epoch, time.Time{}
		}
		if again.IsZero() || s.from.Before(again) {
			again = s.from
		}
	}
	return 0, 0, again
}

// giveBack takes back what was taken and not sent: s comes before all others.
func (o *output) giveBack(urgent bool, s slot) {
	list := &o.others
	if urgent {
		list = &o.urgent
	}
	*list = slices.Insert(*list, 0, s)
	o.sent[o.slice%spreadSlices] -= s.sends
	o.total -= s.sends
}

// first is the first slot of a list that has something left, or nil.
func (o *output) first(now time.Time, list *[]slot) *slot {
	for len(*list) > 0 {
		s := &(*list)[0]
		if s.sends > 0 && now.Before(s.lapses) {
			return s
		}
		*list = slices.Delete(*list, 0, 1)
	}
	return nil
}

// held is how many sends are left.
func (o *output) held(now time.Time) (urgent, others int) {
	count := func(list []slot) (n int) {
		for i := range list {
			if now.Before(list[i].lapses) {
				n += list[i].sends
			}
		}
		return n
	}
	return count(o.urgent), count(o.others)
}

// room is how much more may be sent now for the output to be even.
func (o *output) room(now time.Time) int {
	if o.born.IsZero() {
		o.born = now
	}
	slice := int64(now.Sub(o.born) / spreadSlice)        // not by the wall clock: set back, it would let nothing through
	for range min(max(slice-o.slice, 0), spreadSlices) { // as many as are counted
		o.slice++
		o.total -= o.sent[o.slice%spreadSlices]
		o.sent[o.slice%spreadSlices] = 0
	}
	o.slice = max(o.slice, slice)
	return max(int(math.Ceil(evenly*o.rate))-o.total, 0) // rounded down, 13 a second would be 9
}
