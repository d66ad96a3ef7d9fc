//go:build unix

package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/mutants/planted"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/wiring"
)

// Variables that a worker built with the tag planted reads.
const (
	envBug    = planted.Bug
	envCrash  = planted.Crash
	envStatus = planted.Store
)

// Build compiles the worker with the tag into dir.
func Build(ctx context.Context, dir string) (fleet.Programs, error) {
	return fleet.BuildTagged(ctx, dir, planted.Tag, false, "pushworker")
}

// world is a fleet with in-process servers that are its own.
type world struct {
	*fleet.Fleet
	faults  sim.RouteSet
	kafka   *embedded.Kafka
	redis   *embedded.Redis
	store   *Store
	commits *commitLog
	dir     string
	people  *crowd.Crowd
	sends   sendLog
	produce []fleet.Record // what was produced, in order

	marks  int             // of transactions
	cut    bool            // connections were ended
	leaves map[string]bool // users who opt out later
	left   time.Time       // when nothing may be sent to them any more
	deaths []killed
	events []invariants.Event // what else was done to it, for the chaos harness's checker
	report *fleet.Report      // of check
}

// The windows of these worlds: small, so that a bound that does not hold shows.
const (
	inFlight       = 48
	unacknowledged = 24
	routeCount     = 2 // apns/shop/production and fcm/shop
	// killBound is what one kill may repeat.
	killBound = routeCount * (inFlight + unacknowledged)
	session   = time.Second
)

// settings are a worker's in these worlds.
func settings(c *configs.Config) {
	c.Kafka.SessionTimeout, c.Kafka.RebalanceTimeout = session, 8*time.Second
	c.Kafka.CommitTimeout, c.Kafka.CommitInterval = time.Second, 100*time.Millisecond
	c.Kafka.Topics.Partitions = 4
	c.Send.Deadline, c.Cassandra.Timeout, c.Send.Drain = 2*time.Second, time.Second, 6*time.Second
	c.Send.InFlight, c.Status.Rows, c.Status.Unacknowledged = inFlight, 12, unacknowledged
	c.Send.APNS.Connections, c.Send.FCM.Connections = 2, 2
	c.Batch.Records, c.Batch.OpenPerPartition, c.Batch.OpenRecords = 40, 4, 4000
	c.Batch.Workers = 1
	c.Dedupe.Capacity = 10_000
	c.Redis.ReadTimeout, c.Redis.WriteTimeout = 5*time.Second, 5*time.Second
	c.Registry.CheckInterval = 200 * time.Millisecond
}

// worldOptions are what differs between worlds.
type worldOptions struct {
	programs  fleet.Programs
	records   int
	faults    sim.RouteSet
	crowd     func(*crowd.Options)
	configure func(*configs.Config)
}

// newWorld starts the servers and a registry, registers the users and waits
// until Redis has them. close ends it, also after an error half-way.
func newWorld(ctx context.Context, o worldOptions) (w *world, err error) {
	w = &world{faults: o.faults}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	people := crowd.Default(fleet.App, o.records)
	people.Users = max(40, o.records/10)
	people.Expired, people.Broken, people.Duplicates = 0.03, 0.03, 0.05
	people.OptedOut, people.Greedy, people.Cap = 0.06, 0.05, 20
	if o.crowd != nil {
		o.crowd(&people)
	}
	if w.people, err = crowd.New(people); err != nil {
		return w, err
	}
	if w.dir, err = os.MkdirTemp("", "pushfleet-mutants-"); err != nil {
		return w, err
	}
	if w.kafka, err = embedded.StartKafka(); err != nil {
		return w, err
	}
	if w.redis, err = embedded.StartRedis(); err != nil {
		return w, err
	}
	if w.store, err = newStore(wiring.Layouts(configs.Default())); err != nil {
		return w, err
	}
	w.Fleet, err = fleet.New(fleet.Options{
		Dir: w.dir, Programs: o.programs, Keyspace: "mutants", Status: w.store, Faults: o.faults, Watch: w.sends.watch,
		Servers: fleet.Servers{Kafka: w.kafka.Addrs(), Redis: []string{w.redis.Addr()}, Cassandra: []string{"127.0.0.1"}},
		Configure: func(c *configs.Config) {
			settings(c)
			c.Limits.Rules = []configs.Rule{{Name: "day", Per: "user_type", Max: people.Cap, Window: 24 * time.Hour}}
			if o.configure != nil {
				o.configure(c)
			}
		},
	})
	if err != nil {
		return w, err
	}
	if err := w.Prepare(ctx); err != nil {
		return w, err
	}
	k := &w.Config.Kafka
	w.commits = followCommits(w.kafka, k.LaneGroup(fleet.Lane), k.RetryGroup(fleet.Lane))
	if err := w.Register(ctx, w.people); err != nil {
		return w, err
	}
	if _, err := w.StartRegistry(); err != nil {
		return w, err
	}
	return w, w.AwaitUsers(ctx, w.people)
}

// worker starts a worker with planted variables and waits until it is ready.
func (w *world) worker(ctx context.Context, planted ...string) (*fleet.Process, error) {
	p, err := w.StartWorker(append(planted, envStatus+"="+w.store.Addr())...)
	if err != nil {
		return nil, err
	}
	return p, p.AwaitReady(ctx)
}

// close ends all, and removes what was written. It may be called twice.
func (w *world) close() error {
	var errs []error
	if w.Fleet != nil {
		errs = append(errs, w.Fleet.Close())
	}
	if w.commits != nil {
		w.commits.close()
		w.commits = nil
	}
	if w.store != nil {
		w.store.Close()
	}
	if w.redis != nil {
		w.redis.Close()
	}
	if w.kafka != nil {
		w.kafka.Close()
		w.kafka = nil
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ending the world: %w", err)
	}
	return nil
}
