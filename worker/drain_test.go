package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// lingering is a source that says when it is asked first, and whose commits wait
// until they may once the worker is told to stop.
type lingering struct {
	pipeline.Source
	asked  chan struct{}   // gets one value
	worker context.Context // ends when the worker is told to stop
	drains chan struct{}   // gets one value when it commits after that
	may    chan struct{}   // closed when they may
}

func (s *lingering) Next(ctx context.Context) (*pipeline.Batch, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return s.Source.Next(ctx)
}

func (s *lingering) Commit(ctx context.Context) error {
	if s.worker.Err() != nil {
		select {
		case s.drains <- struct{}{}:
		default:
		}
		<-s.may
	}
	return s.Source.Commit(ctx)
}

// A worker is ready once its lanes work. When it is told to stop, a lane that has
// drained leaves its group at once, whatever the others have still to do; and until
// the last one has, what it is asked for is shared and what ends is told.
func TestALaneThatDrainsLongHoldsUpNoOther(t *testing.T) {
	c, o, _ := servers(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	slow := &lingering{asked: make(chan struct{}, 1), worker: ctx, drains: make(chan struct{}, 1), may: make(chan struct{})}
	o.Wrap = func(po pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
		if po.Lane == c.Lanes[0].Name {
			slow.Source = po.Source
			po.Source = slow
		}
		return po
	}
	c.Events.State = false // what is told is counted below
	g, err := open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	// The gates of a fleet that has a route.
	route := push.Route{Platform: push.FCM, App: "shop"}
	g.shared.gates, err = gates.New([]push.Route{route}, gates.DefaultOptions(), gates.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	let := sync.OnceFunc(func() { close(slow.may) })
	defer let()
	ended := make(chan error, 1)
	go func() { ended <- g.run(ctx) }()

	<-slow.asked
	if ready, lines := g.health.report(); !ready || !slices.Contains(lines, "[+] lanes ok") {
		t.Errorf("while its lanes work it is ready: %v, %q", ready, lines)
	}
	await(t, "all lanes are members", func() bool { return !slices.Contains(sizes(t, g), 0) })
	stop()
	<-slow.drains
	await(t, "all lanes but the one that drains have left", func() bool {
		n := sizes(t, g)
		return n[0] == 1 && slices.Max(n[1:]) == 0
	})

	gate, now, before := g.shared.gates.Of(route), time.Now(), end(t, g.Config, kafka.EventsTopic)
	g.shared.events.Missed(now.Add(-time.Second), now)
	ticket, _, _, _ := gate.Admit(now, gates.Free, false, 1)
	gates.Return(now, []gates.Answer{{Ticket: ticket, Result: &push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: time.Hour}}})
	let()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if told, err := g.shared.told.Told(t.Context()); err != nil || len(told) != 1 || told[0].Route != route {
		t.Errorf("told %+v, error %v; want the pause that was asked for while a lane drained", told, err)
	}
	if n := end(t, g.Config, kafka.EventsTopic) - before; n != 1 {
		t.Errorf("%d records in push.events of what happened while a lane drained, want 1", n)
	}
	if ready, lines := g.health.report(); ready || !slices.Contains(lines, "[-] lanes: draining") {
		t.Errorf("at its end it is ready: %v, %q", ready, lines)
	}
}

// sizes are how many members the lanes' groups have: of each lane's own topic and
// of its retries, in the order of the configuration.
func sizes(t *testing.T, g *group) (n []int) {
	t.Helper()
	found := members(t, g.Config)
	for _, l := range g.Config.Lanes {
		n = append(n, found[g.Config.Kafka.LaneGroup(l.Name)], found[g.Config.Kafka.RetryGroup(l.Name)])
	}
	return n
}

// end is how many records a topic has got so far.
func end(t *testing.T, c *configs.Config, topic string) (n int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// await fails the test if ok does not come true: a limit on liveness, not a
// measurement.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
