//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	processes "github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// wholeFleet is real servers, a worker and a registry as operators run them,
// and pushctl as they type it. There are no retries: a push that a device does
// not accept is dead-lettered at once.
type wholeFleet struct {
	*processes.Fleet
	t *testing.T
}

// patience bounds every wait of these tests; the machine may be busy.
const patience = 2 * time.Minute

func startWhole(t *testing.T) *wholeFleet {
	t.Helper()
	shared := localtest.Require(t)
	w := &wholeFleet{t: t}
	dir := t.TempDir()
	programs, err := processes.Build(t.Context(), dir, false, "pushworker", "pushctl")
	w.check(err)
	servers := processes.Servers{Kafka: []string{localtest.Kafka(t, local.KafkaOptions{}).Addr()}, Redis: []string{localtest.Redis(t, local.RedisOptions{}).Addr()},
		Cassandra: []string{shared.Cassandra}}
	w.Fleet, err = processes.New(processes.Options{Dir: dir, Programs: programs, Servers: servers, Keyspace: "dlq_" + strings.ToLower(rand.Text()[:12]),
		Configure: func(c *configs.Config) { c.Retries.Max = 0 }})
	w.check(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.Logs())
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	w.ctl("topics", "ensure")
	w.ctl("schema", "apply")
	people, err := crowd.New(crowd.Default(processes.App, 200))
	w.check(err)
	w.check(w.Register(w.waiting(), people))
	_, err = w.StartRegistry()
	w.check(err)
	w.check(w.AwaitUsers(w.waiting(), people))
	worker, err := w.StartWorker()
	w.check(err)
	w.check(worker.AwaitReady(w.waiting()))
	return w
}

func (w *wholeFleet) waiting() context.Context {
	ctx, cancel := context.WithTimeoutCause(w.t.Context(), patience, fmt.Errorf("not within %v", patience))
	w.t.Cleanup(cancel)
	return ctx
}

func (w *wholeFleet) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *wholeFleet) ctl(args ...string) string {
	w.t.Helper()
	out, err := w.Ctl(w.waiting(), args...)
	w.check(err)
	return out
}

// redrive redrives with these flags and returns when a worker has processed
// everything.
func (w *wholeFleet) redrive(args ...string) (v dlq.Redriven) {
	w.t.Helper()
	w.check(json.Unmarshal([]byte(w.ctl(append([]string{"dlq", "redrive", "--rate", "1000", "-o", "json"}, args...)...)), &v))
	w.check(w.AwaitDone(w.waiting()))
	return v
}

// outcome is what pushctl status prints for an id.
func (w *wholeFleet) outcome(id string) string {
	w.t.Helper()
	var s explain.Notification
	out, err := w.Ctl(w.waiting(), "status", id, "-o", "json")
	w.check(err)
	w.check(json.Unmarshal([]byte(out), &s))
	return s.Outcome
}

// open are the dead letters that ls lists.
func (w *wholeFleet) open() (rows []dlq.Letter) {
	w.t.Helper()
	w.check(json.Unmarshal([]byte(w.ctl("dlq", "ls", "-o", "json")), &rows))
	return rows
}

// counted waits until push.events has counted want devices with a state. Counts
// are written once a second.
func (w *wholeFleet) counted(state string, want int64) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		var v eventStats
		w.check(json.Unmarshal([]byte(w.ctl("events", "stats", "--by", "state", "--state", state, "-o", "json")), &v))
		if v.Total == want {
			return
		}
		if v.Total > want || time.Now().After(end) {
			w.t.Errorf("push.events counts %d %s, want %d", v.Total, state, want)
			return
		}
	}
}

// pushes checks how many pushes the providers have accepted, none of them
// twice.
func (w *wholeFleet) pushes(why string, want uint64) {
	w.t.Helper()
	if totals := w.Sim.Ledger().Totals(); totals.Accepted != want || totals.Duplicates != 0 {
		w.t.Errorf("%s: %d pushes were accepted, %d of them again; want %d and 0", why, totals.Accepted, totals.Duplicates, want)
	}
}

