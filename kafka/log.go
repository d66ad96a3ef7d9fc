package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

// Record is a record that Follower and Consumer return and Writer writes (Key, Value
// and Headers only). A nil Value is a tombstone.
type Record struct {
	Partition int32
	Offset    int64
	Timestamp time.Time
	Key       []byte
	Value     []byte
	Headers   map[string]string // nil when there are none
}

func fromClient(r *kgo.Record) Record {
	rec := Record{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	if len(r.Headers) > 0 {
		rec.Headers = make(map[string]string, len(r.Headers))
		for _, h := range r.Headers {
			rec.Headers[h.Key] = string(h.Value)
		}
	}
	return rec
}

// WriterOptions are the options of a Writer.
type WriterOptions struct {
	Topic string // required
	// PartitionKey returns the part of a record's key that chooses its partition, by
	// the same hash as Kafka's default; nil = the whole key.
	PartitionKey func(key []byte) []byte
	// Linger is how long a record waits for others to fill a batch; 0 = not at all.
	Linger time.Duration
	// MaxBytes is the size of the largest batch, and so of the largest record; 0 = 1 MB.
	// The topic's max.message.bytes must allow it.
	MaxBytes int32
}

// Writer appends keyed records to a topic, acknowledged by all in-sync replicas. It is
// safe for concurrent use.
type Writer struct {
	topic  string
	client *kgo.Client
}

// NewWriter returns a Writer, which connects on the first Append.
func NewWriter(o Options, wo WriterOptions) (*Writer, error) {
	if wo.Topic == "" {
		return nil, errors.New("kafka writer: no topic")
	}
	opts := []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(wo.Linger)}
	if wo.MaxBytes > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(wo.MaxBytes))
	}
	if wo.PartitionKey != nil {
		opts = append(opts, kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
			byKey := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
			return func(r *kgo.Record, n int) int {
				return byKey.Partition(&kgo.Record{Key: wo.PartitionKey(r.Key)}, n)
			}
		})))
	}
	client, err := o.newClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka writer: %w", err)
	}
	return &Writer{topic: wo.Topic, client: client}, nil
}

// PartitionOf returns the partition, of n, that a Writer chooses by these bytes.
func PartitionOf(key []byte, n int) int32 {
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: key}, n))
}

// Append writes the records in order. It returns nil once all are acknowledged. After
// an error, any of them may have been written.
func (w *Writer) Append(ctx context.Context, records []Record) error {
	rs := make([]*kgo.Record, len(records))
	for i, r := range records {
		rs[i] = &kgo.Record{Topic: w.topic, Key: r.Key, Value: r.Value}
		for k, v := range r.Headers {
			rs[i].Headers = append(rs[i].Headers, header(k, v))
		}
	}
	if err := w.client.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		return fmt.Errorf("appending to %s: %w", w.topic, err)
	}
	return nil
}

// Close gives up records in flight and closes the connections.
func (w *Writer) Close() { w.client.Close() }

// Follower reads all partitions of a topic without a group: the caller keeps the
// offsets. It is not safe for concurrent use.
type Follower struct {
	topic   string
	client  *kgo.Client
	closing closing
	waker   waker
	admin   *kadm.Client
	from    map[int32]int64 // where partitions start that are not being read yet
	reading map[int32]bool
}

// NewFollower returns a Follower that starts each partition at its offset in from, or
// at its first record if from has none. It connects on the first call.
func NewFollower(o Options, topic string, from map[int32]int64) (*Follower, error) {
	if topic == "" {
		return nil, errors.New("kafka follower: no topic")
	}
	end := newClosing()
	client, err := o.newClient(end.option(), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxBytes(16<<20),
		kgo.FetchMaxWait(time.Second), kgo.MaxDecompressBatchBytes(64<<20))
	if err != nil {
		return nil, fmt.Errorf("kafka follower: %w", err)
	}
	f := &Follower{topic: topic, client: client, closing: end, waker: waker{client: client}, admin: kadm.NewClient(client)}
	f.Seek(from)
	return f, nil
}

// Poll waits for records until ctx ends, and returns at most limit of them; those of
// one partition are in order. The error is a *PartitionError if it concerns one
// partition. If its offset is out of range, the topic must be read from the start.
func (f *Follower) Poll(ctx context.Context, limit int) ([]Record, error) {
	if len(f.reading) == 0 {
		if _, err := f.EndOffsets(ctx); err != nil {
			return nil, err
		}
	}
	fetches := f.waker.wait(ctx, limit)
	return collect(fetches, f.topic)
}

// collect returns the records of a poll, and its first error.
func collect(fetches kgo.Fetches, topic string) ([]Record, error) {
	records := make([]Record, 0, fetches.NumRecords())
	fetches.EachRecord(func(r *kgo.Record) { records = append(records, fromClient(r)) })
	errs := fetches.Errors()
	if len(errs) == 0 {
		return records, nil
	}
	if e := errs[0]; e.Topic == topic && e.Partition >= 0 {
		return records, &PartitionError{Partition: push.Partition{Topic: e.Topic, ID: e.Partition}, Offset: -1, Err: e.Err}
	}
	return records, fmt.Errorf("reading %s: %w", topic, errs[0].Err)
}

