//go:build linux

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/fleet/fleettest"
	"github.com/pushfleet/pushfleet/bench/latency"
	"github.com/pushfleet/pushfleet/bench/parts"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// asServer is the argument that makes this test binary one of the servers.
const asServer = "serve"

func TestMain(m *testing.M) {
	fleettest.Roles(m, map[string]func(context.Context, []string) error{
		asServer: func(ctx context.Context, args []string) error { return servers.Serve(ctx, args, os.Stderr) },
	})
}

// small is a run of some seconds, in which nobody measures anything. The worker polls little ahead: otherwise most of its work
// would be done when the first commit is seen.
func small(t *testing.T) Options {
	o := Standard()
	o.Notifications, o.WarmUp, o.CoolDown, o.Unloaded = 30_000, 2000, 0, time.Second
	o.settings = func(c *configs.Config) { c.Batch.Records, c.Batch.OpenPerPartition, c.Send.InFlight = 500, 2, 1000 }
	o.Serve, o.Progress, o.Plot = []string{os.Args[0], asServer}, t.Logf, filepath.Join(t.TempDir(), "plot.svg")
	o.Profiles = filepath.Join(t.TempDir(), "profiles") // which the run makes
	return o
}

// atMostPasswords is how many one-time passwords come in a run's 4 minutes, which are looked for too.
const atMostPasswords = int(4 * time.Minute / passwordEvery)

// check holds what every run has against its options.
func (r *Result) check(t *testing.T, o *Options) {
	t.Helper()
	sum := 0.0
	for _, us := range r.Parts {
		sum += us
	}
	if r.WorkerCPU <= 0 || math.Abs(sum-r.WorkerCPU) > 1e-6 {
		t.Errorf("the parts add up to %v of %v: %v", sum, r.WorkerCPU, r.Parts)
	}
	if r.Notifications == 0 || r.Rate <= 0 || r.RSS == 0 || r.Allocations <= 0 || r.KafkaCPU <= 0 || r.RedisCPU <= 0 || r.SimCPU <= 0 || r.Again > 0 {
		t.Errorf("%+v", r)
	}
	if r.Profiled <= 0 || r.Profiled > 1.5 {
		t.Errorf("%v of the worker's time is in its profiles", r.Profiled)
	}
	if r.CriticalP99 == nil || r.CriticalUnloadedP99 == nil || *r.CriticalUnloadedP99 <= 0 || *r.CriticalP99 < *r.CriticalP50 {
		t.Errorf("one-time passwords took %v, before %v", r.CriticalP99, r.CriticalUnloadedP99)
	}
	if least := int(float64(o.total()) * (1 - 2*o.Duplicates)); r.Checked < least || r.Checked > o.total()+atMostPasswords {
		t.Errorf("%d pushes and rows were looked for, want about %d", r.Checked, o.total())
	}
	if r.LimitRules != o.Limits || r.CoolDown != o.CoolDown || r.KafkaReplication != 1 {
		t.Errorf("it was not run so: %+v", r)
	}
	if drawn, err := os.ReadFile(o.Plot); err != nil || !bytes.Contains(drawn, []byte("committed")) {
		t.Errorf("the plot: %v, %d bytes", err, len(drawn))
	}
	if taken, err := os.ReadFile(filepath.Join(o.Profiles, cpuFile)); err != nil {
		t.Error(err)
	} else if sums, err := parts.CPU(taken); err != nil || sums[parts.Send] == 0 {
		t.Errorf("the CPU profile: %v, %v", sums, err)
	}
}

// TestEmbeddedRun: all of the measurement works with the embedded servers, and every push and row is seen.
func TestEmbeddedRun(t *testing.T) {
	o := small(t)
	o.Embedded = true
	// Ended by this and not by the test's own time-out, it tells what was missing.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	r.check(t, &o)
	if r.CassandraCPU != nil || r.RowsPerBatch != nil || r.CommitLog != "" || r.PackedRows || !r.Embedded || r.Compiling != 0 {
		t.Errorf("there is no Cassandra, and %+v", r)
	}
}

