package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// The examples of docs/gateway.md about topics, as they stand there, in a shell with curl:
// each is answered with what the page says. Topics need no Kafka.
func TestTheExamplesAboutTopics(t *testing.T) {
	examplesAboutTopics(t, func(c *configs.Config) gateway.Topics {
		c.Cassandra.Hosts = []string{"127.0.0.1:1"} // nothing listens there
		return subscriptions.NewMemory(nil)
	})
}

// The same on a real server.
func TestTheExamplesAboutTopicsOnCassandra(t *testing.T) {
	examplesAboutTopics(t, func(c *configs.Config) gateway.Topics {
		c.Cassandra.Hosts, c.Cassandra.Keyspace = []string{localtest.Require(t).Cassandra}, fmt.Sprintf("pushgateway_%d", time.Now().UnixNano())
		o, err := wiring.Cassandra(c, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := status.ApplySchema(t.Context(), o, wiring.Schema(c)); err != nil {
			t.Fatal(err)
		}
		if _, err := status.ApplyGatewaySchema(t.Context(), o, wiring.Schema(c)); err != nil {
			t.Fatal(err)
		}
		return nil
	})
}

// examplesAboutTopics runs them. topics says where the topics are; nil = in Cassandra.
func examplesAboutTopics(t *testing.T, topics func(c *configs.Config) gateway.Topics) {
	t.Helper()
	path, _ := files(t, ", topics: true")
	c, err := configs.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile(c.Gateway.KeysFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Gateway.KeysFile, []byte(strings.Replace(string(keys), `["send"]`, `["send", "users"]`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Gateway.Listen, c.Gateway.AdminListen = "127.0.0.1:0", ""
	c.Kafka.Brokers = []string{"127.0.0.1:1"} // nothing listens there
	kept := topics(c)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	at := make(chan string, 1) // buffered, capacity 1; never closed
	running.Go(func() {
		o := worker.GatewayOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Topics: kept,
			Listening: func(a net.Addr) { at <- "http://" + a.String() }}
		if err := worker.RunGateway(ctx, o); ctx.Err() == nil {
			t.Errorf("the gateway ended: %v", err)
			at <- ""
		}
	})
	env := append(os.Environ(), "GATEWAY="+<-at, "KEY="+key)
	text, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "\n## Topics and subscriptions\n")
	if !strings.Contains(strings.SplitN(page, "\n", 2)[0], "no topic of Kafka's") {
		t.Error("the page does not say first that its topics are none of Kafka's")
	}
	page, _, _ = strings.Cut(page, "\n## ")
	examples := strings.Split(page, "```bash\n")[1:]
	if len(examples) != 7 {
		t.Fatalf("the page has %d examples about topics", len(examples))
	}
	for _, block := range examples {
		script, rest, _ := strings.Cut(block, "```")
		answer, is := strings.CutPrefix(rest, "\n```json\n")
		if !is {
			t.Fatalf("no answer stands behind\n%s", script)
		}
		answer, _, _ = strings.Cut(answer, "```")
		_, fault := run(t, script, env, object(t, answer))
		for tries := 0; strings.Contains(fault, "topics_away") && tries < patience; tries++ { // it is not connected yet
			time.Sleep(50 * time.Millisecond)
			_, fault = run(t, script, env, object(t, answer))
		}
		if fault != "" {
			t.Fatalf("%s\n%s", script, fault)
		}
	}
}
