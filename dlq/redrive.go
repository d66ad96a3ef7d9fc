package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
)

// RedriveOptions say which dead letters are redriven, and how fast.
type RedriveOptions struct {
	Filter
	Rate        float64         // at most this many a second, 0.1 to 100,000
	Limit       int             // at most this many in all, the first ones of each partition; 0 = all
	MaxRedrives int             // letters redriven this often are left out; 1 or more
	MaxAge      time.Duration   // letters first seen longer ago are left out; 0 = only those too old for their lane
	Do          bool            // false = a dry run
	By          string          // who does it, for the audit topic
	List        int             // how many the result names
	Progress    func(Redriving) // called after every group, on the caller's goroutine; may be nil
}

// Check finds invalid options. The error is an *OptionError.
func (o *RedriveOptions) Check() error {
	switch {
	case !(o.Rate >= 0.1 && o.Rate <= 1e5):
		return &OptionError{"rate", "must be 0.1 to 100,000"}
	case o.Limit < 0:
		return notNegative("limit", o.Limit)
	case o.MaxRedrives < 1:
		return &OptionError{"max-redrives", "must be 1 or more"}
	case o.MaxAge < 0:
		return &OptionError{"max-age", "must be 0 or more"}
	case o.List < 0:
		return notNegative("list", o.List)
	}
	return o.Filter.Check()
}

// The reasons why a dead letter is not redriven: the keys of Redriven.Skipped.
const (
	SkipExpired    = "expired"            // or will be when a worker takes it up
	SkipOld        = "older_than_max_age" // RedriveOptions.MaxAge
	SkipRedriven   = "max_redrives"       // RedriveOptions.MaxRedrives
	SkipUnreadable = "unreadable_headers"
	SkipNoValue    = "no_value"
	SkipUnusable   = "does_not_decode"
	SkipUnknownApp = "unknown_app"     // to the workers' configuration
	SkipForgotten  = "status_not_kept" // a confirm read could not tell what was delivered since
)

// Redriving is the progress of a redrive.
type Redriving struct {
	Redriven, LeftOut int
	Rate              float64 // a second, so far
}

// Redriven is the result of a redrive; its JSON keys are those of `pushctl dlq
// redrive`.
type Redriven struct {
	DryRun   bool           `json:"dry_run"`
	Matched  int            `json:"matched"`       // that passed the filter
	Redriven int            `json:"redriven"`      // in a dry run: what would be redriven
	Skipped  map[string]int `json:"skipped"`       // count by reason
	Topics   []string       `json:"topics"`        // that they go to
	Delay    float64        `json:"delay_seconds"` // until the workers take them up
	Letters  []Letter       `json:"letters"`       // the first of those redriven
}

// UncountedError says that a redrive ended in the middle of a group. The group
// is not in Redriven's count and is still open; redriving it again is harmless.
type UncountedError struct {
	Err     error
	Letters int  // in the group
	Sent    bool // all of it was sent, only its marks failed; else any part may have been sent
}

func (e *UncountedError) Error() string { return e.Err.Error() + " (" + e.Done() + ")" }
func (e *UncountedError) Unwrap() error { return e.Err }

// Done says in words what may have been done beyond what is counted.
func (e *UncountedError) Done() string {
	if e.Sent {
		return fmt.Sprintf("%d more were sent but not marked; redriving them again is harmless", e.Letters)
	}
	return fmt.Sprintf("up to %d more may have been sent; redriving them again is harmless", e.Letters)
}

// errEnough ends a redrive at its limit.
var errEnough = errors.New("enough")

// redriving is one run over all lanes. It belongs to one goroutine.
type redriving struct {
	*RedriveOptions
	config *Config
	apps   map[string]bool // nil: not known, all may be
	pace   pacer
	result Redriven
}

// Redrive sends dead letters again, each to the smallest retry topic of its
// lane, and marks them in the audit topic. It takes what the DLQs hold when it
// starts; letters that come back meanwhile are left to the next redrive.
//
// With an error the result is what was redriven and marked by then, and the
// error is an *UncountedError if more may have been sent. When ctx ends, the
// group in progress is still marked, for up to 30 s.
func (q *Queues) Redrive(ctx context.Context, o RedriveOptions) (Redriven, error) {
	r := &redriving{RedriveOptions: &o, config: &q.config,
		result: Redriven{DryRun: !o.Do, Skipped: make(map[string]int), Topics: []string{}, Delay: q.config.Tier.Delay.Seconds(), Letters: []Letter{}}}
	if err := o.Check(); err != nil {
		return r.result, err
	}
	lanes, err := q.Lanes(o.Lanes...)
	if err != nil {
		return r.result, err
	}
	if len(q.config.Apps) > 0 {
		r.apps = make(map[string]bool)
		for _, app := range q.config.Apps {
			r.apps[app] = true
		}
	}
	r.pace = newPacer(o.Rate)
	err = q.redriveLanes(ctx, lanes, r)
	return r.result, err
}

