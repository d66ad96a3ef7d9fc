package invariants

import (
	"slices"
	"time"
)

// Fanout is one message to all subscribers of a topic.
type Fanout struct {
	Name  string // that its records carry; see Produced.Call
	Sent  []Attempt
	Ended time.Time // when its receipt was seen to be final; zero = never
	// What the receipt says in the end.
	State            string
	Emitted, Skipped int
}

// Change is a subscriber who comes or goes.
type Change struct {
	User     string
	Leaves   bool
	From, To time.Time // of the request; the change lies between the two
}

// membership is what is known of a user about a fan-out.
type membership uint8

const (
	never  membership = iota // had no place in the topic when it was accepted, and gets nothing
	always                   // was there all the time
	maybe                    // came or went meanwhile
)

// fanouts checks that each message reached those who were there all the time, once, and
// that its receipt has counted right.
func (c *checker) fanouts() {
	if c.Limits.Gateways == 0 {
		return
	}
	if !c.Fanouts.Sealed || !c.Changes.Sealed {
		c.r.find(Incomplete, "the ledger of fan-outs is not sealed: %s%s", c.Fanouts.Missing, c.Changes.Missing)
	}
	changes := map[string][]Change{} // by user, in order of time
	for _, ch := range c.Changes.Entries {
		changes[ch.User] = append(changes[ch.User], ch)
	}
	for _, list := range changes {
		slices.SortStableFunc(list, func(a, b Change) int { return a.From.Compare(b.From) })
	}
	byUser := map[string]map[string][]*Produced{}
	for i := range c.Producer.Entries {
		p := &c.Producer.Entries[i]
		if p.User == "" {
			continue
		}
		if byUser[p.Call] == nil {
			byUser[p.Call] = map[string][]*Produced{}
		}
		byUser[p.Call][p.User] = append(byUser[p.Call][p.User], p)
	}
	again := 0
	for i := range c.Fanouts.Entries {
		f := &c.Fanouts.Entries[i]
		c.r.Calls.Fanouts++
		c.sameID(&Call{Name: f.Name, Sent: f.Sent}, nil)
		if f.Ended.IsZero() || f.State != "ended" {
			c.r.find(Fanned, "%s has not ended, its receipt says %q", f.Name, f.State)
			continue
		}
		c.audience(f, changes, byUser[f.Name])
		for _, list := range byUser[f.Name] {
			again += len(list) - 1
		}
	}
	c.r.Calls.Again = again
	c.again(again)
}

// again: records are made twice by what ends a process of fan-outs without a word, and by
// nothing else.
func (c *checker) again(n int) {
	allowed := 0
	for i := range c.Events {
		allowed += c.Events[i].Again
	}
	if n > allowed {
		c.r.find(Fanned, "%d records of fan-outs are in the lane again, and what was done to their processes allows %d", n, allowed)
	}
}

// accepted is when the first of its attempts was made, and when it was answered.
func (f *Fanout) accepted() (from, to time.Time) {
	from, to = f.Sent[0].From, f.Ended
	for i := range f.Sent {
		if a := &f.Sent[i]; a.accepted() && a.To.Before(to) {
			to = a.To
		}
	}
	return from, to
}

// audience holds the records of a fan-out against who had subscribed.
func (c *checker) audience(f *Fanout, changes map[string][]Change, records map[string][]*Produced) {
	from, to := f.accepted()
	known, sure, left := 0, 0, 0 // with a place in the topic: perhaps, and certainly; emitted, and gone since
	for user, list := range changes {
		switch m := memberOf(list, from, to, f.Ended); {
		case m == always && records[user] == nil:
			c.r.find(Fanned, "%s has no notification for %s, who was subscribed all the time", f.Name, user)
		case m == never && records[user] != nil:
			c.r.find(Fanned, "%s has a notification for %s, who was not subscribed when it was accepted: %s", f.Name, user, c.describe(records[user][0]))
		case m == maybe:
			c.r.Calls.Apart++
		}
		if list[0].From.Before(f.Ended) {
			known++
		}
		if list[0].To.Before(from) {
			sure++
		}
		if records[user] != nil && slices.ContainsFunc(list, func(ch Change) bool { return ch.Leaves && !ch.To.Before(from) && ch.From.Before(f.Ended) }) {
			left++
		}
	}
	for user, list := range records {
		if changes[user] == nil {
			c.r.find(Fanned, "%s has a notification for %s, who never subscribed: %s", f.Name, user, c.describe(list[0]))
		}
		if slices.ContainsFunc(list, func(p *Produced) bool { return p.ID != list[0].ID }) {
			c.r.find(Fanned, "%s has several notifications for %s: %s and others", f.Name, user, c.describe(list[0]))
		}
		c.reached(f, list)
	}
	c.r.Calls.Audience, c.r.Calls.Emitted = c.r.Calls.Audience+f.Emitted+f.Skipped, c.r.Calls.Emitted+len(records)
	// A chunk that is done again counts who has left since as left.
	if f.Emitted > len(records) || f.Emitted < len(records)-left {
		c.r.find(Fanned, "%s says that %d were emitted, and %d have a notification, of whom %d left later", f.Name, f.Emitted, len(records), left)
	}
	if all := f.Emitted + f.Skipped; all < sure || all > known {
		c.r.find(Fanned, "%s says that %d were emitted and %d skipped, and the topic has %d to %d", f.Name, f.Emitted, f.Skipped, sure, known)
	}
}

// memberOf is what a user was when a message was accepted, between from and to, and until it
// had ended.
func memberOf(list []Change, from, to, ended time.Time) membership {
	m := never
	for _, ch := range list {
		switch {
		case ch.To.Before(from): // before it was sent
			m = always
			if ch.Leaves {
				m = never
			}
		case ch.From.After(ended):
		case ch.From.After(to) && !ch.Leaves && m == never: // who joins later gets nothing
		default:
			m = maybe
		}
	}
	return m
}

// reached: a notification that was to reach devices was accepted for each of them. How often
// is for repeats to say.
func (c *checker) reached(f *Fanout, list []*Produced) {
	p := c.records[list[0].ID]
	if p == nil || !slices.Equal(p.Outcomes, []Outcome{Outcome(Delivered)}) {
		return
	}
	for _, d := range p.Devices {
		if !slices.ContainsFunc(c.pushes[Pair{p.ID, d}], func(s Send) bool { return s.Accepted && !s.Undone }) {
			c.r.find(Fanned, "%s was not pushed to device %s of %s, who was subscribed: %s", f.Name, d, p.User, c.story(p.ID))
		}
	}
}
