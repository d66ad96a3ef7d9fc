//go:build unix

package local

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// servers skips a test unless real servers are wanted, and bounds it.
func servers(t *testing.T) context.Context {
	t.Helper()
	if os.Getenv(EnvServers) == "" {
		t.Skip("starts real servers: run make test, or `go run ./deploy/local/servers run -- go test ./deploy/local`")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// access is an authority and a user whose password needs quoting.
func access(t *testing.T) *Access {
	t.Helper()
	ca, err := NewCA()
	if err != nil {
		t.Fatal(err)
	}
	return &Access{CA: ca, User: "pushfleet", Password: "it's-Secret"}
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// closed closes a server at the end of the test.
func closed[S interface{ Close() error }](t *testing.T, s S) S {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

func TestRedisKeepsItsPlace(t *testing.T) {
	ctx := servers(t)
	s := closed(t, must[*Server](t)(StartRedis(ctx, RedisOptions{AppendOnly: true})))
	ask := func(args ...string) string {
		t.Helper()
		return must[string](t)(redisDo(ctx, s.Addr(), nil, args...))
	}
	if got := ask("BF.ADD", "filter", "an id"); got != "1" {
		t.Errorf("BF.ADD answered %q, want 1: the Bloom module is not there", got)
	}
	if stats := ask("MEMORY", "MALLOC-STATS"); strings.Contains(stats, "jemalloc") && !strings.Contains(stats, `opt.thp: "always"`) {
		t.Error("its memory is not asked for in huge pages")
	}
	ask("SET", "key", "value")

	first := s.PID()
	noError(t, s.Kill())
	if _, err := redisDo(ctx, s.Addr(), nil, "PING"); err == nil {
		t.Error("a killed Redis answered")
	}
	noError(t, s.Restart(ctx))
	if s.PID() == first {
		t.Error("after a restart the process is the same")
	}
	if got := ask("GET", "key"); got != "value" {
		t.Errorf("after kill and restart the key is %q, want value", got)
	}
	if got := ask("BF.EXISTS", "filter", "an id"); got != "1" {
		t.Errorf("after kill and restart BF.EXISTS answered %q, want 1", got)
	}

	noError(t, s.Pause())
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := redisDo(short, s.Addr(), nil, "PING"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a paused Redis: %v, want a time-out", err)
	}
	noError(t, s.Resume())
	ask("PING")

	noError(t, s.Wipe(ctx))
	if got := ask("DBSIZE"); got != "0" {
		t.Errorf("after Wipe there are %s keys", got)
	}
	noError(t, s.Pause())
	noError(t, s.Stop(ctx)) // a paused server cannot end by itself
	noError(t, s.Stop(ctx))
	if err := s.Pause(); err == nil {
		t.Error("pausing a stopped server is no error")
	}
}

func TestRedisDemandsAccess(t *testing.T) {
	ctx := servers(t)
	a := access(t)
	s := closed(t, must[*Server](t)(StartRedis(ctx, RedisOptions{Access: a})))
	if _, err := redisDo(ctx, s.Addr(), a, "BF.ADD", "filter", "an id"); err != nil {
		t.Error(err)
	}
	if _, err := redisDo(ctx, s.Addr(), nil, "PING"); err == nil {
		t.Error("it answered without TLS")
	}
	wrong := *a
	wrong.Password = "wrong"
	if _, err := redisDo(ctx, s.Addr(), &wrong, "PING"); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with a wrong password: %v", err)
	}
	stranger := access(t)
	if _, err := redisDo(ctx, s.Addr(), stranger, "PING"); err == nil {
		t.Error("a client that trusts another authority connected")
	}
}

func TestRedisCluster(t *testing.T) {
	for _, tt := range []struct {
		name   string
		access *Access
	}{
		{"plain", nil},
		{"secured", access(t)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := servers(t)
			c := closed(t, must[*RedisCluster](t)(StartRedisCluster(ctx, RedisOptions{Access: tt.access})))
			owners := 0
			for _, addr := range c.Addrs() {
				// {b}'s slot is 3300, {a}'s 15495: never on the same of three nodes.
				_, err := redisDo(ctx, addr, tt.access, "MSET", "{a}1", "1", "{b}1", "1")
				if err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
					t.Errorf("keys of two slots in one command at %s: %v, want CROSSSLOT", addr, err)
				}
				_, err = redisDo(ctx, addr, tt.access, "BF.ADD", "{a}filter", "an id")
				if err == nil {
					owners++
				} else if !strings.Contains(err.Error(), "MOVED 15495 127.0.0.1:") {
					t.Errorf("BF.ADD at %s: %v, want done or MOVED", addr, err)
				}
			}
			if owners != 1 {
				t.Errorf("%d nodes own one slot", owners)
			}
			noError(t, c.Wipe(ctx))
			noError(t, c.Nodes[1].Kill())
			noError(t, c.Nodes[1].Restart(ctx))
			noError(t, c.await(ctx, tt.access))
		})
	}
}

func TestKafkaKeepsItsPlace(t *testing.T) {
	ctx := servers(t)
	a := access(t)
	began := time.Now()
	s := closed(t, must[*Server](t)(StartKafka(ctx, KafkaOptions{
		Brief:  true,
		Access: a, Properties: map[string]string{"log.retention.hours": "1"},
	})))
	t.Logf("up in %v", time.Since(began))
	plainClient := func() *kgo.Client {
		client := must[*kgo.Client](t)(kgo.NewClient(kgo.SeedBrokers(s.Addr()), kgo.DefaultProduceTopic("topic"), kgo.ProducerBatchMaxBytes(2<<20)))
		t.Cleanup(client.Close)
		return client
	}
	client := plainClient()
	if err := client.ProduceSync(ctx, kgo.StringRecord("lost")).FirstErr(); err == nil {
		t.Error("a topic was made by producing to it")
	}
	_ = must[kadm.CreateTopicResponses](t)(kadm.NewClient(client).CreateTopics(ctx, 2, 1, nil, "topic"))
	// The client remembers for a while that there was no such topic.
	client = plainClient()
	large := strings.Repeat("x", 1<<20)
	noError(t, client.ProduceSync(ctx, kgo.StringRecord(large)).FirstErr())

	for _, tt := range []struct {
		name  string
		login func(password string) sasl.Mechanism
	}{
		{"PLAIN", func(p string) sasl.Mechanism { return plain.Auth{User: a.User, Pass: p}.AsMechanism() }},
		{"SCRAM-SHA-256", func(p string) sasl.Mechanism { return scram.Auth{User: a.User, Pass: p}.AsSha256Mechanism() }},
		{"SCRAM-SHA-512", func(p string) sasl.Mechanism { return scram.Auth{User: a.User, Pass: p}.AsSha512Mechanism() }},
	} {
		ping := func(config *tls.Config, mechanism ...sasl.Mechanism) error {
			c, err := kgo.NewClient(kgo.SeedBrokers(s.SecureAddr()), kgo.DialTLSConfig(config), kgo.SASL(mechanism...))
			noError(t, err)
			defer c.Close()
			// The address in the answer must be that of the secured listener.
			brokers, err := kadm.NewClient(c).ListBrokers(ctx)
			if err == nil && fmt.Sprintf("%s:%d", brokers[0].Host, brokers[0].Port) != s.SecureAddr() {
				return fmt.Errorf("it calls itself %s:%d", brokers[0].Host, brokers[0].Port)
			}
			return err
		}
		if err := ping(a.CA.ClientConfig(), tt.login(a.Password)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err := ping(a.CA.ClientConfig(), tt.login("wrong")); err == nil {
			t.Errorf("%s: a wrong password was accepted", tt.name)
		}
		if err := ping(access(t).CA.ClientConfig(), tt.login(a.Password)); err == nil {
			t.Errorf("%s: a client that trusts another authority connected", tt.name)
		}
	}

	for _, end := range []struct {
		name string
		end  func() error
	}{
		{"kill", s.Kill},
		{"stop", func() error { return s.Stop(ctx) }},
	} {
		began = time.Now()
		noError(t, end.end())
		t.Logf("%s took %v", end.name, time.Since(began))
		began = time.Now()
		noError(t, s.Restart(ctx))
		t.Logf("up again after %s in %v", end.name, time.Since(began))
		reader := must[*kgo.Client](t)(kgo.NewClient(kgo.SeedBrokers(s.Addr()), kgo.ConsumeTopics("topic")))
		fetches := reader.PollFetches(ctx)
		noError(t, fetches.Err())
		if record := fetches.Records()[0]; string(record.Value) != large {
			t.Errorf("after %s the record has %d bytes", end.name, len(record.Value))
		}
		reader.Close()
		t.Logf("read after %s in %v", end.name, time.Since(began))
	}
	if err := s.Wipe(ctx); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("wiping Kafka: %v", err)
	}
}

func TestCassandraKeepsItsPlace(t *testing.T) {
	ctx := servers(t)
	a := access(t)
	began := time.Now()
	s := closed(t, must[*Server](t)(StartCassandra(ctx, CassandraOptions{Access: a, Heap: "512m", Brief: true})))
	t.Logf("up in %v", time.Since(began))
	connect := func(password string, authority *CA) (*gocql.Session, error) {
		cluster := gocql.NewCluster(s.Addr())
		cluster.Timeout, cluster.ConnectTimeout = time.Minute, time.Minute
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: a.User, Password: password}
		cluster.SslOpts = &gocql.SslOptions{Config: authority.ClientConfig(), EnableHostVerification: true}
		cluster.Logger = quiet{}
		return cluster.CreateSession()
	}
	session := must[*gocql.Session](t)(connect(a.Password, a.CA))
	for _, statement := range []string{
		"CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE k.t (id int PRIMARY KEY)",
		"INSERT INTO k.t (id) VALUES (7)",
	} {
		noError(t, session.Query(statement).WithContext(ctx).Exec())
	}
	session.Close()
	if _, err := connect("wrong", a.CA); err == nil {
		t.Error("a wrong password was accepted")
	}
	if _, err := connect(a.Password, access(t).CA); err == nil {
		t.Error("a client that trusts another authority connected")
	}
	if err := cqlDo(ctx, s.Addr(), nil, "SELECT key FROM system.local"); err == nil {
		t.Error("it answered without TLS")
	}

	noError(t, s.Kill())
	began = time.Now()
	noError(t, s.Restart(ctx))
	t.Logf("up again after kill in %v", time.Since(began))
	// Only Linux has the file, and lets only some read another's.
	if slack, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", s.PID())); err == nil && strings.TrimSpace(string(slack)) != "500000" {
		t.Errorf("its timers may be late by %s ns, want 500000", slack)
	}
	session = must[*gocql.Session](t)(connect(a.Password, a.CA))
	defer session.Close()
	var id int
	noError(t, session.Query("SELECT id FROM k.t").WithContext(ctx).Scan(&id))
	if id != 7 {
		t.Errorf("after kill and restart id is %d, want 7", id)
	}
}

// quiet drops what gocql logs of the refusals that are wanted here.
type quiet struct{}

func (quiet) Print(...any)          {}
func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}
