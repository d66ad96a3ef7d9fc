// Package shardstest opens Redis clients for tests, as a worker opens its own: in
// this process, or of a server that runs. Only tests import it.
package shardstest

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
)

// patience is the read timeout of all clients: a busy machine is no failure.
const patience = time.Minute

// Start starts a Redis in this process and returns a client of it. Both end with
// the test.
func Start(t testing.TB) shards.Client {
	t.Helper()
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return Connect(t, server.Addr())
}

// Connect returns a client of a server, or of a cluster if there are several
// addresses. It ends with the test.
func Connect(t testing.TB, addrs ...string) shards.Client {
	t.Helper()
	o := shards.DefaultOptions()
	o.Addrs, o.Cluster = addrs, len(addrs) > 1
	return Open(t, o)
}

// Open returns a client with these options, but a read timeout of a minute. It
// ends with the test.
func Open(t testing.TB, o shards.Options) shards.Client {
	t.Helper()
	o.ReadTimeout = patience
	client, err := shards.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
