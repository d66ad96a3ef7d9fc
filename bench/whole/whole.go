//go:build linux

// Package whole measures one worker's whole way, from Kafka to the committed
// offset, on real servers that share this machine with it: what it does in a
// second, and what of the processor each part takes for one notification.
package whole

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// Options are what is measured.
type Options struct {
	Notifications int           // that count; the backlog is produced before
	WarmUp        int           // notifications before those
	CoolDown      int           // notifications after those, so that the worker has more to do when they are done
	Latency       time.Duration // of the providers' answers
	Devices       int           // of each user; 0 = one to three
	CommitLog     string        // Cassandra's: Periodic or Batch; empty = Periodic
	Limits        int           // rules of how much a user may get, none of which anybody reaches
	Confirms      float64       // share of the notifications whose status is read before they are sent, 0 to 1
	Worker        string        // path of a built pushworker
	Progress      func(format string, args ...any)
}

// When Cassandra acknowledges a write.
const (
	Periodic = "periodic" // before it is on disk, which is synced every 10 s
	Batch    = "batch"    // after
)

// Check says what is wrong with them; Run does it too.
func (o *Options) Check() error {
	switch {
	case o.Notifications < 10_000 || o.WarmUp < 0 || o.CoolDown < 0:
		return errors.New("at least 10,000 notifications are needed")
	case o.CommitLog != "" && o.CommitLog != Periodic && o.CommitLog != Batch:
		return fmt.Errorf("commit log %q: want %s or %s", o.CommitLog, Periodic, Batch)
	case o.Limits < 0 || o.Limits > maxLimits:
		return fmt.Errorf("%d limit rules: want 0 to %d", o.Limits, maxLimits)
	case !(o.Confirms >= 0 && o.Confirms <= 1):
		return fmt.Errorf("%v of the notifications confirmed: want 0 to 1", o.Confirms)
	}
	return nil
}

// total is how many notifications there are.
func (o *Options) total() int { return o.WarmUp + o.Notifications + o.CoolDown }

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

	// What the row was run with.
	CommitLog           string `json:"commit_log"`
	KafkaReplication    int    `json:"kafka_replication"`    // of each topic
	KeyspaceReplication string `json:"keyspace_replication"` // of the status rows
	LimitRules          int    `json:"limit_rules"`
	// Confirmed is how many status reads there were for each notification that was
	// polled in the time that counts; nil when all were polled before. It is above
	// Options.Confirms where the reads after the assignment reach beyond the
	// warm-up, or what had waited for long was read again.
	Confirmed *float64 `json:"confirmed"`
	// Checked is how many pushes, and as many rows, had to be there after the run,
	// those of the warm-up included, and were.
	Checked  int `json:"checked"`
	CoolDown int `json:"cool_down"`
}

// Run starts Kafka, Redis and Cassandra, makes a backlog of notifications to
// users with living devices, starts one worker, and measures it from the end
// of the warm-up to the last commit, or to the beginning of the cool-down. It
// fails when a push or a status row of
// the backlog is missing afterwards, or is there too often.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pushfleet-whole-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o.Progress("starting Kafka, Redis and Cassandra")
	servers, err := local.StartSet(ctx, local.SetOptions{Durable: o.CommitLog == Batch})
	if err != nil {
		return nil, err
	}
	defer servers.Close()
	people, err := newPeople(o)
	if err != nil {
		return nil, err
	}
	f, err := newFleet(o, dir, servers)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := fill(ctx, o, f, people)
	if err != nil {
		return nil, err
	}
	r, err := measure(ctx, o, f, servers)
	if err != nil {
		return nil, err
	}
	r.describe(o, f.Config)
	if r.Checked, err = checkAll(ctx, o, f, b); err != nil {
		return nil, err
	}
	return r, nil
}

// describe notes what the row was run with.
func (r *Result) describe(o Options, c *configs.Config) {
	r.CommitLog, r.CoolDown = cmp.Or(o.CommitLog, Periodic), o.CoolDown
	r.KafkaReplication, r.LimitRules = c.Kafka.Topics.Replication, len(c.Limits.Rules)
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(c.Cassandra.Replication)) {
		parts = append(parts, k+" "+c.Cassandra.Replication[k])
	}
	r.KeyspaceReplication = strings.Join(parts, ", ")
}

