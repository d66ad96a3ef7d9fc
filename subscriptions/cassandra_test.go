package subscriptions_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/subscriptions/subscriptionstest"
)

// cassandra is a session in a keyspace of its own on the real server.
func cassandra(t testing.TB) *status.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	o := status.Options{Hosts: []string{localtest.Require(t).Cassandra}, Keyspace: fmt.Sprintf("subs_%d", time.Now().UnixNano()),
		Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
	if _, err := status.ApplySchema(ctx, o, status.SchemaOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := status.ApplyGatewaySchema(ctx, o, status.SchemaOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := status.OpenSession(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestCassandra(t *testing.T) {
	session := cassandra(t)
	subscriptionstest.Run(t, func(_ *testing.T, now func() time.Time) subscriptionstest.Store {
		return subscriptions.New(subscriptions.Options{Tables: session, Now: now})
	})
}
