//go:build unix

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
)

// Options are one run.
type Options struct {
	Scenario *Scenario
	Seed     uint64
	Length   time.Duration  // 0 = the scenario's Full
	Mode     string         // the lane's delivery mode; empty = at_least_once
	Busy     bool           // the machine has other work: limits of time are for what hangs only
	Programs fleet.Programs // built with fleet.Build
	Env      []string       // variables that the workers get besides, NAME=value: to plant a bug
	Dir      string         // for logs and ledgers; made when empty, and removed after a clean run
	Progress func(format string, args ...any)
}

// Result is what a run came to.
type Result struct {
	Scenario *Scenario
	Seed     uint64
	Length   time.Duration
	Mode     string
	Began    time.Time // of the first record
	Ended    time.Time // when the last was committed, or nobody waited any longer
	Plan     []Action
	Ledgers  *invariants.Ledgers
	Report   *invariants.Report
	Dir      string // of what is left; empty when nothing is
}

// Run breaks a fleet as planned, lets it heal, and judges it. The error is
// about what could not be done or seen; broken promises are in the Report.
// After an interrupt everything that was started has ended when it returns.
func Run(ctx context.Context, o Options) (r *Result, err error) {
	if o.Length == 0 {
		o.Length = o.Scenario.Full
	}
	o.Mode = cmp.Or(o.Mode, o.Scenario.mode, configs.AtLeastOnce)
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "pushfleet-chaos-"); err != nil {
			return nil, fmt.Errorf("chaos: %w", err)
		}
	}
	r = &Result{Scenario: o.Scenario, Seed: o.Seed, Length: o.Length, Mode: o.Mode, Plan: Plan(o.Scenario, o.Seed, o.Length), Dir: o.Dir}
	u := &run{Options: o, result: r, records: int(o.Length.Seconds() * float64(o.Scenario.Rate))}
	if err := u.all(ctx); err != nil {
		return nil, fmt.Errorf("%w (what is left is in %s)", err, o.Dir)
	}
	r.Report = invariants.Check(r.Ledgers)
	if r.Report.Clean() {
		r.Dir = ""
		return r, os.RemoveAll(o.Dir)
	}
	return r, nil
}

// run is the state of Run.
type run struct {
	Options
	result  *Result
	records int

	world    *world
	arrivals *arrivals
	ledger   *ledger
	producer *producer // nil where records come through gateways, as the three below are where not
	callers  *callers
	topic    *topic // nil also where there are no fan-outs
	reader   *reader
	status   *statusReader
	sampler  *sampler
	nemesis  *nemesis
	exposed  *exposed
	owners   *owners
}

// all is the whole run: start, break while records come, heal, look at what is
// left.
func (u *run) all(ctx context.Context) (err error) {
	u.Progress("starting Kafka, Redis, Cassandra and %d workers", u.Scenario.Workers)
	u.arrivals = newArrivals()
	starting, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not started within %v", startPatience))
	defer cancel()
	if u.world, err = newWorld(starting, &u.Options, u.Dir, u.records, u.arrivals); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.world.close()) }()
	defer func() { u.reader.close() }() // of observe
	if err := u.observe(ctx); err != nil {
		return err
	}
	defer u.status.close()
	idle, err := u.world.footprints(starting, "")
	if err != nil {
		return err
	}
	sampling, stop := context.WithCancel(ctx)
	var sampler sync.WaitGroup
	sampler.Go(func() { u.sampler.run(sampling) })
	sampler.Go(func() { u.exposed.run(sampling) })
	sampler.Go(func() { u.owners.run(sampling) })
	err = u.breakIt(ctx)
	if err == nil {
		err = u.heal(ctx)
	}
	stop()
	sampler.Wait()
	if err != nil {
		return errors.Join(err, ctx.Err())
	}
	return u.collect(ctx, idle)
}

const (
	startPatience = 5 * time.Minute
	// healPatience is how long the fleet may go on, with everything back, without
	// being less behind than ever since; after that the rest counts as lost. A
	// record that is held waits for up to five minutes at a time.
	healPatience = 8 * time.Minute
	lookPatience = 3 * time.Minute
)