// sent is one notification to a device of its own.
type sent struct{ id, token string }

// newSent makes one, with more fields in its message.
func newSent(more string) (sent, processes.Record) {
	s := sent{uuid.Must(uuid.NewV7()).String(), fmt.Sprintf("%064x", uuid.New().ID())}
	value := fmt.Sprintf(`{"id":%q,"app":%q,"device":{"platform":"apns","token":%q},"title":"t"%s}`, s.id, processes.App, s.token, more)
	return s, processes.Record{Key: []byte(s.id), Value: []byte(value)}
}

// ids are the flags that select these.
func ids(ss ...sent) (args []string) {
	for _, s := range ss {
		args = append(args, "--id", s.id)
	}
	return args
}

// A redrive sends what was not delivered, once; nothing that was delivered, and
// nothing that has expired, however often and whenever it is run.
func TestDLQRedriveOnTheWholeWay(t *testing.T) {
	w := startWhole(t)
	var records []processes.Record
	var refused []sent
	for range 6 {
		s, r := newSent("")
		refused, records = append(refused, s), append(records, r)
	}
	for range 3 {
		_, r := newSent("")
		records = append(records, r)
	}
	expiring, r := newSent(fmt.Sprintf(`,"expires_at":%q`, time.Now().Add(time.Minute).UTC().Format(time.RFC3339)))
	records = append(records, r)
	for _, s := range append(refused, expiring) {
		w.Sim.Devices().Throttled(sim.APNS, s.token, 0)
	}
	w.check(w.Produce(w.waiting(), records))
	w.check(w.AwaitDone(w.waiting()))
	w.pushes("at first", 3)
	if rows := w.open(); len(rows) != 7 || rows[0].Reason != string(push.RetriesUsed) || rows[0].Detail != "TooManyRequests" || strings.Join(rows[0].Providers, "") != "apns" {
		t.Fatalf("dead letters: %+v", rows)
	}
	if got := w.outcome(refused[0].id); got != "DEAD_LETTERED" {
		t.Fatalf("%s before the redrive", got)
	}
	// The failure is reported after the status row, within a round or two.
	var told failureLine
	for line, limit := "", w.waiting(); line == ""; {
		w.check(limit.Err())
		if line = w.ctl("events", "tail", "--since", "1h", "--stop", "--only", "failures", "--id", refused[0].id, "--json"); line != "" {
			w.check(json.Unmarshal([]byte(line), &told))
		}
	}
	if told.State != "DEAD_LETTERED" || told.Reason != string(push.RetriesUsed) || told.Provider != "apns" || told.Device != push.DeviceHash(push.APNS, refused[0].token) {
		t.Errorf("push.events says %+v", told)
	}

	if v := w.redrive("--app", processes.App); !v.DryRun || v.Redriven < 6 {
		t.Errorf("dry run: %+v", v)
	}
	w.pushes("a dry run", 3)

	// All devices but the last accept pushes again.
	for _, s := range append(refused[:5:5], expiring) {
		w.Sim.Devices().Clear(sim.APNS, s.token)
	}
	if v := w.redrive(append(ids(refused[:4]...), "--yes")...); v.Redriven != 4 {
		t.Errorf("%+v", v)
	}
	w.pushes("four redriven", 7)
	if got := w.outcome(refused[0].id); got != "DELIVERED" {
		t.Errorf("%s after the redrive", got)
	}
	// Nothing that is delivered by now is sent: a repeated redrive that had
	// crashed before its marks.
	if v := w.redrive(append(ids(refused[:4]...), "--yes", "--all")...); v.Redriven != 4 {
		t.Errorf("%+v", v)
	}
	w.pushes("redriven again", 7)

	// The same, with both copies in the retry topic at once.
	twice := append(ids(refused[4]), "--yes", "--all", "--rate", "1000", "-o", "json")
	w.ctl(append([]string{"dlq", "redrive"}, twice...)...)
	w.redrive(twice...)
	w.pushes("redriven twice at once", 8)

	w.redrivenAgain(refused[5], expiring)
	w.killedTwice(9)

	// What has expired meanwhile is left out.
	rows := w.open()
	if len(rows) != 1 || rows[0].ID != expiring.id {
		t.Fatalf("left: %+v", rows)
	}
	time.Sleep(time.Until(rows[0].ExpiresAt.Add(-time.Second))) // real servers use real time
	if v := w.redrive("--yes"); v.Redriven != 0 || v.Skipped[dlq.SkipExpired] != 1 {
		t.Errorf("at last: %+v", v)
	}
	w.pushes("at last", 309)
}

