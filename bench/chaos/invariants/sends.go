package invariants

import (
	"fmt"
	"slices"
	"time"
)

// repeat is an acceptance beyond the first: the one before it, and itself.
type repeat struct {
	before, now Send
}

// repeats checks I4: every acceptance beyond the first is one that an event may
// have brought about, and no event brought about more than its bound.
func (c *checker) repeats() {
	var list []repeat
	for _, sends := range c.pushes {
		var last *Send
		for i := range sends {
			s := &sends[i]
			if !s.Accepted || s.Undone {
				continue
			}
			if last != nil {
				list = append(list, repeat{*last, *s})
			}
			last = s
		}
	}
	slices.SortFunc(list, func(a, b repeat) int { return a.now.At.Compare(b.now.At) })
	c.r.Repeated = len(list)
	for i := range c.Events {
		e := &c.Events[i]
		c.r.Bound += e.Repeats
		if len(e.Exposed) > e.Repeats {
			c.r.find(I4, "at the %s of %s at %s, %d pushes were accepted without a durable status; the windows hold %d", e.Kind, e.Target,
				e.Start.Format(time.StampMilli), len(e.Exposed), e.Repeats)
		}
	}
	charged := make(map[Pair][]*charge)
	for i := range list {
		c.explain(&list[i], charged)
	}
}

// charge is a repeat and the event that explains it, by its index.
type charge struct {
	*repeat
	event int
}

// irreplaceable says that nothing can replace a push on its device, in any mode: without
// text it is a data message to Android, which shows nothing by itself.
func (c *checker) irreplaceable(s *Send) bool {
	p := c.records[s.ID]
	return s.Provider == "fcm" && p != nil && p.Textless
}

// explain charges a repeat to an event that has room for it. charged is what was
// charged before.
func (c *checker) explain(r *repeat, charged map[Pair][]*charge) {
	what := func() string {
		return fmt.Sprintf("%s on device %s was accepted at %s and again at %s", r.now.ID, r.now.Device,
			r.before.At.Format(time.StampMilli), r.now.At.Format(time.StampMilli))
	}
	switch {
	case c.limits.Mode == AtMostOnce:
		c.r.find(I4, "%s, in a lane that sends at most once: %s", what(), c.story(r.now.ID))
		return
	case c.limits.Mode == EffectivelyOnce && !c.irreplaceable(&r.now) && (r.now.CollapseID == "" || r.now.CollapseID != r.before.CollapseID):
		c.r.find(I4, "%s, under the collapse ids %q and %q", what(), r.before.CollapseID, r.now.CollapseID)
	}
	one := &charge{r, -1}
	if c.charge(one, charged[r.now.Pair], make(map[int]bool)) {
		charged[r.now.Pair] = append(charged[r.now.Pair], one)
		return
	}
	full, unexposed := "", false
	for i := range c.Events {
		switch e := &c.Events[i]; {
		case e.Repeats == 0 || !c.touches(e, r.before.At, r.now.At):
		case e.Exposed != nil && !e.Exposed[r.now.Pair]:
			unexposed = true
		default:
			full = fmt.Sprintf("%s of %s at %s", e.Kind, e.Target, e.Start.Format(time.StampMilli))
		}
	}
	switch {
	case full != "":
		c.r.find(I4, "%s: beyond the bound of the %s: %s", what(), full, c.story(r.now.ID))
	case unexposed:
		c.r.find(I4, "%s, and its status was durable when the fault came: %s", what(), c.story(r.now.ID))
	default:
		c.r.find(I4, "%s, and no fault explains it: %s", what(), c.story(r.now.ID))
	}
}

// charge finds an event for a repeat. One of which it is known what it exposed
// explains one repeat of a pair: the heir's, whose own row is durable unless
// another event came. If that one is taken, the repeat that has it looks for
// another event. tried are those that were asked already.
func (c *checker) charge(one *charge, others []*charge, tried map[int]bool) bool {
	for i := range c.Events {
		e := &c.Events[i]
		if tried[i] || e.Repeats == 0 || !c.touches(e, one.before.At, one.now.At) || e.Exposed != nil && !e.Exposed[one.now.Pair] {
			continue
		}
		tried[i] = true
		taken := -1
		if e.Exposed != nil {
			taken = slices.IndexFunc(others, func(o *charge) bool { return o.event == i })
		}
		switch {
		case taken >= 0:
			if !c.charge(others[taken], others, tried) {
				continue
			}
		case c.r.Events[i].Repeated == e.Repeats:
			continue
		default:
			c.r.Events[i].Repeated++
		}
		one.event = i
		return true
	}
	return false
}

