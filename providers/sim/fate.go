package sim

import (
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// fate is what all providers share: the clock, what is special about tokens,
// what goes wrong by chance, by rule and by command, and where it is written
// down.
type fate struct {
	clock   *Clock
	ledger  *Ledger
	events  *Events
	devices *Devices
	chance  *chance
	orders  *orders
	rates   *rates
	rules   atomic.Pointer[Rules]
	// recovery counts for the rule of that name.
	recovery recovery
	// offset of the quota windows from the minutes of the clock.
	offset time.Duration
	watch  func(*Arrival) // nil: nobody does
}

func newFate(o *Options) *fate {
	f := &fate{
		clock: newClock(o.Now), ledger: newLedger(!o.CountOnly), devices: newDevices(o.Patterns),
		orders: &orders{}, rates: newRates(), watch: o.Watch,
	}
	f.events = newEvents(f.clock)
	f.chance = newChance(o.Seed, f.ledger)
	rules := o.Rules
	f.rules.Store(&rules)
	f.offset = time.Second + time.Duration(mix(o.Seed, 3)%uint64(58*time.Second))
	return f
}

// push is a request for one device, as far as fate is concerned.
type push struct {
	provider   Provider
	req        *Request
	id, device []byte // as in the ledger; empty where the payload has no id
	token      string
	home       string // the topic or project it is addressed to
}

// choice is what becomes of a request.
type choice struct {
	reply   Reply
	since   time.Time // of a dead token
	act     *Act      // for the session to do
	by      string    // empty for an ordinary acceptance
	latency time.Duration
	faults  *Faults
}

// choose decides about a request. reply is what validation or a rule made of
// it (by); with NoReply it is acceptable. Then the first of these counts: the
// connection, commands, chance, the token.
func (f *fate) choose(p *push, reply Reply, by string) choice {
	drawn, act, latency, faults := f.chance.draw(p.provider, p.id, p.device)
	c := choice{reply: reply, by: by, latency: latency, faults: faults}
	if reply != NoReply {
		return c
	}
	if rule := &f.rules.Load().Recovery; rule.Full > 0 && rule.Provider == p.provider && f.recovery.over(rule, p.req.now) {
		c.by = byRule
		if c.reply = APNSServiceUnavailable; p.provider == FCM {
			c.reply = FCMUnavailable
		}
		return c
	}
	if p.req.shutdown {
		c.reply, c.by = APNSShutdown, byCommand
		return c
	}
	if ordered, who := f.orders.take(p); ordered != nil {
		act, c.by = ordered, who
	} else if drawn != NoReply || act != nil {
		c.reply, c.by = drawn, byChance
	} else if m := f.devices.lookup(p.provider, p.token, p.home, p.req.now); m.Reply != NoReply {
		c.reply, c.since, c.by = m.Reply, m.Since, byToken
	} else if act = m.Act; act != nil {
		c.by = byToken
	}
	if act != nil {
		f.apply(p, act, &c)
	}
	return c
}

// apply does of an act what concerns only the answer, and leaves the rest to
// the session.
func (f *fate) apply(p *push, act *Act, c *choice) {
	switch act.Do {
	case DoAnswer:
		c.reply = act.Reply
		return
	case DoLapse:
		f.devices.Dead(p.provider, p.token, p.req.now.Add(act.For))
	case DoExhaust:
		f.rates.exhaust(projectKey(p.home), f.projectQuota(), p.req.now, f.offset)
		c.reply = FCMProjectQuota
	case DoWedge:
		p.req.Conn.wedge()
		c.reply = APNSExpiredProviderToken
	}
	c.act = act
}

// finish writes a request down: in the ledger, in the events, and for the
// session in the answer. c.reply is final.
func (f *fate) finish(p *push, c *choice, ans *Answer) {
	ans.Latency, ans.act, ans.by = c.latency, c.act, c.by
	if c.act != nil && c.act.Do == DoHang {
		key := f.ledger.hang(p.id, p.device, p.provider)
		if f.watch != nil {
			f.watched(p, key, NoReply)
		}
		f.events.add(p.event(c, ""))
		return
	}
	ans.decided = f.ledger.observe(p.id, p.device, c.reply)
	if f.watch != nil {
		f.watched(p, ans.decided.key, c.reply)
	}
	if c.act != nil && c.act.Do >= DoOneStream {
		return // the session's to do, and to tell of
	}
	if c.by != "" {
		f.events.add(p.event(c, c.reply.String()))
	}
	f.consequences(p, c.reply, ans)
}

func (p *push) event(c *choice, reply string) Event {
	e := Event{
		Provider: p.provider.String(), Conn: p.req.Conn.id, Stream: p.req.Stream,
		Do: DoAnswer.String(), Reply: reply, Behaviour: c.reply.Behaviour(), By: c.by,
	}
	if c.act != nil {
		e.Do, e.Behaviour = c.act.Do.String(), c.act.behaviour()
	}
	return e
}

// consequences are what rules make of an answer for the connection.
func (f *fate) consequences(p *push, r Reply, ans *Answer) {
	rules := f.rules.Load()
	if r.Provider() != APNS || r.Status() < 400 || r.Status() >= 500 || r.Status() == 410 {
		return
	}
	switch {
	case r == APNSBadDeviceToken && p.req.Conn.tooManyBad(rules.BadTokens, p.req.now):
		ans.act, ans.by = &Act{Do: DoDisconnect, Reason: r.String()}, byRule
	case rules.AdaptiveStreams:
		ans.act, ans.by = &Act{Do: DoSlowDown}, byRule
	}
}

// projectQuota is the rule, or what stands in for it when it is off.
func (f *fate) projectQuota() Limit {
	if l := f.rules.Load().ProjectQuota; l.Count > 0 {
		return l
	}
	return LifelikeRules().ProjectQuota
}

func projectKey(project string) uint64 { return mix(xxhash.Sum64String(project), 101) }

// overProject counts a request of a project.
func (f *fate) overProject(project string, now time.Time) bool {
	rules := f.rules.Load()
	if rules.ProjectQuota.Count == 0 {
		return f.rates.exhausted(projectKey(project), now)
	}
	return f.rates.over(projectKey(project), rules.ProjectQuota, now, f.offset)
}

// overTarget counts a request to a token or topic of FCM.
func (f *fate) overTarget(token, topic string, now time.Time) Reply {
	rules := f.rules.Load()
	if token != "" && rules.DeviceQuota.Count|rules.DeviceQuotaLong.Count != 0 {
		key := tokenKey(FCM, token)
		over := f.rates.over(mix(key, 102), rules.DeviceQuota, now, 0)
		if f.rates.over(mix(key, 103), rules.DeviceQuotaLong, now, 0) || over {
			return FCMDeviceQuota
		}
	}
	if topic != "" && rules.TopicQuota.Count != 0 &&
		f.rates.over(mix(xxhash.Sum64String(topic), 104), rules.TopicQuota, now, 0) {
		return FCMTopicQuota
	}
	return NoReply
}

// overDevice counts a request to a token of APNs.
func (f *fate) overDevice(token string, now time.Time) bool {
	l := f.rules.Load().PerDevice
	return l.Count != 0 && f.rates.over(mix(tokenKey(APNS, token), 105), l, now, 0)
}