// redriveLanes reads the extent of every lane before anything is sent, so that
// a letter that comes back to a DLQ is not sent again in the same run.
func (q *Queues) redriveLanes(ctx context.Context, lanes []Lane, r *redriving) error {
	queues, extents := make([]*opened, len(lanes)), make([]kafka.Extent, len(lanes))
	for i := range lanes {
		queue, err := q.open(ctx, &lanes[i], r.Do)
		if err != nil {
			return err
		}
		defer queue.Close()
		queues[i] = queue
		if extents[i], err = queue.Since(ctx, r.Since); err != nil {
			return err
		}
		if err := q.broker.Reach(ctx, r.topic(&lanes[i])); err != nil {
			return err
		}
	}
	for i := range lanes {
		r.result.Topics = append(r.result.Topics, r.topic(&lanes[i]))
		err := r.lane(ctx, queues[i], extents[i])
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// topic is where a lane's dead letters go.
func (r *redriving) topic(l *Lane) string { return kafka.RetryTopic(l.Topic, r.config.Tier.Name) }

// lane redrives one DLQ in groups; errEnough = the limit is reached.
func (r *redriving) lane(ctx context.Context, queue *opened, extent kafka.Extent) error {
	var group []*kafka.DeadLetter
	taken := r.result.Redriven
	err := queue.Read(ctx, extent, func(d *kafka.DeadLetter) error {
		l := queue.record(d)
		if !r.passes(&l) {
			return ctx.Err()
		}
		if r.Limit > 0 && taken == r.Limit {
			return errEnough
		}
		r.result.Matched++
		if why := r.skip(&l, time.Now()); why != "" {
			r.result.Skipped[why]++
			return ctx.Err()
		}
		if taken++; len(r.result.Letters) < r.List {
			r.result.Letters = append(r.result.Letters, l.letter(time.Now(), false))
		}
		if !r.Do {
			r.result.Redriven++
			return ctx.Err()
		}
		if group = append(group, d); len(group) < r.pace.group {
			return ctx.Err()
		}
		err := r.send(ctx, queue, group)
		group = group[:0]
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if e := r.send(ctx, queue, group); e != nil {
		return e
	}
	return err
}

// send sends a group, waits for its acknowledgement, and then marks it. A crash
// in between leads to a record that is redriven twice, which the worker's
// confirm read recognizes; the other order could leave a record that is marked
// and was never sent.
func (r *redriving) send(ctx context.Context, queue *opened, group []*kafka.DeadLetter) error {
	if len(group) == 0 {
		return nil
	}
	if err := r.pace.wait(ctx, len(group)); err != nil {
		return err
	}
	// A group that was begun is marked, even if ctx ends meanwhile.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	if err := queue.Redrive(within, group, r.config.Tier.Name); err != nil {
		return &UncountedError{Err: err, Letters: len(group)}
	}
	marks, now := make([]kafka.Mark, len(group)), time.Now()
	for i, d := range group {
		marks[i] = kafka.MarkOf(d, kafka.Redriven, r.By, now)
	}
	if err := queue.audit.Write(within, marks); err != nil {
		return &UncountedError{Err: err, Letters: len(group), Sent: true}
	}
	r.result.Redriven += len(group)
	if r.Progress != nil {
		r.Progress(Redriving{r.result.Redriven, r.result.Matched - r.result.Redriven, r.pace.rate()})
	}
	return nil
}

// skip says why a dead letter is not redriven; empty = it is.
func (r *redriving) skip(l *record, now time.Time) string {
	takenUp := now.Add(r.config.Tier.Delay)
	switch {
	case l.Problem != nil:
		return SkipUnreadable
	case l.Value == nil:
		return SkipNoValue
	case l.defect != nil:
		return SkipUnusable
	case r.apps != nil && !r.apps[l.message.App]:
		return SkipUnknownApp
	case l.expired(takenUp):
		return SkipExpired
	case r.config.StatusTTL > 0 && takenUp.Sub(l.Timestamp) > r.config.StatusTTL:
		return SkipForgotten
	case r.MaxAge > 0 && now.Sub(l.FirstSeen) > r.MaxAge:
		return SkipOld
	case l.Redrive >= r.MaxRedrives:
		return SkipRedriven
	}
	return ""
}
