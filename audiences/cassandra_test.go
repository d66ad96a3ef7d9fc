package audiences_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/audiences/audiencestest"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/status"
)

func TestCassandra(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	o := status.Options{Hosts: []string{localtest.Require(t).Cassandra}, Keyspace: fmt.Sprintf("audiences_%d", time.Now().UnixNano()),
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
	clock := audiencestest.NewClock()
	audiencestest.Run(t, audiences.New(audiences.Options{Tables: s, Now: clock.Now}), clock)
}
