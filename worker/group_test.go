package worker

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// options are those of a worker that logs to w.
func options(c *configs.Config, w io.Writer) Options {
	return Options{Config: c, Log: slog.New(slog.NewJSONHandler(w, nil)), Metrics: prometheus.NewRegistry(), Exit: func(int) {}}
}

func registryOptions(c *configs.Config, w io.Writer) RegistryOptions {
	o := options(c, w)
	return RegistryOptions{Config: c, Log: o.Log, Metrics: o.Metrics}
}

// closedStore counts how often it is closed.
type closedStore struct {
	*status.Memory
	closed atomic.Int32 // several gateways may close it at once
}

func (s *closedStore) Close() { s.closed.Add(1) }

// servers are what a worker of three lanes needs, in this process.
func servers(t *testing.T) (*configs.Config, Options, *closedStore) {
	t.Helper()
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	c := configs.Default()
	c.Kafka.JoinWithin = 0
	c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication = 1, 1
	c.Admin.Listen = "127.0.0.1:0"
	c.Redis.Addresses = []string{redis.Addr()}
	c.Redis.ReadTimeout, c.Redis.WriteTimeout = time.Minute, time.Minute // the scripts are interpreted slowly
	c.Dedupe.Capacity = 100_000
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
	memory, err := status.NewMemory(wiring.Layouts(c))
	if err != nil {
		t.Fatal(err)
	}
	store := &closedStore{Memory: memory}
	o := options(c, io.Discard)
	o.OpenStatus = func(context.Context, status.Options) (Status, error) { return store, nil }
	return c, o, store
}

// members are the groups of the lanes, and how many members each has.
func members(t *testing.T, c *configs.Config) map[string]int {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var groups []string
	for _, l := range c.Lanes {
		groups = append(groups, c.Kafka.LaneGroup(l.Name), c.Kafka.RetryGroup(l.Name))
	}
	described, err := kadm.NewClient(client).DescribeGroups(t.Context(), groups...)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int)
	for _, name := range groups {
		found[name] = len(described[name].Members)
	}
	return found
}

// left checks that a worker has left nothing behind: no member in a group, no
// open store.
func left(t *testing.T, c *configs.Config, store *closedStore) {
	t.Helper()
	for name, n := range members(t, c) {
		if n != 0 {
			t.Errorf("group %s has %d members", name, n)
		}
	}
	if n := store.closed.Load(); n != 1 {
		t.Errorf("the status store was closed %d times, want once", n)
	}
}

// A lane that fails to open leaves nothing behind, neither of itself nor of those
// before it.
func TestAThirdLaneThatFailsClosesTheFirstTwo(t *testing.T) {
	c, o, store := servers(t)
	surroundings := goleak.IgnoreCurrent()
	var opened []string
	o.Wrap = func(po pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
		if opened = append(opened, po.Lane); po.Lane == c.Lanes[2].Name {
			po.Seen = nil // no pipeline is made without
		}
		return po
	}
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "lane "+c.Lanes[2].Name) {
		t.Errorf("it ends with %v, want the third lane's error", err)
	}
	if len(opened) != 5 {
		t.Errorf("it opened %q, want both halves of two lanes before the third", opened)
	}
	goleak.VerifyNone(t, surroundings)
	left(t, c, store)
}

// All lanes count answers about tokens together: an app's share is that of the worker.
func TestLanesJudgeTokensTogether(t *testing.T) {
	c, o, _ := servers(t)
	c.Feedback.Answers = 2 * len(c.Lanes)
	var tokens []pipeline.Tokens
	last := c.Lanes[len(c.Lanes)-1].Name + ".retry"
	o.Wrap = func(po pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
		if tokens = append(tokens, po.Tokens); po.Lane == last {
			po.Seen = nil // this is enough
		}
		return po
	}
	if err := Run(t.Context(), o); err == nil {
		t.Fatal("a lane without a collaborator was opened")
	}
	if len(tokens) != 2*len(c.Lanes) {
		t.Fatalf("%d halves of lanes", len(tokens))
	}
	for i, from := range tokens {
		believe, _ := from.Believe("shop", 1, []*push.Message{{}}, time.Now())
		if last := i == len(tokens)-1; believe == last {
			t.Errorf("half %d of the lanes: believed %v, want that the last one completes the answers that are needed", i, !last)
		}
	}
}

// A worker whose lanes have all joined leaves every group at its end, and closes
// what it had open.
func TestAWorkerThatEndsLeavesNothingBehind(t *testing.T) {
	c, o, store := servers(t)
	surroundings := goleak.IgnoreCurrent()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	for joined := false; !joined; {
		joined = true
		for _, n := range members(t, c) {
			joined = joined && n == 1
		}
		select {
		case err := <-ended:
			t.Fatalf("it ends by itself: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, surroundings)
	left(t, c, store)
}
