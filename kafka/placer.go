package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// PlacerOptions bound what a Placer has under way.
type PlacerOptions struct {
	Linger  time.Duration // how long a partition's first record waits for others
	Records int           // buffered at most
	Bytes   int           // buffered at most, at least one record's
}

// Placer writes records to the partitions that its callers name: idempotently, with acks
// from all in-sync replicas. It is safe for concurrent use.
type Placer struct {
	client *kgo.Client
	life   context.Context // of every record, as a Sender's
	end    context.CancelFunc
	once   sync.Once // of Close
}

// Placed is a record to write. Key, Value and Headers must not change until it is done.
type Placed struct {
	Topic     string
	Partition int32 // below 0 = by the hash of the key, as PartitionOf
	Key       []byte
	Value     []byte
	Headers   []Header
	At        time.Time // its timestamp; zero = now
}

// NewPlacer returns a Placer, which connects on the first Place.
func NewPlacer(o Options, po PlacerOptions) (*Placer, error) {
	client, err := o.newClient(
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(po.Linger),
		kgo.MaxBufferedRecords(po.Records),
		kgo.MaxBufferedBytes(po.Bytes),
		kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
			byKey := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
			return func(r *kgo.Record, n int) int {
				if r.Partition >= 0 {
					return int(r.Partition) // one that the topic does not have fails the record
				}
				return byKey.Partition(r, n)
			}
		})),
	)
	if err != nil {
		return nil, fmt.Errorf("kafka placer: %w", err)
	}
	p := &Placer{client: client}
	p.life, p.end = context.WithCancel(context.Background())
	return p, nil
}

// Place takes a record. It waits while the buffer is full. done is called exactly once,
// one record after the other, and must not block: with nil once all in-sync replicas have
// the record, or with an error, after which it may have been written all the same.
// Nothing bounds how long that takes while Kafka is away.
func (p *Placer) Place(r *Placed, done func(error)) {
	record := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.At}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	p.client.Produce(p.life, record, func(r *kgo.Record, err error) {
		if err != nil {
			// It may be a new partition, of which the client would learn in minutes.
			p.client.ForceMetadataRefresh()
			err = fmt.Errorf("writing to %s: %w", r.Topic, err)
		}
		done(err)
	})
}

// Close waits for what is buffered until ctx ends, gives up the rest, and closes the
// connections. A second Close does nothing.
func (p *Placer) Close(ctx context.Context) {
	p.once.Do(func() {
		_ = p.client.Flush(ctx) // what is left has its own error, by its done
		p.end()
		p.client.Close()
	})
}
