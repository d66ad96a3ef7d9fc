//go:build unix

package local

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// while does something again and again until the test goes on.
func while(ctx context.Context, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var doing sync.WaitGroup
	doing.Go(func() {
		for ctx.Err() == nil {
			do(ctx)
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); doing.Wait() }
}

func onLinux(t *testing.T) context.Context {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux limits the files of a process that runs")
	}
	return servers(t)
}

// Kafka ends by itself, and has everything that it acknowledged when there is
// space again.
func TestKafkaEndsWhenItsDiskIsFull(t *testing.T) {
	ctx := onLinux(t)
	s := closed(t, must[*Server](t)(StartKafka(ctx, KafkaOptions{Brief: true})))
	client := must[*kgo.Client](t)(kgo.NewClient(kgo.SeedBrokers(s.Addr()), kgo.DefaultProduceTopic("topic")))
	t.Cleanup(client.Close)
	_ = must[kadm.CreateTopicResponses](t)(kadm.NewClient(client).CreateTopics(ctx, 1, 1, nil, "topic"))
	noError(t, client.ProduceSync(ctx, kgo.StringRecord("kept")).FirstErr())

	// Idempotent writes cannot be given up while they are under way.
	impatient := must[*kgo.Client](t)(kgo.NewClient(kgo.SeedBrokers(s.Addr()), kgo.DefaultProduceTopic("topic"), kgo.DisableIdempotentWrite()))
	t.Cleanup(impatient.Close)
	noError(t, s.FillDisk())
	stop := while(ctx, func(ctx context.Context) { _ = impatient.ProduceSync(ctx, kgo.StringRecord("refused")).FirstErr() })
	err := s.AwaitDown(ctx)
	stop()
	noError(t, err)
	<-s.Done()
	var exit *exec.ExitError
	if !errors.As(s.process.Err(), &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want status 1", s.process.Err())
	}
	if err := s.FillDisk(); err == nil {
		t.Error("filling the disk of a server that has ended is no error")
	}

	noError(t, s.FreeDisk(ctx))
	reader := must[*kgo.Client](t)(kgo.NewClient(kgo.SeedBrokers(s.Addr()), kgo.ConsumeTopics("topic")))
	defer reader.Close()
	fetches := reader.PollFetches(ctx)
	noError(t, fetches.Err())
	if first := string(fetches.Records()[0].Value); first != "kept" {
		t.Errorf("the first record is %q, want the one that was acknowledged", first)
	}
	now := s.PID()
	if noError(t, s.FreeDisk(ctx)); s.PID() != now {
		t.Error("a server that answers was started again")
	}
}

// Cassandra closes its port and goes on living; when there is space again it
// takes a new start, and has everything that it acknowledged.
func TestCassandraStopsServingWhenItsDiskIsFull(t *testing.T) {
	ctx := onLinux(t)
	s := closed(t, must[*Server](t)(StartCassandra(ctx, CassandraOptions{Heap: "512m", Brief: true, Durable: true})))
	connect := func() *gocql.Session {
		cluster := gocql.NewCluster(s.Addr())
		cluster.Timeout, cluster.ConnectTimeout = 10*time.Second, 10*time.Second
		cluster.Logger = quiet{}
		return must[*gocql.Session](t)(cluster.CreateSession())
	}
	session := connect()
	for _, statement := range []string{
		"CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE k.t (id int PRIMARY KEY)",
		"INSERT INTO k.t (id) VALUES (7)",
	} {
		noError(t, session.Query(statement).WithContext(ctx).Exec())
	}

	noError(t, s.FillDisk())
	stop := while(ctx, func(ctx context.Context) {
		_ = session.Query("INSERT INTO k.t (id) VALUES (8)").WithContext(ctx).Exec()
	})
	err := s.AwaitDown(ctx)
	stop()
	session.Close()
	noError(t, err)
	if s.process.ended() {
		t.Error("it has ended, which it was never seen to do")
	}

	before := s.PID()
	noError(t, s.FreeDisk(ctx))
	if s.PID() == before {
		t.Error("it was not started again")
	}
	session = connect()
	defer session.Close()
	var id int
	noError(t, session.Query("SELECT id FROM k.t WHERE id = 7").WithContext(ctx).Scan(&id))
}
