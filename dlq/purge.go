package dlq

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
)

// PurgeOptions say up to where dead letters are deleted.
type PurgeOptions struct {
	Lanes []string // as in Filter
	// Before or All: up to the first record of each partition that was
	// dead-lettered at Before or later, or all that is there now.
	Before time.Time
	All    bool
	Do     bool // false = a dry run
}

// Check finds invalid options. The error is an *OptionError.
func (o *PurgeOptions) Check() error {
	if o.All != o.Before.IsZero() {
		return &OptionError{"before", "exactly one of before and all must be given"}
	}
	return nil
}

// PurgedPartition is what is deleted of one partition.
type PurgedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"` // the offset that becomes the first
	Records   int    `json:"records"`
	Open      int    `json:"open"` // neither redriven nor dismissed
}

// Purged is the result of a purge, or in a dry run what it would be. Its JSON
// keys are those of `pushctl dlq purge`.
type Purged struct {
	DryRun     bool              `json:"dry_run"`
	Records    int               `json:"records"`
	Open       int               `json:"open"`
	Partitions []PurgedPartition `json:"partitions"` // in which there is something to delete; never nil
}

// add adds what was deleted, or would be.
func (v *Purged) add(parts []PurgedPartition) {
	v.Partitions = append(v.Partitions, parts...)
	for _, p := range parts {
		v.Records += p.Records
		v.Open += p.Open
	}
}

// Purge deletes dead letters for good. Kafka deletes only from the start of a
// partition, so time is the only criterion. Letters that arrive meanwhile stay.
// With an error the result is what is known to be deleted by then: a deletion
// that has begun is waited for, up to 30 s after ctx has ended.
func (q *Queues) Purge(ctx context.Context, o PurgeOptions) (Purged, error) {
	v := Purged{DryRun: !o.Do, Partitions: []PurgedPartition{}}
	if err := o.Check(); err != nil {
		return v, err
	}
	lanes, err := q.Lanes(o.Lanes...)
	if err != nil {
		return v, err
	}
	for i := range lanes {
		parts, err := q.purgeLane(ctx, &lanes[i], &o)
		v.add(parts)
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// purgeLane deletes from one DLQ, or says what it would delete. With an error
// the rows are what was deleted before.
func (q *Queues) purgeLane(ctx context.Context, lane *Lane, o *PurgeOptions) ([]PurgedPartition, error) {
	queue, err := q.open(ctx, lane, o.Do)
	if err != nil {
		return nil, err
	}
	defer queue.Close()
	extent, err := queue.Before(ctx, o.Before)
	if err != nil {
		return nil, err
	}
	parts, err := queue.countPurged(ctx, extent)
	if err != nil || !o.Do {
		return parts, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// A deletion that has begun is waited for, even if ctx ends meanwhile: it
	// cannot be undone, and otherwise it would be unknown what is deleted.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	err = queue.Delete(within, extent)
	var some *kafka.DeleteError
	if errors.As(err, &some) {
		parts = slices.DeleteFunc(parts, func(p PurgedPartition) bool {
			_, deleted := some.Deleted[p.Partition]
			return !deleted
		})
	}
	return parts, err
}

// countPurged is what is to be deleted of this DLQ, by partition.
func (o *opened) countPurged(ctx context.Context, e kafka.Extent) ([]PurgedPartition, error) {
	byPartition := make(map[int32]*PurgedPartition)
	for p, r := range e {
		if r.To > r.From {
			byPartition[p] = &PurgedPartition{Topic: o.Topic(), Partition: p, From: r.From, To: r.To}
		}
	}
	err := o.Read(ctx, e, func(d *kafka.DeadLetter) error {
		p := byPartition[d.Partition]
		p.Records++
		if _, marked := o.marks.Of(d); !marked {
			p.Open++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var parts []PurgedPartition
	for _, p := range slices.Sorted(maps.Keys(byPartition)) {
		parts = append(parts, *byPartition[p])
	}
	return parts, nil
}
