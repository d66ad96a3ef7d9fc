package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Where records of several brokers follow each other, and these take their time to answer, a
// rest does not begin with the first answer: the others would wait for its end. On average a
// record waits for less than the linger.
func TestARestWaitsForAllBrokers(t *testing.T) {
	const records, every, linger = 400, 3 * time.Millisecond, 20 * time.Millisecond
	for _, latency := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond} {
		t.Run(fmt.Sprint(latency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if mean := waitsOf(t, records, every, linger, latency); mean > linger*17/20 {
					t.Errorf("a record waits for %v on average, with a linger of %v", mean, linger)
				}
			})
		})
	}
}

// waitsOf is how long a record waits on average that is produced to one of six partitions of three
// brokers, where requests take some time.
func waitsOf(t *testing.T, records int, every, linger, latency time.Duration) time.Duration {
	t.Helper()
	v := newVirtual(t, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094), kfake.SeedTopics(6, "t"))
	for p := range int32(6) {
		if err := v.MoveTopicPartition("t", p, p%3); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewSource(v.options(func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := v.network.DialContext(ctx, network, address)
		if err == nil {
			c = slowWrites{c, latency}
		}
		return c, err
	}), SourceOptions{Topics: mainTopic("t"), Group: "g", Linger: linger})
	if err != nil {
		t.Fatal(err)
	}
	s.Join()
	writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	time.Sleep(5 * time.Second) // it has its partitions, and polls
	began := time.Now()
	var reading, producing sync.WaitGroup
	all := time.Duration(0)
	reading.Go(func() {
		var open []*pipeline.Batch
		defer func() { done(open...) }()
		for left := records; left > 0; {
			b, err := s.Next(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			open, left = append(open, b), left-len(b.Items)
			for i := range b.Items {
				at, _ := strconv.Atoi(string(b.Items[i].Key))
				all += time.Since(began.Add(time.Duration(at)))
			}
		}
	})
	r := rand.New(rand.NewPCG(1, 2))
	for i := range records {
		time.Sleep(time.Duration(i)*every + time.Duration(r.IntN(1000))*time.Microsecond - time.Since(began))
		one := &kgo.Record{Topic: "t", Partition: int32(r.IntN(6)), Key: strconv.AppendInt(nil, int64(time.Since(began)), 10), Value: []byte("{}")}
		producing.Go(func() {
			if err := writer.ProduceSync(t.Context(), one).FirstErr(); err != nil {
				t.Error(err)
			}
		})
	}
	producing.Wait()
	reading.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return all / time.Duration(records)
}

// Who waits in Next is told of what is settled.
func TestSettledRecordsWakeNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(SourceOptions{Topics: mainTopic("push"), Group: "g", Linger: time.Second}.withDefaults(), slog.New(slog.DiscardHandler))
		p := push.Partition{Topic: "push"}
		a := s.newAssignment(p)
		s.parts[p] = a
		a.take(sized(1, 2, time.Now()), time.Now())
		began := time.Now()
		go func() {
			synctest.Wait()
			s.settle()
		}()
		if b, err := s.Next(t.Context()); err != nil || len(b.Items) != 1 || time.Since(began) > 0 {
			t.Errorf("handed out after %v, %v", time.Since(began), err)
		}
	})
}

// What waits in numbers is not settled.
func TestMuchIsNotSettled(t *testing.T) {
	o := options(func(o *SourceOptions) { o.BatchRecords = 200 })
	for n, want := range map[int]int{9: 9, 10: 0} {
		a := part(o, 0)
		a.take(sized(n, 1, start), start)
		if a.settle(); a.settled != want {
			t.Errorf("of %d %d are settled, want %d", n, a.settled, want)
		}
	}
}

// With a window of one batch, a partition that is not full has room for as much as may be
// polled, and a twentieth of a batch does not fill it.
func TestAWindowOfOneBatch(t *testing.T) {
	o := options(func(o *SourceOptions) { o.BatchRecords, o.OpenBatches = 40, 1 })
	a := part(o, 0)
	a.take(sized(40, 1, start), start)
	if !a.full() {
		t.Fatal("it is not full")
	}
	for range 40 { // as if they were committed
		a.drop(1, a.waiting[0].bytes())
		n, _ := a.open()
		if full := a.full(); full != (n > 40/few) || !full && n+a.limits.batch > a.limits.window {
			t.Errorf("with %d records open of a window of %d it is full: %v, and as many as %d may be polled", n, a.limits.window, full, a.limits.batch)
		}
	}
	for _, most := range []amount{{records: 40, bytes: 1 << 20}, {records: 400, bytes: 40 * 200}} {
		o.BatchRecords, o.BatchBytes = most.records, most.bytes
		for n, want := range map[int]bool{37: false, 38: true} {
			a := part(o, 0)
			a.take(sized(n, 200, start), start)
			if ready, _ := a.ready(start); ready != want {
				t.Errorf("%d records and %d bytes, of a batch of %v, make one when as much was polled: %v", n, a.waitingBytes, most, ready)
			}
		}
	}
}
