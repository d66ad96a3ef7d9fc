package limits

import (
	"slices"
	"time"
)

// A rule that defers books a place: an event at the first time at which all
// rules have room. So each of 10,000 that wait for one user knows its time, and
// none comes back to ask in vain every half minute.

// maxSteps bounds the search for a place. A step passes one event or one window.
const maxSteps = 2 * maxEvents

// hold decides what does not fit now: a rule that drops refuses it, otherwise it
// is booked.
func (j *judge) hold(r *Request, c *candidate) {
	first := j.refusal(c, nil)
	for i := range j.applied {
		if a := &j.applied[i]; !a.rule.defers {
			if _, at := j.ask(a, c); at != c.at {
				j.refuse(r, c, a)
				return
			}
		}
	}
	j.book(r, c, first)
}

// book gives c the first place that it can have. A rule has a bounded number of
// them: the one of the lowest priority goes without, of these the oldest. It is
// judged anew when it comes due.
func (j *judge) book(r *Request, c *candidate, first *applied) {
	j.explain(r, c, first)
	since := r.Since
	if since.IsZero() {
		since = r.At
	}
	c.extra = seconds(since.UnixMilli())
	stands, changed := j.crowded(c), j.changed
	slices.Sort(j.victims)
	j.out = j.out[:0]
	for _, k := range slices.Backward(j.victims) {
		j.out = append(j.out, j.state.events[k])
		j.remove(k)
	}
	fits := j.place(c)
	r.waits(time.Duration(c.at-r.At.UnixMilli()) * time.Millisecond)
	if fits && c.at == r.At.UnixMilli() { // the place of the one that goes
		j.allow(r, c, true)
		return
	}
	if !fits || r.late() {
		for i := range j.out {
			j.insert(&j.out[i])
		}
		j.changed = changed
		if !fits {
			r.RetryAfter = 0
		}
		return
	}
	r.Deferred = true
	if !stands || len(j.state.events) >= maxEvents {
		return
	}
	booking := c.event
	booking.flags |= bookedFlag
	booking.keep = seconds(booking.at + bookingHeld.Milliseconds())
	j.insert(&booking)
	if c.passed {
		j.displace(r, c)
	}
}

// place moves c to the first time from its own on at which all rules have room.
func (j *judge) place(c *candidate) bool {
	horizon := c.at + maxWindow.Milliseconds()
	for range maxSteps {
		next := c.at
		if j.refusal(c, &next) == nil {
			return true
		}
		if next > horizon {
			return false
		}
		c.at = next
	}
	return false
}

// crowded finds, for each deferring rule that has used all its bookings, the one to evict,
// and leaves them in victims. It is false, without victims, if c itself would be evicted
// instead.
func (j *judge) crowded(c *candidate) (stands bool) {
	j.victims = j.victims[:0]
	for i := range j.applied {
		rule := j.applied[i].rule
		if !rule.defers {
			continue
		}
		n, least := 0, -1
		for k := range j.state.events {
			e := &j.state.events[k]
			if !e.booked() || !rule.counts(e, &c.event) || slices.Contains(j.victims, k) {
				continue
			}
			n++
			if least < 0 || goesBefore(e, &j.state.events[least]) {
				least = k
			}
		}
		switch {
		case n < maxWaiting:
		case goesBefore(&j.state.events[least], &c.event):
			j.victims = append(j.victims, least)
		default:
			j.victims = j.victims[:0]
			return false
		}
	}
	return true
}

// goesBefore reports whether booking e is evicted before the other, o.
func goesBefore(e, o *event) bool {
	if e.priority() != o.priority() {
		return e.priority() < o.priority()
	}
	return e.extra < o.extra
}

// redeem decides a booking that asks again. In time it has its place, unless the
// rules, or what is known of the user, have changed since. Before that, and when
// it is late, its place is free for the others while another one is looked for.
func (j *judge) redeem(r *Request, c *candidate, known int) {
	booking := j.state.events[known]
	late := c.at - booking.at
	changed := j.changed
	j.remove(known)
	if late >= 0 && late <= onTime.Milliseconds() {
		if c.at = booking.at; j.refusal(c, nil) == nil {
			j.allow(r, c, len(j.applied) > 0)
			return
		}
		c.at += late
	}
	c.due = booking.at
	switch {
	case j.refusal(c, nil) == nil:
		j.allow(r, c, len(j.applied) > 0)
	case late < 0:
		j.explain(r, c, j.refusal(c, nil))
		r.waits(time.Duration(-late) * time.Millisecond)
		if r.Deferred = !r.late(); r.Deferred {
			j.insert(&booking)
			j.changed = changed
		}
	default:
		j.hold(r, c)
	}
}

// displace finds new places for the bookings that c outranks and that its place
// has left without room: higher priorities first, then those that were to go
// first.
func (j *judge) displace(r *Request, c *candidate) {
	j.displaced = j.displaced[:0]
	rest := j.state.events[:0]
	for _, e := range j.state.events {
		if c.outranks(&e) && !e.same(&c.event) {
			j.displaced = append(j.displaced, e)
		} else {
			rest = append(rest, e)
		}
	}
	j.state.events = rest
	slices.SortStableFunc(j.displaced, func(a, b event) int { return int(b.priority()) - int(a.priority()) })
	for _, e := range j.displaced {
		moved := candidate{event: e}
		moved.flags &^= bookedFlag
		j.apply(r, &moved.event, false)
		if !j.place(&moved) {
			continue // judged anew when it comes due
		}
		moved.flags |= bookedFlag
		moved.keep = seconds(moved.at + bookingHeld.Milliseconds())
		j.insert(&moved.event)
	}
}
