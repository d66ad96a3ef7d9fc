//go:build channel

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// These tests are built with the platform beep, which bench/channel adds as
// DESIGN.md describes ("How a channel is added"). Worker, registry and pushctl
// are those of production, in one process.

// gateway calls pagers. It answers 200, unless answers has others for the first
// calls of a text.
type gateway struct {
	mu      sync.Mutex
	answers map[string][]int    // guarded by mu; by text
	called  map[string][]string // guarded by mu; pagers, by text
}

const gatewayKey = "opensesame"

func (g *gateway) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var call struct{ Pager, ID, Text string }
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil || r.Header.Get("Authorization") != "Bearer "+gatewayKey {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.called[call.Text] = append(g.called[call.Text], call.Pager)
	answer := http.StatusOK
	if more := g.answers[call.Text]; len(more) > 0 {
		answer, g.answers[call.Text] = more[0], more[1:]
	}
	rw.Header().Set("Call-Id", "call-"+call.Pager)
	rw.WriteHeader(answer)
}

// calls are the pagers that were called with this text.
func (g *gateway) calls(text string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.called[text])
}

// third is a fleet that has an account for beep alone.
type third struct {
	*fleet
	gateway *gateway
	config  *configs.Config
	metrics *prometheus.Registry
}

// memory is a store that outlives its worker.
type memory struct{ *status.Memory }

func (memory) Close() {}

func startThird(t *testing.T) *third {
	t.Helper()
	w := &third{fleet: startFleet(t, false), metrics: prometheus.NewRegistry(),
		gateway: &gateway{answers: map[string][]int{"later": {503}, "stop": {401}, "never": {503, 503}, "gone": {410}}, called: map[string][]string{}}}
	server := httptest.NewServer(w.gateway)
	t.Cleanup(server.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(gatewayKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	c := configs.Default()
	w.config = c
	c.Kafka.Brokers, c.Redis.Addresses = w.kafka.Addrs(), []string{w.redis.Addr()}
	c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication, c.Kafka.JoinWithin = 1, 1, 0
	c.Redis.ReadTimeout, c.Redis.WriteTimeout = time.Minute, time.Minute // the in-process Redis runs scripts slowly
	c.Dedupe.Capacity = 20_000
	c.Lanes = c.Lanes[1:2]
	c.Lanes[0].Name, c.Lanes[0].Topic = "main", "push.main"
	c.Retries.Max, c.Retries.Tiers = 1, []time.Duration{time.Second}
	c.Gates.FirstPause, c.Gates.HaltPause = 100*time.Millisecond, 100*time.Millisecond
	c.Admin.Listen, c.Registry.Listen = "", ""
	c.Apps = []configs.App{{Name: "shop", Accounts: map[string]string{"beep.url": server.URL, "beep.key_file": key}}}
	if err := errors.Join(c.Validate(), c.CheckRun()); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := configs.Print(&text, c); err != nil {
		t.Fatal(err)
	}
	w.fleet.config = configFile(t, text.String())
	for _, s := range wiring.Topics(c) {
		if err := w.kafka.Create(embedded.Topic{Name: s.Name, Partitions: s.Partitions, Compacted: s.Configs["cleanup.policy"] == "compact"}); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	return w
}

// start runs a registry and a worker until the test ends.
func (w *third) start() {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := worker.RunRegistry(ctx, worker.RegistryOptions{Config: w.config, Log: log, Metrics: prometheus.NewRegistry()}); ctx.Err() == nil {
			w.t.Errorf("the registry ended: %v", err)
		}
	})
	running.Go(func() {
		err := worker.Run(ctx, worker.Options{Config: w.config, Log: log, Metrics: w.metrics, Version: "test",
			Exit:       func(int) { w.t.Error("the worker's watchdog would end it") },
			OpenStatus: func(context.Context, status.Options) (worker.Status, error) { return memory{w.status}, nil }})
		if ctx.Err() == nil {
			w.t.Errorf("the worker ended: %v", err)
		}
	})
	w.t.Cleanup(func() {
		stop()
		running.Wait()
	})
}

// await polls until so is true.
func (w *third) await(what string, so func() bool) {
	w.t.Helper()
	for end := time.Now().Add(w.patience); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within %v: %s", w.patience, what)
		}
	}
}

// register adds a device and waits until Redis has it.
func (w *third) register(user, platform, token string) {
	w.t.Helper()
	exit, _, stderr := w.run(token, "devices", "add", "--user", user, "--platform", platform, "--app", "shop", "--token-file", "-")
	if exit != exitDone {
		w.t.Fatalf("devices add: exit status %d: %s", exit, stderr)
	}
	w.await(user+" has a device of "+platform, func() bool { return w.has(user, platform) })
}

func (w *third) has(user, platform string) bool {
	_, stdout, _ := w.run("", "devices", "get", user)
	return strings.Contains(stdout, platform)
}

