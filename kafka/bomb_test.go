package kafka

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wireRecord returns a record as a batch holds it, delta after the batch's first offset.
func wireRecord(delta int, r *kgo.Record) []byte {
	k := kmsg.Record{OffsetDelta: int32(delta), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	k.Length = int32(len(k.AppendTo(nil)) - 1) // a length of 0 takes one byte
	return k.AppendTo(nil)
}

// produceBatch writes records as one batch, packed with gzip or not at all, without the
// limits of our client.
func (c *cluster) produceBatch(topic string, partition int32, packed bool, n int, record func(int) *kgo.Record) {
	c.t.Helper()
	c.produceRaw(topic, partition, rawBatch(c.t, packed, n, record))
}

// zipper returns the fastest gzip writer: the test does not depend on the ratio, and
// with the race detector packing is its slowest part.
func zipper(to io.Writer) *gzip.Writer {
	z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is valid
	}
	return z
}

// rawBatch returns a batch as a producer sends it.
func rawBatch(t *testing.T, packed bool, n int, record func(int) *kgo.Record) []byte {
	t.Helper()
	var records bytes.Buffer
	z := zipper(&records)
	for i := range n {
		w := wireRecord(i, record(i))
		if packed {
			_, _ = z.Write(w) // a buffer takes everything
		} else {
			_, _ = records.Write(w)
		}
	}
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(n - 1), FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n)}
	if packed {
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		b.Attributes = 1
	}
	b.Records = records.Bytes()
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// produceRaw writes a batch.
func (c *cluster) produceRaw(topic string, partition int32, raw []byte) {
	c.t.Helper()
	client, err := c.options.newClient()
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, c.TopicInfo(topic).TopicID
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, raw
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(c.t.Context(), client.Broker(int(c.LeaderFor(topic, partition))))
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		c.t.Fatalf("producing a batch: %v", err)
	}
}

// The log's start may move on before the first record of a new partition is read. That
// is no gap, and does not stop it.
func TestAStartThatMovesOnIsFollowed(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 10)
	var once sync.Once
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		once.Do(func() {
			if err := c.DeleteRecords("push", 0, 8); err != nil {
				t.Error(err)
			}
		})
		return nil, nil, false
	})
	var told troubles
	s := c.source(SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond, Health: told.health})
	if b := nextItems(t, s, 2)[0]; b.Items[0].Offset != 8 {
		t.Errorf("got start %d, want 8", b.Items[0].Offset)
	}
	if all := told.told(); len(all) > 0 {
		t.Errorf("got stopped partitions %v, want none", all)
	}
}
