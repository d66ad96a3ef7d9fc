package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

// fleet is the servers that pushctl operates, in this process.
type fleet struct {
	t        *testing.T
	kafka    *embedded.Kafka
	redis    *embedded.Redis
	status   *status.Memory
	reader   reach.Rows    // the commands' status store: status, unless a test sets another one
	inbox    erasedInbox   // nil = that of Cassandra
	clicks   erasedRows    // likewise
	journal  erasedRows    // likewise
	members  erasedMembers // likewise
	config   string        // the file's name
	patience time.Duration // with a server that does not answer
	deadline time.Time     // when the test stops waiting for the registry
}

// startFleet starts them, with the topics of the configuration, 3 partitions
// each, or without topics.
func startFleet(t *testing.T, withTopics bool) *fleet {
	t.Helper()
	f := &fleet{t: t, deadline: time.Now().Add(patience), patience: patience}
	var topics []embedded.Topic
	if withTopics {
		for _, s := range wiring.Topics(configs.Default()) {
			topics = append(topics, embedded.Topic{Name: s.Name, Partitions: 3, Compacted: s.Configs["cleanup.policy"] == "compact"})
		}
	}
	var err error
	if f.kafka, err = embedded.StartKafka(topics...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.kafka.Close)
	if f.redis, err = embedded.StartRedis(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.redis.Close)
	if f.status, err = status.NewMemory(status.DefaultLayouts()); err != nil {
		t.Fatal(err)
	}
	f.reader = f.status
	f.config = configFile(t, fmt.Sprintf("kafka: {brokers: [%q], topics: {partitions: 3, replication: 1}}\nredis: {addresses: [%q]}\ndedupe: {capacity: 20000}\n", f.kafka.Addrs()[0], f.redis.Addr()))
	return f
}

// run runs a command with this standard input.
func (f *fleet) run(stdin string, args ...string) (exit int, stdout, stderr string) {
	f.t.Helper()
	return f.runUntil(f.t.Context(), stdin, args...)
}

// runUntil is run, interrupted when ctx ends.
func (f *fleet) runUntil(ctx context.Context, stdin string, args ...string) (exit int, stdout, stderr string) {
	f.t.Helper()
	return f.runFrom(ctx, strings.NewReader(stdin), args...)
}

// runFrom is runUntil with any standard input.
func (f *fleet) runFrom(ctx context.Context, stdin io.Reader, args ...string) (exit int, stdout, stderr string) {
	f.t.Helper()
	var out, errs bytes.Buffer
	a := newApp(stdin, &out, &errs)
	defer a.close()
	a.environ, a.store, a.inbox, a.clicks, a.journal, a.members, a.connectTime = nil, f.reader, f.inbox, f.clicks, f.journal, f.members, f.patience
	at := slices.Index(args, "--") // behind it there are no flags
	if at < 0 {
		at = len(args)
	}
	exit = a.end(ctx, a.execute(ctx, slices.Insert(slices.Clone(args), at, "--config", f.config)))
	return exit, out.String(), errs.String()
}

// ok runs a command that must end with exit status 0.
func (f *fleet) ok(args ...string) (stdout string) {
	f.t.Helper()
	exit, stdout, stderr := f.run("", args...)
	if exit != exitDone {
		f.t.Fatalf("pushctl %s: exit status %d: %s", strings.Join(args, " "), exit, stderr)
	}
	return stdout
}

// records are the records of a topic so far.
func (f *fleet) records(topic string) (list []kafka.Record) {
	f.t.Helper()
	follower, err := kafka.NewFollower(kafka.Options{Brokers: f.kafka.Addrs()}, topic, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer follower.Close()
	ends, err := follower.EndOffsets(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	want := 0
	for _, end := range ends {
		want += int(end)
	}
	for len(list) < want {
		got, err := follower.Poll(f.t.Context(), 10_000)
		if err != nil {
			f.t.Fatal(err)
		}
		list = append(list, got...)
	}
	return list
}

// startRegistry runs a registry until the test ends, and returns when Redis is
// complete.
func (f *fleet) startRegistry() {
	f.t.Helper()
	options := kafka.Options{Brokers: f.kafka.Addrs()}
	redisOptions := shards.DefaultOptions()
	redisOptions.Addrs = []string{f.redis.Addr()}
	redisOptions.ReadTimeout = time.Minute // the in-process Redis runs scripts slowly
	client, err := shards.Open(redisOptions)
	if err != nil {
		f.t.Fatal(err)
	}
	open := func() *kafka.Follower {
		follower, err := kafka.NewFollower(options, kafka.UsersTopic, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		return follower
	}
	follower, rescan := open(), open()
	log, err := wiring.NewUsersLog(options)
	if err != nil {
		f.t.Fatal(err)
	}
	quarantine, err := wiring.NewQuarantineLog(options)
	if err != nil {
		f.t.Fatal(err)
	}
	built, once := make(chan struct{}), sync.Once{}
	o := users.DefaultRegistryOptions()
	o.Progress = func(p users.Progress) {
		if p.Ready == shards.Users {
			once.Do(func() { close(built) })
		}
	}
	registry, err := users.NewRegistry(client, users.RegistryTopics{Follower: &usersTopic{follower: follower},
		Rescan: &usersTopic{follower: rescan}, Log: log, Quarantine: quarantine}, o, nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = registry.Run(ctx)
	}()
	f.t.Cleanup(func() {
		stop()
		<-done
		log.Close()
		quarantine.Close()
		follower.Close()
		rescan.Close()
		_ = client.Close()
	})
	<-built
}

// usersTopic is a users.Follower for topics without gaps.
type usersTopic struct{ follower *kafka.Follower }

func (u *usersTopic) Spans(ctx context.Context) ([]users.Span, error) {
	ends, err := u.follower.EndOffsets(ctx)
	spans := make([]users.Span, len(ends))
	for p, end := range ends {
		spans[p].End = end
	}
	return spans, err
}

func (u *usersTopic) Seek(_ context.Context, offsets []int64) error {
	from := make(map[int32]int64)
	for p, o := range offsets {
		from[int32(p)] = o
	}
	u.follower.Seek(from)
	return nil
}

func (u *usersTopic) Poll(ctx context.Context) ([]users.Fetched, error) {
	records, err := u.follower.Poll(ctx, 10_000)
	var runs []users.Fetched
	for _, r := range records {
		runs = append(runs, users.Fetched{Partition: r.Partition, Next: r.Offset + 1,
			Records: []users.FetchedRecord{{Offset: r.Offset, Record: wiring.UsersRecord(r)}}})
	}
	return runs, err
}

// create creates topics with one partition.
func (f *fleet) create(topics ...string) {
	f.t.Helper()
	for _, name := range topics {
		if err := f.kafka.Create(embedded.Topic{Name: name, Partitions: 1}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// startWithCassandra is a fleet with a registry and a keyspace of its own on a real Cassandra,
// and a session there. text is added to its configuration.
func startWithCassandra(t *testing.T, text string) (*fleet, *configs.Config, *status.Session) {
	t.Helper()
	server := localtest.Require(t)
	f := startFleet(t, true)
	f.configure(func(had string) string {
		return had + text + fmt.Sprintf("cassandra: {hosts: [%q], keyspace: pushctl_%d}\n", server.Cassandra, time.Now().UnixNano())
	})
	f.ok("schema", "apply")
	f.startRegistry()
	c, err := configs.Load(f.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := wiring.Cassandra(c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	session, err := status.OpenSession(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return f, c, session
}