// TestPacedRun: notifications that are produced while the worker runs, and how long each of those took that the
// simulator writes down.
func TestPacedRun(t *testing.T) {
	o := small(t)
	o.Embedded, o.Notifications, o.WarmUp, o.CoolDown, o.Rate, o.Partitions = true, 10_000, 1000, 2000, 4000, 2
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.NotificationP50 == nil || *r.NotificationP50 <= 0 || r.NotificationP99 == nil || *r.NotificationP99 < *r.NotificationP50 {
		t.Errorf("notifications took %v, %v", r.NotificationP50, r.NotificationP99)
	}
	if r.Partitions != 2 || r.ProducedPerSecond != 4000 || len(r.Shares) != 1 || r.Shares[0] != 1 {
		t.Errorf("it was not run so: %+v", r)
	}
	if made := o.total(); r.Checked < o.Notifications || r.Checked > made+atMostPasswords {
		t.Errorf("%d pushes and rows were looked for, of %d made", r.Checked, made)
	}
}

// Ctrl-C ends a run at once, wherever it is, and leaves no process and no folder behind.
func TestInterrupted(t *testing.T) {
	for _, when := range []string{"registering", "one-time passwords", "starting what is measured"} {
		t.Run(when, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			o, folders := small(t), folders(t)
			o.Embedded, o.Notifications = true, 20_000
			o.Progress = func(format string, args ...any) {
				t.Logf(format, args...)
				if strings.HasPrefix(format, when) {
					interrupt()
				}
			}
			if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if left := children(t); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
			if left := folders(); left > 0 {
				t.Errorf("%d folders are left", left)
			}
		})
	}
}

