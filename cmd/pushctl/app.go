package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// connectTime is how long a command tries to reach a server before it fails.
const connectTime = 15 * time.Second

// statusReader is what the commands need of the status store.
type statusReader interface {
	Read(ctx context.Context, ids []string) ([][]push.Row, error)
}

// app is what the commands of one run share. Connections are opened on first
// use and closed at the end. One run executes one command, so app needs no
// lock.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	log            *slog.Logger
	connectTime    time.Duration

	configPath string
	format     terminal.Format

	loaded *configs.Config
	store  statusReader
	tables *status.Session
	inbox  erasedInbox // nil = that of Cassandra; tests have one in memory
	admin  *kafka.Admin
	redis  shards.Client
	closes []func()
}

// newApp makes the app of one run. Its writers remove control characters from
// everything that is printed.
func newApp(stdin io.Reader, out, errs io.Writer) *app {
	stdout, stderr := terminal.NewWriter(out), terminal.NewWriter(errs)
	return &app{
		stdin: stdin, stdout: stdout, stderr: stderr, environ: os.Environ(), format: terminal.FormatTable, connectTime: connectTime,
		log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// show writes an answer in the format that was asked for.
func (a *app) show(ans terminal.Answer) error { return ans.Write(a.stdout, a.format, indent) }

// indent is the indentation of JSON answers.
const indent = "  "

// onClose registers f to run when the command ends, in reverse order.
func (a *app) onClose(f func()) { a.closes = append(a.closes, f) }

func (a *app) close() {
	for i := len(a.closes) - 1; i >= 0; i-- {
		a.closes[i]()
	}
	a.closes = nil
}

// config reads the worker's configuration, once.
func (a *app) config() (*configs.Config, error) {
	if a.loaded == nil {
		c, err := configs.Load(a.configPath, a.environ)
		if err != nil {
			return nil, usageError{err}
		}
		a.loaded = c
	}
	return a.loaded, nil
}

// lane finds a lane by its name.
func (a *app) lane(name string) (*configs.Lane, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(c.Lanes))
	for i := range c.Lanes {
		if names[i] = c.Lanes[i].Name; names[i] == name {
			return &c.Lanes[i], nil
		}
	}
	return nil, usagef("--lane: no lane %q; the configuration has %s", name, strings.Join(names, ", "))
}

// cassandraOptions are the configured options of the status store.
func (a *app) cassandraOptions() (status.Options, error) {
	c, err := a.config()
	if err != nil {
		return status.Options{}, err
	}
	o, err := wiring.Cassandra(c, nil, a.log)
	if err != nil {
		return status.Options{}, usageError{err}
	}
	o.Connections, o.Concurrency = 1, 4
	o.TTL = 0 // only the worker checks that the table's TTL is the configured one
	return o, nil
}

// statusStore opens the status store, once.
func (a *app) statusStore(ctx context.Context) (statusReader, error) {
	if a.store != nil {
		return a.store, nil
	}
	opts, err := a.cassandraOptions()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.connectTime)
	defer cancel()
	store, err := status.OpenCassandra(ctx, opts)
	if err != nil {
		return nil, err
	}
	a.onClose(store.Close)
	a.store = store
	return store, nil
}

// cassandraTables opens a session for tables beside the status store, once.
func (a *app) cassandraTables(ctx context.Context) (*status.Session, error) {
	if a.tables != nil {
		return a.tables, nil
	}
	opts, err := a.cassandraOptions()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.connectTime)
	defer cancel()
	session, err := status.OpenSession(ctx, opts)
	if err != nil {
		return nil, err
	}
	a.onClose(session.Close)
	a.tables = session
	return session, nil
}

// kafkaOptions are the configured options of every Kafka client.
func (a *app) kafkaOptions() (kafka.Options, error) {
	c, err := a.config()
	if err != nil {
		return kafka.Options{}, err
	}
	o, err := wiring.Kafka(c, a.log)
	if err != nil {
		return kafka.Options{}, usageError{err}
	}
	o.ClientID = "pushctl"
	return o, nil
}

