// Package reach opens the servers of a configured fleet for those who look at it and
// operate it, each when it is first needed: for the commands of pushctl, and for dashboards,
// which run for longer than a server may be away.
package reach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// Rows is the status store, as far as it is read.
type Rows interface {
	// Read returns the rows of each id, aligned with ids; nil for one without rows.
	Read(ctx context.Context, ids []string) ([][]push.Row, error)
}

// Options say how servers are reached. ClientID, Patience and Log are required.
type Options struct {
	ClientID string        // in Kafka
	Patience time.Duration // with a server that does not answer, above 0
	Rows     Rows          // in place of Cassandra's; it stays the caller's
	Log      *slog.Logger
}

// Servers are the servers of a fleet. What could not be opened is tried again when it is
// needed again. It is safe for concurrent use.
type Servers struct {
	config *configs.Config
	o      Options

	rows    once[Rows]
	tables  once[*status.Session]
	admin   once[*kafka.Admin]
	redis   once[shards.Client]
	devices once[*limits.DeviceLog]

	mu     sync.Mutex // guards closes
	closes []func()
}

// New connects to nothing yet. The configuration must be valid, and not change.
func New(c *configs.Config, o Options) *Servers { return &Servers{config: c, o: o} }

// ConfigError says that a file which the configuration names cannot be used.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Close closes what is open, the newest first. Nothing may be under way.
func (s *Servers) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, done := range slices.Backward(s.closes) {
		done()
	}
	s.closes = nil
}

func (s *Servers) onClose(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closes = append(s.closes, f)
}

// once is opened when it is first needed.
type once[T any] struct {
	mu    sync.Mutex // guards the two below, also while it is being opened
	is    bool
	value T
}

func (o *once[T]) get(open func() (T, error)) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.is {
		value, err := open()
		if err != nil {
			return o.value, err
		}
		o.value, o.is = value, true
	}
	return o.value, nil
}

// CassandraOptions are the configured options of Cassandra, for one who asks now and then.
func (s *Servers) CassandraOptions() (status.Options, error) {
	o, err := wiring.Cassandra(s.config, nil, s.o.Log)
	if err != nil {
		return status.Options{}, &ConfigError{err}
	}
	o.Connections, o.Concurrency = 1, 4
	o.TTL = 0 // only the worker checks that the table's TTL is the configured one
	return o, nil
}

// cassandra opens something in Cassandra, within the patience.
func cassandra[T any](ctx context.Context, s *Servers, open func(context.Context, status.Options) (T, error)) (opened T, err error) {
	o, err := s.CassandraOptions()
	if err != nil {
		return opened, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	return open(ctx, o)
}

// Rows is the status store.
func (s *Servers) Rows(ctx context.Context) (Rows, error) {
	if s.o.Rows != nil {
		return s.o.Rows, nil
	}
	return s.rows.get(func() (Rows, error) {
		store, err := cassandra(ctx, s, status.OpenCassandra)
		if err != nil {
			return nil, err
		}
		s.onClose(store.Close)
		return store, nil
	})
}

// Tables is a session for tables beside the status store.
func (s *Servers) Tables(ctx context.Context) (*status.Session, error) {
	return s.tables.get(func() (*status.Session, error) {
		session, err := cassandra(ctx, s, status.OpenSession)
		if err != nil {
			return nil, err
		}
		s.onClose(session.Close)
		return session, nil
	})
}

// DeviceLog is where rules of devices count; nil = in Redis.
func (s *Servers) DeviceLog(ctx context.Context) (*limits.DeviceLog, error) {
	if !s.config.Limits.Devices.InCassandra() {
		return nil, nil
	}
	return s.devices.get(func() (*limits.DeviceLog, error) {
		return cassandra(ctx, s, func(ctx context.Context, o status.Options) (*limits.DeviceLog, error) {
			log, done, err := wiring.DeviceLog(ctx, s.config, o)
			if err != nil {
				return nil, err
			}
			s.onClose(done)
			return log, nil
		})
	})
}

// KafkaOptions are the configured options of every Kafka client.
func (s *Servers) KafkaOptions() (kafka.Options, error) {
	o, err := wiring.Kafka(s.config, s.o.Log)
	if err != nil {
		return kafka.Options{}, &ConfigError{err}
	}
	o.ClientID = s.o.ClientID
	return o, nil
}

// Admin is the client that creates and describes topics. It need not be connected.
func (s *Servers) Admin() (*kafka.Admin, error) {
	return s.admin.get(func() (*kafka.Admin, error) {
		o, err := s.KafkaOptions()
		if err != nil {
			return nil, err
		}
		admin, err := kafka.NewAdmin(o)
		if err != nil {
			return nil, err
		}
		s.onClose(admin.Close)
		return admin, nil
	})
}

// Kafka is Admin, but fails within the patience if no broker answers, or with one that
// wraps a *kafka.MissingTopicsError if one of the topics is missing.
func (s *Servers) Kafka(ctx context.Context, topics ...string) (*kafka.Admin, error) {
	admin, err := s.Admin()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	if err := admin.Ping(ctx); err != nil {
		return nil, fmt.Errorf("kafka.brokers %s: %w", strings.Join(s.config.Kafka.Brokers, ", "), err)
	}
	var missing *kafka.MissingTopicsError
	switch err := admin.CheckTopics(ctx, topics...); {
	case errors.As(err, &missing):
		return nil, fmt.Errorf("%w (`pushctl topics ensure` creates them)", err)
	case err != nil:
		return nil, err
	}
	return admin, nil
}

// Cluster is Kafka for package dlq.
func (s *Servers) Cluster() (*dlq.Cluster, error) {
	o, err := s.KafkaOptions()
	if err != nil {
		return nil, err
	}
	return dlq.OnKafka(o, func(ctx context.Context, topics ...string) error {
		_, err := s.Kafka(ctx, topics...)
		return err
	}), nil
}

// RedisOptions are the configured options of Redis.
func (s *Servers) RedisOptions() (shards.Options, error) {
	o, err := wiring.Redis(s.config)
	if err != nil {
		return shards.Options{}, &ConfigError{err}
	}
	return o, nil
}

// Redis is the client of Redis. It fails within the patience if Redis does not answer when
// it is opened.
func (s *Servers) Redis(ctx context.Context) (shards.Client, error) {
	return s.redis.get(func() (shards.Client, error) {
		o, err := s.RedisOptions()
		if err != nil {
			return nil, err
		}
		client, err := shards.Open(o)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
		defer cancel()
		if err := shards.Ping(ctx, client); err != nil {
			_ = client.Close()
			return nil, fmt.Errorf("redis.addresses %s: %w", strings.Join(o.Addrs, ", "), err)
		}
		s.onClose(func() { _ = client.Close() })
		return client, nil
	})
}
