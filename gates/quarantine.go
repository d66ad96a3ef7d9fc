package gates

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

const (
	// LongestQuarantine is the longest that is accepted, also from another worker.
	LongestQuarantine = 7 * 24 * time.Hour
	// mostQuarantined bounds the origins that are stopped on a route. If there are more, it
	// is not they who are at fault.
	mostQuarantined = 100
	// heardWithin is how soon other workers hear of a quarantine, at the latest. What is
	// stopped for less then may be on trial, and counts as such.
	heardWithin = 10 * time.Second
)

// Quarantined is an origin that is stopped on a route, in the form that workers share.
type Quarantined struct {
	Route  push.Route
	Origin push.Origin
	Left   time.Duration // from now on; above 0
	Word   string        // what the provider said of its tokens; empty = not known here
}

// QuarantineStore is a PauseStore through which workers share what is quarantined. It is
// best effort too, and safe for concurrent use.
type QuarantineStore interface {
	PauseStore
	// Quarantine adds origins. Of one that is there already the later end counts.
	Quarantine(ctx context.Context, qs []Quarantined) error
	// Quarantined returns those that are not over.
	Quarantined(ctx context.Context) ([]Quarantined, error)
}

// ward is one origin that is stopped.
type ward struct {
	until  time.Time
	untold bool // the store does not have it yet
	trial  bool // for less than is configured, or heard of late
}

// wards are the origins that are stopped on a route, mostQuarantined at the most.
type wards map[push.Origin]ward

// Quarantined reports whether an origin of the message is stopped, until when, and which it
// is; no reason = none is. It takes no lock, and costs nanoseconds while nothing is stopped.
func (g *Gate) Quarantined(now time.Time, m *push.Message) (until time.Time, why push.Reason) {
	stopped := g.stopped.Load()
	if stopped == nil {
		return time.Time{}, ""
	}
	of, n := m.Origins()
	for _, o := range of[:n] {
		if end, ok := (*stopped)[o]; ok && now.Before(end) && end.After(until) {
			until, why = end, o.Kind.Reason()
		}
	}
	return until, why
}

// Quarantine stops an origin, for what a provider says of its tokens. It reports false
// where none may be stopped, or too many are.
func (g *Gate) Quarantine(now time.Time, q push.Culprit, word string) bool {
	g.mu.Lock()
	begun, ok := g.quarantine(now, q, word)
	g.mu.Unlock()
	g.tellBegun(begun)
	return ok
}

// quarantine stops an origin, and its sender if that is due. One that is stopped already
// stays so, and begun is then empty; but one on trial is stopped for as long as is
// configured when its fault is proven. The caller holds mu.
func (g *Gate) quarantine(now time.Time, q push.Culprit, word string) (begun []Quarantined, ok bool) {
	if g.options.Quarantine == 0 {
		return nil, false
	}
	g.discharge(func(_ push.Origin, w ward) bool { return !now.Before(w.until) })
	switch w, there := g.wards[q.Origin]; {
	case there && (!w.trial || q.For > 0):
		return nil, true
	case !there && len(g.wards) >= mostQuarantined:
		return nil, false
	}
	left := g.options.Quarantine
	if q.For > 0 {
		left = min(left, q.For)
	}
	o := q.Origin.Clone()
	g.admitWard(o, ward{until: now.Add(left), untold: true, trial: q.For > 0})
	g.signal()
	begun = []Quarantined{{Route: g.route, Origin: o, Left: left, Word: strings.Clone(word)}}
	if q.For == 0 {
		begun = append(begun, g.stopSender(now, o)...)
	}
	return begun, true
}

// ManyCampaigns is the word for a sender that is stopped because many of its campaigns are.
const ManyCampaigns = "campaigns"

// stopSender stops the sender of a campaign that has just been stopped, if as many of its
// campaigns are stopped now as are configured: the next one would cost as many tokens again
// before it is found. The caller holds mu.
func (g *Gate) stopSender(now time.Time, campaign push.Origin) []Quarantined {
	most := g.options.QuarantineCampaigns
	if most == 0 || campaign.Kind != push.OfCampaign || campaign.Sender == "" {
		return nil
	}
	stopped := 0
	for o, w := range g.wards {
		if o.Kind == push.OfCampaign && o.Sender == campaign.Sender && !w.trial {
			stopped++
		}
	}
	if stopped < most {
		return nil
	}
	begun, _ := g.quarantine(now, push.Culprit{Origin: push.Origin{Kind: push.OfSender, Name: campaign.Sender}}, ManyCampaigns)
	return begun
}

