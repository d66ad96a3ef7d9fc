package kafka

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// slowWrites takes some time for each write.
type slowWrites struct {
	net.Conn
	by time.Duration
}

func (c slowWrites) Write(b []byte) (int, error) {
	time.Sleep(c.by)
	return c.Conn.Write(b)
}

// The backlog of a partition is read as it comes, while the records of another one come one by
// one: what the client has fetched of it ends a rest.
func TestABacklogBesideATrickle(t *testing.T) {
	large := make([]kgo.RecordHeader, 20) // 20 KB, of which 8 are kept
	for i := range large {
		large[i] = header("foreign", strings.Repeat("x", 1000))
	}
	for _, row := range []struct {
		why       string
		brokers   int           // the last one has the backlog, in partition 1
		latency   time.Duration // of each request to it, and of its answer
		partition int32         // that of the trickle
		every     time.Duration
		headers   []kgo.RecordHeader
		backlog   int
		produced  int // of it at once
		options   SourceOptions
		within    time.Duration // where rests do not end early 1.3, 10, 2.6, 12 and 37 s
	}{
		{"of a slow broker", 2, 5 * time.Millisecond, 0, time.Millisecond, nil, 20_000, 100, SourceOptions{Linger: 500 * time.Millisecond, BatchRecords: 2000, OpenBatches: 20}, 300 * time.Millisecond},
		{"of a slow broker, with a long linger", 2, 5 * time.Millisecond, 0, time.Millisecond, nil, 20_000, 100, SourceOptions{Linger: 4 * time.Second, BatchRecords: 2000, OpenBatches: 20}, 300 * time.Millisecond},
		{"it gets room now and then", 1, time.Millisecond, 0, 3 * time.Millisecond, nil, 20_000, 100, SourceOptions{Linger: 500 * time.Millisecond, BatchRecords: 1000, OpenBatches: 2}, time.Second},
		{"it gets room now and then, with a long linger", 1, time.Millisecond, 0, 3 * time.Millisecond, nil, 20_000, 100, SourceOptions{Linger: 4 * time.Second, BatchRecords: 1000, OpenBatches: 2}, time.Second},
		{"it grows while it is read, a record a fetch", 1, 2 * time.Millisecond, 1, 10 * time.Millisecond, large, 300, 1, SourceOptions{Linger: 500 * time.Millisecond, BatchBytes: 32 << 10, OpenBytes: 64 << 20, OpenBatches: 1000}, 2 * time.Second},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				last := int32(row.brokers - 1)
				v := newVirtual(t, kfake.NumBrokers(row.brokers), kfake.Ports([]int{9092, 9093}[:row.brokers]...), kfake.SeedTopics(2, "t"))
				for p := range int32(2) {
					if err := v.MoveTopicPartition("t", p, min(p, last)); err != nil {
						t.Fatal(err)
					}
				}
				writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()),
					kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0))
				if err != nil {
					t.Fatal(err)
				}
				defer writer.Close()
				produce := func(partition int32, n int) {
					some := make([]*kgo.Record, n)
					for i := range some {
						some[i] = &kgo.Record{Topic: "t", Partition: partition, Headers: row.headers, Value: make([]byte, 600)}
					}
					if err := writer.ProduceSync(context.Background(), some...).FirstErr(); err != nil {
						t.Error(err)
					}
				}
				for range row.backlog / row.produced {
					produce(1, row.produced)
				}
				slow := func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := v.network.DialContext(ctx, network, addr)
					if err == nil && (row.brokers == 1 || strings.HasSuffix(addr, ":9093")) {
						c = slowWrites{c, row.latency}
					}
					return c, err
				}
				row.options.Topics, row.options.Group = mainTopic("t"), "g"
				s, err := NewSource(v.options(slow), row.options)
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				trickling := make(chan struct{}) // closed when nothing is produced any more
				go func() {
					defer close(trickling)
					for ctx.Err() == nil {
						produce(row.partition, 1)
						time.Sleep(row.every)
					}
				}()
				s.Join()
				if took := v.drained(s, 1, row.backlog); took > row.within {
					t.Errorf("%d records took %v, want %v at the most", row.backlog, took, row.within)
				} else {
					t.Logf("%d records took %v", row.backlog, took)
				}
				stop()
				<-trickling
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