// sends checks I6 and I10.
func (c *checker) sends() {
	for pair, list := range c.pushes {
		p := c.records[pair.ID]
		if p == nil {
			continue // found already
		}
		attempts := 0
		for _, s := range list {
			switch {
			case p.Unsent:
				c.r.find(I6, "%s was never to be sent: %s", c.describe(p), c.story(pair.ID))
			case len(p.Devices) > 0 && !slices.Contains(p.Devices, pair.Device) && !slices.Contains(p.Dead, pair.Device):
				c.r.find(I6, "%s was sent to device %s, and it is for %v: %s", c.describe(p), pair.Device, p.Devices, c.story(pair.ID))
			case !p.Deadline.IsZero() && s.At.After(c.arrival(s.Worker, p.Deadline)):
				c.r.find(I6, "%s was sent %v after its deadline: %s", c.describe(p), s.At.Sub(p.Deadline), c.story(pair.ID))
			}
			if !s.Undone {
				attempts++
			}
		}
		most := 1 + c.limits.Retries + c.resends(list[0].At, list[len(list)-1].At)
		if attempts > most {
			c.r.find(I10, "%s was tried %d times for device %s, at most %d are allowed: %s", c.describe(p), attempts, pair.Device, most, c.story(pair.ID))
		}
	}
	for _, letter := range c.Letters.Entries {
		if letter.Attempt > c.limits.Retries {
			c.r.find(I10, "%s is in a %s topic with attempt %d, at most %d are allowed", letter.ID, letter.Kind, letter.Attempt, c.limits.Retries)
		}
	}
	for i := range c.Events {
		if e := &c.Events[i]; e.Ban != nil {
			c.banned(e)
		}
	}
}

// arrival is until when what a worker sent by a deadline may arrive: in flight for
// Grace, or held on its way for as long as faults follow one another.
func (c *checker) arrival(worker string, deadline time.Time) time.Time {
	until := deadline.Add(c.limits.Grace)
	for i := range c.Events { // in the order in which they began
		if e := &c.Events[i]; e.Holds && e.Of == worker && !e.Start.After(until) && e.End.After(deadline) {
			if held := e.End.Add(c.limits.Grace); held.After(until) {
				until = held
			}
		}
	}
	return until
}

// resends is how often faults may have made a device's push go out again.
func (c *checker) resends(from, to time.Time) (n int) {
	for i := range c.Events {
		if e := &c.Events[i]; e.Repeats > 0 && c.touches(e, from, to) {
			n++
		}
	}
	return n
}

// banned: after what was in flight, nobody calls a provider that said stop.
func (c *checker) banned(e *Event) {
	from := e.Start.Add(e.Ban.Drain)
	for i := range c.Sends.Entries {
		s := &c.Sends.Entries[i]
		if e.Ban.App != "" && c.appOf(s) != e.Ban.App {
			continue
		}
		if s.Provider == e.Ban.Provider && s.At.After(from) && s.At.Before(e.End) && (e.Target == "" || e.Target == s.Worker) {
			c.r.find(I6, "%s was sent by %q %v after %s said stop, %v before it may be called again", s.ID, s.Worker,
				s.At.Sub(e.Start).Round(time.Millisecond), s.Provider, e.End.Sub(s.At).Round(time.Millisecond))
		}
	}
}

// footprints checks I9: a process that was idle twice takes no more the second
// time.
func (c *checker) footprints() {
	if c.unobserved(I9) {
		return
	}
	byProcess := map[string][]Footprint{}
	for _, f := range c.Processes.Entries {
		byProcess[f.Process] = append(byProcess[f.Process], f)
	}
	compared := 0
	for name, list := range byProcess {
		if len(list) < 2 {
			continue
		}
		compared++
		slices.SortFunc(list, func(a, b Footprint) int { return a.At.Compare(b.At) })
		first, last := list[0], list[len(list)-1]
		grown := func(what string, before, after, allowed int64) {
			if after-before > allowed {
				c.r.find(I9, "%s has %d %s where it had %d, %v later", name, after, what, before, last.At.Sub(first.At).Round(time.Second))
			}
		}
		grown("goroutines", int64(first.Goroutines), int64(last.Goroutines), int64(c.limits.Goroutines))
		grown("descriptors", int64(first.FDs), int64(last.FDs), int64(c.limits.FDs))
		allowed := c.limits.Bytes
		if c.limits.Held > 0 && last.Backlog >= 2*c.limits.Held {
			allowed = c.limits.Held
			c.r.Memory = append(c.r.Memory, Growth{Process: name, Bytes: last.Bytes - first.Bytes, Allowed: allowed, Backlog: last.Backlog})
		}
		grown("bytes of memory", first.Bytes, last.Bytes, allowed)
	}
	if compared == 0 && c.Processes.Sealed {
		c.r.find(Incomplete, "no process was looked at twice: nothing can be said of leaks")
	}
}