// checkAll looks for every push and every row.
func checkAll(ctx context.Context, o Options, f *fleet.Fleet, b *backlog) (checked int, err error) {
	o.Progress("looking for the pushes and the rows of %d notifications", len(b.ids))
	store, done, err := f.OpenStatus(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	found, err := b.check(ctx, f.Sim.Ledger(), store)
	if err != nil {
		return 0, err
	}
	return found.pushes, nil
}

func newFleet(o Options, dir string, servers *local.Set) (*fleet.Fleet, error) {
	at := servers.Addresses()
	faults := sim.Faults{Latency: o.Latency}
	return fleet.New(fleet.Options{
		Dir: dir, Programs: fleet.Programs{Worker: o.Worker}, Keyspace: "whole", CountOnly: true,
		Servers: fleet.Servers{Kafka: []string{at.Kafka}, Redis: []string{at.Redis}, Cassandra: []string{at.Cassandra}},
		Faults:  sim.RouteSet{APNS: faults, FCM: faults},
		Configure: func(c *configs.Config) {
			d := configs.Default()
			c.Retries, c.Send, c.Status, c.Cassandra.Timeout, c.Dedupe = d.Retries, d.Send, d.Status, d.Cassandra.Timeout, d.Dedupe
			// On a machine that is too slow the rate is low: nothing is sent twice.
			c.Send.Deadline, c.Send.Drain, c.Kafka.RebalanceTimeout = time.Minute, 2*time.Minute, 4*time.Minute
			c.Gates.ProbeTimeout = 2 * time.Minute
			// A confirm read is good for as long as it is by default: see confirmFor of
			// the pipeline, which takes the deadline off the shortest tier.
			c.Retries.Tiers = later(d.Retries.Tiers, c.Send.Deadline-d.Send.Deadline)
			c.Kafka.SessionTimeout = d.Kafka.SessionTimeout
			c.Limits.Rules = rules(o.Limits)
		},
	})
}

// later are the times, each by d longer.
func later(times []time.Duration, d time.Duration) (longer []time.Duration) {
	for _, t := range times {
		longer = append(longer, t+d)
	}
	return longer
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

// fill registers the users, declares the installation new, and makes the
// backlog.
func fill(ctx context.Context, o Options, f *fleet.Fleet, people *crowd.Crowd) (*backlog, error) {
	if err := f.Prepare(ctx); err != nil {
		return nil, err
	}
	if err := f.DeclareNew(ctx); err != nil {
		return nil, err
	}
	registry, err := f.StartRegistry()
	if err != nil {
		return nil, err
	}
	o.Progress("registering %d users", people.Users)
	if err := f.Register(ctx, people); err != nil {
		return nil, err
	}
	if err := f.AwaitUsers(ctx, people); err != nil {
		return nil, err
	}
	if _, err := registry.Term(ctx); err != nil {
		return nil, err
	}
	return produce(ctx, o, f, people)
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
	start, err := worker.Metrics(ctx)
	if err != nil {
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
	peak, err := usage.PeakMemory(worker.PID())
	if err != nil {
		return nil, err
	}
	r.WorkerRSS = int(peak)
	end, err := worker.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	r.Retried, r.Confirmed = end.Sum("push_deliveries_total", `result="again"`), confirmed(start, end)
	if err := f.AwaitDone(ctx); err != nil { // what was to be tried again
		return nil, err
	}
	if code, err := worker.Term(ctx); err != nil || code != 0 {
		return nil, errors.Join(err, fmt.Errorf("the worker ended with status %d%s", code, worker.Tail()))
	}
	return r, nil
}

// confirmed is the status reads of notifications by those that a worker polled
// between two scrapes, which is a little off where it had polled some and not
// yet read; nil when it polled none.
func confirmed(start, end fleet.Metrics) *float64 {
	polled := end.Sum("push_batch_size_sum") - start.Sum("push_batch_size_sum")
	if polled == 0 {
		return nil
	}
	share := (end.Sum("push_status_read_ids_total") - start.Sum("push_status_read_ids_total")) / polled
	return &share
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
