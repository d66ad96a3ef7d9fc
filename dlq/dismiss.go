package dlq

import (
	"context"
	"errors"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
)

// DismissOptions say which dead letters are dismissed.
type DismissOptions struct {
	Filter         // Marked is ignored: what is dismissed stays dismissed
	Expired bool   // only those that a redrive would no longer send
	Do      bool   // false = a dry run
	By      string // who does it, for the audit topic
}

// Dismissed is the result of dismissing; its JSON keys are those of `pushctl
// dlq dismiss`.
type Dismissed struct {
	DryRun    bool `json:"dry_run"`
	Dismissed int  `json:"dismissed"` // in a dry run: what would be dismissed
}

// dismissGroup is how many marks are written at once.
const dismissGroup = 500

// Dismiss notes in the audit topic that nothing is to be done about these dead
// letters, which closes them. Nothing is deleted. With an error the result is
// what is known to be dismissed so far; a repeated call continues from there.
func (q *Queues) Dismiss(ctx context.Context, o DismissOptions) (Dismissed, error) {
	v := Dismissed{DryRun: !o.Do}
	if err := o.Check(); err != nil {
		return v, err
	}
	lanes, err := q.Lanes(o.Lanes...)
	if err != nil {
		return v, err
	}
	o.Marked = false
	now := time.Now()
	for i := range lanes {
		if err := q.dismissLane(ctx, &lanes[i], &o, now, &v.Dismissed); err != nil {
			return v, err
		}
	}
	return v, nil
}

// dismissLane adds to count what is noted.
func (q *Queues) dismissLane(ctx context.Context, lane *Lane, o *DismissOptions, now time.Time, count *int) error {
	queue, err := q.open(ctx, lane, o.Do)
	if err != nil {
		return err
	}
	defer queue.Close()
	extent, err := queue.Since(ctx, o.Since)
	if err != nil {
		return err
	}
	var group []kafka.Mark
	flush := func() error {
		if o.Do {
			if err := queue.audit.Write(ctx, group); err != nil {
				return err
			}
		}
		*count += len(group)
		group = group[:0]
		return nil
	}
	err = queue.Read(ctx, extent, func(d *kafka.DeadLetter) error {
		r := queue.record(d)
		if !o.passes(&r) || o.Expired && !r.expired(now) {
			return nil
		}
		if group = append(group, kafka.MarkOf(d, kafka.Dismissed, o.By, now)); len(group) == dismissGroup {
			return flush()
		}
		return nil
	})
	return errors.Join(err, flush())
}