// send sends a text to a user and waits until its outcome is want.
func (w *third) send(user, text, want string) (id string) {
	w.t.Helper()
	_, stdout, stderr := w.run("", "send", "--lane", "main", "--app", "shop", "--user", user, "--title", text, "--wait", "1m", "-o", "json")
	var sent sendAnswer
	if err := json.Unmarshal([]byte(stdout), &sent); err != nil || len(sent.Notifications) != 1 {
		w.t.Fatalf("send %s: %v: %s%s", text, err, stdout, stderr)
	}
	if got := sent.Notifications[0]; got.Outcome != want {
		w.t.Fatalf("%s ended as %s, want %s\n%s", text, got.Outcome, want, w.ok("status", got.ID))
	}
	return sent.Notifications[0].ID
}

// states are those of a notification in the order of time, each with its
// provider and reason.
func (w *third) states(id string) (s explain.Notification, list []string) {
	w.t.Helper()
	_, stdout, _ := w.run("", "status", id, "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		w.t.Fatalf("status: %v: %s", err, stdout)
	}
	for _, row := range s.States {
		list = append(list, strings.TrimSpace(row.Provider+" "+row.State+" "+row.Reason))
	}
	return s, list
}

func (w *third) stated(id string, want ...string) {
	w.t.Helper()
	if _, got := w.states(id); !slices.Equal(got, want) {
		w.t.Errorf("the states are %q, want %q", got, want)
	}
}

// TestAThirdPlatform takes beep through everything that a platform takes part
// in.
func TestAThirdPlatform(t *testing.T) {
	w := startThird(t)
	for user, pager := range map[string]string{"ada": "555-0101", "bob": "555-0102", "cy": "555-0103"} {
		w.register(user, "beep", pager)
	}
	for _, step := range []struct {
		name string
		do   func(*third, *testing.T)
	}{
		{"tokens", (*third).tokens}, {"send", (*third).delivered}, {"a bare device", (*third).bare}, {"retry", (*third).retried},
		{"hold", (*third).held}, {"DLQ and redrive", (*third).redriven}, {"feedback", (*third).gone}, {"preferences", (*third).optedOut},
		{"events", (*third).told}, {"metrics", (*third).counted},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			w.t = t
			step.do(w, t)
		}) {
			break
		}
	}
	w.t = t
}

func (w *third) tokens(t *testing.T) {
	exit, _, stderr := w.run("no pager", "devices", "add", "--user", "eve", "--platform", "beep", "--app", "shop", "--token-file", "-")
	if exit != exitUsage || !strings.Contains(stderr, "not digits and dashes") {
		t.Errorf("a token that is none: exit status %d: %s", exit, stderr)
	}
	exit, stdout, stderr := w.run("user_id,platform,token,app\ndee,beep,555-0104,shop\n", "devices", "import", "--format", "csv", "--registered-at", "2026-01-01T00:00:00Z", "-")
	if exit != exitDone {
		t.Errorf("devices import: exit status %d: %s%s", exit, stdout, stderr)
	}
}

func (w *third) delivered(t *testing.T) {
	id := w.send("ada", "hello", "DELIVERED")
	w.stated(id, "beep DELIVERED")
	if s, _ := w.states(id); s.States[0].ProviderID != "call-555-0101" || !slices.Equal(w.gateway.calls("hello"), []string{"555-0101"}) {
		t.Errorf("called %v: %+v", w.gateway.calls("hello"), s)
	}
	if text := w.ok("status", id); !strings.Contains(text, "(beep): DELIVERED") {
		t.Errorf("pushctl status says\n%s", text)
	}
}

func (w *third) bare(t *testing.T) {
	const id = "bare-1"
	message := `{"id":"` + id + `","app":"shop","device":{"platform":"beep","token":"555-0199"},"title":"bare"}`
	if exit, stdout, stderr := w.run(message, "send", "--lane", "main", "--wait", "1m", "-"); exit != exitDone {
		t.Fatalf("exit status %d: %s%s", exit, stdout, stderr)
	}
	w.stated(id, "beep DELIVERED")
}

func (w *third) retried(*testing.T) {
	w.stated(w.send("ada", "later", "DELIVERED"), "beep RETRYING Busy", "beep DELIVERED")
}

