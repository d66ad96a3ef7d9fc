//go:build linux

package whole

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// TestSmallRun: the measurement itself works, with everything that can be
// varied, and every push and row is seen.
func TestSmallRun(t *testing.T) {
	localtest.Require(t)
	programs, err := fleet.Build(t.Context(), t.TempDir(), false, "pushworker")
	if err != nil {
		t.Fatal(err)
	}
	// Ended by this and not by the test's own time-out, it tells what was missing.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r, err := Run(ctx, Options{
		Notifications: 140_000, WarmUp: 10_000, CoolDown: 10_000, Devices: 1, Worker: programs.Worker, Progress: t.Logf,
		CommitLog: Batch, Limits: 2, Confirms: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Notifications == 0 || r.Seconds <= 0 || r.WorkerCPU <= 0 || r.WorkerRSS == 0 || r.Retried > 0 {
		t.Errorf("%+v", r)
	}
	if r.CommitLog != "batch" || r.LimitRules != 2 || r.CoolDown != 10_000 || r.KafkaReplication != 1 || r.KeyspaceReplication != "class SimpleStrategy, replication_factor 1" {
		t.Errorf("it was not run so: %+v", r)
	}
	if r.Checked != 160_000 {
		t.Errorf("%d pushes and rows were looked for, want 160000", r.Checked)
	}
	if r.Confirmed != nil && *r.Confirmed < 0.5 {
		t.Errorf("%v of the notifications were confirmed, want all", *r.Confirmed)
	}
}

func TestOptionsThatMeasureNothing(t *testing.T) {
	good := Options{Notifications: 10_000, CommitLog: Periodic, Limits: 16, Confirms: 1}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"10,000":       func(o *Options) { o.Notifications = 10 },
		"are needed":   func(o *Options) { o.WarmUp = -1 },
		"at least":     func(o *Options) { o.CoolDown = -1 },
		"commit log":   func(o *Options) { o.CommitLog = "group" },
		"17 limit":     func(o *Options) { o.Limits = 17 },
		"-1 limit":     func(o *Options) { o.Limits = -1 },
		"1.1 of the":   func(o *Options) { o.Confirms = 1.1 },
		"NaN of the":   func(o *Options) { o.Confirms = math.NaN() },
		"-0.01 of the": func(o *Options) { o.Confirms = -0.01 },
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

// The share that is to be confirmed is that share of the backlog, and spread
// over it.
func TestConfirmsAreSpread(t *testing.T) {
	people, err := newPeople(Options{Notifications: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	for share, want := range map[float64]int{0: 0, 0.1: 100, 0.25: 250, 1: 1000} {
		b, g := &backlog{people: people}, people.Records()
		for range 3 {
			from := len(b.ids)
			records, confirm := b.next(g, 1000, share)
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

func TestConfirmed(t *testing.T) {
	start := fleet.Metrics{`push_batch_size_sum{lane="main"}`: 1000, "push_status_read_ids_total": 900}
	end := fleet.Metrics{`push_batch_size_sum{lane="main"}`: 3000, "push_status_read_ids_total": 1400}
	if share := confirmed(start, end); share == nil || *share != 0.25 {
		t.Errorf("500 of 2000: %v", share)
	}
	if share := confirmed(end, end); share != nil {
		t.Errorf("of none: %v", *share)
	}
}

// Scripts depend on the keys.
func TestKeys(t *testing.T) {
	got, err := json.Marshal(&Result{CommitLog: Periodic, KeyspaceReplication: "none"})
	want := `{"notifications":0,"pushes":0,"seconds":0,"notifications_per_second":0,"pushes_per_second":0,"worker_cpu_us":0,"kafka_cpu_us":0,` +
		`"redis_cpu_us":0,"cassandra_cpu_us":0,"simulator_cpu_us":0,"worker_rss_mb":0,"cores":0,"go":"","again":0,` +
		`"commit_log":"periodic","kafka_replication":0,"keyspace_replication":"none","limit_rules":0,"confirmed":null,"checked":0,"cool_down":0}`
	if err != nil || string(got) != want {
		t.Errorf("\n got %s\nwant %s (%v)", got, want, err)
	}
}
