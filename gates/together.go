package gates

import (
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Evidence is what one worker knows of a route, in the form that workers share: what
// its own answers say, never what it was told.
type Evidence struct {
	Route     push.Route
	Good, Bad int           // its answers within Options.Window
	Closed    bool          // they have closed it, and no round of probes went well since
	For       time.Duration // how long it has been closed, for whatever reason; 0 = it is open
	Asks      bool          // its pause is over, and it would send probes
	// Answered are the answers to the probes that it was granted.
	Answered struct{ Good, Bad int }
}

// Word is what all workers but the one that asks know of a route together, and what
// follows for it.
type Word struct {
	Route     push.Route
	Workers   int           // that have bad answers
	Closed    int           // whose own answers have closed it
	Failing   int           // of these: that have bad answers
	Good, Bad int           // answers
	Probes    int           // granted to who asked; 0 = none
	Left      time.Duration // until the next round of probes may begin
	Well      bool          // a round of others went well since it closed here
}

// FleetStore is a PauseStore through which workers judge routes together. It is best
// effort too, and safe for concurrent use.
type FleetStore interface {
	PauseStore
	// Consult tells this worker's evidence in place of what it told before, and returns
	// what Told returns, and the words about all routes of which anybody has evidence.
	Consult(ctx context.Context, es []Evidence) ([]Pause, []Word, error)
}

// waitForWord is how long, times ProbeTimeout, a gate waits for probes of the fleet's
// round before it sends its own: longer than one that nobody answers.
const waitForWord = 2

const (
	// worthTelling is the part of a worker's answers that must be bad, while no other one
	// is closed, for them to be told: far less than closes a route. Else the odd error would have each
	// worker of a large fleet read of all others each second, about every route.
	worthTelling = 0.05
	// wordPoll is when to ask again what waits for the fleet.
	wordPoll = 50 * time.Millisecond
	// wantsFor is how long a gate asks for probes after somebody wanted to send.
	wantsFor = 2 * time.Second
)

// fleet is what a gate knows of the other workers' gates.
type fleet struct {
	linked bool      // the store answered the last question
	at     time.Time // when
	closed int       // others that were closed then by their own answers

	since  time.Time // the pause began
	wanted time.Time // when something was to be sent last after it
	leased bool      // the round of probes that is under way was granted

	good, bad int // answers to granted probes, not yet told
}

// judgedByAnswers reports whether a pause for this reason is over when probes say so,
// and not for what a provider asked. Such pauses the fleet ends together.
func (r PauseReason) judgedByAnswers() bool {
	return r == PauseErrors || r == PauseInARow || r == PauseFleet
}

// waits reports whether the gate, whose pause is over, leaves it to the fleet when
// probes are sent: while the store answers, unless nobody else is closed. It does not
// wait for long. The caller holds mu.
func (g *Gate) waits(now time.Time) bool {
	f := &g.fleet
	switch {
	case !g.options.Together || !f.linked || !g.reason.judgedByAnswers():
		return false
	case now.Sub(g.until) >= waitForWord*g.options.ProbeTimeout:
		return false
	}
	return f.closed > 0 || f.at.Before(g.until)
}

// want notes that something is to be sent, and what waits for the fleet goes on soon.
// The caller holds mu.
func (g *Gate) want(now time.Time) (again time.Time) {
	if now.Sub(g.fleet.wanted) >= wantsFor {
		g.signal()
	}
	g.fleet.wanted = now
	return now.Add(wordPoll)
}

// evidence is what there is to tell; ok is false when there is nothing.
func (g *Gate) evidence(now time.Time) (e Evidence, ok bool) {
	g.mu.Lock()
	passed := g.advance(now)
	f := &g.fleet
	e.Route = g.route
	e.Good, e.Bad = g.answer.sums(now)
	if g.state != gateOpen && g.reason.judgedByAnswers() {
		e.Closed = g.reason != PauseFleet && (g.state == gateClosed || g.probes.number == 0)
		e.For = max(now.Sub(f.since), time.Millisecond)
		e.Asks = g.state == gateClosed && !now.Before(g.until) && now.Sub(f.wanted) < wantsFor
	}
	e.Answered.Good, e.Answered.Bad = f.good, f.bad
	bad := e.Bad > 0 && (f.closed > 0 || float64(e.Bad) >= worthTelling*float64(e.Good+e.Bad))
	ok = bad || e.For > 0 || f.good+f.bad > 0
	g.mu.Unlock()
	passed.log(g.log)
	return e, ok
}

// answeredTold notes that the others can know of these answers to granted probes.
func (g *Gate) answeredTold(e *Evidence) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fleet.good, g.fleet.bad = g.fleet.good-e.Answered.Good, g.fleet.bad-e.Answered.Bad
}

