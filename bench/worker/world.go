//go:build linux

package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local"
)

// world is everything around the worker.
type world struct {
	*fleet.Fleet
	sim    *servers.Simulator
	people *crowd.Crowd
	store  fleet.StatusReader
	dir    string
	pids   map[string][]int // of the servers and workers, and of this process
	ends   []func()         // in the order of their making
}

// The names of processes in accounts.
const (
	workerProcess = "worker"
	kafkaServer   = "kafka"
	redisServer   = "redis"
	cassandra     = "cassandra"
	simulator     = "simulator"
	measuring     = "measuring" // this one
)

// open starts the servers and the simulator, makes topics and schema, and registers the users.
func open(ctx context.Context, o *Options) (*world, error) {
	w := &world{pids: map[string][]int{measuring: {os.Getpid()}}}
	if err := w.start(ctx, o); err != nil {
		w.close() // of what was started
		return nil, err
	}
	return w, nil
}

func (w *world) start(ctx context.Context, o *Options) (err error) {
	if w.people, err = newPeople(o); err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp("", "pushfleet-worker-"); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	w.ends = append(w.ends, func() { _ = os.RemoveAll(w.dir) })
	if o.Profiles != "" { // now: a run takes minutes before it has any
		if err := os.MkdirAll(o.Profiles, 0o755); err != nil {
			return fmt.Errorf("making the folder of the profiles: %w", err)
		}
	}
	o.Progress("starting Kafka, Redis, Cassandra and the simulator")
	w.sim, err = servers.StartSimulator(ctx, o.Serve, servers.SimulatorOptions{Dir: w.dir, App: fleet.App, Latency: o.Latency, FCMStreams: configs.Default().Send.FCM.Streams, FCMQuota: o.Quota})
	if err != nil {
		return err
	}
	w.ends, w.pids[simulator] = append(w.ends, w.sim.Close), []int{w.sim.PID()}
	options := fleet.Options{Dir: w.dir, Programs: fleet.Programs{Worker: o.Worker}, Keyspace: "bench", Elsewhere: []configs.App{w.sim.App},
		Configure: func(c *configs.Config) { configure(c, o) }}
	startServers := w.startReal
	if o.Embedded {
		startServers = w.startEmbedded
	}
	if err := startServers(ctx, o, &options); err != nil {
		return err
	}
	if w.Fleet, err = fleet.New(options); err != nil {
		return err
	}
	w.ends = append(w.ends, func() { _ = w.Fleet.Close() })
	o.Progress("registering %d users", w.people.Users)
	if err := w.Populate(ctx, w.people); err != nil {
		return err
	}
	store, done, err := w.OpenStatus(ctx)
	if err != nil {
		return err
	}
	w.store, w.ends = store, append(w.ends, done)
	return nil
}

// close ends everything that was started, the last first.
func (w *world) close() {
	for _, end := range slices.Backward(w.ends) {
		end()
	}
}

func (w *world) startReal(ctx context.Context, o *Options, f *fleet.Options) error {
	set, err := local.StartSet(ctx, local.SetOptions{Durable: o.CommitLog == Batch})
	if err != nil {
		return err
	}
	w.ends = append(w.ends, func() { _ = set.Close() })
	w.pids[kafkaServer], w.pids[redisServer], w.pids[cassandra] = []int{set.Kafka.PID()}, []int{set.Redis.PID()}, []int{set.Cassandra.PID()}
	at := set.Addresses()
	f.Servers = fleet.Servers{Kafka: []string{at.Kafka}, Redis: []string{at.Redis}, Cassandra: []string{at.Cassandra}}
	return nil
}

func (w *world) startEmbedded(ctx context.Context, o *Options, f *fleet.Options) error {
	kafka, err := servers.StartKafka(ctx, o.Serve, w.dir)
	if err != nil {
		return err
	}
	w.ends, w.pids[kafkaServer] = append(w.ends, kafka.Close), []int{kafka.PID()}
	redis, err := servers.StartRedis(ctx, o.Serve, w.dir)
	if err != nil {
		return err
	}
	w.ends, w.pids[redisServer] = append(w.ends, redis.Close), []int{redis.PID()}
	f.Programs = fleet.Programs{Worker: o.Serve[0], Args: o.Serve[1:]}
	f.Servers = fleet.Servers{Kafka: []string{kafka.Address}, Redis: []string{redis.Address}, Cassandra: configs.Default().Cassandra.Hosts}
	f.Status = servers.Rows(w.rowsSocket())
	return nil
}

func (w *world) rowsSocket() string { return filepath.Join(w.dir, "rows.sock") }

// The lanes: the backlog waits in the first one.
const (
	backlogLane  = "promotional"
	passwordLane = "critical"
)

// configure is the configuration of the worker: the defaults, but for what says that a machine is slow.
func configure(c *configs.Config, o *Options) {
	fleet.UseShipped(c, backlogLane, passwordLane)
	c.Limits.Rules = rules(o.Limits)
	c.Admin.PProf = true
	c.Kafka.Topics.Partitions = o.Partitions
	c.Cassandra.PackedRows = o.PackedRows
	if o.Embedded {
		// The embedded Redis runs its scripts slowly and one at a time, and has its
		// filters in memory: room for what there is.
		c.Redis.ReadTimeout, c.Redis.WriteTimeout = time.Minute, time.Minute
		c.Batch.Workers, c.Dedupe.Capacity = 1, 2_000_000
	}
	if o.settings != nil {
		o.settings(c)
	}
}

// maxLimits is as many as there are windows for.
const maxLimits = 16

// rules are n limits, each with another window, that are asked about every
// notification and that nobody reaches.
func rules(n int) (rules []configs.Rule) {
	for i := range n {
		r := configs.Rule{Name: "type-per-day", Per: "user_type", Max: 1000, Window: 24 * time.Hour}
		if i > 0 {
			r.Name, r.Per, r.Window = fmt.Sprintf("all-per-%d-h", i), "user", time.Duration(i)*time.Hour
		}
		rules = append(rules, r)
	}
	return rules
}
