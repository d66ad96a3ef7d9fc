package configs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestEnvironmentOverrides(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte("kafka: {brokers: [\"file:1\"], client_id: file}\nbatch: {linger: 1ms}\n"), []string{
		"PUSHFLEET_KAFKA_BROKERS=k1:9092, k2:9092,",
		"PUSHFLEET_KAFKA_TLS_ENABLED=true",
		"PUSHFLEET_KAFKA_TOPICS_PARTITIONS=3",
		"PUSHFLEET_BATCH_BYTES=1MiB",
		"PUSHFLEET_DEDUPE_ERROR_RATE=0.01",
		"PUSHFLEET_DEDUPE_CAPACITY=4_300_000_000",
		"PUSHFLEET_CASSANDRA_TIMEOUT=4s",
		"PUSHFLEET_ADMIN_LISTEN=",
		"PUSHFLEET_SEND_APNS_CONNECTIONS=2",
		// Not ours: Kubernetes' own for services named pushfleet-redis and
		// pushfleet, and what other programs of the fleet read.
		"PUSHFLEET_REDIS_SERVICE_HOST=10.0.0.1", "PUSHFLEET_REDIS_SERVICE_PORT=6379", "PUSHFLEET_REDIS_SERVICE_PORT_REDIS=6379",
		"PUSHFLEET_REDIS_PORT=tcp://10.0.0.1:6379", "PUSHFLEET_REDIS_PORT_6379_TCP=tcp://10.0.0.1:6379",
		"PUSHFLEET_REDIS_PORT_6379_TCP_ADDR=10.0.0.1", "PUSHFLEET_PORT=tcp://10.0.0.1:80", "PUSHFLEET_CACHE=/tmp", "PATH=/bin", "=",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Kafka.Brokers, want.Kafka.ClientID = []string{"k1:9092", "k2:9092"}, "file"
	want.Kafka.TLS.Enabled, want.Kafka.Topics.Partitions = true, 3
	want.Batch.Linger, want.Batch.Bytes = time.Millisecond, 1<<20
	want.Dedupe.ErrorRate, want.Dedupe.Capacity = 0.01, 4_300_000_000
	want.Cassandra.Timeout, want.Admin.Listen, want.Send.APNS.Connections = 4*time.Second, "", 2
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestEnvironmentRefuses(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		"PUSHFLEET_KAFKA_BROKER=k1:9092":           "PUSHFLEET_KAFKA_BROKER: is not a setting that a variable can override",
		"PUSHFLEET_KAFKA_SASL_PASSWORD=x":          "PUSHFLEET_KAFKA_SASL_PASSWORD: is not a setting that a variable can override",
		"PUSHFLEET_LANES_0_TOPIC=x":                "PUSHFLEET_LANES_0_TOPIC: is not a setting that a variable can override",
		"PUSHFLEET_KAFKA_BROKERS=":                 "PUSHFLEET_KAFKA_BROKERS: kafka.brokers: must not be empty",
		"PUSHFLEET_KAFKA_BROKERS=k1":               "kafka.brokers[0]: must be a host and a port, such as 10.0.0.1:9092",
		"PUSHFLEET_SEND_DEADLINE=10":               "PUSHFLEET_SEND_DEADLINE: send.deadline: wants a duration with its unit, such as 20ms, 10s or 720h",
		"PUSHFLEET_ADMIN_PPROF=yes":                "PUSHFLEET_ADMIN_PPROF: admin.pprof: wants true or false",
		"PUSHFLEET_DEDUPE_ERROR_RATE=NaN":          "PUSHFLEET_DEDUPE_ERROR_RATE: dedupe.error_rate: must be at least 0.000001",
		"PUSHFLEET_LOG_LEVEL=loud":                 "PUSHFLEET_LOG_LEVEL: log.level: must be one of debug, info, warn, error",
		"PUSHFLEET_KAFKA_SESSION_TIMEOUT=1000000h": "PUSHFLEET_KAFKA_SESSION_TIMEOUT: kafka.session_timeout: must be at most 5m",
	} {
		ps := problemsOf(t, "", entry)
		if len(ps) == 0 || ps[0].String() != want {
			t.Errorf("%s: got %v, want %s", entry, ps, want)
		}
	}
}

// No two settings share a variable, and all have the name the docs promise.
func TestEverySettingHasItsOwnVariable(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	walkSettings(reflect.ValueOf(Default()).Elem(), "", func(path string, _ reflect.Value) {
		name := variable(path)
		if other, taken := seen[name]; taken {
			t.Errorf("%s is for both %s and %s", name, path, other)
		}
		if orchestrated.MatchString(name) {
			t.Errorf("%s looks like a variable of Kubernetes", name)
		}
		seen[name] = path
	})
	if seen["PUSHFLEET_CASSANDRA_PASSWORD_FILE"] != "cassandra.password_file" || len(seen) < 70 {
		t.Errorf("%d variables: %v", len(seen), seen)
	}
}

func TestLoadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if c, err := Load("", nil); err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("no file: %v", err)
	}
	for name, text := range map[string]string{"empty": "", "comment": "# none\n", "null": "null\n", "nulls": "kafka:\nlimits:\n  rules:\napps:\n"} {
		if c, err := Load(write(name, text), nil); err != nil || !reflect.DeepEqual(c, Default()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load(dir, nil); err == nil {
		t.Error("a directory was read")
	}
	for name, tt := range map[string]struct{ text, want string }{
		"broken":      {"kafka: [\n", "line 1: not YAML"},
		"tabs":        {"kafka:\n\tbrokers: []\n", "line 2: not YAML"},
		"two":         {"{}\n---\n{}\n", "a single YAML document"},
		"list":        {"- kafka\n", "wants a section with keys, not a list"},
		"word":        {"kafka\n", "wants a section with keys, not a string"},
		"anchor":      {"kafka: *SECRET\n", "not YAML"},
		"merged":      {"kafka:\n  <<: {group: x}\n", "kafka.<<: unknown key"},
		"large":       {strings.Repeat("#\n", maxFile), "is over 1MiB"},
		"binary":      {"\x00\xff", "not YAML"},
		"twice":       {"kafka: {}\nkafka: {}\n", "line 2: kafka: is set twice"},
		"lanes empty": {"lanes: []\n", "line 1: lanes: must not be empty"},
	} {
		path := write(name, tt.text)
		_, err := Load(path, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: content in %v", name, err)
		}
	}
	alias := "kafka: {client_id: &name worker}\nredis: {username: *name, password_file: p, insecure: true}\n"
	if c, err := Load(write("alias", alias), nil); err != nil || c.Redis.Username != "worker" {
		t.Errorf("an alias: %v", err)
	}
}

// Whatever is pasted wherever, no error repeats it.
func TestProblemsTellNoValues(t *testing.T) {
	t.Parallel()
	const pasted = "hunter2/@ x"
	text := everything(t)
	sections := bySection(t, text)
	for _, path := range allPathsOf(t, text) {
		if ps := problemsOf(t, changed(t, sections, path, quoted(pasted))); strings.Contains(ps.Error(), "hunter2") {
			t.Errorf("%s: %v", path, ps)
		}
	}
	walkSettings(reflect.ValueOf(Default()).Elem(), "", func(path string, _ reflect.Value) {
		if ps := problemsOf(t, "", variable(path)+"="+pasted); strings.Contains(ps.Error(), "hunter2") {
			t.Errorf("%s: %v", path, ps)
		}
	})
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("worker.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, "PUSHFLEET_KAFKA_BROKERS=a:1")
	f.Add([]byte("apps: [{name: a, apns: {environments: [sandbox]}}]\nlimits: {rules: [{max: 1e9}]}\n"), "PUSHFLEET_BATCH_BYTES=9999999999GiB")
	f.Add([]byte("cassandra: {layout: [{since: 2026-01-01}], replication: {a: [1]}}"), "=")
	f.Fuzz(func(t *testing.T, text []byte, env string) {
		c, err := Parse(text, []string{env})
		if err == nil && c.Validate() != nil {
			t.Errorf("Parse took what Validate refuses: %v", c.Validate())
		}
	})
}