// Seek starts again at these offsets; partitions that are not in from start at their
// first record. Records that were fetched before are dropped.
func (f *Follower) Seek(from map[int32]int64) {
	if len(f.reading) > 0 {
		f.client.PurgeTopicsFromConsuming(f.topic)
	}
	f.reading = make(map[int32]bool)
	f.from = make(map[int32]int64, len(from))
	for p, o := range from {
		f.from[p] = o
	}
}

// EndOffsets returns the end offset of each partition: the offset of its next record.
// From then on, partitions that were added since the last call are read too.
func (f *Follower) EndOffsets(ctx context.Context) (map[int32]int64, error) {
	ends, err := endOffsets(ctx, f.admin, f.topic)
	if err != nil {
		return nil, err
	}
	added := make(map[int32]kgo.Offset)
	for p := range ends {
		if f.reading[p] {
			continue
		}
		f.reading[p] = true
		added[p] = kgo.NewOffset().AtStart()
		if at, ok := f.from[p]; ok {
			added[p] = kgo.NoResetOffset().At(at)
		}
	}
	if len(added) > 0 {
		f.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{f.topic: added})
	}
	return ends, nil
}

// Close closes the connections.
func (f *Follower) Close() { f.closing.run(f.client.Close, closeFor) }

// Consumer is a plain member of a group: poll, work, commit. Between a Poll that
// returned records and its Commit, the group cannot take partitions away. So the work
// in between must take less than the rebalance time-out of a minute. It is not safe for
// concurrent use.
type Consumer struct {
	topic   string
	client  *kgo.Client
	closing closing
	waker   waker
	failed  error // came with records; the next Poll returns it
}

// NewConsumer joins the group. Reading begins at the first record where the group has
// committed nothing, or an offset that the log does not have: records may come twice.
func NewConsumer(o Options, topic, group string) (*Consumer, error) {
	if topic == "" || group == "" {
		return nil, errors.New("kafka consumer: no topic or no group")
	}
	ignore := func(context.Context, *kgo.Client, map[string][]int32) {}
	c := &Consumer{topic: topic, closing: newClosing()}
	made := make(chan struct{}) // closed here, when c has its client
	defer close(made)
	client, err := o.newClient(c.closing.option(), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.AdjustFetchOffsetsFn(func(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			<-made
			placeStarts(ctx, kadm.NewClient(c.client), offsets, placeStartsWithin)
			return offsets, nil
		}),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.SessionTimeout(10*time.Second),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// Nothing to do: Commit allows a rebalance only after everything polled is committed.
		kgo.OnPartitionsRevoked(ignore), kgo.OnPartitionsLost(ignore),
		kgo.FetchMaxWait(time.Second), kgo.MaxDecompressBatchBytes(maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("kafka consumer: %w", err)
	}
	c.client, c.waker.client = client, client
	return c, nil
}

// placeStartsWithin is how long a Consumer waits for the logs' first offsets.
const placeStartsWithin = 5 * time.Second

// Poll waits for records until ctx ends, and returns at most limit of them. It returns
// either records or an error: an error that came with records is returned by the next
// Poll, because polled records count as read. A batch too large to unpack is an error,
// and is skipped.
func (c *Consumer) Poll(ctx context.Context, limit int) ([]Record, error) {
	if err := c.failed; err != nil {
		c.failed = nil
		return nil, err
	}
	fetches := c.waker.wait(ctx, limit)
	var behind offsets
	for _, e := range fetches.Errors() {
		if large, ok := errors.AsType[*kgo.ErrDecompressTooLarge](e.Err); ok {
			behind.set(push.Partition{Topic: large.Topic, ID: large.Partition}, kgo.EpochOffset{Epoch: large.Epoch, Offset: large.NextOffset})
		}
	}
	c.client.SetOffsets(behind) // before AllowRebalance: no partition can be revoked yet
	records, err := collect(fetches, c.topic)
	if len(records) == 0 {
		c.client.AllowRebalance()
		return nil, err
	}
	c.failed = err
	return records, nil
}

// Commit commits all that Poll has returned, and allows rebalances again. After an
// error, the same records may come again.
func (c *Consumer) Commit(ctx context.Context) error {
	defer c.client.AllowRebalance()
	if err := c.client.CommitUncommittedOffsets(ctx); err != nil {
		return fmt.Errorf("committing offsets of %s: %w", c.topic, err)
	}
	return nil
}

// Close leaves the group. Records that are not committed come again. While Kafka does not answer
// it takes two seconds, and the group learns of it by the session's end.
func (c *Consumer) Close() { c.closing.run(c.client.CloseAllowingRebalance, closeFor) }
