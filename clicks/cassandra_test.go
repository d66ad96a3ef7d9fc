package clicks_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/clicks/clickstest"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/status"
)

func TestCassandra(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	o := status.Options{Hosts: []string{localtest.Require(t).Cassandra}, Keyspace: fmt.Sprintf("clicks_%d", time.Now().UnixNano()),
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
	clickstest.Run(t, clicks.New(clicks.Options{Tables: s, Kept: clicks.MostKept}))
}
