package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// DLQ is the dead-letter topic of a lane as an operator works with it. It
// belongs to one goroutine.
type DLQ struct {
	lane  string // the lane's own topic
	topic string
	log   *Follower
	audit *Audit
}

// NewDLQ makes a DLQ of the lane with this topic of its own. It does not
// connect before the first call.
func NewDLQ(o Options, lane string) (*DLQ, error) {
	if lane == "" {
		return nil, errors.New("kafka dlq: no topic")
	}
	log, err := NewFollower(o, DLQTopic(lane), nil)
	if err != nil {
		return nil, fmt.Errorf("kafka dlq: %w", err)
	}
	audit, err := NewAudit(o, lane)
	if err != nil {
		log.Close()
		return nil, err
	}
	return &DLQ{lane: lane, topic: DLQTopic(lane), log: log, audit: audit}, nil
}

// Topic is the DLQ's name.
func (q *DLQ) Topic() string { return q.topic }

// Audit is what operators have done with its records.
func (q *DLQ) Audit() *Audit { return q.audit }

// Close closes the connections.
func (q *DLQ) Close() {
	q.audit.Close()
	q.log.Close()
}

// Since is what the DLQ holds now, without what was dead-lettered before since
// and lies before all later ones; the zero time = everything. What comes later
// is not in it.
func (q *DLQ) Since(ctx context.Context, since time.Time) (Extent, error) {
	return q.log.Extent(ctx, since, time.Time{})
}

// Before is what the DLQ holds now up to the first record of each partition
// that was dead-lettered at before or later: what Delete can delete.
func (q *DLQ) Before(ctx context.Context, before time.Time) (Extent, error) {
	return q.log.Extent(ctx, time.Time{}, before)
}

// Read hands out the dead letters of an extent, partition by partition and in
// their order, until each returns an error.
func (q *DLQ) Read(ctx context.Context, e Extent, each func(*DeadLetter) error) error {
	return q.log.readExtent(ctx, e, func(r *kgo.Record) error { return each(deadLetter(r)) })
}

// Redrive produces the dead letters to the lane's retry topic of this tier and
// returns nil when all are acknowledged. After an error any of them may be
// there: what is redriven twice is sent once, since the worker confirms it.
func (q *DLQ) Redrive(ctx context.Context, letters []*DeadLetter, tier string) error {
	records := make([]*kgo.Record, len(letters))
	for i, d := range letters {
		r, err := d.redriven(RetryTopic(q.lane, tier))
		if err != nil {
			return err
		}
		records[i] = r
	}
	if err := q.log.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("redriving to %s: %w", RetryTopic(q.lane, tier), err)
	}
	return nil
}

// DeleteError is that not all was deleted that should be, or not all of it was
// forgotten in the audit topic.
type DeleteError struct {
	Deleted Extent // what is known to be gone
	Err     error
}

func (e *DeleteError) Error() string { return e.Err.Error() }
func (e *DeleteError) Unwrap() error { return e.Err }

// Delete deletes every record before the ends of the extent, for good. Kafka
// can delete nothing else: a record in between stays, or goes with those
// before it. The audit marks of what is gone are removed after. The error is a
// *DeleteError: each partition is deleted by itself.
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

// forget removes the audit marks of what was deleted.
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
