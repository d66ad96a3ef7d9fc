package kafka

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Batches that are too large to unpack follow each other, and a record of another partition
// comes now and then, so that a source rests between two polls. Each of them is left out in
// its turn: the client is not sent on to the next one before the partition is paused for the
// records of the first, since it drops the error of the next one then and stops for good.
func TestLeftOutBatchesBesideATrickle(t *testing.T) {
	const large, each, behind = 3, 33, 1000
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
		writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		raw := rawBatch(t, true, each, func(int) *kgo.Record { return &kgo.Record{Value: make([]byte, 2<<20)} })
		for range large {
			req := kmsg.NewPtrProduceRequest()
			req.Acks, req.TimeoutMillis = -1, 10_000
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = 1, raw
			req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", TopicID: v.TopicInfo("t").TopicID, Partitions: []kmsg.ProduceRequestTopicPartition{p}}}
			if resp, err := req.RequestWith(t.Context(), writer); err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
				t.Fatal(err, resp)
			}
		}
		produce := func(partition int32, n int) {
			some := make([]*kgo.Record, n)
			for i := range some {
				some[i] = &kgo.Record{Topic: "t", Partition: partition, Value: []byte("x")}
			}
			if err := writer.ProduceSync(context.Background(), some...).FirstErr(); err != nil {
				t.Error(err)
			}
		}
		produce(1, behind)
		ctx, stop := context.WithCancel(t.Context())
		trickling := make(chan struct{}) // closed when nothing is produced any more
		go func() {
			defer close(trickling)
			for ctx.Err() == nil {
				produce(0, 1)
				time.Sleep(20 * time.Millisecond)
			}
		}()
		s, err := NewSource(v.options(v.network.DialContext), SourceOptions{Topics: mainTopic("t"), Group: "g", Linger: 20 * time.Millisecond, BatchRecords: 1000, OpenBatches: 10})
		if err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(time.Minute, func() { panic("the partition stands still") }) // drained would wait for ever
		s.Join()
		v.drained(s, 1, large*each+behind)
		late.Stop()
		stop()
		<-trickling
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
