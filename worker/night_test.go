package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// night is a fleet of one worker and one registry in virtual time, with Kafka and Redis
// inside the process, and a provider that accepts everything.
type night struct {
	t       *testing.T
	config  *configs.Config
	options Options
	store   *closedStore
	cluster *kfake.Cluster
	client  *kgo.Client
	kafka   kafka.Options
	stops   []func() // of what runs

	mu     sync.Mutex
	pushed map[string][]time.Time // guarded by mu; when each notification was
}

// nightConfig is of a worker with one lane, transactional, whose greatest age is a day.
func nightConfig() *configs.Config {
	c := configs.Default()
	c.Kafka.JoinWithin, c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication = 0, 1, 1
	c.Dedupe.Capacity, c.Registry.CheckInterval = 100_000, 10*time.Minute
	c.Admin.Listen, c.Registry.Listen = "", ""
	c.Lanes = c.Lanes[1:2]
	c.Lanes[0].CriticalSenders = []string{"*"}
	return c
}

// newNight starts the servers. It runs in a bubble of synctest: the servers' connections
// are pipes.
func newNight(t *testing.T, route push.Route, c *configs.Config) *night {
	t.Helper()
	n := &night{t: t, config: c, pushed: map[string][]time.Time{}}
	redis, err := embedded.StartPipeRedis()
	if err != nil {
		t.Fatal(err)
	}
	n.stops = append(n.stops, redis.Close)
	var network kfake.VirtualNetwork
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen))
	if err != nil {
		t.Fatal(err)
	}
	n.cluster, n.stops = cluster, append(n.stops, cluster.Close)
	dial := func(ctx context.Context, kind, address string) (net.Conn, error) {
		if address == redis.Addr() {
			return redis.Dial(ctx, kind, address)
		}
		return network.DialContext(ctx, kind, address)
	}
	c.Redis.Addresses, c.Kafka.Brokers = []string{redis.Addr()}, cluster.ListenAddrs()
	for _, topic := range wiring.Topics(c) {
		if err := cluster.CreateTopic(topic.Name, topic.Partitions, nil); err != nil {
			t.Fatal(err)
		}
	}
	memory, err := status.NewMemory(wiring.Layouts(c))
	if err != nil {
		t.Fatal(err)
	}
	n.store, n.options = &closedStore{Memory: memory}, options(c, io.Discard)
	n.options.Dial = dial
	n.options.OpenStatus = func(context.Context, status.Options) (Status, error) { return n.store, nil }
	n.options.Wrap = func(o pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
		o.Routes = map[push.Route]pipeline.Provider{route: calls.NewCaller(10, n.accept)}
		return o
	}
	if n.kafka, err = wiring.Kafka(c, n.options.Log); err != nil {
		t.Fatal(err)
	}
	n.kafka.Dial = dial
	if n.client, err = kgo.NewClient(kgo.SeedBrokers(c.Kafka.Brokers...), kgo.Dialer(dial)); err != nil {
		t.Fatal(err)
	}
	n.stops = append(n.stops, n.client.Close)
	ro := registryOptions(c, io.Discard)
	ro.Dial = dial
	n.start(func(ctx context.Context) error { return RunRegistry(ctx, ro) })
	return n
}

// accept is the provider.
func (n *night) accept(_ context.Context, d *pipeline.Delivery) push.Result {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pushed[d.Item.ID] = append(n.pushed[d.Item.ID], time.Now())
	return push.Result{Class: push.Delivered}
}