// unlink says that the store does not answer: from now on the gate is alone.
func (g *Gate) unlink() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fleet.linked = false
}

// take applies what the fleet knows, which was asked at now.
func (g *Gate) take(now time.Time, w Word) {
	g.mu.Lock()
	f := &g.fleet
	f.linked, f.at, f.closed = true, now, w.Closed
	var change gateChange
	switch {
	case g.state == gateOpen:
		if g.believes(now, w) {
			change = g.stop(now, PauseFleet, g.options.FirstPause, "")
			g.pause = g.options.FirstPause
		}
	case g.state == gateClosed && g.reason.judgedByAnswers():
		switch due := !now.Before(g.until); {
		case due && w.Well:
			g.probe(now, 1, 2*g.options.FirstProbes)
		case due && w.Probes > 0:
			g.probe(now, 0, w.Probes)
			f.leased = true
		case w.Left > 0:
			g.lengthen(now, min(w.Left, g.options.LongestPause))
		}
	}
	passed := g.advance(now)
	g.mu.Unlock()
	change.log(g.log)
	passed.log(g.log)
}

// believes reports whether others' evidence closes this gate: that of at least two
// workers, while it has no good answer of its own, and too few to judge by. What
// only one worker sees is its own trouble. The caller holds mu.
func (g *Gate) believes(now time.Time, w Word) bool {
	good, bad := g.answer.sums(now)
	if good > 0 || bad >= g.options.Answers || now.Sub(g.opened) < g.options.Window { // its last probes went well
		return false
	}
	if bad > 0 {
		w.Workers++
	}
	all := w.Good + w.Bad + bad
	return w.Failing >= 2 || w.Workers >= 2 && all >= g.options.Answers && float64(w.Bad+bad) > g.options.Share*float64(all)
}

// reported has the fleet know how a granted round of probes went, also one that is not
// full, as long as none is out. The caller holds mu.
func (g *Gate) reported(good, bad int) {
	if !g.fleet.leased {
		return
	}
	g.fleet.leased = false
	g.fleet.good, g.fleet.bad = good, bad
	g.signal()
}

// consult tells all gates' evidence, and applies what the fleet knows and was asked.
func (gs *Gates) consult(ctx context.Context, store FleetStore) error {
	now := time.Now()
	var es []Evidence
	for _, g := range gs.gates {
		if e, ok := g.evidence(now); ok {
			es = append(es, e)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	ps, ws, err := store.Consult(ctx, es)
	if err != nil {
		for _, g := range gs.gates {
			g.unlink()
		}
		return fmt.Errorf("judging routes together: %w", err)
	}
	for i := range es {
		gs.gates[es[i].Route].answeredTold(&es[i])
	}
	words := make(map[push.Route]Word, len(ws))
	for _, w := range ws {
		words[w.Route] = w
	}
	gs.heard(ps)
	now = time.Now()
	for r, g := range gs.gates {
		g.take(now, words[r])
	}
	return nil
}

// due is when the next pause is over that the fleet ends together, or nil. Then all
// are asked at once, so that a worker that is alone loses no time.
func (gs *Gates) due(now time.Time) <-chan time.Time {
	var next time.Time
	for _, g := range gs.gates {
		g.mu.Lock()
		if g.state == gateClosed && g.reason.judgedByAnswers() && g.until.After(now) && (next.IsZero() || g.until.Before(next)) {
			next = g.until
		}
		g.mu.Unlock()
	}
	if next.IsZero() {
		return nil
	}
	return time.After(next.Sub(now))
}
