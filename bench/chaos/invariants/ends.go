package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// outcomes checks I1: one final outcome for each notification.
func (c *checker) outcomes() {
	var unknown []left
	for i := range c.Producer.Entries {
		p := &c.Producer.Entries[i]
		if p.Copy {
			continue
		}
		h := c.rows[p.ID]
		outcome, open := h.outcome()
		c.r.Outcomes[outcome]++
		switch {
		case outcome == NoRows || outcome == Open:
			c.r.Lost++
			c.r.find(I1, "%s has no final outcome: %s", c.describe(p), c.story(p.ID))
			continue
		case len(open) > 0:
			c.r.find(I1, "%s ended %s, and devices %v are open: %s", c.describe(p), outcome, open, c.story(p.ID))
		case len(p.Outcomes) > 0 && !slices.Contains(p.Outcomes, outcome):
			c.r.find(I1, "%s ended %s and not %v: %s", c.describe(p), outcome, p.Outcomes, c.story(p.ID))
		case p.Reason != "" && outcome == p.Outcomes[0] && !h.because(State(outcome), p.Reason):
			c.r.find(I1, "%s ended %s, and not because of %s: %s", c.describe(p), outcome, p.Reason, c.story(p.ID))
		}
		if c.limits.Mode == AtMostOnce && h.has(Unknown) {
			unknown = append(unknown, leftUnknown(p, h))
		}
		c.everyDevice(p, h)
		c.oneEnding(p, h)
		dead := slices.ContainsFunc(c.letters[p.ID], func(l Letter) bool { return l.Kind == Dead })
		if dead != h.has(DeadLettered) {
			c.r.find(I1, "%s: in the dead-letter topic %v, in the status %v: %s", c.describe(p), dead, !dead, c.story(p.ID))
		}
	}
	c.unknown(unknown)
	for id := range c.rows {
		if c.records[id] == nil {
			c.r.find(I1, "%s has status rows and was never produced: %s", id, c.story(id))
		}
	}
	for id, letters := range c.letters {
		if c.records[id] == nil {
			c.r.find(I1, "%s is in a %s topic and was never produced", id, letters[0].Kind)
		}
	}
}

// left is a notification of a lane that sends at most once, which ended UNKNOWN.
type left struct {
	*Produced
	from, to time.Time // its intent, and that end
}

func leftUnknown(p *Produced, h history) left {
	l := left{p, p.At, p.At}
	for _, rows := range h {
		for _, r := range rows {
			if r.State == Sending && (l.from.Equal(p.At) || r.At.Before(l.from)) {
				l.from = r.At
			}
			if r.State == Unknown && r.At.After(l.to) {
				l.to = r.At
			}
		}
	}
	return l
}

// unknown charges each of them to an event between its intent and its end. Those that
// ended first choose first, and take the first event that has room: so all have one
// if that is possible at all, for events have hardly any length.
func (c *checker) unknown(all []left) {
	slices.SortStableFunc(all, func(a, b left) int { return a.to.Compare(b.to) })
	for _, l := range all {
		full, charged := false, false
		for i := range c.Events { // in the order in which they began
			e := &c.Events[i]
			if e.Unknown == 0 || !c.touches(e, l.from, l.to) {
				continue
			}
			full = true
			if charged = c.r.Events[i].Unknown < e.Unknown; charged {
				c.r.Events[i].Unknown++
				break
			}
		}
		switch {
		case charged:
		case full:
			c.r.find(I1, "%s ended UNKNOWN, beyond what the faults may leave so: %s", c.describe(l.Produced), c.story(l.ID))
		default:
			c.r.find(I1, "%s ended UNKNOWN, and no fault explains it: %s", c.describe(l.Produced), c.story(l.ID))
		}
	}
}

func (h history) has(s State) bool {
	for _, rows := range h {
		if slices.ContainsFunc(rows, func(r Row) bool { return r.State == s }) {
			return true
		}
	}
	return false
}

