package gates

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Pause is what a provider asked of a worker about a route, in the form that
// workers share. It has durations, not times, because clocks differ.
type Pause struct {
	Route  push.Route
	Reason PauseReason   // PauseAsked or PauseHalted
	Left   time.Duration // from now on; above 0
}

// PauseStore keeps what providers asked of workers: it outlives a worker, and
// the other workers read it. It is best effort.
type PauseStore interface {
	// Tell adds pauses. Per route and reason the one that ends last wins.
	Tell(ctx context.Context, ps []Pause) error
	// Told returns the pauses that are not over, whoever told them.
	Told(ctx context.Context) ([]Pause, error)
}

// The times of Gates.Share.
const (
	hearEvery    = time.Second
	tellGap      = 100 * time.Millisecond // between two tellings, in a storm of answers that say stop
	shareTimeout = time.Second            // time-out of one call of the store
	lastWord     = 250 * time.Millisecond // to tell the rest when a worker ends
	// echo is the most that may remain of a pause that this worker published and has
	// already ended.
	echo = 100 * time.Millisecond
	// longestAsked is the longest pause that the provider packages pass on.
	longestAsked = time.Hour
)

// LongestTold is the longest pause that is accepted from another worker: no
// worker begins a longer one.
func (o Options) LongestTold() time.Duration { return max(o.LongestPause, longestAsked) }

// untold is what a gate has been told by its provider and other workers do not
// know yet.
type untold struct {
	reason PauseReason
	until  time.Time // zero = nothing
}

// tell notes something for the other workers. The caller holds mu.
func (g *Gate) tell(why PauseReason, until time.Time) {
	if until.Before(g.untold.until) {
		return
	}
	g.untold = untold{why, until}
	g.signal()
}

// signal has Share tell what is new.
func (g *Gate) signal() {
	select {
	case g.news <- struct{}{}:
	default: // known
	}
}

// told notes that the others can know it.
func (g *Gate) told(u untold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.untold == u {
		g.untold = untold{}
	}
}

// hear applies what another worker was told. Refused credentials say little to
// a worker that has sent by itself, perhaps with other credentials: only a gate
// that has let nothing through yet heeds them, once. So one worker with a wrong
// key does not stop a fleet, and a restarted worker does not begin with another
// refusal.
func (g *Gate) hear(now time.Time, p Pause) {
	g.mu.Lock()
	passed := g.advance(now)
	var change gateChange
	if p.Reason == PauseAsked {
		g.ask(now, p.Left)
	}
	switch {
	case p.Reason == PauseHalted && (g.used || g.state != gateOpen):
	case g.state == gateClosed:
		g.lengthen(now, p.Left)
	case p.Left <= echo:
	default:
		change = g.stop(now, PauseTold, p.Left, string(p.Reason))
	}
	g.mu.Unlock()
	passed.log(g.log)
	change.log(g.log)
}

// Share tells other workers what providers ask for, at once, and hears what
// they were told, every second, until ctx ends. A store that is down blocks
// nothing: what could not be told is told when it is back, unless the pause is
// over.
func (gs *Gates) Share(ctx context.Context, store PauseStore) {
	tick := time.Tick(hearEvery)
	away := false
	look := func(err error) {
		if (err != nil) != away && ctx.Err() == nil {
			away = err != nil
			gs.logStore(err)
		}
	}
	hear, together := gs.hear, false
	if fleet, ok := store.(FleetStore); ok && gs.options.Together {
		hear, together = func(ctx context.Context, _ PauseStore) error { return gs.consult(ctx, fleet) }, true
	}
	wards := func(ctx context.Context, err error) error {
		if s, ok := store.(QuarantineStore); ok && err == nil {
			return gs.shareWards(ctx, s)
		}
		return err
	}
	for {
		var due <-chan time.Time
		if together {
			due = gs.due(time.Now())
		}
		select {
		case <-ctx.Done():
			last := context.WithoutCancel(ctx)
			_ = wards(last, gs.tell(last, store, lastWord)) // nobody is left to repeat it
			return
		case <-gs.news:
			err := gs.tell(ctx, store, shareTimeout)
			if together {
				err = cmp.Or(err, hear(ctx, store))
			}
			look(wards(ctx, err))
			select {
			case <-time.After(tellGap):
			case <-ctx.Done():
			}
		case <-tick:
			err := gs.tell(ctx, store, shareTimeout)
			look(wards(ctx, cmp.Or(err, hear(ctx, store))))
		case <-due:
			look(hear(ctx, store))
		}
	}
}

// Recall reads what was told before this worker started. It is called at the
// start, before anything is sent, and takes at most two seconds: a store that is
// down is no reason not to send.
func (gs *Gates) Recall(ctx context.Context, store PauseStore) {
	err := gs.hear(ctx, store)
	if s, ok := store.(QuarantineStore); ok && err == nil {
		err = gs.shareWards(ctx, s)
	}
	if err != nil && ctx.Err() == nil {
		gs.logStore(err)
	}
}

func (gs *Gates) logStore(err error) {
	if err == nil {
		gs.log.Info("route pauses are shared again")
		return
	}
	gs.log.Warn("route pauses cannot be shared: each worker hears of them only from the provider", "error", err)
}

// tell hands the store all that is untold and not over. timeout is that of the call.
func (gs *Gates) tell(ctx context.Context, store PauseStore, timeout time.Duration) error {
	now := time.Now()
	var ps []Pause
	from := make(map[*Gate]untold)
	for _, g := range gs.gates {
		g.mu.Lock()
		u := g.untold
		if !u.until.After(now) {
			u, g.untold = untold{}, untold{}
		}
		g.mu.Unlock()
		if u != (untold{}) {
			from[g] = u
			ps = append(ps, Pause{g.route, u.reason, min(u.until.Sub(now), gs.options.LongestTold())})
		}
	}
	if len(ps) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := store.Tell(ctx, ps); err != nil {
		return fmt.Errorf("sharing pauses: %w", err)
	}
	for g, u := range from {
		g.told(u)
	}
	return nil
}

// hear asks the store once, and closes gates.
func (gs *Gates) hear(ctx context.Context, store PauseStore) error {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	ps, err := store.Told(ctx)
	if err != nil {
		return fmt.Errorf("reading shared pauses: %w", err)
	}
	gs.heard(ps)
	return nil
}

// heard closes gates for what others were asked.
func (gs *Gates) heard(ps []Pause) {
	now := time.Now()
	for _, p := range ps {
		if g := gs.gates[p.Route]; g != nil && p.Left > 0 && p.Left <= gs.options.LongestTold() {
			g.hear(now, p)
		}
	}
}
