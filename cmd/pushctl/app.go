package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/lookup"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

// connectTime is how long a command tries to reach a server before it fails.
const connectTime = 15 * time.Second

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

	loaded  *configs.Config
	store   reach.Rows    // nil = those of Cassandra; tests have some in memory
	inbox   erasedInbox   // nil = that of Cassandra; tests have one in memory
	clicks  erasedRows    // likewise
	journal erasedRows    // likewise
	members erasedMembers // likewise
	servers *reach.Servers
	closes  []func()
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

// reach is the servers of the configuration.
func (a *app) reach() (*reach.Servers, error) {
	if a.servers == nil {
		c, err := a.config()
		if err != nil {
			return nil, err
		}
		a.servers = reach.New(c, reach.Options{ClientID: "pushctl", Patience: a.connectTime, Rows: a.store, Log: a.log})
		a.onClose(a.servers.Close)
	}
	return a.servers, nil
}

// of asks the servers of the configuration for something.
func of[T any](a *app, get func(*reach.Servers) (T, error)) (got T, err error) {
	servers, err := a.reach()
	if err != nil {
		return got, err
	}
	return get(servers)
}

// cassandraOptions are the configured options of the status store.
func (a *app) cassandraOptions() (status.Options, error) {
	return of(a, (*reach.Servers).CassandraOptions)
}

// statusStore opens the status store, once.
func (a *app) statusStore(ctx context.Context) (reach.Rows, error) {
	return of(a, func(s *reach.Servers) (reach.Rows, error) { return s.Rows(ctx) })
}

// cassandraTables opens a session for tables beside the status store, once.
func (a *app) cassandraTables(ctx context.Context) (*status.Session, error) {
	return of(a, func(s *reach.Servers) (*status.Session, error) { return s.Tables(ctx) })
}

// deviceLog opens where rules of devices count, once; nil = in Redis.
func (a *app) deviceLog(ctx context.Context) (*limits.DeviceLog, error) {
	return of(a, func(s *reach.Servers) (*limits.DeviceLog, error) { return s.DeviceLog(ctx) })
}

// kafkaOptions are the configured options of every Kafka client.
func (a *app) kafkaOptions() (kafka.Options, error) {
	return of(a, (*reach.Servers).KafkaOptions)
}

// kafkaAdmin opens the client that creates and describes topics, once.
func (a *app) kafkaAdmin() (*kafka.Admin, error) { return of(a, (*reach.Servers).Admin) }

// reachKafka is kafkaAdmin, but fails within connectTime if no broker answers
// or one of the topics is missing.
func (a *app) reachKafka(ctx context.Context, topics ...string) (*kafka.Admin, error) {
	return of(a, func(s *reach.Servers) (*kafka.Admin, error) { return s.Kafka(ctx, topics...) })
}

// redisOptions are the configured options of Redis.
func (a *app) redisOptions() (shards.Options, error) { return of(a, (*reach.Servers).RedisOptions) }

// reachRedis opens the client of Redis, once. It fails within connectTime if
// Redis does not answer.
func (a *app) reachRedis(ctx context.Context) (shards.Client, error) {
	return of(a, func(s *reach.Servers) (shards.Client, error) { return s.Redis(ctx) })
}

// lookups ask what stands between users and notifications.
func (a *app) lookups() (*lookup.Lookups, error) {
	return of(a, func(s *reach.Servers) (*lookup.Lookups, error) {
		l := lookup.New(a.loaded, s)
		a.onClose(l.Close)
		return l, nil
	})
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
