package invariants

import "time"

// Of a quota that is to be used, of the calls that may be refused for it, and of what may
// be sent within a tenth of its time where even would be 10, in hundredths; and how many
// refusals one lowering of the rate costs that are no share of anything: what the workers
// have under way.
const (
	quotaUsed    = 80
	quotaRefused = 1
	quotaSlack   = 20
	quotaTenth   = 20
)

// quotas: once the fleet has had time to find a quota, hardly a call is refused for
// it, most of it is used, and evenly. Refusals are the provider's word, as it counts
// itself. When its windows begin is not known: of so many of them one after the other,
// what they take does not depend on it.
func (c *checker) quotas() {
	for i := range c.Events {
		e := &c.Events[i]
		if e.Quota == nil {
			continue
		}
		from := e.Start.Add(e.Quota.Settle)
		windows := int(e.End.Sub(from) / e.Quota.Per)
		if windows < 1 {
			c.r.find(Incomplete, "the quota of %s was there for %v: too short to tell", e.Quota.Provider, e.End.Sub(e.Start))
			continue
		}
		accepted, refused, densest := c.calls(e.Quota.Provider, from, windows, e.Quota.Per)
		c.r.Events[i].Refused = refused
		room := e.Quota.Count * windows
		if 100*refused > quotaRefused*(accepted+refused)+100*quotaSlack {
			c.r.find(Quotas, "%d of %d calls of %s were refused from %v after its quota began to be %d in %v", refused, accepted+refused,
				e.Quota.Provider, e.Quota.Settle, e.Quota.Count, e.Quota.Per)
		}
		if 100*densest > quotaTenth*e.Quota.Count {
			c.r.find(Quotas, "%d calls were accepted by %s within %v, of a quota of %d in %v", densest, e.Quota.Provider, e.Quota.Per/10, e.Quota.Count, e.Quota.Per)
		}
		if 100*accepted < quotaUsed*room {
			c.r.find(Quotas, "%d calls were accepted by %s, whose quota had room for %d", accepted, e.Quota.Provider, room)
		}
	}
}

// calls counts those of a provider in so many windows from a time on, and the most that
// were accepted in a tenth of one.
func (c *checker) calls(provider string, from time.Time, windows int, per time.Duration) (accepted, refused, densest int) {
	tenths := make([]int, 10*windows)
	for i := range c.Sends.Entries {
		s := &c.Sends.Entries[i]
		tenth := int(s.At.Sub(from) / (per / 10))
		switch {
		case s.Provider != provider || s.At.Before(from) || tenth >= len(tenths):
		case s.Accepted:
			tenths[tenth]++
		case s.Reply == overQuota:
			refused++
		}
	}
	for _, n := range tenths {
		accepted, densest = accepted+n, max(densest, n)
	}
	return accepted, refused, densest
}

// overQuota is the simulator's reply to a call beyond a project's quota.
const overQuota = "RATE_LIMIT_EXCEEDED"