// held: records ahead of a due one go out with it, so a copy that is due spares
// the test the thirty seconds that the first one would wait.
func (w *third) held(t *testing.T) {
	const id, topic = "held-1", "push.main.hold.beep"
	w.ok("send", "--lane", "main", "--id", id, "--app", "shop", "--user", "ada", "--title", "stop")
	w.await("it is held", func() bool {
		_, states := w.states(id)
		return slices.Equal(states, []string{"beep HELD BadKey"})
	})
	records := w.records(topic)
	if len(records) != 1 {
		t.Fatalf("%s has %d records", topic, len(records))
	}
	due := records[0]
	due.Headers["pf-not-before"] = strconv.FormatInt(time.Now().UnixMilli(), 10)
	writer, err := kafka.NewWriter(kafka.Options{Brokers: w.kafka.Addrs()}, kafka.WriterOptions{Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := writer.Append(t.Context(), []kafka.Record{{Key: due.Key, Value: due.Value, Headers: due.Headers}}); err != nil {
		t.Fatal(err)
	}
	w.await("it is delivered", func() bool {
		s, _ := w.states(id)
		return s.Outcome == "DELIVERED"
	})
	w.stated(id, "beep HELD BadKey", "beep DELIVERED")
}

func (w *third) redriven(t *testing.T) {
	id := w.send("bob", "never", "DEAD_LETTERED")
	letters := func(args ...string) (list []dlq.Letter) {
		t.Helper()
		if err := json.Unmarshal([]byte(w.ok(append([]string{"dlq", "ls", "-o", "json"}, args...)...)), &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	if ours := letters("--provider", "beep"); len(ours) != 1 || ours[0].ID != id || ours[0].Detail != "Busy" || !slices.Equal(ours[0].Providers, []string{"beep"}) {
		t.Errorf("dead letters of beep: %+v", ours)
	}
	if others := letters("--provider", "fcm"); len(others) != 0 {
		t.Errorf("dead letters of fcm: %+v", others)
	}
	w.ok("dlq", "redrive", "--provider", "beep", "--yes")
	w.await("it is delivered", func() bool {
		s, _ := w.states(id)
		return s.Outcome == "DELIVERED"
	})
}

func (w *third) gone(*testing.T) {
	w.stated(w.send("cy", "gone", "FAILED"), "beep FAILED NoSuchPager")
	w.await("the dead pager is removed", func() bool { return !w.has("cy", "beep") })
	w.stated(w.send("cy", "nobody", "SUPPRESSED"), "SUPPRESSED no_device")
}

// optedOut: each device is judged by its own channel.
func (w *third) optedOut(t *testing.T) {
	w.register("bob", "fcm", "phone-1")
	for _, tt := range []struct {
		out    []string
		want   string
		states []string
	}{
		{[]string{"push"}, "DELIVERED", []string{"beep DELIVERED", "fcm SUPPRESSED opted_out_channel"}},
		{[]string{"pager"}, "FAILED", []string{"beep SUPPRESSED opted_out_channel", "fcm FAILED no_route"}}, // the app has no account with Google
		{[]string{"pager", "push"}, "SUPPRESSED", []string{"SUPPRESSED opted_out_channel"}},
	} {
		args := []string{"prefs", "set", "bob"}
		for _, channel := range tt.out {
			args = append(args, "--opt-out-channel", channel)
		}
		w.ok(args...)
		w.await("the opt-out counts", func() bool {
			var p prefsAnswer
			return json.Unmarshal([]byte(w.ok("prefs", "get", "bob", "-o", "json")), &p) == nil && slices.Equal(p.Channels, tt.out)
		})
		_, got := w.states(w.send("bob", "out "+strings.Join(tt.out, " "), tt.want))
		if slices.Sort(got); !slices.Equal(got, tt.states) {
			t.Errorf("opted out of %v: %q, want %q", tt.out, got, tt.states)
		}
	}
}

func (w *third) told(t *testing.T) {
	want := map[string]int64{"DELIVERED": 6, "RETRYING": 2, "HELD": 1, "DEAD_LETTERED": 1, "FAILED": 1, "SUPPRESSED": 1}
	var got map[string]int64
	w.await("push.events tells of all", func() bool {
		var v eventStats
		if err := json.Unmarshal([]byte(w.ok("events", "stats", "--provider", "beep", "--by", "state", "-o", "json")), &v); err != nil {
			t.Fatal(err)
		}
		got = map[string]int64{}
		for _, c := range v.Counts {
			got[c.State] = c.N
		}
		return v.Total >= 12
	})
	if !maps.Equal(got, want) {
		t.Errorf("push.events counts %v, want %v", got, want)
	}
}

func (w *third) counted(t *testing.T) {
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			switch f.GetName() {
			case "push_deliveries_total":
				found[labels["provider"]+" "+labels["result"]] = m.GetCounter().GetValue()
			case "push_provider_responses_total":
				found[labels["provider"]+" "+labels["reason"]] += m.GetCounter().GetValue()
			}
		}
	}
	for name, want := range map[string]float64{"beep delivered": 6, "beep again": 4, "beep gone": 1, "beep Busy": 3, "beep BadKey": 1, "beep NoSuchPager": 1} {
		if found[name] != want {
			t.Errorf("%s is counted %v times, want %v: %v", name, found[name], want, found)
		}
	}
}
