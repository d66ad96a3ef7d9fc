//go:build unix

package endtoend

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// The first SIGTERM drains and ends with 0; a second one ends at once, and what
// was under way is done by the next worker.
func TestSignals(t *testing.T) {
	const records = 12_000
	people := newCrowd(t, records)
	w := newWorld(t, setup{faults: slow(), configure: func(c *configs.Config) {
		narrow(c)
		c.Kafka.SessionTimeout = 3 * time.Second
	}})
	w.populate(people)
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))

	first := w.worker()
	check(t, w.AwaitCommitted(waiting(t), 1))
	status, err := first.Term(waiting(t))
	check(t, err)
	if status != 0 || !strings.Contains(first.Log(), `"msg":"drained"`) {
		t.Errorf("SIGTERM in the middle of the work: status %d%s", status, first.Tail())
	}
	if n := w.Resent(); n > 0 {
		t.Errorf("%d pushes were repeated before anybody could", n)
	}
	drained, err := w.Committed(waiting(t))
	check(t, err)
	if drained == 0 || drained == records {
		t.Fatalf("%d of %d records are committed: that was not the middle", drained, records)
	}

	// Answers take so long that a drain waits for them, to its end.
	late := sim.Faults{Latency: time.Hour}
	check(t, w.Sim.SetFaults(sim.APNS, late))
	check(t, w.Sim.SetFaults(sim.FCM, late))
	second := w.worker()
	check(t, second.AwaitMetric(waiting(t), func(n float64) bool { return n > 0 }, "push_provider_inflight"))
	check(t, second.Signal(syscall.SIGTERM))
	check(t, second.AwaitLog(waiting(t), "draining"))
	check(t, second.Signal(syscall.SIGTERM))
	status, err = second.Wait(waiting(t))
	check(t, err)
	if status != 128+int(syscall.SIGTERM) || strings.Contains(second.Log(), `"msg":"drained"`) {
		t.Errorf("a second signal: status %d%s", status, second.Tail())
	}

	check(t, w.Sim.SetFaults(sim.APNS, sim.Faults{}))
	check(t, w.Sim.SetFaults(sim.FCM, sim.Faults{}))
	w.worker()
	r := w.clean(fleet.AccountOptions{})
	if r.Resent > routes*(inFlight+unacknowledged) {
		t.Errorf("%d pushes were repeated, more than were under way", r.Resent)
	}
}

// Workers that are told to stop in the middle of a backlog, again and again,
// while providers take three seconds to answer, send nothing twice, lose
// nothing, and are out within their drain.
func TestStopsWithABacklog(t *testing.T) {
	const (
		records = 12_000
		stops   = 6
		drain   = 25 * time.Second
	)
	people := newCrowd(t, records)
	late := sim.Faults{Latency: 3 * time.Second}
	w := newWorld(t, setup{faults: sim.RouteSet{APNS: late, FCM: late}, configure: func(c *configs.Config) {
		narrow(c)
		c.Send.Deadline, c.Cassandra.Timeout, c.Send.Drain = 13*time.Second, 5*time.Second, drain
	}})
	w.populate(people)
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))

	workers := []*fleet.Process{w.worker(), w.worker()}
	for n := range stops {
		check(t, w.AwaitAccepted(waiting(t), w.Sim.Ledger().Totals().Accepted+200))
		began := time.Now()
		status, err := workers[n%2].Term(waiting(t))
		check(t, err)
		if took := time.Since(began); status != 0 || took > drain {
			t.Errorf("stop %d took %v, status %d%s", n, took, status, workers[n%2].Tail())
		}
		workers[n%2] = w.worker()
	}
	done, err := w.Committed(waiting(t))
	check(t, err)
	if done == records {
		t.Error("all was done before the last stop: there was no backlog")
	}
	check(t, w.Sim.SetFaults(sim.APNS, sim.Faults{}))
	check(t, w.Sim.SetFaults(sim.FCM, sim.Faults{}))
	if r := w.clean(fleet.AccountOptions{}); r.Resent > 0 {
		t.Errorf("%d pushes were repeated, and every worker ended in order", r.Resent)
	}
}

// A wrong configuration ends with 2 before anything is started, and names the
// keys. Nothing that it needs is there, so whoever got further would wait.
func TestWrongConfiguration(t *testing.T) {
	localtest.Require(t) // the binary is built only then
	for _, tt := range []struct {
		name string
		text string
		says []string
	}{
		{"no apps", "", []string{"apps"}},
		{"unknown key", "kafka: {borkers: ['127.0.0.1:9092']}", []string{"kafka.borkers"}},
		{"wrong type", "batch: {records: many}", []string{"batch.records"}},
		{"a contradiction", "send: {drain: 10s}", []string{"send.drain", "send.deadline"}},
		{"rows that die too early", "cassandra: {ttl: 24h}", []string{"cassandra.ttl", "dedupe.window"}},
		{"several at once", "redis: {pool: 0}\nstatus: {rows: -1}", []string{"redis.pool", "status.rows"}},
		{"no YAML", "kafka: [", []string{"not YAML"}},
		{"a secret that is not there", "redis: {insecure: true, password_file: /no/such/file}\napps: [{name: shop, fcm: {project: example-shop, service_account_file: /no/such/either}}]",
			[]string{"redis.password_file", "no such file"}},
		{"a password in plaintext", "redis: {password_file: /no/such/file}", []string{"redis.password_file", "redis.tls"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "worker.yaml")
			check(t, os.WriteFile(path, []byte(tt.text), 0o600))
			began := time.Now()
			out, err := exec.CommandContext(waiting(t), programs.Worker, "run", "--config", path).CombinedOutput()
			t.Logf("%v: %s", time.Since(began), out)
			exit, ok := err.(*exec.ExitError)
			if !ok || exit.ExitCode() != 2 {
				t.Errorf("ended with %v, want status 2", err)
			}
			for _, want := range tt.says {
				if !strings.Contains(string(out), want) {
					t.Errorf("does not say %q", want)
				}
			}
		})
	}
}
