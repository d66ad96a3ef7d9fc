//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Environment variables that tell tests of the servers they share.
const (
	EnvServers   = "PUSHFLEET_TEST_SERVERS" // set: real servers may be used and started
	EnvKafka     = "PUSHFLEET_TEST_KAFKA"   // host:port
	EnvRedis     = "PUSHFLEET_TEST_REDIS"
	EnvCassandra = "PUSHFLEET_TEST_CASSANDRA"
)

// Addresses are those of one server of each kind, as host:port.
type Addresses struct {
	Kafka     string `json:"kafka"`
	Redis     string `json:"redis"`
	Cassandra string `json:"cassandra"`
}

// SharedAddresses reads the addresses of the servers that this process was
// given by `go run ./deploy/local/servers run`. The error says how to run it so.
func SharedAddresses() (Addresses, error) {
	a := Addresses{Kafka: os.Getenv(EnvKafka), Redis: os.Getenv(EnvRedis), Cassandra: os.Getenv(EnvCassandra)}
	if os.Getenv(EnvServers) == "" || a.Kafka == "" || a.Redis == "" || a.Cassandra == "" {
		return Addresses{}, errors.New("no shared servers: run under `go run ./deploy/local/servers run -- COMMAND`, as make test does")
	}
	return a, nil
}

// Env is the environment, as NAME=value, from which a child's SharedAddresses
// reads a. It names the cache too, which the child may not find by itself.
func (a Addresses) Env() ([]string, error) {
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	return []string{
		EnvServers + "=1",
		EnvKafka + "=" + a.Kafka,
		EnvRedis + "=" + a.Redis,
		EnvCassandra + "=" + a.Cassandra,
		EnvCache + "=" + cache,
	}, nil
}

// Set is one server of each kind.
type Set struct {
	Kafka     *Server
	Redis     *Server
	Cassandra *Server
}

// SetOptions say how the servers of a set are to run. The zero value is a plain
// one of each kind.
type SetOptions struct {
	// Dir is where each gets a folder. When empty, each has one that Close
	// removes.
	Dir string
	// Durable is Cassandra's; see CassandraOptions.
	Durable bool
}

// StartSet starts one server of each kind, all at once. ctx bounds the start;
// when one fails the others are closed.
func StartSet(ctx context.Context, o SetOptions) (*Set, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at := func(name string) string {
		if o.Dir == "" {
			return ""
		}
		return filepath.Join(o.Dir, name)
	}
	set := &Set{}
	var (
		parts    sync.WaitGroup
		failures [3]error
	)
	start := func(i int, place **Server, start func() (*Server, error)) {
		parts.Go(func() {
			if *place, failures[i] = start(); failures[i] != nil {
				cancel() // the others need not go on
			}
		})
	}
	start(0, &set.Kafka, func() (*Server, error) { return StartKafka(ctx, KafkaOptions{Dir: at("kafka")}) })
	start(1, &set.Redis, func() (*Server, error) { return StartRedis(ctx, RedisOptions{Dir: at("redis")}) })
	start(2, &set.Cassandra, func() (*Server, error) {
		return StartCassandra(ctx, CassandraOptions{Dir: at("cassandra"), Durable: o.Durable})
	})
	parts.Wait()
	if err := errors.Join(failures[:]...); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the servers: %w", err), set.Close())
	}
	return set, nil
}

// Addresses are those of the three servers.
func (s *Set) Addresses() Addresses {
	return Addresses{Kafka: s.Kafka.Addr(), Redis: s.Redis.Addr(), Cassandra: s.Cassandra.Addr()}
}

// Close closes all three.
func (s *Set) Close() error {
	var failures error
	for _, server := range []*Server{s.Kafka, s.Redis, s.Cassandra} {
		if server != nil {
			failures = errors.Join(failures, server.Close())
		}
	}
	return failures
}
