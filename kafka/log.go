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

// Record is a record as Follower and Consumer return it, and Writer takes it
// (Key, Value and Headers only). A nil Value is a tombstone.
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

// WriterOptions belong to one topic.
type WriterOptions struct {
	Topic string // required
	// PartitionKey is what of a record's key chooses its partition, by the
	// same hash as Kafka's default; nil = the whole key.
	PartitionKey func(key []byte) []byte
	// Linger is how long a record waits for others to make a batch with; 0 =
	// not at all.
	Linger time.Duration
	// MaxBytes is the largest batch, and so the largest record; 0 = 1 MB. The
	// topic's max.message.bytes has to allow it.
	MaxBytes int32
}

// Writer appends keyed records to a topic, acknowledged by all in-sync
// replicas. It may be used by many goroutines at once.
type Writer struct {
	topic  string
	client *kgo.Client
}

// NewWriter makes a Writer. It does not connect before the first Append.
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

// Append writes the records in order and returns nil when all are
// acknowledged. After an error any of them may be there.
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

// Close gives up what is still on its way, and closes the connections.
func (w *Writer) Close() { w.client.Close() }

// Follower reads all partitions of a topic without a group: the caller keeps
// the offsets. It belongs to one goroutine.
type Follower struct {
	topic   string
	client  *kgo.Client
	admin   *kadm.Client
	from    map[int32]int64 // where to start partitions that are not read yet
	reading map[int32]bool
}

// NewFollower makes a Follower that starts each partition at its offset in
// from, and the others at their first record. It does not connect before the
// first call.
func NewFollower(o Options, topic string, from map[int32]int64) (*Follower, error) {
	if topic == "" {
		return nil, errors.New("kafka follower: no topic")
	}
	client, err := o.newClient(kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxBytes(16<<20),
		kgo.FetchMaxWait(time.Second), kgo.MaxDecompressBatchBytes(64<<20))
	if err != nil {
		return nil, fmt.Errorf("kafka follower: %w", err)
	}
	f := &Follower{topic: topic, client: client, admin: kadm.NewClient(client)}
	f.Seek(from)
	return f, nil
}

// Poll waits for records, until ctx ends at the latest, and returns at most
// limit of them; those of one partition are in order. The error is a
// *PartitionError when a partition's offset is out of range: then all must be
// read anew.
func (f *Follower) Poll(ctx context.Context, limit int) ([]Record, error) {
	if len(f.reading) == 0 {
		if _, err := f.EndOffsets(ctx); err != nil {
			return nil, err
		}
	}
	fetches := f.client.PollRecords(ctx, limit)
	return collect(fetches, f.topic)
}

// collect turns what was polled into records and the first error.
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

// Seek starts anew at these offsets; partitions that are not in from start at
// their first record. Nothing polled before is returned after.
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

// EndOffsets returns the end of each partition: the offset its next record
// gets. Partitions that were added since the last call are read from here on.
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
func (f *Follower) Close() { f.client.Close() }

// Consumer is a plain member of a group: poll, work, commit. Between a Poll
// that returned records and its Commit the group cannot take partitions away,
// so the work between must stay under the rebalance time-out of a minute. It
// belongs to one goroutine.
type Consumer struct {
	topic  string
	client *kgo.Client
	failed error // that came with records: for the next Poll
}

// NewConsumer joins the group. A first start begins at the first record, and so
// does a partition whose offset the log does not have: its readers bear copies.
func NewConsumer(o Options, topic, group string) (*Consumer, error) {
	if topic == "" || group == "" {
		return nil, errors.New("kafka consumer: a topic and a group are needed")
	}
	ignore := func(context.Context, *kgo.Client, map[string][]int32) {}
	c := &Consumer{topic: topic}
	made := make(chan struct{}) // closed here, when c has its client
	defer close(made)
	client, err := o.newClient(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.AdjustFetchOffsetsFn(func(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			<-made
			placeStarts(ctx, kadm.NewClient(c.client), offsets, placeStartsWithin)
			return offsets, nil
		}),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.SessionTimeout(10*time.Second),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// Commit has committed all that was polled before it allowed these.
		kgo.OnPartitionsRevoked(ignore), kgo.OnPartitionsLost(ignore),
		kgo.FetchMaxWait(time.Second), kgo.MaxDecompressBatchBytes(maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("kafka consumer: %w", err)
	}
	c.client = client
	return c, nil
}

// placeStartsWithin is how long a Consumer waits to learn where logs begin.
const placeStartsWithin = 5 * time.Second

// Poll waits for records, until ctx ends at the latest, and returns at most
// limit of them. It returns either records or an error: one that came with
// records is the next Poll's, since what was polled counts as read. A batch that
// is too large to unpack is an error, and left out.
func (c *Consumer) Poll(ctx context.Context, limit int) ([]Record, error) {
	if err := c.failed; err != nil {
		c.failed = nil
		return nil, err
	}
	fetches := c.client.PollRecords(ctx, limit)
	var behind offsets
	for _, e := range fetches.Errors() {
		if large, ok := errors.AsType[*kgo.ErrDecompressTooLarge](e.Err); ok {
			behind.set(push.Partition{Topic: large.Topic, ID: large.Partition}, kgo.EpochOffset{Epoch: large.Epoch, Offset: large.NextOffset})
		}
	}
	c.client.SetOffsets(behind) // while nothing can be taken away
	records, err := collect(fetches, c.topic)
	if len(records) == 0 {
		c.client.AllowRebalance()
		return nil, err
	}
	c.failed = err
	return records, nil
}

// Commit commits all that Poll has returned, and lets the group move
// partitions. After an error the same records may come again.
func (c *Consumer) Commit(ctx context.Context) error {
	defer c.client.AllowRebalance()
	if err := c.client.CommitUncommittedOffsets(ctx); err != nil {
		return fmt.Errorf("committing offsets of %s: %w", c.topic, err)
	}
	return nil
}

// Close leaves the group. What is not committed comes again.
func (c *Consumer) Close() { c.client.CloseAllowingRebalance() }
