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

// connectTime is how long a command tries to reach a server before it says
// that it cannot.
const connectTime = 15 * time.Second

// statusReader is the status store as the commands look into it.
type statusReader interface {
	Read(ctx context.Context, ids []string) ([][]push.Row, error)
}

// app is what the commands of one run share. Connections are made when a
// command first asks for them and closed at the end; a command runs alone, so
// nothing here is locked.
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
	admin  *kafka.Admin
	redis  shards.Client
	closes []func()
}

// newApp is what the commands of one run share. Everything they print is
// cleaned of what moves a cursor.
func newApp(stdin io.Reader, out, errs io.Writer) *app {
	stdout, stderr := terminal.NewWriter(out), terminal.NewWriter(errs)
	return &app{
		stdin: stdin, stdout: stdout, stderr: stderr, environ: os.Environ(), format: terminal.FormatTable, connectTime: connectTime,
		log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// show writes an answer in the format that was asked for.
func (a *app) show(ans terminal.Answer) error { return ans.Write(a.stdout, a.format, indent) }

// indent is that of JSON that people may read.
const indent = "  "

// onClose registers what ends with the command: last made, first closed.
func (a *app) onClose(f func()) { a.closes = append(a.closes, f) }

func (a *app) close() {
	for i := len(a.closes) - 1; i >= 0; i-- {
		a.closes[i]()
	}
	a.closes = nil
}

// config is the worker's configuration, read once.
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

// lane is the lane of this name.
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
	return nil, usagef("--lane: there is no lane %q; the configuration has %s", name, strings.Join(names, ", "))
}

// cassandraOptions are the connection to the status store as configured.
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
	o.TTL = 0 // that the table fits the configuration is the worker's to check
	return o, nil
}

// statusStore is the status store, open.
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

// kafkaOptions are the connection to Kafka as configured; every kind of client
// is made from them.
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

// kafkaAdmin is the client that makes and describes topics.
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

// reachKafka is kafkaAdmin, and an error within connectTime if no broker
// answers or one of the topics is missing.
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
		return nil, fmt.Errorf("%w (`pushctl topics ensure` makes them)", err)
	case err != nil:
		return nil, err
	}
	return admin, nil
}

// usersLog is push.users, there and open for appending.
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

// laneWriter is a lane's topic, there and open for producing.
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

// redisOptions are the connection to Redis as configured.
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

// reachRedis is the client of Redis, and an error within connectTime if it
// does not answer.
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

// user reads what Redis knows of a user.
func (a *app) user(ctx context.Context, id string) (*users.Profile, error) {
	client, err := a.reachRedis(ctx)
	if err != nil {
		return nil, err
	}
	u, err := users.NewReader(client, false).Profile(ctx, id)
	if _, unbuilt := users.IsUnbuilt(err); unbuilt {
		return nil, fmt.Errorf("%w: is `pushworker registry` running?", err)
	}
	if err != nil {
		return nil, err
	}
	if u.Quarantine&push.RecordUnread != 0 {
		return nil, fmt.Errorf("the record of user %s cannot be read: the registry rebuilds it from %s, if it is running", terminal.Word(id), kafka.UsersTopic)
	}
	return &u, nil
}