// folders counts the folders of runs that were not there before.
func folders(t *testing.T) func() int {
	count := func() int {
		found, err := filepath.Glob(filepath.Join(os.TempDir(), "pushfleet-worker-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	before := count()
	return func() int { return count() - before }
}

// children are the processes that this one has started and that still run.
func children(t *testing.T) (found []string) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // a thread may have ended
		found = append(found, strings.Fields(string(text))...)
	}
	return found
}

// TestRealRun: the same with real servers, and with everything that can be varied.
func TestRealRun(t *testing.T) {
	localtest.Require(t)
	programs, err := fleet.Build(t.Context(), t.TempDir(), false, "pushworker")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	o := small(t)
	o.Notifications, o.WarmUp, o.CoolDown = 100_000, 10_000, 10_000
	o.Worker, o.CommitLog, o.Limits, o.Confirms, o.Duplicates, o.Workers = programs.Worker, Batch, 2, 1, 0, 2
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	r.check(t, &o)
	if r.CassandraCPU == nil || *r.CassandraCPU <= 0 || r.RowsPerBatch == nil || *r.RowsPerBatch < 1 {
		t.Errorf("Cassandra took %v us, %v rows a batch", r.CassandraCPU, r.RowsPerBatch)
	}
	if r.Compiling <= 0 { // young servers
		t.Error("Java compiled nothing")
	}
	if len(r.Shares) != 2 || r.Shares[0] <= 0 || r.Shares[1] <= 0 || math.Abs(r.Shares[0]+r.Shares[1]-1) > 1e-9 {
		t.Errorf("two workers have the shares %v", r.Shares)
	}
	if r.CommitLog != "batch" || !r.PackedRows || r.KeyspaceReplication != "class SimpleStrategy, replication_factor 1" {
		t.Errorf("it was not run so: %+v", r)
	}
	if r.Confirmed != nil && *r.Confirmed < 0.5 {
		t.Errorf("%v of the notifications were confirmed, want all", *r.Confirmed)
	}
}

func TestOptionsThatMeasureNothing(t *testing.T) {
	good := Standard()
	good.Serve, good.Worker = []string{"x"}, "y"
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"10,000":           func(o *Options) { o.Notifications = 10 },
		"are needed":       func(o *Options) { o.WarmUp = -1 },
		"at least":         func(o *Options) { o.CoolDown = -1 },
		"commit log":       func(o *Options) { o.CommitLog = "group" },
		"no Cassandra":     func(o *Options) { o.CommitLog, o.Embedded = Batch, true },
		"17 limit":         func(o *Options) { o.Limits = 17 },
		"-1 limit":         func(o *Options) { o.Limits = -1 },
		"1.1 of the":       func(o *Options) { o.Confirms = 1.1 },
		"NaN of the":       func(o *Options) { o.Confirms = math.NaN() },
		"0.6 of the":       func(o *Options) { o.Duplicates = 0.6 },
		"0 ids":            func(o *Options) { o.Minted = 0 },
		"passwords for 0s": func(o *Options) { o.Unloaded = 0 },
		"0 workers":        func(o *Options) { o.Workers = 0 },
		"several workers":  func(o *Options) { o.Workers, o.Embedded = 2, true },
		"0 partitions":     func(o *Options) { o.Partitions = 0 },
		"-1 notifications": func(o *Options) { o.Rate = -1 },
		"in no filter":     func(o *Options) { o.Rate, o.Confirms = 1, 0.5 },
		"-1 devices":       func(o *Options) { o.Devices = -1 },
		"programs":         func(o *Options) { o.Worker = "" },
		"programs are":     func(o *Options) { o.Serve, o.Embedded = nil, true },
	} {
		o := good
		spoil(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The limits are a configuration that a worker takes.
func TestRules(t *testing.T) {
	for n := range maxLimits + 1 {
		c := configs.Default()
		c.Limits.Rules = rules(n)
		if len(c.Limits.Rules) != n {
			t.Errorf("%d rules are %d", n, len(c.Limits.Rules))
		}
		if err := c.Validate(); err != nil && strings.Contains(err.Error(), "limits") {
			t.Errorf("%d rules: %v", n, err)
		}
	}
}

// The backlog is what the standard scenario says: the size of its messages, how far apart ids were minted, half of them to
// either provider, a hundredth of them copies.
func TestStandardBacklog(t *testing.T) {
	o := Standard()
	people, err := newPeople(&o)
	if err != nil {
		t.Fatal(err)
	}
	const n = 20_000
	b, at := &backlog{people: people}, time.UnixMilli(1_790_000_000_000)
	spacing := time.Second / time.Duration(o.Minted)
	records, _ := b.next(people.Records(), n, 0, at, spacing)
	bytes, apple := 0, 0
	for i, r := range records {
		bytes += len(r.Value)
		var m push.Message
		decode.Message(r.Value, &m)
		if r.Want.Copy {
			continue
		}
		if minted, is := push.MintedAt(m.ID); !is || minted.UnixMilli() != at.Add(spacing*time.Duration(i)).UnixMilli() {
			t.Fatalf("record %d is %s, minted at %v", i, m.ID, minted)
		}
		number, _ := people.Find(m.UserID)
		if people.User(number).Devices[0].Platform == push.APNS {
			apple++
		}
	}
	if mean := bytes / n; mean < 470 || mean > 490 {
		t.Errorf("a message has %d bytes", mean)
	}
	if copies := n - len(b.ids); copies < n/200 || copies > n/50 {
		t.Errorf("%d copies of %d", copies, n)
	}
	if share := float64(apple) / float64(len(b.ids)); share < 0.48 || share > 0.52 {
		t.Errorf("%v of them are Apple's", share)
	}
}

// The share that is to be confirmed is that share of the backlog, and spread
// over it.
func TestConfirmsAreSpread(t *testing.T) {
	people, err := newPeople(&Options{Notifications: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	for share, want := range map[float64]int{0: 0, 0.1: 100, 0.25: 250, 1: 1000} {
		b, g := &backlog{people: people}, people.Records()
		for range 3 {
			from := len(b.ids)
			records, confirm := b.next(g, 1000, share, time.Now(), time.Millisecond)
			if len(records) != 1000 || len(confirm) < want-1 || len(confirm) > want+1 {
				t.Errorf("%v: %d of %d are to be confirmed, want %d", share, len(confirm), len(records), want)
			}
			for i, r := range records {
				var m push.Message
				if decode.Message(r.Value, &m); m.ID != b.ids[from+i] || m.UserID != people.User(int(b.users[from+i])).ID {
					t.Fatalf("record %d is %s for %s", from+i, m.ID, m.UserID)
				}
			}
		}
	}
}

// A one-time password is a message that a worker takes as it is.
func TestPasswordIsValid(t *testing.T) {
	people, err := newPeople(&Options{Notifications: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	p := latency.Sent{ID: "x", User: 7, At: time.Now()}
	var m push.Message
	if defect := decode.Message(passwordOf(&p, people), &m); defect != nil || m.ID != "x" || m.UserID != people.User(7).ID || m.Priority != push.Critical {
		t.Errorf("%v: %+v", defect, m)
	}
}

func TestConfirmed(t *testing.T) {
	start := []fleet.Metrics{{`push_batch_size_sum{lane="main"}`: 600, "push_status_read_ids_total": 900}, {`push_batch_size_sum{lane="main"}`: 400}}
	end := []fleet.Metrics{{`push_batch_size_sum{lane="main"}`: 1000, "push_status_read_ids_total": 1000}, {`push_batch_size_sum{lane="main"}`: 2000, "push_status_read_ids_total": 400}}
	if share := confirmed(start, end); share == nil || *share != 0.25 {
		t.Errorf("500 of 2000: %v", share)
	}
	if share := confirmed(end, end); share != nil {
		t.Errorf("of none: %v", *share)
	}
}

// Everything between two moments is divided by the notifications between them.
func TestFigures(t *testing.T) {
	at := time.Now()
	cpu := func(worker, kafka, cassandra time.Duration) map[string]time.Duration {
		return map[string]time.Duration{workerProcess: worker, kafkaServer: kafka, "cassandra": cassandra, measuring: 0}
	}
	start := moment{&usage.Account{At: at, CPU: cpu(time.Second, 0, 0), Compilers: map[int]time.Duration{7: time.Second, 8: time.Second}},
		[]fleet.Metrics{{"go_memstats_mallocs_total": 500, "push_status_batch_rows_sum": 10, "push_status_batch_rows_count": 10}},
		allocations{byPart: map[string]int64{"send": 100}, byOwner: map[string]int64{"ours": 100}}, 1000}
	end := moment{&usage.Account{At: at.Add(2 * time.Second), CPU: cpu(3*time.Second, time.Second, 4*time.Second), Machine: 10 * time.Second, Compilers: map[int]time.Duration{7: 2 * time.Second, 9: 2 * time.Second}},
		[]fleet.Metrics{{"go_memstats_mallocs_total": 40_500, "push_status_batch_rows_sum": 2010, "push_status_batch_rows_count": 20}},
		allocations{byPart: map[string]int64{"send": 200, "users": 300}, byOwner: map[string]int64{"ours": 500}}, 101_000}
	r := &Result{}
	r.figures(start, end, map[string]int64{"send": 3, "gc": 1}, false)
	if r.Rate != 50_000 || r.WorkerCPU != 20 || r.KafkaCPU != 10 || *r.CassandraCPU != 40 || r.Allocations != 0.4 || *r.RowsPerBatch != 200 || r.OthersCores != 1.5 || r.Compiling != 1.5 {
		t.Errorf("%+v", r)
	}
	if !maps.Equal(r.Parts, map[string]float64{"send": 15, "gc": 5}) {
		t.Errorf("parts %v", r.Parts)
	}
	if math.Abs(r.AllocationParts["users"]-0.3) > 1e-9 || math.Abs(r.AllocationOwners["ours"]-0.4) > 1e-9 {
		t.Errorf("allocations %v, %v", r.AllocationParts, r.AllocationOwners)
	}
	r.Compare(40, 40_000)
	if *r.WorkerRatio != 0.5 || r.PartsRatio["gc"] != 0.125 || *r.APNS2CPU != 40 || *r.APNS2Rate != 40_000 || *r.RateRatio != 1.25 {
		t.Errorf("of apns2's: %v, %v; rate %v", *r.WorkerRatio, r.PartsRatio, *r.RateRatio)
	}
}

// Scripts depend on the keys.
func TestKeys(t *testing.T) {
	got, err := json.Marshal(&Result{Date: time.Date(2026, 11, 24, 1, 2, 3, 0, time.UTC)})
	want := `{"notifications_per_second":0,"worker_cpu_us":0,"kafka_cpu_us":0,"redis_cpu_us":0,"cassandra_cpu_us":null,"sim_cpu_us":0,` +
		`"allocs_per_notification":0,"rows_per_status_batch":null,"critical_p99_ms":null,"critical_unloaded_p99_ms":null,"notification_p50_ms":null,"notification_p99_ms":null,"rss_mb":0,"parts_us":null,` +
		`"apns2_cpu_us":null,"apns2_pushes_per_second":null,"rate_of_apns2":null,"worker_of_apns2":null,"parts_of_apns2":null,"others_cores":0,"compiling_cores":0,"measuring_cpu_us":0,"profiled":0,` +
		`"allocs_by_part":null,"allocs_by_owner":null,"worker_shares":null,"critical_p50_ms":null,"critical_unloaded_p50_ms":null,"notifications":0,"seconds":0,"again":0,` +
		`"confirmed":null,"checked":0,"workers":0,"partitions":0,"produced_per_second":0,"quota_per_second":0,"warm_up":0,"cool_down":0,"devices":0,"duplicates":0,"minted_per_second":0,"limit_rules":0,"latency_ms":0,` +
		`"commit_log":"","packed_rows":false,"kafka_replication":0,"keyspace_replication":"","embedded":false,"cores":0,"go":"","date":"2026-11-24T01:02:03Z","plot":""}`
	if err != nil || string(got) != want {
		t.Errorf("\n got %s\nwant %s (%v)", got, want, err)
	}
}
