//go:build unix

// Package localtest gives tests the real servers of deploy/local: the shared
// ones, or one of their own, closed with the test. A test is skipped, with a
// message that says what to do, unless make test or
// `go run ./deploy/local/servers run` has said that real servers are wanted.
package localtest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
)

// startTimeout bounds the start of a server of a test's own.
const startTimeout = 6 * time.Minute

// Require returns the addresses of the servers that all tests of a run share,
// or skips the test. What a test makes there needs names that nobody else
// uses (topics, groups, keyspaces, key prefixes); it must not wipe, stop or
// pause a shared server: start one of your own for that.
func Require(t testing.TB) local.Addresses {
	t.Helper()
	requireServers(t)
	addresses, err := local.SharedAddresses()
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}

// Kafka starts a broker that the test may do anything with. It is a brief one.
func Kafka(t testing.TB, o local.KafkaOptions) *local.Server {
	t.Helper()
	o.Brief = true
	return own(t, func(ctx context.Context) (*local.Server, error) { return local.StartKafka(ctx, o) })
}

// Redis starts a Redis that the test may do anything with. It takes well
// under a second.
func Redis(t testing.TB, o local.RedisOptions) *local.Server {
	t.Helper()
	return own(t, func(ctx context.Context) (*local.Server, error) { return local.StartRedis(ctx, o) })
}

// RedisPair starts a Redis with a replica that can lag and take over.
func RedisPair(t testing.TB) *local.RedisPair {
	t.Helper()
	return own(t, local.StartRedisPair)
}

// RedisCluster starts a Redis Cluster of three nodes; it takes about 2 s.
func RedisCluster(t testing.TB, o local.RedisOptions) *local.RedisCluster {
	t.Helper()
	return own(t, func(ctx context.Context) (*local.RedisCluster, error) { return local.StartRedisCluster(ctx, o) })
}

// Cassandra starts a brief node that the test may do anything with. Unless o names
// a heap it gets 512 MB, as it stands beside the shared one.
func Cassandra(t testing.TB, o local.CassandraOptions) *local.Server {
	t.Helper()
	o.Brief = true
	if o.Heap == "" {
		o.Heap = "512m"
	}
	return own(t, func(ctx context.Context) (*local.Server, error) { return local.StartCassandra(ctx, o) })
}

// Access makes an authority and a user for secured servers.
func Access(t testing.TB) *local.Access {
	t.Helper()
	ca, err := local.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	return &local.Access{CA: ca, User: "pushfleet", Password: "correct-horse-battery"}
}

func own[S interface{ Close() error }](t testing.TB, start func(context.Context) (S, error)) S {
	t.Helper()
	requireServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s, err := start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing a server: %v", err)
		}
	})
	return s
}

func requireServers(t testing.TB) {
	t.Helper()
	if os.Getenv(local.EnvServers) == "" {
		t.Skip("needs real servers: run make test, or `go run ./deploy/local/servers run -- go test PACKAGE`")
	}
}
