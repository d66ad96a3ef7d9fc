package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pushctl runs the command and returns what it printed.
func pushctl(t *testing.T, ctx context.Context, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	exit = run(ctx, args, strings.NewReader(""), &out, &errs)
	return exit, out.String(), errs.String()
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "worker.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExitStatus(t *testing.T) {
	nobody := configFile(t, "cassandra: {hosts: ['127.0.0.1:1'], timeout: 200ms}\n") // nothing listens there
	interrupted, stop := context.WithCancel(t.Context())
	stop()
	for _, tt := range []struct {
		why    string
		ctx    context.Context
		args   []string
		exit   int
		stdout string // a part of it
		stderr string // a part of it; empty = no output at all
	}{
		{"help", t.Context(), []string{"--help"}, exitDone, "Available Commands", ""},
		{"print needs no server", t.Context(), []string{"schema", "print"}, exitDone, "CREATE TABLE IF NOT EXISTS pushfleet.notification_status", ""},
		{"print for scripts", t.Context(), []string{"schema", "print", "-o", "json"}, exitDone, `"cql": "`, ""},
		{"no such command", t.Context(), []string{"sned"}, exitUsage, "", `unknown command "sned"`},
		{"no such command of a group", t.Context(), []string{"schema", "drop"}, exitUsage, "", `unknown command "drop"`},
		{"a group by itself", t.Context(), []string{"schema"}, exitUsage, "", "see pushctl schema --help"},
		{"no such flag", t.Context(), []string{"schema", "print", "--force"}, exitUsage, "", "unknown flag"},
		{"no such format", t.Context(), []string{"schema", "print", "-o", "xml"}, exitUsage, "", "want table or json"},
		{"an id is missing", t.Context(), []string{"status"}, exitUsage, "", "1 arg"},
		{"no such configuration", t.Context(), []string{"schema", "print", "--config", "/nowhere.yaml"}, exitUsage, "", "/nowhere.yaml"},
		{"a configuration with an unknown key", t.Context(), []string{"schema", "print", "--config", configFile(t, "casandra: {}\n")}, exitUsage, "", "casandra"},
		{"a password file that is not there", t.Context(), []string{"status", "x", "--config", configFile(t, "cassandra: {username: u, password_file: /nowhere, insecure: true}\n")}, exitUsage, "", "/nowhere"},
		{"no server", t.Context(), []string{"status", "x", "--config", nobody}, exitFailed, "", "127.0.0.1:1"},
		{"no server to apply to", t.Context(), []string{"schema", "apply", "--config", nobody}, exitFailed, "", "127.0.0.1:1"},
		{"interrupted", interrupted, []string{"status", "x", "--config", nobody}, exitInterrupted, "", "interrupted"},
	} {
		exit, stdout, stderr := pushctl(t, tt.ctx, tt.args...)
		if exit != tt.exit {
			t.Errorf("%s: exit status %d, want %d (%s)", tt.why, exit, tt.exit, stderr)
		}
		if !strings.Contains(stdout, tt.stdout) {
			t.Errorf("%s: printed %q, want %q in it", tt.why, stdout, tt.stdout)
		}
		if tt.stderr == "" && stderr != "" || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: complained %q, want %q in it", tt.why, stderr, tt.stderr)
		}
	}
}

