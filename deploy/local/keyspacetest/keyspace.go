// Package keyspacetest makes keyspaces on the real Cassandra of tests, each for one test and
// with all tables. A test that has no real servers is skipped or fails, as
// deploy/local/localtest says.
package keyspacetest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/status"
)

// timeout is for making a keyspace, also on a machine that does much else.
const timeout = 4 * time.Minute

// Make makes a keyspace, and says how to reach it.
func Make(t testing.TB) status.Options {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	o := status.Options{Hosts: []string{localtest.Require(t).Cassandra}, Keyspace: fmt.Sprintf("test_%d", time.Now().UnixNano()),
		Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
	if _, err := status.ApplySchema(ctx, o, status.SchemaOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := status.ApplyGatewaySchema(ctx, o, status.SchemaOptions{}); err != nil {
		t.Fatal(err)
	}
	return o
}

// Open makes a keyspace and connects to it until the test ends.
func Open(t testing.TB) *status.Session {
	t.Helper()
	o := Make(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	s, err := status.OpenSession(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
