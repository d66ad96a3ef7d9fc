package invariants

import "time"

// Of a quota that is to be used, and of the calls that may be refused for it, in
// hundredths; and how many refusals one lowering of the rate costs that are no share of
// anything: what the workers have under way.
const (
	quotaUsed    = 80
	quotaRefused = 1
	quotaSlack   = 20
)

// quotas: once the fleet has had time to find a quota, hardly a call is refused for
// it, and most of it is used. Refusals are the provider's word, as it counts itself.
func (c *checker) quotas() {
	for i := range c.Events {
		e := &c.Events[i]
		if e.Quota == nil {
			continue
		}
		from := e.Start.Add(e.Quota.Settle)
		if !from.Before(e.End) {
			c.r.find(Incomplete, "the quota of %s was there for %v: too short to tell", e.Quota.Provider, e.End.Sub(e.Start))
			continue
		}
		accepted, refused := c.calls(e.Quota.Provider, from, e.End)
		c.r.Events[i].Refused = refused
		room := int(int64(e.Quota.Count) * int64(e.End.Sub(from)) / int64(e.Quota.Per))
		if 100*refused > quotaRefused*(accepted+refused)+100*quotaSlack {
			c.r.find(Quotas, "%d of %d calls of %s were refused from %v after its quota began to be %d in %v", refused, accepted+refused,
				e.Quota.Provider, e.Quota.Settle, e.Quota.Count, e.Quota.Per)
		}
		if 100*accepted < quotaUsed*room {
			c.r.find(Quotas, "%d calls were accepted by %s, whose quota had room for %d", accepted, e.Quota.Provider, room)
		}
	}
}

// calls counts those of a provider in a time.
func (c *checker) calls(provider string, from, to time.Time) (accepted, refused int) {
	for i := range c.Sends.Entries {
		s := &c.Sends.Entries[i]
		switch {
		case s.Provider != provider || s.At.Before(from) || !s.At.Before(to):
		case s.Accepted:
			accepted++
		case s.Reply == overQuota:
			refused++
		}
	}
	return accepted, refused
}

// overQuota is the simulator's reply to a call beyond a project's quota.
const overQuota = "RATE_LIMIT_EXCEEDED"
