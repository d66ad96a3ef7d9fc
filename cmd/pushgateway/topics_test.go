package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/worker"
)

// The examples of docs/gateway.md about topics, as they stand there, in a shell with curl:
// each is answered with what the page says. Topics need no Kafka.
func TestTheExamplesAboutTopics(t *testing.T) {
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
	c.Kafka.Brokers, c.Cassandra.Hosts = []string{"127.0.0.1:1"}, []string{"127.0.0.1:1"} // nothing listens there
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	at := make(chan string, 1) // buffered, capacity 1; never closed
	running.Go(func() {
		o := worker.GatewayOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Topics: subscriptions.NewMemory(nil),
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
		if _, fault := run(t, script, env, object(t, answer)); fault != "" {
			t.Fatalf("%s\n%s", script, fault)
		}
	}
}
