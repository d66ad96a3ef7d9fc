//go:build unix

// Package endtoend tests the whole way of notifications on real Kafka, Redis
// and Cassandra, with the worker as operators run it and the simulator in
// place of Apple and Google: what is promised holds when everything works, and
// when workers are killed, stores blink and producers write nonsense.
package endtoend

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/fleet/fleettest"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// programs are built once for all tests, with the race detector.
var programs fleet.Programs

func TestMain(m *testing.M) {
	if spec := os.Getenv(envMortal); spec != "" {
		os.Exit(runMortal(spec))
	}
	fleettest.Main(m, func(ctx context.Context, dir string) (err error) {
		if os.Getenv(local.EnvServers) == "" {
			return nil // all tests are skipped
		}
		race := os.Getenv(envSubscribers) == "" // a million take long enough without
		programs, err = fleet.Build(ctx, dir, race, "pushworker", "pushctl", "pushgateway")
		return err
	})
}

// patience bounds every wait. It is not an expectation: the machine may be
// busy with something else.
const patience = 3 * time.Minute

func waiting(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, fmt.Errorf("not within %v", patience))
	t.Cleanup(cancel)
	return ctx
}

// check ends the test on an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// setup is what differs between the fleets of the tests.
type setup struct {
	programs  *fleet.Programs // programs unless given
	servers   fleet.Servers   // what is missing is started, or shared
	faults    sim.RouteSet
	configure func(*configs.Config)
	byHand    bool               // the test makes topics and schema itself
	watch     func(*sim.Arrival) // sees every push as the simulator decides; may be nil
}

// world is a fleet with the servers that are its own.
type world struct {
	*fleet.Fleet
	t            *testing.T
	kafka, redis *local.Server // nil where setup named others
}

// newWorld starts what the fleet needs of its own, a Kafka because the topics
// of users and feedback have one name everywhere and a Redis because it is to
// be wiped, and uses the shared Cassandra with a keyspace of its own. Topics
// and schema are made.
func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	w := &world{t: t}
	shared := localtest.Require(t)
	if s.servers.Kafka == nil {
		w.kafka = localtest.Kafka(t, local.KafkaOptions{})
		s.servers.Kafka = []string{w.kafka.Addr()}
	}
	if s.servers.Redis == nil {
		w.redis = localtest.Redis(t, local.RedisOptions{})
		s.servers.Redis = []string{w.redis.Addr()}
	}
	if s.servers.Cassandra == nil {
		s.servers.Cassandra = []string{shared.Cassandra}
	}
	if s.programs == nil {
		s.programs = &programs
	}
	f, err := fleet.New(fleet.Options{
		Dir: t.TempDir(), Programs: *s.programs, Servers: s.servers,
		Keyspace: "endtoend_" + strings.ToLower(rand.Text()[:12]), Configure: s.configure, Faults: s.faults, Watch: s.watch,
	})
	check(t, err)
	w.Fleet = f
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs())
		}
		for _, p := range f.Processes() {
			if log := p.Log(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") {
				t.Errorf("%s has a data race or panics:\n%s", p.Name, log)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if !s.byHand {
		check(t, f.Prepare(waiting(t)))
	}
	return w
}

// populate registers the crowd's users, and starts a registry that brings them
// into Redis.
func (w *world) populate(c *crowd.Crowd) *fleet.Process {
	w.t.Helper()
	ctx := waiting(w.t)
	check(w.t, w.Register(ctx, c))
	registry, err := w.StartRegistry()
	check(w.t, err)
	check(w.t, w.AwaitUsers(ctx, c))
	return registry
}

// worker starts a worker and waits until it is ready.
func (w *world) worker() *fleet.Process {
	w.t.Helper()
	p, err := w.StartWorker()
	check(w.t, err)
	check(w.t, p.AwaitReady(waiting(w.t)))
	return p
}

// clean waits until all is done, accounts for it, and returns the report: no
// notification lost, none of them wrong.
func (w *world) clean(o fleet.AccountOptions) *fleet.Report {
	w.t.Helper()
	ctx := waiting(w.t)
	check(w.t, w.AwaitDone(ctx))
	r, err := w.Account(ctx, o)
	check(w.t, err)
	check(w.t, r.Err())
	w.t.Log(r)
	return r
}

// newCrowd is a crowd sized for n records.
func newCrowd(t *testing.T, n int) *crowd.Crowd {
	t.Helper()
	c, err := crowd.New(crowd.Default(fleet.App, n))
	check(t, err)
	return c
}

// caps are the rules that the crowd is made for.
func caps(c *configs.Config, cap int) {
	c.Limits.Rules = []configs.Rule{
		{Name: "type-per-day", Per: "user_type", Max: cap, Window: 24 * time.Hour},
		{Name: "hour", Per: "user", Max: 2 * cap, Window: time.Hour},
	}
}