// redrivenAgain: a notification that is dead-lettered again is a new dead
// letter, which knows that it was redriven. Redriving the old one sends
// nothing.
func (w *wholeFleet) redrivenAgain(last, other sent) {
	w.t.Helper()
	w.redrive(append(ids(last), "--yes")...)
	rows := w.open()
	if got := w.outcome(last.id); got != "DEAD_LETTERED" || len(rows) != 2 || rows[0].ID != other.id || rows[1].ID != last.id || rows[1].Redrives != 1 || rows[1].Hops != 1 {
		w.t.Fatalf("dead-lettered again: %s, %+v", got, rows)
	}
	w.Sim.Devices().Clear(sim.APNS, last.token)
	var old dlq.Letter
	var all []dlq.Letter
	w.check(json.Unmarshal([]byte(w.ctl(append([]string{"dlq", "ls", "--all", "-o", "json"}, ids(last)...)...)), &all))
	for _, r := range all {
		if r.Redrives == 0 {
			old = r
		}
	}
	if v := w.redrive(append(ids(last), "--yes", "--all", "--until", old.Time.Add(time.Millisecond).Format(time.RFC3339Nano))...); v.Redriven != 1 || len(v.Letters) != 1 || v.Letters[0].Place != old.Place {
		w.t.Errorf("the old one: %+v", v)
	}
	w.pushes("an older dead letter than the last", 8)
	if v := w.redrive(append(ids(last), "--yes")...); v.Redriven != 1 || v.Letters[0].Redrives != 1 {
		w.t.Errorf("the new one: %+v", v)
	}
	w.pushes("the last one", 9)
}

// killedTwice: pushctl is killed in the middle of a redrive, and the next
// redrive sends what it left.
func (w *wholeFleet) killedTwice(pushed uint64) {
	w.t.Helper()
	const many = 300
	since := time.Now().UTC().Format(time.RFC3339Nano)
	crowded := make([]sent, many)
	var records []processes.Record
	for i := range crowded {
		s, r := newSent("")
		crowded[i], records = s, append(records, r)
		w.Sim.Devices().Throttled(sim.APNS, crowded[i].token, 0)
	}
	w.check(w.Produce(w.waiting(), records))
	w.check(w.AwaitDone(w.waiting()))
	for _, s := range crowded {
		w.Sim.Devices().Clear(sim.APNS, s.token)
	}
	for range 2 {
		before := w.Sim.Ledger().Totals().Accepted
		killed, kill := context.WithCancel(w.waiting())
		done := make(chan error, 1)
		go func() {
			_, err := w.Ctl(killed, "dlq", "redrive", "--yes", "--rate", "30", "--since", since)
			done <- err
		}()
		w.check(w.AwaitAccepted(w.waiting(), before+20))
		kill()
		if err := <-done; err == nil {
			w.t.Error("pushctl was done before it was killed")
		}
	}
	if left := w.redrive("--yes", "--since", since); left.Redriven == 0 || left.Redriven > many-30 {
		w.t.Errorf("after two kills: %+v", left)
	}
	w.pushes("killed twice", pushed+many)
	w.counted("DELIVERED", int64(pushed+many))
}
