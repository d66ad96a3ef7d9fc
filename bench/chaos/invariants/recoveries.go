package invariants

import (
	"slices"
	"time"
)

// recoveries: a provider that comes back slowly is not pushed over again by what waited
// for it, and gets some of it.
func (c *checker) recoveries() {
	for i := range c.Events {
		e := &c.Events[i]
		if e.Recovery == nil {
			continue
		}
		up := e.Start.Add(e.Recovery.Down)
		if !up.Before(e.End) {
			c.r.find(Incomplete, "%s was down for %v of %v: too short to tell how it came back", e.Recovery.Provider, e.Recovery.Down, e.End.Sub(e.Start))
			continue
		}
		if e.Recovery.Falls > 0 {
			c.r.find(Recoveries, "%s, which came back slowly, was pushed over %d times", e.Recovery.Provider, e.Recovery.Falls)
		}
		if !c.accepts(e.Recovery.Provider, up, e.End) {
			c.r.find(Recoveries, "not one call was accepted by %s in the %v after it was back", e.Recovery.Provider, e.End.Sub(up))
		}
	}
}

// accepts reports whether a provider accepted anything in a time.
func (c *checker) accepts(provider string, from, to time.Time) bool {
	return slices.ContainsFunc(c.Sends.Entries, func(s Send) bool {
		return s.Accepted && s.Provider == provider && !s.At.Before(from) && s.At.Before(to)
	})
}
