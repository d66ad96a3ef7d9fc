//go:build linux

// Package whole measures one worker's whole way, from Kafka to the committed
// offset, on real servers that share this machine with it: what it does in a
// second, and what of the processor each part takes for one notification.
package whole

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// Options are what is measured.
type Options struct {
	Notifications int           // that count; the backlog is produced before
	WarmUp        int           // notifications before those
	Latency       time.Duration // of the providers' answers
	Devices       int           // of each user; 0 = one to three
	Worker        string        // path of a built pushworker
	Progress      func(format string, args ...any)
}

// Result is what was seen. CPU is the operating system's account of each
// process, over the time that counts.
type Result struct {
	Notifications int     `json:"notifications"`
	Pushes        int     `json:"pushes"`
	Seconds       float64 `json:"seconds"`
	Rate          float64 `json:"notifications_per_second"`
	PushRate      float64 `json:"pushes_per_second"`
	WorkerCPU     float64 `json:"worker_cpu_us"` // of one notification, as the following
	KafkaCPU      float64 `json:"kafka_cpu_us"`
	RedisCPU      float64 `json:"redis_cpu_us"`
	CassandraCPU  float64 `json:"cassandra_cpu_us"`
	SimulatorCPU  float64 `json:"simulator_cpu_us"` // with the measuring itself
	WorkerRSS     int     `json:"worker_rss_mb"`
	Cores         int     `json:"cores"`
	Go            string  `json:"go"`
	Retried       float64 `json:"again"` // answers that were to be tried again: 0 in a good run
}

// Run starts Kafka, Redis and Cassandra, makes a backlog of notifications to
// users with living devices, starts one worker, and measures it from the end
// of the warm-up to the last commit.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Notifications < 10_000 || o.WarmUp < 0 {
		return nil, errors.New("at least 10,000 notifications are needed")
	}
	dir, err := os.MkdirTemp("", "pushfleet-whole-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o.Progress("starting Kafka, Redis and Cassandra")
	servers, err := local.StartSet(ctx, "")
	if err != nil {
		return nil, err
	}
	defer servers.Close()
	f, people, err := newFleet(o, dir, servers)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := fill(ctx, o, f, people); err != nil {
		return nil, err
	}
	return measure(ctx, o, f, servers)
}

func newFleet(o Options, dir string, servers *local.Set) (*fleet.Fleet, *crowd.Crowd, error) {
	at := servers.Addresses()
	faults := sim.Faults{Latency: o.Latency}
	f, err := fleet.New(fleet.Options{
		Dir: dir, Programs: fleet.Programs{Worker: o.Worker}, Keyspace: "whole", CountOnly: true,
		Servers: fleet.Servers{Kafka: []string{at.Kafka}, Redis: []string{at.Redis}, Cassandra: []string{at.Cassandra}},
		Faults:  sim.RouteSet{APNS: faults, FCM: faults},
		Configure: func(c *configs.Config) {
			d := configs.Default()
			c.Retries, c.Send, c.Status, c.Cassandra.Timeout, c.Dedupe = d.Retries, d.Send, d.Status, d.Cassandra.Timeout, d.Dedupe
			// On a machine that is too slow the rate is low: nothing is sent twice.
			c.Send.Deadline, c.Send.Drain, c.Kafka.RebalanceTimeout = time.Minute, 2*time.Minute, 4*time.Minute
			c.Gates.ProbeTimeout = 2 * time.Minute
			c.Kafka.SessionTimeout = d.Kafka.SessionTimeout
			c.Limits.Rules = []configs.Rule{{Name: "type-per-day", Per: "user_type", Max: 1000, Window: 24 * time.Hour}}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	total := o.Notifications + o.WarmUp
	people, err := crowd.New(crowd.Options{Seed: 1, App: fleet.App, Users: max(1000, total/10), Devices: o.Devices})
	return f, people, errors.Join(err)
}

// fill registers the users, declares the installation new, and makes the
// backlog.
func fill(ctx context.Context, o Options, f *fleet.Fleet, people *crowd.Crowd) error {
	if err := f.Prepare(ctx); err != nil {
		return err
	}
	if err := f.DeclareNew(ctx); err != nil {
		return err
	}
	registry, err := f.StartRegistry()
	if err != nil {
		return err
	}
	o.Progress("registering %d users", people.Users)
	if err := f.Register(ctx, people); err != nil {
		return err
	}
	if err := f.AwaitUsers(ctx, people); err != nil {
		return err
	}
	if _, err := registry.Term(ctx); err != nil {
		return err
	}
	total := o.Notifications + o.WarmUp
	o.Progress("producing a backlog of %d notifications", total)
	g := people.Records()
	for n := 0; n < total; n += 10_000 {
		if err := f.Produce(ctx, fleet.FromCrowd(g, min(10_000, total-n))); err != nil {
			return err
		}
	}
	return nil
}

// measure starts the worker and takes the accounts at the end of the warm-up
// and when everything is committed.
func measure(ctx context.Context, o Options, f *fleet.Fleet, servers *local.Set) (*Result, error) {
	worker, err := f.StartWorker()
	if err != nil {
		return nil, err
	}
	pids := map[string]int{"worker": worker.PID(), "kafka": servers.Kafka.PID(), "redis": servers.Redis.PID(),
		"cassandra": servers.Cassandra.PID(), "simulator": os.Getpid()}
	if _, err := awaitCommitted(ctx, f, int64(o.WarmUp), o.Progress); err != nil {
		return nil, err
	}
	before, err := takeAccount(f, pids)
	if err != nil {
		return nil, err
	}
	began, err := f.Committed(ctx)
	if err != nil {
		return nil, err
	}
	ended, err := awaitCommitted(ctx, f, int64(o.WarmUp+o.Notifications), o.Progress)
	if err != nil {
		return nil, err
	}
	after, err := takeAccount(f, pids)
	if err != nil {
		return nil, err
	}
	if ended-began < int64(o.Notifications)/2 {
		return nil, fmt.Errorf("%d of %d notifications were done when the warm-up was seen to be: take more", o.Notifications-int(ended-began), o.Notifications)
	}
	n, took := float64(ended-began), after.at.Sub(before.at).Seconds()
	per := func(name string) float64 { return (after.cpu[name] - before.cpu[name]).Seconds() * 1e6 / n }
	r := &Result{Notifications: int(n), Pushes: after.pushes - before.pushes, Seconds: took, Rate: n / took,
		PushRate: float64(after.pushes-before.pushes) / took, Cores: runtime.NumCPU(), Go: runtime.Version(),
		WorkerCPU: per("worker"), KafkaCPU: per("kafka"), RedisCPU: per("redis"), CassandraCPU: per("cassandra"), SimulatorCPU: per("simulator")}
	if r.WorkerRSS, err = peakRSS(worker.PID()); err != nil {
		return nil, err
	}
	m, err := worker.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	r.Retried = m.Sum("push_deliveries_total", `result="again"`)
	if code, err := worker.Term(ctx); err != nil || code != 0 {
		return nil, errors.Join(err, fmt.Errorf("the worker ended with status %d%s", code, worker.Tail()))
	}
	return r, nil
}

// awaitCommitted waits until n records of the lane are committed.
func awaitCommitted(ctx context.Context, f *fleet.Fleet, n int64, progress func(string, ...any)) (int64, error) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		committed, err := f.Committed(ctx)
		if err != nil {
			return 0, err
		}
		progress("%d of %d committed", committed, n)
		if committed >= n {
			return committed, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d committed: %w\n%s", committed, n, ctx.Err(), f.Logs())
		case <-ticker.C:
		}
	}
}
