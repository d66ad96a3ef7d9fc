package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// fleet is Kafka, Redis and a registry between them, for a gateway with the files of
// a configuration.
func fleet(t *testing.T) *configs.Config {
	t.Helper()
	path, _ := files(t, "")
	c, err := configs.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	c.Limits.StateVersion = 2
	c.Limits.Rules = []configs.Rule{{Name: "promotions-per-day", Per: "user", Lanes: []string{"promotional"}, Max: 5, Window: 24 * time.Hour}}
	c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication = 2, 1
	c.Redis.Addresses = []string{redis.Addr()}
	c.Redis.ReadTimeout, c.Redis.WriteTimeout = time.Minute, time.Minute // the scripts are interpreted slowly
	c.Registry.Listen, c.Gateway.Listen, c.Gateway.AdminListen, c.Gateway.Registry = "", "127.0.0.1:0", "", true
	c.Cassandra.Hosts = []string{"127.0.0.1:1"} // nothing listens there
	var topics []embedded.Topic
	for _, s := range wiring.Topics(c) {
		topics = append(topics, embedded.Topic{Name: s.Name, Partitions: s.Partitions})
	}
	kafka, err := embedded.StartKafka(topics...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	c.Kafka.Brokers = kafka.Addrs()
	return c
}

// patience is how often the registry is looked for: for minutes, as the machine may be busy.
const patience = 3000

// The examples of docs/gateway.md about users, as they stand there, in a shell with curl,
// against a gateway as `pushgateway serve` runs it: each is answered with what the page
// says. What is shown of a user comes from the registry.
func TestTheExamplesAboutUsers(t *testing.T) {
	surroundings := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, surroundings) }) // behind those of the servers
	c := fleet(t)
	keys, err := os.ReadFile(c.Gateway.KeysFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Gateway.KeysFile, bytes.Replace(keys, []byte(`["send"]`), []byte(`["users"]`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		o := worker.RegistryOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}
		if err := worker.RunRegistry(ctx, o); ctx.Err() == nil {
			t.Errorf("the registry ended: %v", err)
		}
	})
	at := make(chan string, 1) // buffered, capacity 1; never closed
	running.Go(func() {
		if err := serve(ctx, c, io.Discard, func(a net.Addr) { at <- "http://" + a.String() }); ctx.Err() == nil {
			t.Errorf("the gateway ended: %v", err)
			at <- ""
		}
	})
	env := append(os.Environ(), "GATEWAY="+<-at, "KEY="+key)
	text, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, users, _ := strings.Cut(string(text), "\n## Users: ")
	users, _, _ = strings.Cut(users, "\n## ")
	examples := strings.Split(users, "```bash\n")[1:]
	if len(examples) != 10 {
		t.Fatalf("the page has %d examples about users", len(examples))
	}
	for _, block := range examples {
		script, rest, _ := strings.Cut(block, "```")
		answer, is := strings.CutPrefix(rest, "\n```json\n")
		if !is {
			t.Fatalf("no answer stands behind\n%s", script)
		}
		answer, _, _ = strings.Cut(answer, "```")
		want := object(t, answer)
		got, fault := run(t, script, env, want)
		// What looks there may be early: the registry is not there yet, or has not applied it.
		looks := !strings.Contains(script, " -d ")
		for tries := 0; looks && fault != "" && tries < patience; tries++ {
			time.Sleep(50 * time.Millisecond)
			got, fault = run(t, script, env, want)
		}
		if fault != "" {
			t.Fatalf("%s\n%s", script, fault)
		}
		if token, is := got["token"].(string); is {
			env = append(env, "TOKEN="+token)
		}
		if path, is := got["path"].(string); is {
			env = append(env, "LINK="+path)
		}
	}
}

// run runs an example; fault says how what it prints is not as wanted.
func run(t *testing.T, script string, env []string, want map[string]any) (got map[string]any, fault string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = env
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Sprintf("%v: %s%s", err, &errs, out)
	}
	got = object(t, string(out))
	return got, unlike("", got, want)
}

func object(t *testing.T, text string) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return m
}

// unlike says where an answer lacks what the page has, times, days and tokens aside; empty = it
// is like it.
func unlike(at string, got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		m, _ := got.(map[string]any)
		for name, value := range want {
			if _, is := m[name]; !is {
				return fmt.Sprintf("there is no %s.%s: %v", at, name, got)
			}
			if slices.Contains([]string{"token", "path", "expires_at", "registered_at", "created_at", "closed_at", "since", "at", "left_at", "cursor"}, name) {
				continue
			}
			if fault := unlike(at+"."+name, m[name], value); fault != "" {
				return fault
			}
		}
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return fmt.Sprintf("%s is %v, want %v", at, got, want)
		}
		for i := range want {
			if fault := unlike(at, list[i], want[i]); fault != "" {
				return fault
			}
		}
	default:
		if got != want && !(isDay(got) && isDay(want)) {
			return fmt.Sprintf("%s is %v, want %v", at, got, want)
		}
	}
	return ""
}

// isDay reports whether a value of an answer is a day, which on the page is that on which it
// was written.
func isDay(value any) bool {
	text, _ := value.(string)
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}
