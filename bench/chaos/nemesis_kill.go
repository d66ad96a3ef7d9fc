//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/configs"
)

// death is a worker that was killed: its event, and what the providers had
// accepted of it lately.
type death struct {
	event  int // index in nemesis.events
	pushes []invariants.Send
}

// kill ends workers as kill -9 does, and notes what that has exposed of each:
// what was accepted and no durable row says so. Only that may be repeated. From
// before the kill until the rows are read nobody reaches the status store, so
// that no row comes of an heir, however long the reading takes.
func (n *nemesis) kill(ctx context.Context, kind Fault, slots ...*slot) error {
	open := n.shut()
	defer open()
	var errs []error
	var dead []*slot
	var deaths []death
	for _, s := range slots {
		if !s.process().Running() {
			continue
		}
		began := time.Now()
		if err := s.kill(); err != nil {
			errs = append(errs, err)
			continue
		}
		dead = append(dead, s)
		deaths = append(deaths, death{event: n.begin(invariants.Event{Kind: string(kind), Target: s.name, Of: s.name, Start: began, End: time.Now(), Repeats: n.world.scenario.bound()})})
	}
	for i, s := range dead {
		d := &deaths[i]
		err := n.lastOf(ctx, s, d)
		if err == nil {
			err = n.expose(ctx, d)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// loadPatience is how long a kill waits for the load that its scenario wants.
const loadPatience = 10 * time.Second

// awaitLoad waits, where the scenario wants full windows, until more than half of
// the bound is in flight of a worker alone: one that has just begun has nothing
// to lose.
func (n *nemesis) awaitLoad(ctx context.Context, s *slot) {
	if n.world.scenario.windows == (sizes{}) {
		return
	}
	for began := time.Now(); time.Since(began) < loadPatience && ctx.Err() == nil; hold(ctx, linger/4) {
		if n.arrivals.lately(time.Now().Add(-n.world.scenario.Latency), s.name) >= n.world.scenario.bound()*11/20 {
			return
		}
	}
}

// linger is for how long the simulator decides nothing of a dead worker, whose
// connections it has closed, when it has read all that was in the sockets.
const linger = 200 * time.Millisecond

// lastOf waits until the simulator has read all of a dead worker, which is when
// the event ends, and finds its pushes.
func (n *nemesis) lastOf(ctx context.Context, s *slot, d *death) error {
	n.mu.Lock()
	began := n.events[d.event].Start
	n.mu.Unlock()
	from, before := began.Add(-n.lookBack(began)), -1
	if _, started := s.now(); started.After(from) {
		from = started // what its predecessor had exposed is that one's
	}
	for time.Since(began) < serverPatience && ctx.Err() == nil {
		hold(ctx, linger)
		d.pushes = n.arrivals.since(from, s.name)
		if len(d.pushes) == before && s.apns.Conns()+s.fcm.Conns() == 0 {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events[d.event].End = time.Now()
			return nil
		}
		before = len(d.pushes)
	}
	return errors.Join(ctx.Err(), fmt.Errorf("the simulator has not read all of %s, which is dead", s.name))
}

// expose reads the rows of a dead worker's pushes. While the store is away for
// everybody it leaves that to when it is back, and before the fleet is let in:
// what was not durable is not by then either.
func (n *nemesis) expose(ctx context.Context, d *death) error {
	patience, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	left := func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.gone {
			n.unread = append(n.unread, *d)
		}
		return n.gone
	}
	return n.readPatiently(patience, d, left)
}

// readPatiently reads the rows of a dead worker's pushes, until ctx ends or leave
// says that somebody else will. The store may be away for a moment, and so may
// the reader's session: others use it too.
func (n *nemesis) readPatiently(ctx context.Context, d *death, leave func() bool) error {
	for {
		err := n.readRows(ctx, d)
		switch {
		case err == nil, leave():
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("reading what a kill has exposed: %w", err)
		}
		hold(ctx, linger)
	}
}

func (n *nemesis) readRows(ctx context.Context, d *death) error {
	ids := make([]string, len(d.pushes))
	for i := range d.pushes {
		ids[i] = d.pushes[i].ID
	}
	slices.Sort(ids)
	rows, err := n.status.of(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	once := n.world.mode == configs.AtMostOnce
	durable := map[invariants.Pair]bool{}
	for _, list := range rows {
		for _, r := range list {
			// Where nothing is repeated, UNKNOWN is an end as well.
			durable[r.Pair] = durable[r.Pair] || r.State == invariants.Delivered || once && r.State == invariants.Unknown
		}
	}
	exposed := map[invariants.Pair]bool{}
	for _, s := range d.pushes {
		if !durable[s.Pair] {
			exposed[s.Pair] = true
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events[d.event].Exposed = exposed
	return nil
}

// shut keeps the fleet from the status store until open is called, and writes
// down when that was.
func (n *nemesis) shut() (open func()) {
	letIn := n.world.proxies[Cassandra].Shut()
	from := time.Now()
	return func() {
		n.mu.Lock()
		n.shuts = append(n.shuts, invariants.Span{From: from, To: time.Now()})
		n.mu.Unlock()
		letIn()
	}
}

// leaves says that the status store goes away for everybody, observers too.
func (n *nemesis) leaves() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = true
}

// makeUp reads all that could not be read while the status store was away: what
// commits have passed, and what kills have exposed. It is back, and the fleet
// still shut out.
func (n *nemesis) makeUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	if err := n.judged(ctx); err != nil {
		return err
	}
	for {
		n.mu.Lock()
		unread := n.unread
		if len(unread) == 0 {
			n.gone = false
			n.mu.Unlock()
			return nil
		}
		n.unread = nil
		n.mu.Unlock()
		for i := range unread {
			if err := n.readPatiently(ctx, &unread[i], func() bool { return false }); err != nil {
				return err
			}
		}
	}
}
