package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// tellingMembers tell whenever some were added, until somebody looks.
type tellingMembers struct {
	*audiences.Memory
	added chan struct{} // capacity 1; never closed
}

// Add implements AudienceStore.
func (m tellingMembers) Add(ctx context.Context, uses []audiences.Use) (int, error) {
	n, err := m.Memory.Add(ctx, uses)
	select {
	case m.added <- struct{}{}:
	default:
	}
	return n, err
}

// A registry that is told to notes who uses an app, from the first record on, also of those
// who registered before it was told; and while Cassandra is away it fills Redis all the same.
func TestARegistryNotesWhoUsesAnApp(t *testing.T) {
	broker, err := embedded.StartKafka(embedded.Topic{Name: kafka.UsersTopic, Partitions: 3, Compacted: true},
		embedded.Topic{Name: kafka.QuarantineTopic, Partitions: 1}, embedded.Topic{Name: kafka.FeedbackTopic, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	c := configs.Default()
	c.Kafka.Brokers, c.Redis.Addresses, c.Registry.Listen, c.Registry.CheckInterval = broker.Addrs(), []string{redis.Addr()}, "", 100*time.Millisecond
	c.Registry.Audiences = true
	log, err := wiring.NewUsersLog(kafka.Options{Brokers: broker.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	register := func(user, app string) {
		t.Helper()
		d := push.Device{Platform: push.FCM, App: app, Token: "cXyZ0123456789:APA91bExampleTokenOfADevice" + user + app, RegisteredAt: time.Now()}
		if _, err := users.NewClient(log).RegisterDevice(t.Context(), user, d); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"ada", "ben", "cy"} {
		register(user, "shop")
	}
	members := tellingMembers{audiences.NewMemory(nil), make(chan struct{}, 1)}
	var mu sync.Mutex
	away, opened := true, 0
	complete := make(chan struct{})
	var once sync.Once
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		err := RunRegistry(ctx, RegistryOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
			OpenAudiences: func(context.Context) (AudienceStore, func(), error) {
				mu.Lock()
				defer mu.Unlock()
				if opened++; away {
					return nil, nil, errors.New("no hosts available")
				}
				return members, func() {}, nil
			},
			Progress: func(p users.Progress) {
				if p.Ready == shards.Users && p.Lag == 0 && p.Err == nil {
					once.Do(func() { close(complete) })
				}
			}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the registry ended: %v", err)
		}
	})
	select {
	case <-complete: // without Cassandra
	case <-time.After(time.Minute):
		t.Fatal("Redis is not filled while Cassandra is away")
	}
	mu.Lock()
	if away = false; opened == 0 {
		t.Error("Cassandra was not asked for")
	}
	mu.Unlock()
	await := func(want ...string) {
		t.Helper()
		late := time.After(time.Minute)
		for {
			page, err := members.Page(t.Context(), "shop", 0, 1024, "", 100)
			if err == nil && len(page) == len(want) {
				break
			}
			select {
			case <-members.added:
			case <-late:
				t.Fatalf("%v, %v; want %v", page, err, want)
			}
		}
		for _, user := range want {
			if _, there, err := members.Since(t.Context(), "shop", user); !there || err != nil {
				t.Errorf("%s is no member: %v", user, err)
			}
		}
	}
	await("ada", "ben", "cy")
	register("dee", "shop")
	register("eve", "bank")
	await("ada", "ben", "cy", "dee")
}

// What a registry that is not told needs of Cassandra is nothing.
func TestARegistryNotesNobodyUnlessItIsTold(t *testing.T) {
	c := configs.Default()
	o := RegistryOptions{Config: c, Log: slog.New(slog.DiscardHandler), OpenAudiences: func(context.Context) (AudienceStore, func(), error) {
		t.Error("Cassandra is opened")
		return nil, nil, errors.New("no")
	}}
	h := newHealth()
	stop, err := o.startAudiences(t.Context(), kafka.Options{}, nil, h)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, lines := h.report(); strings.Contains(strings.Join(lines, " "), audiencesState) {
		t.Errorf("%q", lines)
	}
}
