package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/subscriptions"
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
		o := keyspacetest.Make(t)
		c.Cassandra.Hosts, c.Cassandra.Keyspace = o.Hosts, o.Keyspace
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
	kept := topics(c)
	url := alone(t, worker.GatewayOptions{Config: c, Topics: kept})
	first := examplesIn(t, url, "Topics and subscriptions", 8, "topics_away")
	if !strings.Contains(first, "no topic of Kafka's") {
		t.Error("the page does not say first that its topics are none of Kafka's")
	}
}

// alone runs a gateway without a Kafka until the test ends, and says where it is. The key
// has the rights read and users, too.
func alone(t *testing.T, o worker.GatewayOptions) (url string) {
	t.Helper()
	c := o.Config
	keys, err := os.ReadFile(c.Gateway.KeysFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Gateway.KeysFile, []byte(strings.Replace(string(keys), `["send"]`, `["send", "read", "users"]`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Gateway.Listen, c.Gateway.AdminListen = "127.0.0.1:0", ""
	c.Kafka.Brokers = []string{"127.0.0.1:1"} // nothing listens there
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	at := make(chan string, 1) // buffered, capacity 1; never closed
	o.Log, o.Metrics = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	o.Listening = func(a net.Addr) { at <- "http://" + a.String() }
	running.Go(func() {
		if err := worker.RunGateway(ctx, o); ctx.Err() == nil {
			t.Errorf("the gateway ended: %v", err)
			at <- ""
		}
	})
	return <-at
}

// examplesIn runs the examples of a section of docs/gateway.md, of which there are so many,
// on the gateway at url, and returns the section's first line. away is the code of answers
// while it is not connected yet.
func examplesIn(t *testing.T, url, section string, count int, away string) (first string) {
	t.Helper()
	env := append(os.Environ(), "GATEWAY="+url, "KEY="+key)
	text, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "\n## "+section+"\n")
	first = strings.SplitN(page, "\n", 2)[0]
	page, _, _ = strings.Cut(page, "\n## ")
	examples := strings.Split(page, "```bash\n")[1:]
	if len(examples) != count {
		t.Fatalf("the page has %d examples under %s", len(examples), section)
	}
	for _, block := range examples {
		script, rest, _ := strings.Cut(block, "```")
		answer, is := strings.CutPrefix(rest, "\n```json\n")
		if !is {
			t.Fatalf("no answer stands behind\n%s", script)
		}
		answer, _, _ = strings.Cut(answer, "```")
		_, fault := run(t, script, env, object(t, answer))
		for tries := 0; strings.Contains(fault, away) && tries < patience; tries++ { // it is not connected yet
			time.Sleep(50 * time.Millisecond)
			_, fault = run(t, script, env, object(t, answer))
		}
		if fault != "" {
			t.Fatalf("%s\n%s", script, fault)
		}
	}
	return first
}