// admitWard adds an origin to the wards. The caller holds mu.
func (g *Gate) admitWard(o push.Origin, w ward) {
	if g.wards == nil {
		g.wards = make(wards)
	}
	g.wards[o] = w
	g.showWards()
}

// discharge removes wards. The caller holds mu.
func (g *Gate) discharge(over func(push.Origin, ward) bool) {
	before := len(g.wards)
	maps.DeleteFunc(g.wards, over)
	if len(g.wards) != before {
		g.showWards()
	}
}

// showWards makes what is quarantined known to Quarantined. The caller holds mu.
func (g *Gate) showWards() {
	g.metrics.quarantined.Set(float64(len(g.wards)))
	if len(g.wards) == 0 {
		g.stopped.Store(nil)
		return
	}
	stopped := make(map[push.Origin]time.Time, len(g.wards))
	for o, w := range g.wards {
		stopped[o] = w.until
	}
	g.stopped.Store(&stopped)
}

// tellBegun tells of what answers have stopped. The caller holds no lock.
func (g *Gate) tellBegun(qs []Quarantined) {
	for _, q := range qs {
		g.log.Error("quarantine: nearly all tokens of an origin are bad, and what it sends waits", "route", q.Route.String(), "origin", q.Origin.String(), "answer", q.Word, "for", q.Left)
		if g.options.Quarantined != nil {
			g.options.Quarantined(q)
		}
	}
}

// toldWards are those that the store does not have yet.
func (g *Gate) untoldWards(now time.Time) (qs []Quarantined) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for o, w := range g.wards {
		if w.untold && now.Before(w.until) {
			qs = append(qs, Quarantined{Route: g.route, Origin: o, Left: w.until.Sub(now)})
		}
	}
	return qs
}

// wardTold notes that the store has it.
func (g *Gate) wardTold(o push.Origin) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w, ok := g.wards[o]; ok {
		w.untold = false
		g.wards[o] = w
	}
}

// hearWards applies what the store has for the route. What was told and is not there any
// more has been released.
func (g *Gate) hearWards(now time.Time, there map[push.Origin]time.Duration) {
	var over, begun []push.Origin
	g.mu.Lock()
	g.discharge(func(o push.Origin, w ward) bool {
		_, stays := there[o]
		gone := !now.Before(w.until) || !w.untold && !stays
		if gone {
			over = append(over, o)
		}
		return gone
	})
	for o, left := range there {
		w, known := g.wards[o]
		if known && w.untold || !known && (left <= echo || len(g.wards) >= mostQuarantined) {
			continue
		}
		if !known {
			begun = append(begun, o)
		} else if d := w.until.Sub(now) - left; d.Abs() < time.Second {
			continue // it is known
		}
		g.admitWard(o, ward{until: now.Add(left), trial: left < g.options.Quarantine-heardWithin})
	}
	g.mu.Unlock()
	for _, o := range begun {
		g.log.Warn("quarantine: another worker, or this one before a restart, has stopped an origin", "route", g.route.String(), "origin", o.String())
	}
	for _, o := range over {
		g.log.Info("quarantine is over", "route", g.route.String(), "origin", o.String())
	}
}

// shareWards tells the store what is quarantined, and hears what other workers and
// operators say.
func (gs *Gates) shareWards(ctx context.Context, store QuarantineStore) error {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	now := time.Now()
	var qs []Quarantined
	for _, g := range gs.gates {
		qs = append(qs, g.untoldWards(now)...)
	}
	if len(qs) > 0 {
		if err := store.Quarantine(ctx, qs); err != nil {
			return fmt.Errorf("sharing quarantines: %w", err)
		}
		for _, q := range qs {
			gs.gates[q.Route].wardTold(q.Origin)
		}
	}
	all, err := store.Quarantined(ctx)
	if err != nil {
		return fmt.Errorf("reading shared quarantines: %w", err)
	}
	of := make(map[push.Route]map[push.Origin]time.Duration, len(gs.gates))
	for _, q := range all {
		if q.Left <= 0 || q.Left > LongestQuarantine {
			continue
		}
		if of[q.Route] == nil {
			of[q.Route] = make(map[push.Origin]time.Duration)
		}
		of[q.Route][q.Origin] = q.Left
	}
	now = time.Now()
	for r, g := range gs.gates {
		g.hearWards(now, of[r])
	}
	return nil
}