func TestShowNotification(t *testing.T) {
	at := time.Date(2026, 11, 21, 7, 30, 0, int(5*time.Millisecond), time.UTC)
	rows := []push.Row{ // in the store's order: by device
		{ID: "n1", Device: "aaaaaaaaaaaaaaaa", Step: 0, State: push.StateRetrying, At: at, Platform: push.APNS, Reason: "TooManyRequests", UserHash: 255},
		{ID: "n1", Device: "aaaaaaaaaaaaaaaa", Step: 1, State: push.StateDelivered, At: at.Add(31 * time.Second), Platform: push.APNS, ProviderID: "apns-1", UserHash: 255},
		{ID: "n1", Device: "bbbbbbbbbbbbbbbb", Step: 0, State: push.StateFailed, At: at.Add(time.Second), Platform: push.FCM, Reason: "UNREGISTERED\x1b[2J", UserHash: 255},
	}
	var out bytes.Buffer
	ans := showNotification(explain.Of("n1", rows, explain.Times{Kept: 24 * time.Hour, Delay: 2 * time.Hour}, at.Add(time.Hour)))
	if err := ans.Write(&out, terminal.FormatTable, indent); err != nil {
		t.Fatal(err)
	}
	want := `TIME                      STEP  STATE      DEVICE            PROVIDER  REASON            PROVIDER ID
2026-11-21T07:30:00.005Z  0     RETRYING   aaaaaaaaaaaaaaaa  apns      TooManyRequests   -
2026-11-21T07:30:01.005Z  0     FAILED     bbbbbbbbbbbbbbbb  fcm       UNREGISTERED?[2J  -
2026-11-21T07:30:31.005Z  1     DELIVERED  aaaaaaaaaaaaaaaa  apns      -                 apns-1
outcome: DELIVERED: accepted by the provider for 1 of 2 devices
  device aaaaaaaaaaaaaaaa (apns): DELIVERED: accepted by the provider at 2026-11-21 07:30:31, after one hand-over
  device bbbbbbbbbbbbbbbb (fcm): FAILED: UNREGISTERED?[2J
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
	out.Reset()
	if err := terminal.WriteJSON(&out, ans.Value, indent); err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		ID      string
		Outcome string
		States  []map[string]any
	}
	if err := json.Unmarshal(out.Bytes(), &parsed); err != nil {
		t.Fatal(err)
	}
	if parsed.ID != "n1" || parsed.Outcome != "DELIVERED" || len(parsed.States) != 3 || parsed.States[1]["reason"] != "UNREGISTERED\x1b[2J" || parsed.States[0]["user_hash"] != "ff" {
		t.Errorf("JSON: %s", out.String())
	}
}

// All connection settings come from the configuration, and the secrets from
// their files.
func TestConnectionsAreThoseOfTheConfiguration(t *testing.T) {
	secret := func(text string) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := newApp(strings.NewReader(""), io.Discard, io.Discard)
	defer a.close()
	a.configPath = configFile(t, fmt.Sprintf(`
kafka:
  brokers: ["k1:9092", "k2:9092"]
  tls: {enabled: true, server_name: kafka.internal}
  sasl: {mechanism: SCRAM-SHA-512, username: ku, password_file: %q}
redis:
  addresses: ["r1:6379"]
  cluster: true
  username: ru
  password_file: %q
  tls: {enabled: true}
cassandra:
  hosts: ["c1:9142"]
  keyspace: ks
  local_dc: dc1
  username: cu
  password_file: %q
  tls: {enabled: true}
  layout: [{slice: 20s, shards: 32}]
`, secret("kp"), secret("rp"), secret("cp")))

	k, err := a.kafkaOptions()
	if err != nil {
		t.Fatal(err)
	}
	if len(k.Brokers) != 2 || k.TLS == nil || k.TLS.ServerName != "kafka.internal" || k.SASL == nil || k.SASL.User != "ku" || k.SASL.Password != "kp" || k.SASL.Mechanism != "SCRAM-SHA-512" {
		t.Errorf("kafka: %+v", k)
	}
	r, err := a.redisOptions()
	if err != nil {
		t.Fatal(err)
	}
	if r.Addrs[0] != "r1:6379" || !r.Cluster || r.Username != "ru" || r.Password != "rp" || r.TLS == nil || r.DialTimeout == 0 {
		t.Errorf("redis: %v, cluster %v, user %s", r.Addrs, r.Cluster, r.Username)
	}
	c, err := a.cassandraOptions()
	if err != nil {
		t.Fatal(err)
	}
	if c.Hosts[0] != "c1:9142" || c.Keyspace != "ks" || c.LocalDC != "dc1" || c.Username != "cu" || c.Password != "cp" || c.TLS == nil || c.Layouts[0].Shards != 32 {
		t.Errorf("cassandra: %v, keyspace %s, user %s", c.Hosts, c.Keyspace, c.Username)
	}
	first, err := a.kafkaAdmin()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := a.kafkaAdmin(); err != nil || again != first {
		t.Errorf("a second client was made (%v)", err)
	}
}

// On a real server: apply, apply again, read the status.
func TestSchemaAndStatusOnCassandra(t *testing.T) {
	servers := localtest.Require(t)
	keyspace := fmt.Sprintf("pushctl_%d", time.Now().UnixNano())
	config := configFile(t, fmt.Sprintf("cassandra: {hosts: ['%s'], keyspace: %s}\n", servers.Cassandra, keyspace))

	if exit, _, stderr := pushctl(t, t.Context(), "status", "n1", "--config", config); exit != exitFailed || !strings.Contains(stderr, "keyspace "+keyspace+" does not exist") {
		t.Errorf("status without a schema: exit status %d, %s", exit, stderr)
	}
	for _, action := range []string{"created", "exists"} {
		exit, stdout, stderr := pushctl(t, t.Context(), "schema", "apply", "-o", "json", "--config", config)
		var changes []status.SchemaChange
		if err := json.Unmarshal([]byte(stdout), &changes); exit != exitDone || err != nil {
			t.Fatalf("schema apply: exit status %d, %v, %s", exit, err, stderr)
		}
		if len(changes) != 20 || slices.ContainsFunc(changes, func(c status.SchemaChange) bool { return c.Action != action }) {
			t.Errorf("schema apply did %+v, want 20 times %s", changes, action)
		}
	}
	store, err := status.OpenCassandra(t.Context(), status.Options{Hosts: []string{servers.Cassandra}, Keyspace: keyspace})
	if err != nil {
		t.Fatal(err)
	}
	row := push.Row{ID: "n1", Device: "d", State: push.StateDelivered, At: time.Now(), Platform: push.FCM, Reason: "OK"}
	err = store.Write(t.Context(), []push.Row{row})
	store.Close()
	if err != nil {
		t.Fatal(err)
	}
	exit, stdout, stderr := pushctl(t, t.Context(), "status", "n1", "--config", config)
	if exit != exitDone || !strings.Contains(stdout, "DELIVERED") || !strings.Contains(stdout, "outcome: DELIVERED") {
		t.Errorf("status: exit status %d, %s %s", exit, stdout, stderr)
	}
	if exit, stdout, _ := pushctl(t, t.Context(), "status", "n2", "--config", config); exit != exitFailed || !strings.Contains(stdout, "n2 has no state") {
		t.Errorf("status of an unknown id: exit status %d, %s", exit, stdout)
	}
}

// Control characters do not reach the terminal in an error either.
func TestErrorsAreCleaned(t *testing.T) {
	var out, errs bytes.Buffer
	run(t.Context(), []string{"status", "x", "--config", "\x1b[2J\u202e\u009b"}, strings.NewReader(""), &out, &errs)
	if !strings.Contains(errs.String(), "no such file") || strings.ContainsAny(out.String()+errs.String(), "\x1b\u202e\u009b") {
		t.Errorf("it says %q", errs.String())
	}
}

func TestShowNotificationWithoutState(t *testing.T) {
	var out bytes.Buffer
	ans := showNotification(explain.Of("order\x1b[2J", nil, explain.Times{Kept: time.Hour, Delay: time.Hour}, time.Now()))
	if err := ans.Write(&out, terminal.FormatTable, indent); err != nil {
		t.Fatal(err)
	}
	if want := "notification order?[2J has no state: never produced"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("printed %q, want %q first", out.String(), want)
	}
}
