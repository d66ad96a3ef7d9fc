package invariants

import "time"

// exits: nobody ended by itself, and who was asked to did so well.
func (c *checker) exits() {
	for _, e := range c.Exits {
		if e.Asked {
			c.r.Worst.Stop = max(c.r.Worst.Stop, e.Took)
		}
		switch {
		case !e.Asked:
			c.r.find(Exits, "%s ended by itself at %s with status %d: %s", e.Process, e.At.Format(time.StampMilli), e.Status, e.Why)
		case e.Status != 0:
			c.r.find(Exits, "%s ended with status %d: %s", e.Process, e.Status, e.Why)
		case e.Took > e.Budget:
			c.r.find(Exits, "%s took %v to end, more than %v", e.Process, e.Took, e.Budget)
		}
	}
}

// share is how many of the records that were produced while an event lasted the
// unharmed provider is to accept, by what it has accepted of all in the end.
// What it accepted before the event may be more than that: what an earlier
// fault of its own had held came on top.
func (c *checker) share(e *Event) int {
	accepted, meanwhile := 0, 0
	for i := range c.Sends.Entries {
		if s := &c.Sends.Entries[i]; s.Accepted && c.unharmed(e, s) {
			accepted++
		}
	}
	for i := range c.Producer.Entries {
		if at := c.Producer.Entries[i].At; !at.Before(e.Start) && at.Before(e.End) {
			meanwhile++
		}
	}
	return accepted * meanwhile / max(1, len(c.Producer.Entries))
}

// unharmed reports whether a push has nothing to do with an event.
func (c *checker) unharmed(e *Event, s *Send) bool {
	if e.UnharmedApp != "" {
		return c.appOf(s) == e.UnharmedApp
	}
	return e.Unharmed != "" && s.Provider == e.Unharmed
}

// appOf is the app that a push was for; empty = not known.
func (c *checker) appOf(s *Send) string {
	if r := c.records[s.ID]; r != nil {
		return r.App
	}
	return ""
}

// least is the shortest time that a rate is taken over.
const least = 5 * time.Second

// during counts what was accepted while events lasted, and before.
func (c *checker) during() {
	for i := range c.Events {
		e := &c.Events[i]
		length := e.End.Sub(e.Start)
		if length <= 0 {
			continue
		}
		all, other, before := 0, 0, 0
		for j := range c.Sends.Entries {
			s := &c.Sends.Entries[j]
			switch {
			case !s.Accepted:
			case !s.At.Before(e.Start) && s.At.Before(e.End):
				if !s.At.Before(e.Away) {
					all++
				}
				if c.unharmed(e, s) {
					other++
				}
			case c.unharmed(e, s) && !s.At.Before(e.Start.Add(-length)) && s.At.Before(e.Start):
				before++
			}
		}
		c.r.Events[i].Pushes = all
		if e.Pushes > 0 && all > e.Pushes {
			c.r.find(Pressure, "%d pushes were accepted while %s was away (%s), at most %d fit the windows", all, e.Target, e.Kind, e.Pushes)
		}
		if e.Unharmed+e.UnharmedApp == "" || length < least {
			continue
		}
		if share := c.share(e); 10*other < 9*min(before, share) {
			c.r.find(Isolation, "%s accepted %d in the %v before the %s of %s, and %d while it lasted, of a share of %d", e.Unharmed+e.UnharmedApp, before, length, e.Kind, e.Target, other, share)
		}
	}
}
