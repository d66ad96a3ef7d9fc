package limits

import (
	"slices"
	"time"
)

// judge decides the requests of one user from its state, one after the other.
// It is reused from user to user and belongs to one goroutine.
type judge struct {
	rules   []rule
	state   state
	changed bool // the state is to be stored

	calendar  calendar
	applied   []applied // rules of the request at hand
	times     []int64   // that count against it, for one rule
	spent     []event   // its deliveries, should it be allowed
	displaced []event   // bookings that have to find another place
	victims   []int     // bookings to evict, and
	out       []event   // those that were

	logs  deviceLogs // where rules of devices count; nil = in the state
	noted []note     // what the request will leave there, should it be allowed
}

func newJudge(rules []rule) judge { return judge{rules: rules, calendar: calendar{days: &days{}}} }

// load reads the state of a user as it is needed at a time (Unix ms). keep is for
// events of version 1, in ms.
func (j *judge) load(stored []byte, keep, at int64) error {
	if err := j.state.decode(stored, keep); err != nil {
		return err
	}
	j.state.prune(at)
	j.calendar.running, j.changed = j.state.running, false
	return nil
}

// applied is a rule with its limit for the user at hand.
type applied struct {
	rule  *rule
	limit int
}

// candidate is an event that asks for a place. Bookings that it outranks do not
// stand in its way.
type candidate struct {
	event
	// due, of a booking that asks again, is the place that it had: those of its
	// priority that wait for a later one are behind it. 0 = it has none.
	due int64
	// passed is set when an outranked booking was overlooked.
	passed bool
}

func (c *candidate) outranks(e *event) bool {
	return e.booked() && (e.priority() < c.priority() || c.due > 0 && e.priority() == c.priority() && e.at > c.due)
}

// answer decides one request and leaves what it spends in the state.
//
// Rules of devices come first, for each delivery; when they refuse all, nothing
// is spent. Then come the rules of the user, of the type and of the segment, all
// of which have to agree.
func (j *judge) answer(r *Request) {
	r.Decision = Decision{}
	j.setZone(r)
	c := newCandidate(r)
	known := j.find(&c.event)
	if !j.answerDevices(r, &c) {
		if known >= 0 && j.state.events[known].booked() {
			j.remove(known)
		}
		return
	}
	j.apply(r, &c.event, false)
	switch {
	case known >= 0 && !j.state.events[known].booked():
		j.allow(r, &c, false)
	case c.priority() == critical:
		c.passed = true // it takes the places of all that wait
		j.allow(r, &c, len(j.applied) > 0)
	case known >= 0:
		j.redeem(r, &c, known)
	case j.refusal(&c, nil) == nil:
		j.allow(r, &c, len(j.applied) > 0)
	default:
		j.hold(r, &c)
	}
}

func (j *judge) setZone(r *Request) {
	if j.calendar.zone = r.Zone; r.Zone == nil {
		j.calendar.zone = time.UTC
	}
}

func newCandidate(r *Request) candidate {
	return candidate{event: event{
		id: idHash(r.ID), kind: typeHash(r.Type), at: r.At.UnixMilli(),
		app: shortHash(r.App), lane: shortHash(r.Lane), channel: shortHash(r.Channel), flags: r.Priority & priorityBits,
	}}
}

// find returns the place of the event of this notification; -1 = none.
func (j *judge) find(c *event) int {
	for i := range j.state.events {
		if e := &j.state.events[i]; e.id == c.id && !e.device() && e.same(c) {
			return i
		}
	}
	return -1
}

// answerDevices asks the rules of devices about each delivery, and keeps what
// the allowed ones will spend. It is false when none is left.
func (j *judge) answerDevices(r *Request, c *candidate) bool {
	j.spent, j.noted = j.spent[:0], j.noted[:0]
	if len(r.Devices) == 0 {
		return true
	}
	d := *c
	d.flags |= deviceFlag
	j.apply(r, &d.event, true)
	left := 0
	for i := range r.Devices {
		device := &r.Devices[i]
		*device = Device{Hash: device.Hash}
		d.extra = device.Hash
		log := j.logs[logKey{r.Owner, device.Hash}]
		j.exchange(log)
		j.answerDevice(r, device, &d, log)
		j.exchange(log)
		if !device.Refused {
			left++
		}
	}
	if left > 0 {
		r.Decision = Decision{}
	}
	return left > 0
}

// answerDevice asks the rules at hand about one delivery.
func (j *judge) answerDevice(r *Request, device *Device, d *candidate, log *logged) {
	same := func(e event) bool { return e.device() && e.extra == d.extra && e.same(&d.event) }
	if len(j.applied) == 0 || slices.ContainsFunc(j.spent, same) {
		return
	}
	if i := slices.IndexFunc(j.state.events, same); i >= 0 {
		j.note(log, &j.state.events[i])
		return
	}
	refusal := j.refusal(d, nil)
	switch {
	case log != nil && len(log.read)+len(log.fresh) >= maxEvents:
		if d.priority() == critical {
			return // it passes, and is not counted
		}
		if r.Rule == "" {
			r.Decision = Decision{Dimension: Dimension(PerDeviceType), Rule: StateFull, Current: len(j.state.events), Limit: maxEvents}
		}
		device.refuse(StateFull, len(j.state.events), maxEvents)
	case refusal != nil && d.priority() != critical:
		if r.Rule == "" {
			j.refuse(r, d, refusal)
		}
		current, _ := j.ask(refusal, d)
		device.refuse(refusal.rule.name, current, refusal.limit)
	case log != nil:
		j.note(log, &d.event)
	default:
		j.spent = append(j.spent, j.kept(d.event))
	}
}