// start runs a part until the function that it returns is called, which waits for its
// end, or close is.
func (n *night) start(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			n.t.Errorf("a process ended: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	n.stops = append(n.stops, stop)
	return stop
}

// worker starts a worker; each has metrics of its own.
func (n *night) worker() (stop func()) {
	o := n.options
	o.Metrics = options(n.config, io.Discard).Metrics
	return n.start(func(ctx context.Context) error { return Run(ctx, o) })
}

// close ends everything, in reverse order.
func (n *night) close() {
	for _, stop := range slices.Backward(n.stops) {
		stop()
	}
}

// users calls what writes to push.users.
func (n *night) users(write func(*users.Client) error) {
	n.t.Helper()
	log, err := wiring.NewUsersLog(n.kafka)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	if err := write(users.NewClient(log)); err != nil {
		n.t.Fatal(err)
	}
}

// produce writes a notification to the lane.
func (n *night) produce(id, user string, more map[string]any) {
	n.t.Helper()
	m := map[string]any{"id": id, "app": "shop", "user_id": user, "type": "news", "title": "News"}
	for k, v := range more {
		m[k] = v
	}
	value, err := json.Marshal(m)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.client.ProduceSync(n.t.Context(), &kgo.Record{Topic: n.config.Lanes[0].Topic, Key: []byte(user), Value: value}).FirstErr(); err != nil {
		n.t.Fatal(err)
	}
}

// became is what a notification's rows say, and when it was pushed.
func (n *night) became(id string) (rows []string, pushed []time.Time) {
	n.t.Helper()
	found, err := n.store.Read(n.t.Context(), []string{id})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, r := range found[0] {
		rows = append(rows, strings.TrimSpace(fmt.Sprint(r.State, " ", r.Reason)))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return rows, slices.Clone(n.pushed[id])
}

// apnsApp adds an app with Apple's alone, whose signing key needs no network.
func apnsApp(t *testing.T, c *configs.Config, name string) push.Route {
	t.Helper()
	creds, err := sim.NewCredentials(name, "com.example."+name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.p8")
	if err := os.WriteFile(file, creds.P8, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Apps = append(c.Apps, configs.App{Name: name, APNS: &configs.APNS{Topic: creds.Topic, TeamID: creds.TeamID, KeyID: creds.KeyID, KeyFile: file,
		Environments: []string{"production"}, ProductionURL: "https://127.0.0.1:1", SandboxURL: "https://127.0.0.1:1"}})
	return push.Route{Platform: push.APNS, App: name, Environment: push.Production}
}

// The end of a night on the whole way of notifications: a worker, a registry, their
// topics and Redis, by a virtual clock. What comes in the quiet hours of a user, by the
// clock where the user is, waits for their end, also across a restart, and is pushed
// once; what would expire before is suppressed at once, and what is critical goes out
// at once. A user who opts out meanwhile gets nothing.
func TestANightsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nightConfig()
		n := newNight(t, apnsApp(t, c, "shop"), c)
		defer n.close()

		// Midnight UTC is 05:30 where the users are.
		midnight := time.Now()
		morning := midnight.Add(40 * time.Minute) // 06:10: by way of the tiers of 30, 5 and 2 minutes
		n.users(func(client *users.Client) error {
			for _, user := range []string{"sleeper", "leaver", "owl"} {
				token := fmt.Sprintf("%064x", user)
				if _, err := client.RegisterDevice(t.Context(), user, push.Device{Platform: push.APNS, Environment: push.Production, App: "shop", Token: token, RegisteredAt: midnight.Add(-time.Hour)}); err != nil {
					return err
				}
				if user == "owl" {
					continue
				}
				if err := client.SetProfile(t.Context(), user, push.Profile{Zone: "Asia/Kolkata"}); err != nil {
					return err
				}
				if err := client.SetPreferences(t.Context(), user, push.Preferences{Quiet: quietNight}); err != nil {
					return err
				}
			}
			return nil
		})
		stop := n.worker()
		time.Sleep(time.Minute) // the registry has built what the worker waits for
		n.produce("held", "sleeper", nil)
		n.produce("late", "sleeper", map[string]any{"expires_at": morning.Add(-time.Minute).UTC().Format(time.RFC3339)})
		n.produce("critical", "sleeper", map[string]any{"priority": "critical"})
		n.produce("left", "leaver", nil)
		n.produce("awake", "owl", nil)

		time.Sleep(10 * time.Second)
		n.hasBecome("held", 0, "HELD quiet_hours")
		n.hasBecome("late", 0, "SUPPRESSED quiet_past_expiry")
		n.hasBecome("critical", 1, "DELIVERED")
		n.hasBecome("left", 0, "HELD quiet_hours")
		n.hasBecome("awake", 1, "DELIVERED")
		if due := n.dueTimes(); len(due) != 2 || !due[0].Equal(morning) || !due[1].Equal(morning) {
			t.Errorf("put off until %v, want twice %v", due, morning)
		}

		time.Sleep(10 * time.Minute)
		stop()
		n.users(func(client *users.Client) error {
			return client.SetPreferences(t.Context(), "leaver", push.Preferences{OptOutAll: true, Quiet: quietNight})
		})
		time.Sleep(10 * time.Minute)
		n.worker()
		time.Sleep(time.Until(morning) - time.Second)
		for _, id := range []string{"held", "left"} {
			if rows, pushed := n.became(id); len(pushed) > 0 || !strings.HasPrefix(rows[len(rows)-1], "HELD") {
				t.Errorf("%s: %q, pushed %v, and the night is not over", id, rows, pushed)
			}
		}
		time.Sleep(5 * time.Minute) // a second push would come
		n.ended("held", "DELIVERED")
		n.ended("left", "SUPPRESSED opted_out_all")
		if _, pushed := n.became("held"); len(pushed) != 1 || pushed[0].Before(morning) || pushed[0].After(morning.Add(c.Retries.Tiers[0])) {
			t.Errorf("what was held was pushed at %v, want once from %v on", pushed, morning)
		}
		if _, pushed := n.became("left"); len(pushed) > 0 {
			t.Errorf("who had opted out meanwhile got it at %v", pushed)
		}
	})
}

// quietNight is from 22:00 to 06:10, every day, for all types.
var quietNight = []push.QuietHours{{From: 22 * 60, To: 6*60 + 10}}

// hasBecome checks what became of a notification so far.
func (n *night) hasBecome(id string, pushes int, rows ...string) {
	n.t.Helper()
	if got, pushed := n.became(id); !slices.Equal(got, rows) || len(pushed) != pushes {
		n.t.Errorf("%s: %q, pushed %v, want %q and %d", id, got, pushed, rows, pushes)
	}
}

// ended checks how a notification ended that had been held for quiet hours until then.
func (n *night) ended(id, end string) {
	n.t.Helper()
	rows, _ := n.became(id)
	last := len(rows) - 1
	for i, row := range rows {
		if i == 0 && row != "HELD quiet_hours" || i > 0 && i < last && row != "HELD not_due" || i == last && row != end {
			n.t.Errorf("%s: %q, want it held for quiet hours, until it is due, and then %s", id, rows, end)
			return
		}
	}
}

// dueTimes are when what was put off so far is due.
func (n *night) dueTimes() (due []time.Time) {
	n.t.Helper()
	for _, tier := range wiring.DeferTiers(n.config) {
		topic := kafka.DeferTopic(n.config.Lanes[0].Topic, tier.Name)
		ends, err := kadm.NewClient(n.client).ListEndOffsets(n.t.Context(), topic)
		if err != nil {
			n.t.Fatal(err)
		}
		left := int64(0)
		ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
		if left == 0 {
			continue
		}
		reader, err := kgo.NewClient(kgo.SeedBrokers(n.config.Kafka.Brokers...), kgo.Dialer(n.options.Dial), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			n.t.Fatal(err)
		}
		for ; left > 0; left-- {
			for _, r := range reader.PollRecords(n.t.Context(), 1).Records() {
				for _, h := range r.Headers {
					if ms, err := strconv.ParseInt(string(h.Value), 10, 64); h.Key == "pf-not-before" && err == nil {
						due = append(due, time.UnixMilli(ms))
					}
				}
			}
		}
		reader.Close()
	}
	return due
}