// observe makes the observers.
func (u *run) observe(ctx context.Context) (err error) {
	c := u.world.fleet.Config
	if u.ledger, err = newLedger(u.world, filepath.Join(u.Dir, "produced.jsonl")); err != nil {
		return err
	}
	if u.Scenario.through != nil {
		if err := u.observeGateways(ctx); err != nil {
			return err
		}
	} else if u.producer, err = newProducer(u.world, u.ledger); err != nil {
		return err
	}
	u.status = &statusReader{addr: u.world.cassandra.Addr(), keyspace: c.Cassandra.Keyspace}
	if u.Scenario.strange > 0 {
		if u.producer.others, err = newStrangers(ctx, u.world, u.producer, u.Seed); err != nil {
			return err
		}
	}
	groups := [2]string{c.Kafka.LaneGroup(fleet.Lane), c.Kafka.RetryGroup(fleet.Lane)}
	if u.sampler, err = newSampler(u.world, u.ledger, u.status, groups, fleet.Topic); err != nil {
		return err
	}
	u.sampler.intents = u.Mode == configs.AtMostOnce
	u.exposed = &exposed{world: u.world, arrivals: u.arrivals, status: u.status, bounds: map[*fleet.Process]printed{}}
	if u.owners, err = newOwners(u.world, groups[0], fleet.Topic); err != nil {
		return err
	}
	u.nemesis = &nemesis{world: u.world, arrivals: u.arrivals, status: u.status, callers: u.callers, say: u.Progress,
		judged: u.sampler.awaitLook, committed: u.sampler.committed, produced: u.ledger.bytes, loaded: make(chan struct{})}
	return nil
}

// breakIt produces all records and carries the plan out meanwhile.
func (u *run) breakIt(ctx context.Context) error {
	u.Progress("%d records at %d/s, %d faults, seed %d", u.records, u.Scenario.Rate, len(u.result.Plan), u.Seed)
	u.result.Began = time.Now()
	var producing sync.WaitGroup
	var failed error
	producing.Go(func() {
		defer close(u.nemesis.loaded)
		if u.Scenario.through != nil {
			failed = u.callGateways(ctx)
		} else {
			failed = u.producer.run(ctx, u.records, u.Scenario.Rate)
		}
	})
	err := u.nemesis.run(ctx, u.result.Began, u.result.Plan)
	producing.Wait()
	if err = errors.Join(err, failed); err == nil && u.Scenario.through != nil {
		err = u.world.restartGateways(ctx)
	}
	return err
}

