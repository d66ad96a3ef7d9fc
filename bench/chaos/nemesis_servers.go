//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/deploy/local"
)

// server does something to Kafka, Redis or Cassandra, or to the connections to
// it.
func (n *nemesis) server(ctx context.Context, a Action) error {
	n.world.serving[a.Target].Lock()
	defer n.world.serving[a.Target].Unlock()
	if a.Target == Cassandra && a.Fault != Lag {
		n.awaitWork(ctx)
		defer func() { n.past = n.committed() }()
	}
	e := invariants.Event{Kind: string(a.Fault), Target: a.Target, Start: time.Now(), Stalls: true, Unrecordable: a.Target == Cassandra, Mute: a.Target == Kafka, Bars: true, Serves: a.Target != Kafka}
	if a.Target == Kafka {
		e.Loads = a.Fault == Kill || a.Fault == Stop || a.Fault == Full
		// The group may give partitions away whose owners cannot say goodbye.
		e.Repeats = n.world.scenario.bound() * len(n.world.workers())
	}
	if a.Target != Redis { // no chunk of a fan-out ends without these
		e.Again = n.world.again() * n.world.fanoutProcesses()
	}
	if a.Fault == Lag {
		e.Stalls, e.Unrecordable, e.Mute, e.Bars, e.Repeats = false, false, false, false, 0
		e.Kind = fmt.Sprintf("%s by %v", a.Fault, a.Delay)
	}
	// While it lasts others have to know of it; see storeAway.
	at := n.begin(e)
	name := fmt.Sprintf(", %s away at %s", a.Target, e.Start.Format(time.TimeOnly))
	before, _ := n.world.settled(ctx, name) // one may be killed meanwhile
	produced := n.produced()
	away := time.Now() // a worker that was stopped meanwhile is long in answering
	err := n.serverFault(ctx, a)
	back := time.Now() // likewise
	if a.For >= flatFor {
		backlog := (n.produced() - produced) / int64(n.world.scenario.Workers)
		if a.Target == Kafka {
			backlog = 0
		}
		if after, err := n.world.footprints(ctx, name); err == nil {
			n.mu.Lock()
			n.prints = append(n.prints, memoryOnly(before, 0)...)
			n.prints = append(n.prints, memoryOnly(after, backlog)...)
			n.mu.Unlock()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events[at].Away, n.events[at].End = away, back
	n.events[at].ComesBack = a.Target == Cassandra && a.Fault != Lag
	if a.Target == Cassandra && (a.Fault == Kill || a.Fault == Pause || a.Fault == BlackHole || a.Fault == Full) {
		n.events[at].Pushes = n.world.scenario.bound() * len(n.world.slots)
	}
	return err
}

// awaitWork waits until the fleet has committed something since Cassandra was away, or since
// the run began: what is not at work loses nothing by an outage, and shows nothing. On a busy
// machine Cassandra takes so long to start that the next outage is due by then. A fleet that
// does not come back is not waited for.
func (n *nemesis) awaitWork(ctx context.Context) {
	for began := time.Now(); n.committed() <= n.past; hold(ctx, samplePause) {
		if time.Since(began) > workPatience || ctx.Err() != nil {
			n.say("cassandra goes away from a fleet that has committed nothing for %v", time.Since(began).Round(time.Second))
			return
		}
	}
}

// workPatience is above what workers take on a busy machine until they write again.
const workPatience = 30 * time.Second

// memoryOnly leaves out of footprints what a worker with records in hand opens
// and closes as it goes, and hardly has when it was just started. backlog is its
// share of what has come meanwhile.
func memoryOnly(list []invariants.Footprint, backlog int64) []invariants.Footprint {
	for i := range list {
		list[i].Goroutines, list[i].FDs, list[i].Backlog = 0, 0, backlog
	}
	return list
}

// flatFor is how long a store is away before the workers' memory is compared.
const flatFor = 5 * time.Second

// begin notes an event that has no end yet, and returns its index.
func (n *nemesis) begin(e invariants.Event) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
	return len(n.events) - 1
}

// serverFault does it and undoes it. Where Cassandra is away for the observers
// too, the fleet is shut out of it until they have made up for that: else a row
// that is written late would look as one that was in time.
func (n *nemesis) serverFault(ctx context.Context, a Action) error {
	server := n.world.servers()[a.Target]
	if a.Target == Cassandra && (a.Fault == Kill || a.Fault == Stop || a.Fault == Pause) {
		open := n.shut()
		defer open()
		n.leaves()
		err := onServer(ctx, server, a)
		return errors.Join(err, n.makeUp(ctx))
	}
	switch a.Fault {
	case Kill, Stop, Pause:
		return onServer(ctx, server, a)
	case Full:
		return n.fill(ctx, server, a)
	case Wipe:
		wiping, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverPatience)
		defer cancel()
		return server.Wipe(wiping)
	}
	if !network(ctx, a, n.world.proxies[a.Target]) {
		return errors.New("nobody knows how")
	}
	return nil
}

// onServer does something to the process of a server.
func onServer(ctx context.Context, server *local.Server, a Action) error {
	switch a.Fault {
	case Kill:
		if err := server.Kill(); err != nil {
			return err
		}
	case Stop:
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverPatience)
		defer cancel()
		if err := server.Stop(stopping); err != nil {
			return err
		}
	default:
		if err := server.Pause(); err != nil {
			return err
		}
		hold(ctx, a.For)
		return server.Resume()
	}
	hold(ctx, a.For)
	return restart(server)
}

// serverPatience is how long a server may take to be back on a busy machine.
const serverPatience = 2 * time.Minute

// fill fills the disk of a server for a time. A server that does not notice
// has not been broken, which is an error. It notices by what is written, so the
// fleet is shut out only when it has closed its port.
func (n *nemesis) fill(ctx context.Context, server *local.Server, a Action) error {
	began := time.Now()
	if a.Target == Cassandra {
		n.leaves()
	}
	if err := server.FillDisk(); err != nil {
		return err
	}
	noticing, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	noticed := server.AwaitDown(noticing)
	if a.Target == Cassandra {
		open := n.shut()
		defer open()
	}
	hold(ctx, a.For-time.Since(began))
	// Also at the end of a run that was interrupted.
	freeing, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverPatience)
	defer cancel()
	err := errors.Join(noticed, server.FreeDisk(freeing))
	if a.Target == Cassandra {
		err = errors.Join(err, n.makeUp(ctx))
	}
	return err
}

// restart also runs at the end of a run that was interrupted: what was taken
// away is given back.
func restart(server *local.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), serverPatience)
	defer cancel()
	return server.Restart(ctx)
}
