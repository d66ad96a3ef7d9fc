package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// SenderOptions bound what a Sender has under way.
type SenderOptions struct {
	// Linger is how long a partition's first record waits for others: each of many
	// callers waits for its own record, and without it each would be a request.
	Linger  time.Duration
	Records int // buffered at most
	Bytes   int // buffered at most, at least one record's
}

// Sender writes records for callers that wait for their own one only, as HTTP requests
// do: idempotently, with acks from all in-sync replicas. It is safe for concurrent use.
type Sender struct {
	client *kgo.Client
	// life is the context of every record. A caller's own would fail others' records:
	// a batch obeys the context of its first one.
	life context.Context
	end  context.CancelFunc
	once sync.Once // of Close
}

// ErrSenderFull says that a record was not taken, because so many wait already.
var ErrSenderFull = errors.New("too many records wait for Kafka")

// Sent is a record to write. Value, Key and Headers must not change until it is done.
type Sent struct {
	Topic   string
	Key     []byte
	Value   []byte
	Headers []Header
	At      time.Time // its timestamp
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Offset is where a record was written.
type Offset struct {
	Partition int32
	Offset    int64 // -1 = the broker did not say
}

// NewSender returns a Sender, which connects on the first Send.
func NewSender(o Options, so SenderOptions) (*Sender, error) {
	client, err := o.newClient(
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(so.Linger),
		kgo.MaxBufferedRecords(so.Records),
		kgo.MaxBufferedBytes(so.Bytes),
	)
	if err != nil {
		return nil, fmt.Errorf("kafka sender: %w", err)
	}
	s := &Sender{client: client}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Send takes a record and returns at once. done is called exactly once, one record
// after the other, and must not block: with where the record is, once all in-sync
// replicas have it; or with an error, after which it may have been written all the same,
// unless the error is ErrSenderFull. Nothing bounds how long that takes while Kafka is
// away: whoever waits has a time-out of its own.
func (s *Sender) Send(r *Sent, done func(Offset, error)) {
	record := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Timestamp: r.At}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	s.client.TryProduce(s.life, record, func(r *kgo.Record, err error) {
		switch {
		case err == nil:
			done(Offset{r.Partition, r.Offset}, nil)
		case errors.Is(err, kgo.ErrMaxBuffered):
			done(Offset{}, ErrSenderFull)
		default:
			done(Offset{}, fmt.Errorf("writing to %s: %w", r.Topic, err))
		}
	})
}

// Buffered is how many records wait for their ack.
func (s *Sender) Buffered() int64 { return s.client.BufferedProduceRecords() }

// Close waits for what is buffered until ctx ends, gives up the rest, and closes the
// connections. What is given up may be written all the same; its callers were told
// nothing, or that it is not confirmed. A second Close does nothing.
func (s *Sender) Close(ctx context.Context) {
	s.once.Do(func() {
		_ = s.client.Flush(ctx) // what is left has its own error, by its done
		s.end()
		s.client.Close()
	})
}