// heal waits until every record is committed, of the lane's own topic and of
// all beside it.
func (u *run) heal(ctx context.Context) error {
	u.Progress("all faults are undone; waiting until everything is committed")
	deadline := time.Now().Add(healPatience)
	least, from, _ := u.sampler.lag()
	for {
		lag, pass, err := u.sampler.lag()
		if err == nil && lag < least {
			least, deadline = lag, time.Now().Add(healPatience)
		}
		if err == nil && pass > from && lag == 0 {
			// Where a lane commits before it sends, that is not the end.
			if err = u.answered(ctx); err == nil {
				break
			}
			_, from, _ = u.sampler.lag() // what is handed over now is behind again
			hold(ctx, time.Second)
		}
		if time.Now().After(deadline) {
			u.Progress("no further within %v: %s %v", healPatience, u.sampler.behind(), err)
			break
		}
		select {
		case <-time.After(samplePause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	u.result.Ended = time.Now()
	looking, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	if err := u.sampler.awaitLook(looking); err != nil {
		u.Progress("%v", err) // the judge says what is missing
	}
	return ctx.Err()
}

// answered is an error while a lane that sends at most once has intents without
// a result.
func (u *run) answered(ctx context.Context) error {
	if u.Mode != configs.AtMostOnce {
		return nil
	}
	rows, err := u.status.table(ctx)
	if err != nil {
		return err
	}
	if n := invariants.Intents(rows); n > 0 {
		return fmt.Errorf("%d intents have no result", n)
	}
	return nil
}

// rest is how long the fleet has nothing to do before it is looked at: longer
// than an idle HTTP or Redis connection of a burst lives.
const rest = 3 * time.Second

// rest is how long this fleet is left alone: where offsets are committed ahead of
// the sends, what was sent last is still to be answered then.
func (u *run) rest() time.Duration {
	if u.Mode == configs.AtMostOnce {
		return rest + sendDeadline
	}
	return rest
}

// collect reads what is left and seals the ledgers.
func (u *run) collect(ctx context.Context, idle []invariants.Footprint) error {
	u.Progress("reading what is left")
	hold(ctx, u.rest())
	l := &invariants.Ledgers{Limits: u.limits()}
	l.Offsets = u.sampler.close()
	if err := u.closeLane(ctx, l); err != nil {
		return err
	}
	l.Producer, l.Marks = u.ledger.seal(), u.ledger.marks
	u.exposed.finish(ctx)
	l.Exposures = u.exposed.close()
	l.Owners, l.Declared = u.owners.close()
	after, err := u.world.footprintsAtRest(ctx, idle)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookPatience, fmt.Errorf("not read within %v", lookPatience))
	defer cancel()
	l.Processes = invariants.Seal(append(append(idle, u.nemesis.prints...), after...))
	search := newCanaries(u.world)
	letters, err := readLetters(ctx, u.world, u.ledger, fleet.Topic, func(topic string, hs []kgo.RecordHeader) { search.headers(topic, hs) })
	if err != nil {
		return err
	}
	l.Letters = invariants.Seal(letters)
	rows, err := u.status.all(ctx)
	if err != nil {
		return err
	}
	l.Status = invariants.Seal(rows)
	search.rows(rows)
	if err := search.processes(ctx, u.world); err != nil {
		return err
	}
	l.Leaks = invariants.Seal(search.leaks)
	l.Sends = u.arrivals.seal(u.world.fleet.Sim.Ledger().Totals())
	l.Events, l.Shut = u.nemesis.events, u.nemesis.shuts
	if u.Mode == configs.AtMostOnce { // what could be repeated is left UNKNOWN
		for i := range l.Events {
			e := &l.Events[i]
			e.Unknown = e.Repeats / u.Scenario.bound() * u.Scenario.intended()
		}
	}
	for _, s := range u.world.all() {
		budget := u.world.termBudget()
		if s.apns == nil {
			budget = u.world.gatewayBudget(s)
		}
		if p := s.process(); p != nil && p.Running() {
			if err := s.term(ctx, budget); err != nil {
				return err
			}
		}
	}
	u.world.mu.Lock()
	l.Exits = u.world.exits
	u.world.mu.Unlock()
	u.result.Ledgers = l
	return nil
}

// limits are what the run is held against.
func (u *run) limits() invariants.Limits {
	c := u.world.fleet.Config
	l := invariants.Limits{Mode: invariants.Mode(c.Lanes[0].Mode), Retries: c.Retries.Max, Heal: 20 * time.Second,
		SampleGap: 5 * time.Second, Grace: time.Second, Windows: u.Scenario.bound()}
	// What a worker reads and may hold; not what it takes to be there.
	m := c.MemoryBound()
	l.Held = int64(m.Total() - m.Base - m.Fetch)
	// Before the first record there are no connections to the providers, each
	// with its reader and writer.
	pool := c.Send.APNS.Connections + c.Send.FCM.Connections
	l.FDs, l.Goroutines = 50+pool, 100+4*pool
	if t := u.Scenario.through; t != nil {
		l.Gateways = t.gateways
	}
	if u.Scenario.limits != nil {
		u.Scenario.limits(&l)
	}
	if u.Busy { // times, and never how many of something are allowed
		l.Standstill, l.Heal, l.SampleGap, l.Grace = 2*time.Minute, time.Minute, 30*time.Second, 10*time.Second
		l.Look, l.Answer = 30*time.Second, 40*time.Second
		if u.topic != nil { // each row lies in another place of the store
			l.Look *= 4
		}
		l.Back = min(l.Back*4, time.Minute)
	}
	return l
}