// everyDevice: a device that the notification was for has an ending, unless the
// whole ended in its place. What holds or retries the whole ends nothing: what
// comes of it has rows of its own. An ending of the whole beside rows of devices,
// as after a kill between two devices, has to be one that was meant, or a fault
// has to explain it.
func (c *checker) everyDevice(p *Produced, h history) {
	if whole := h[""]; whole != nil {
		state := deviceState(whole)
		meant := len(p.Outcomes) == 0 || slices.Contains(p.Outcomes, Outcome(state))
		if len(h) == 1 || state.final() && (meant || c.disturbed(p.At, newest(h))) {
			return
		}
	}
	for _, d := range p.Devices {
		if h[d] == nil {
			c.r.find(I1, "%s has nothing about its device %s: %s", c.describe(p), d, c.story(p.ID))
		}
	}
}

// newest is the time of the newest row.
func newest(h history) (at time.Time) {
	for _, rows := range h {
		for _, r := range rows {
			if r.At.After(at) {
				at = r.At
			}
		}
	}
	return at
}

// oneEnding: a device has one final state, or DELIVERED over others. Two can
// only come of two workers that had the record at once, which takes a fault.
func (c *checker) oneEnding(p *Produced, h history) {
	for device, rows := range h {
		ends := map[State]bool{}
		var first, last time.Time
		for _, r := range rows {
			if !r.State.final() {
				continue
			}
			ends[r.State] = true
			if first.IsZero() || r.At.Before(first) {
				first = r.At
			}
			if r.At.After(last) {
				last = r.At
			}
		}
		if len(ends) > 1 && !c.disturbed(first, last) {
			c.r.find(I1, "%s ended in %d ways for device %s, and no fault explains it: %s", c.describe(p), len(ends), device, c.story(p.ID))
		}
	}
}

// disturbed reports whether an event that may repeat work touches the time from
// one moment to another.
func (c *checker) disturbed(from, to time.Time) bool {
	return slices.ContainsFunc(c.Events, func(e Event) bool { return e.Repeats > 0 && c.touches(&e, from, to) })
}

// reach is how far from a moment an event may lie and still explain it. It is
// no limit of time that a busy machine loosens: every event that is drawn in
// may excuse as many pushes as its bound says.
const reach = time.Second

func (c *checker) touches(e *Event, from, to time.Time) bool {
	return !e.Start.After(to.Add(reach)) && !e.End.Before(from.Add(-reach))
}

// recordable is up to when a row that was wanted at a moment may have to wait,
// because the status store is away: a worker that dies before takes it along.
func (c *checker) recordable(at time.Time) time.Time {
	for i := range c.Events { // in the order in which they began
		if e := &c.Events[i]; e.Unrecordable && e.End.After(at) && c.touches(e, at, at) {
			at = e.End
		}
	}
	return at
}

// exposed reports whether a worker died with a push whose row it still had to
// write, however long ago the provider had accepted it. What had ended by then
// had ended wrongly, and what was accepted and answered later was another
// worker's to write.
func (c *checker) exposed(pair Pair, heard time.Time) bool {
	return slices.ContainsFunc(c.Events, func(e Event) bool {
		ended := func(r Row) bool { return r.State.final() && r.At.Before(e.Start) }
		return e.Exposed[pair] && !heard.After(e.End) && !slices.ContainsFunc(c.rows[pair.ID][pair.Device], ended) && !slices.ContainsFunc(c.rows[pair.ID][""], ended)
	})
}

// unwritten reports whether a fault may have kept from its row what was accepted
// of these pushes, and answered last at a moment. Of a kill of which it is known
// what it exposed, that moment counts: what an heir sends has a row of the heir's.
func (c *checker) unwritten(list []Send, heard time.Time) bool {
	to := c.recordable(list[len(list)-1].At)
	return slices.ContainsFunc(c.Events, func(e Event) bool {
		from := list[0].At
		if e.Exposed != nil {
			from = heard
		}
		return e.Repeats > 0 && c.touches(&e, from, to)
	})
}