func (d *Device) refuse(rule string, current, limit int) {
	d.Refused, d.Rule, d.Current, d.Limit = true, rule, int32(current), int32(limit)
}

// apply finds the rules that cover c and hold for the user.
func (j *judge) apply(r *Request, c *event, devices bool) {
	j.applied = j.applied[:0]
	for i := range j.rules {
		rule := &j.rules[i]
		if rule.perDevice != devices || !rule.covers(c) {
			continue
		}
		if rule.segments != nil && !slices.ContainsFunc(rule.segments, func(s string) bool { return slices.Contains(r.Segments, s) }) {
			continue
		}
		j.applied = append(j.applied, applied{rule, rule.limit(r, c)})
	}
}

// limit is the user's own, else that of a segment, else the rule's.
func (r *rule) limit(q *Request, c *event) int {
	if r.personal {
		for i := range q.Personal {
			if name := typeHash(q.Personal[i].Name); name == r.nameHash || r.perType && name == c.kind {
				return min(max(q.Personal[i].Max, 0), maxPerRule)
			}
		}
	}
	if r.segmentMax != nil {
		for _, s := range q.Segments {
			if most, ok := r.segmentMax[s]; ok {
				return most
			}
		}
	}
	return r.max
}

// refusal is the first rule, in the configured order, that has no room for c at
// its time; nil = all have. Asked for the next time, it sees all rules and says
// from when on there may be room.
func (j *judge) refusal(c *candidate, next *int64) (first *applied) {
	for i := range j.applied {
		a := &j.applied[i]
		if _, at := j.ask(a, c); at != c.at {
			if next == nil {
				return a
			}
			*next = max(*next, at)
			if first == nil {
				first = a
			}
		}
	}
	return first
}

// ask returns the count of a rule at the time of c, and the earliest time at which it
// may have room for c.
func (j *judge) ask(a *applied, c *candidate) (current int, next int64) {
	from, to := a.rule.reach(c.at, &j.calendar)
	j.times = j.times[:0]
	for i := range j.state.events {
		e := &j.state.events[i]
		if e.at < from || !a.rule.counts(e, &c.event) {
			continue
		}
		if e.at >= to {
			break
		}
		if c.outranks(e) {
			c.passed = true
			continue
		}
		j.times = append(j.times, e.at)
	}
	return a.rule.room(j.times, c.at, to, a.limit)
}

// allow answers yes. What was not known before is spent, with the deliveries
// that are new.
func (j *judge) allow(r *Request, c *candidate, spend bool) {
	if spend {
		j.spent = append(j.spent, j.kept(c.event))
	}
	if len(j.spent) > 0 && len(j.state.events)+len(j.spent) > maxEvents {
		if c.priority() != critical && j.find(&c.event) < 0 {
			r.Decision = Decision{Dimension: Dimension(PerUser), Rule: StateFull, Current: len(j.state.events), Limit: maxEvents}
			return
		}
		j.spent, spend = j.spent[:0], false // it passes all the same, or was allowed before
	}
	for i := range j.spent {
		j.insert(&j.spent[i])
	}
	j.leaveNotes()
	if spend && c.passed {
		j.displace(r, c)
	}
	r.Decision = Decision{Allowed: true}
}

// kept says until when the rules at hand need an event.
func (j *judge) kept(e event) event {
	until := int64(0)
	for i := range j.applied {
		rule := j.applied[i].rule
		until = max(until, rule.until(e.at, &j.calendar))
	}
	e.keep = seconds(until)
	return e
}

// insert adds an event. One that is spent keeps the windows of its time running.
func (j *judge) insert(e *event) {
	j.state.events = insert(j.state.events, e)
	j.changed = true
	if e.booked() {
		return
	}
	j.pin(e)
	j.state.running = j.calendar.running
}

// pin keeps the windows running that count an event.
func (j *judge) pin(e *event) {
	for i := range j.rules {
		if rule := &j.rules[i]; rule.unit != 0 && rule.covers(e) {
			j.calendar.pin(rule.unit, e.at)
		}
	}
}

func (j *judge) remove(i int) {
	j.state.events = slices.Delete(j.state.events, i, i+1)
	j.changed = true
}

// refuse rejects the request because of one rule. RetryAfter is when that rule, for
// itself, has room again.
func (j *judge) refuse(r *Request, c *candidate, a *applied) {
	j.explain(r, c, a)
	next := *c
	for range maxSteps {
		_, at := j.ask(a, &next)
		if at == never {
			return
		}
		if at == next.at {
			r.RetryAfter = time.Duration(at-c.at) * time.Millisecond
			return
		}
		next.at = at
	}
}

// explain fills in which rule a decision is about, and the use of that rule.
func (j *judge) explain(r *Request, c *candidate, a *applied) {
	r.Decision = Decision{Dimension: Dimension(a.rule.per), Rule: a.rule.name, Limit: a.limit}
	r.Current, _ = j.ask(a, c)
	if len(j.times) > 0 {
		// Then the latest of what counts leaves the window.
		_, end := a.rule.reach(j.times[len(j.times)-1], &j.calendar)
		r.ResetAt = time.UnixMilli(end).UTC()
	}
}
