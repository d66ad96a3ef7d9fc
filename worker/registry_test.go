package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
)

// A registry that fails is not ready, however complete the shards are.
func TestARegistryThatFailsIsNotReady(t *testing.T) {
	for _, tt := range []struct {
		why  string
		p    users.Progress
		says string // empty = it is ready
	}{
		{"complete", users.Progress{Ready: shards.Users}, ""},
		{"being built", users.Progress{Ready: shards.Users - 1, Lag: 7}, "255 of 256 built, 7 records"},
		{"it fails", users.Progress{Ready: shards.Users, Err: errors.New("no such topic")}, "no such topic"},
	} {
		h := newHealth("shards")
		h.set("shards", shardsState(tt.p))
		ready, lines := h.report()
		if ready != (tt.says == "") || !strings.Contains(strings.Join(lines, " "), tt.says) {
			t.Errorf("%s: ready %v: %q", tt.why, ready, lines)
		}
	}
}

// Tombstones must outlive the longest time for which a shard may be left
// behind.
func TestMaxStaleIsBelowTheTopicsRetention(t *testing.T) {
	broker, err := embedded.StartKafka()
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	admin, err := kafka.NewAdmin(kafka.Options{Brokers: broker.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	spec := kafka.TopicSpec{Name: kafka.UsersTopic, Partitions: 1, Replication: 1,
		Configs: map[string]string{"cleanup.policy": "compact", "delete.retention.ms": "3600000"}}
	if _, err := admin.EnsureTopics(t.Context(), []kafka.TopicSpec{spec}, kafka.EnsureOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		stale   time.Duration
		refused bool
	}{{59 * time.Minute, false}, {time.Hour, true}, {20 * time.Hour, true}} {
		c := configs.Default()
		c.Registry.MaxStale = tt.stale
		err := checkRetention(t.Context(), admin, c, slog.New(slog.NewTextHandler(io.Discard, nil)))
		if _, refused := errors.AsType[*ConfigError](err); refused != tt.refused {
			t.Errorf("%v: %v", tt.stale, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := checkRetention(ctx, admin, configs.Default(), slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