// givenUp reports whether an intent of a device, or of the whole, ended UNKNOWN.
func (h history) givenUp(device string) bool {
	unknown := func(r Row) bool { return r.State == Unknown }
	return slices.ContainsFunc(h[device], unknown) || slices.ContainsFunc(h[""], unknown)
}

// accepted checks I2: rows and the provider agree about each device.
func (c *checker) accepted() {
	for pair, list := range c.pushes {
		p := c.records[pair.ID]
		if p == nil {
			c.r.find(I2, "%s was pushed to device %s and never produced", pair.ID, pair.Device)
			continue
		}
		yes, heard := 0, time.Time{} // heard is when it was accepted and answered last
		for _, s := range list {
			if s.Accepted && !s.Undone {
				if yes == 0 {
					c.r.Worst.Delivery = max(c.r.Worst.Delivery, s.At.Sub(p.At))
				}
				if yes++; !s.Unheard {
					heard = s.At
				}
			}
		}
		c.r.Pushes += yes
		delivered := slices.ContainsFunc(c.rows[pair.ID][pair.Device], func(r Row) bool { return r.State == Delivered })
		switch {
		case delivered && yes == 0:
			c.r.find(I2, "%s is DELIVERED to device %s, whose provider never accepted it: %s", c.describe(p), pair.Device, c.story(pair.ID))
		case delivered || heard.IsZero() || c.exposed(pair, heard):
		case c.limits.Mode == AtMostOnce && c.rows[pair.ID].givenUp(pair.Device): // see unknown
		case !c.unwritten(list, heard):
			c.r.find(I2, "%s was accepted for device %s, its row does not say so, and no fault explains it: %s", c.describe(p), pair.Device, c.story(pair.ID))
		}
	}
	for id, h := range c.rows {
		for device, rows := range h {
			if c.pushes[Pair{id, device}] == nil && slices.ContainsFunc(rows, func(r Row) bool { return r.State == Delivered }) {
				c.r.find(I2, "%s is DELIVERED to device %s, which the provider never saw: %s", id, device, c.story(id))
			}
		}
	}
}

func (c *checker) describe(p *Produced) string {
	return fmt.Sprintf("%s (%s/%d/%d%s)", p.ID, p.Partition.Topic, p.Partition.ID, p.Offset, mark(p.Kind != "", ", "+p.Kind))
}

// told is how many rows and pushes a story has: some notifications have 20,000
// devices.
const told = 200

// story is what is known of a notification.
func (c *checker) story(id string) string {
	const clock = "15:04:05.000"
	var lines []string
	h := c.rows[id]
	for _, device := range slices.Sorted(maps.Keys(h)) {
		for _, r := range h[device] {
			lines = append(lines, fmt.Sprintf("[row %q step %d %s %s %s]", device, r.Step, stateName(r.State), r.Reason, r.At.Format(clock)))
		}
	}
	if len(h) == 0 {
		lines = append(lines, "[no rows]")
	}
	for _, device := range c.devices[id] {
		for _, s := range c.pushes[Pair{id, device}] {
			lines = append(lines, fmt.Sprintf("[push %q %s by %q %s%s%s]", device, s.Reply, s.Worker, s.At.Format(clock),
				mark(s.Unheard, " unheard"), mark(s.Undone, " undone")))
		}
	}
	if more := len(lines) - told; more > 0 {
		lines = append(lines[:told], fmt.Sprintf("[and %d more]", more))
	}
	for _, letter := range c.letters[id] {
		lines = append(lines, fmt.Sprintf("[%s record, attempt %d, %s]", letter.Kind, letter.Attempt, letter.Reason))
	}
	return strings.Join(lines, " ")
}

func mark(is bool, word string) string {
	if is {
		return word
	}
	return ""
}

func stateName(s State) string {
	switch s {
	case Pending:
		return "PENDING"
	case Sending:
		return "SENDING"
	case Retrying:
		return "RETRYING"
	case Held:
		return "HELD"
	}
	return Outcome(s).String()
}

func (k Kind) String() string { return [...]string{"", "dead-letter", "retry", "deferral", "hold"}[k] }