// kafkaAdmin opens the client that creates and describes topics, once.
func (a *app) kafkaAdmin() (*kafka.Admin, error) {
	if a.admin != nil {
		return a.admin, nil
	}
	opts, err := a.kafkaOptions()
	if err != nil {
		return nil, err
	}
	if a.admin, err = kafka.NewAdmin(opts); err != nil {
		return nil, err
	}
	a.onClose(a.admin.Close)
	return a.admin, nil
}

// reachKafka is kafkaAdmin, but fails within connectTime if no broker answers
// or one of the topics is missing.
func (a *app) reachKafka(ctx context.Context, topics ...string) (*kafka.Admin, error) {
	admin, err := a.kafkaAdmin()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.connectTime)
	defer cancel()
	if err := admin.Ping(ctx); err != nil {
		return nil, fmt.Errorf("kafka.brokers %s: %w", strings.Join(a.loaded.Kafka.Brokers, ", "), err)
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

// usersLog checks that push.users exists and opens it for appending.
func (a *app) usersLog(ctx context.Context) (users.Log, error) {
	if _, err := a.reachKafka(ctx, kafka.UsersTopic); err != nil {
		return nil, err
	}
	opts, err := a.kafkaOptions()
	if err != nil {
		return nil, err
	}
	log, err := wiring.NewUsersLog(opts)
	if err != nil {
		return nil, err
	}
	a.onClose(log.Close)
	return log, nil
}

// laneWriter checks that a lane's topic exists and opens it for producing.
func (a *app) laneWriter(ctx context.Context, topic string, linger time.Duration) (*kafka.Writer, error) {
	if _, err := a.reachKafka(ctx, topic); err != nil {
		return nil, err
	}
	opts, err := a.kafkaOptions()
	if err != nil {
		return nil, err
	}
	w, err := kafka.NewWriter(opts, kafka.WriterOptions{Topic: topic, Linger: linger})
	if err != nil {
		return nil, err
	}
	a.onClose(w.Close)
	return w, nil
}

// redisOptions are the configured options of Redis.
func (a *app) redisOptions() (shards.Options, error) {
	c, err := a.config()
	if err != nil {
		return shards.Options{}, err
	}
	o, err := wiring.Redis(c)
	if err != nil {
		return shards.Options{}, usageError{err}
	}
	return o, nil
}

// reachRedis opens the client of Redis, once. It fails within connectTime if
// Redis does not answer.
func (a *app) reachRedis(ctx context.Context) (shards.Client, error) {
	if a.redis != nil {
		return a.redis, nil
	}
	opts, err := a.redisOptions()
	if err != nil {
		return nil, err
	}
	client, err := shards.Open(opts)
	if err != nil {
		return nil, err
	}
	a.onClose(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(ctx, a.connectTime)
	defer cancel()
	if err := shards.Ping(ctx, client); err != nil {
		return nil, fmt.Errorf("redis.addresses %s: %w", strings.Join(opts.Addrs, ", "), err)
	}
	a.redis = client
	return client, nil
}

// user reads a user from Redis.
func (a *app) user(ctx context.Context, id string) (*users.Stored, error) {
	client, err := a.reachRedis(ctx)
	if err != nil {
		return nil, err
	}
	u, err := users.NewReader(client, false).Stored(ctx, id)
	if _, unbuilt := users.IsUnbuilt(err); unbuilt {
		return nil, fmt.Errorf("%w: is `pushworker registry` running?", err)
	}
	if err != nil {
		return nil, err
	}
	if u.Quarantine&push.RecordUnread != 0 {
		return nil, fmt.Errorf("the record of user %s in Redis cannot be read; a running registry rebuilds it from %s", terminal.Word(id), kafka.UsersTopic)
	}
	return &u, nil
}
