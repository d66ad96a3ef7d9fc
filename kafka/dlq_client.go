package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// DLQ is an operator's access to the dead-letter topic of a lane. It is not safe for
// concurrent use.
type DLQ struct {
	lane  string // the lane's own topic
	topic string
	log   *Follower
	audit *Audit
}

// NewDLQ returns the DLQ of a lane, named by the lane's own topic. It connects on the
// first call.
func NewDLQ(o Options, lane string) (*DLQ, error) {
	if lane == "" {
		return nil, errors.New("kafka dlq: no topic")
	}
	log, err := NewFollower(o, DLQTopic(lane), nil)
	if err != nil {
		return nil, fmt.Errorf("kafka dlq: %w", err)
	}
	audit, err := newAudit(o, lane)
	if err != nil {
		log.Close()
		return nil, err
	}
	return &DLQ{lane: lane, topic: DLQTopic(lane), log: log, audit: audit}, nil
}

// Topic returns the DLQ's name.
func (q *DLQ) Topic() string { return q.topic }

// Audit returns the audit topic of this DLQ.
func (q *DLQ) Audit() *Audit { return q.audit }

// Close closes the connections.
func (q *DLQ) Close() {
	q.audit.Close()
	q.log.Close()
}

// Since returns what the DLQ holds now, in each partition from the first record that
// was dead-lettered at since or later; the zero time = everything. Records that come
// later are not included.
func (q *DLQ) Since(ctx context.Context, since time.Time) (Extent, error) {
	return q.log.Extent(ctx, since, time.Time{})
}

// Before returns what the DLQ holds now, in each partition up to the first record that
// was dead-lettered at before or later: what Delete can delete.
func (q *DLQ) Before(ctx context.Context, before time.Time) (Extent, error) {
	return q.log.Extent(ctx, time.Time{}, before)
}

// Read calls each with the dead letters of an extent, partition by partition and in
// order, until each returns an error.
func (q *DLQ) Read(ctx context.Context, e Extent, each func(*DeadLetter) error) error {
	return q.log.readExtent(ctx, e, func(r *kgo.Record) error { return each(deadLetter(r)) })
}

// Redrive produces the dead letters to the lane's retry topic of this tier. It returns
// nil once all are acknowledged. After an error, some may have been written. They can
// be redriven again: workers confirm them, so they are sent once.
func (q *DLQ) Redrive(ctx context.Context, letters []*DeadLetter, tier string) error {
	return redrive(ctx, q.log.client, letters, RetryTopic(q.lane, tier))
}

// redrive produces the records that redrive letters to a retry topic.
func redrive(ctx context.Context, client *kgo.Client, letters []*DeadLetter, topic string) error {
	records := make([]*kgo.Record, len(letters))
	for i, d := range letters {
		r, err := d.redriven(topic)
		if err != nil {
			return err
		}
		records[i] = r
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("redriving to %s: %w", topic, err)
	}
	return nil
}

// DeleteError says that some records were not deleted, or that some audit marks of
// deleted records remain.
type DeleteError struct {
	Deleted Extent // what is known to be deleted
	Err     error
}

func (e *DeleteError) Error() string { return e.Err.Error() }
func (e *DeleteError) Unwrap() error { return e.Err }

// Delete permanently deletes all records before the ends of the extent, also those
// before its starts: Kafka can only delete from the start of a log. Afterwards it
// removes the audit marks of deleted records. The error is a *DeleteError, because a
// deletion can succeed in some partitions only.
func (q *DLQ) Delete(ctx context.Context, e Extent) error {
	upTo := make(kadm.Offsets)
	for p, r := range e {
		if r.To > r.From {
			upTo.AddOffset(q.topic, p, r.To, -1)
		}
	}
	if len(upTo) == 0 {
		return nil
	}
	resps, err := q.log.admin.DeleteRecords(ctx, upTo)
	if err == nil {
		err = resps.Error()
	}
	deleted := make(Extent)
	for p, r := range resps[q.topic] {
		if r.Err == nil {
			deleted[p] = e[p]
		}
	}
	if err != nil {
		err = fmt.Errorf("deleting records of %s: %w", q.topic, err)
	}
	if err := errors.Join(err, q.forget(ctx, deleted)); err != nil {
		return &DeleteError{Deleted: deleted, Err: err}
	}
	return nil
}

// forget removes the audit marks of deleted records.
func (q *DLQ) forget(ctx context.Context, deleted Extent) error {
	if len(deleted) == 0 {
		return nil
	}
	marks, err := q.audit.Read(ctx)
	if err != nil {
		return err
	}
	var gone []Place
	for at := range marks {
		if r, ok := deleted[at.Partition]; ok && at.Offset < r.To {
			gone = append(gone, at)
		}
	}
	return q.audit.Forget(ctx, gone)
}
