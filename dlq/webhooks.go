package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
)

// DeadWebhooks is the topic of webhooks that were not delivered. Its methods are those of
// *kafka.DeadWebhooks.
type DeadWebhooks interface {
	Extent(ctx context.Context, since, until time.Time) (kafka.Extent, error)
	Read(ctx context.Context, e kafka.Extent, each func(*kafka.DeadWebhook) error) error
	Redeliver(ctx context.Context, letters []*kafka.DeadWebhook) error
}

// RedeliverOptions say which webhooks are posted again, and how fast.
type RedeliverOptions struct {
	// Told are the senders who are told: those of the configuration. Required.
	Told []string
	// Senders and Reasons pick those that are among them; none = all.
	Senders, Reasons []string
	// Since and Until bound when they became dead letters: from Since on, and before Until.
	// Zero = no bound.
	Since, Until time.Time
	Rate         float64           // at most this many a second, 0.1 to 100,000
	Limit        int               // at most this many in all, the first ones of each partition; 0 = all
	Do           bool              // false = a dry run
	Progress     func(Redelivered) // called after every group, on the caller's goroutine; may be nil
}

// Check finds invalid options. The error is an *OptionError.
func (o *RedeliverOptions) Check() error {
	switch {
	case !(o.Rate >= 0.1 && o.Rate <= 1e5):
		return &OptionError{"rate", "must be 0.1 to 100,000"}
	case o.Limit < 0:
		return notNegative("limit", o.Limit)
	case !o.Since.IsZero() && !o.Until.IsZero() && !o.Since.Before(o.Until):
		return &OptionError{"since", "must be before --until"}
	}
	for _, s := range o.Senders {
		if !slices.Contains(o.Told, s) {
			return &OptionError{"sender", "nobody tells " + s + " anything: it is not in gateway.webhooks.senders"}
		}
	}
	return nil
}

// SkipUntold is why a webhook is not redelivered whose sender is not told any more. What is
// no JSON can be told to nobody: SkipUnusable.
const SkipUntold = "sender_not_told"

// Redelivered is the result of a redelivery; its JSON keys are those of `pushctl webhooks
// redeliver`.
type Redelivered struct {
	DryRun      bool           `json:"dry_run"`
	Matched     int            `json:"matched"`     // that passed the filter
	Redelivered int            `json:"redelivered"` // in a dry run: what would be
	Skipped     map[string]int `json:"skipped"`     // count by reason
	Senders     map[string]int `json:"senders"`     // what is redelivered, by sender
	Reasons     map[string]int `json:"reasons"`     // and by why it was a dead letter
	Rate        float64        `json:"-"`           // a second, so far
}

// redelivery is one run. It belongs to one goroutine.
type redelivery struct {
	*RedeliverOptions
	queue  DeadWebhooks
	pace   pacer
	group  []*kafka.DeadWebhook
	taken  int // of which none, one or some are in group
	result Redelivered
}

// Redeliver puts dead webhooks back into the topics of their senders, from where they are
// posted again, for as long as one that is new. It takes what there is when it starts; what
// dies again meanwhile is left to the next time.
//
// With an error the result is what was redelivered by then, and the error is an
// *UncountedError if more may have been. When ctx ends, the group in progress is still
// finished, for up to 30 s.
func Redeliver(ctx context.Context, queue DeadWebhooks, o RedeliverOptions) (Redelivered, error) {
	r := &redelivery{RedeliverOptions: &o, queue: queue, result: Redelivered{DryRun: !o.Do, Skipped: map[string]int{}, Senders: map[string]int{}, Reasons: map[string]int{}}}
	if err := o.Check(); err != nil {
		return r.result, err
	}
	r.pace = newPacer(o.Rate)
	extent, err := queue.Extent(ctx, o.Since, o.Until)
	if err != nil {
		return r.result, err
	}
	err = queue.Read(ctx, extent, func(d *kafka.DeadWebhook) error {
		if err := r.take(ctx, d); err != nil {
			return err
		}
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, errEnough) {
		return r.result, err
	}
	return r.result, r.send(ctx)
}

// take redelivers one of them, with others; errEnough = the limit is reached.
func (r *redelivery) take(ctx context.Context, d *kafka.DeadWebhook) error {
	if !among(r.Senders, d.Sender) || !among(r.Reasons, d.Reason) {
		return nil
	}
	if r.Limit > 0 && r.taken == r.Limit {
		return errEnough
	}
	r.result.Matched++
	switch {
	case !slices.Contains(r.Told, d.Sender):
		r.result.Skipped[SkipUntold]++
		return nil
	case !json.Valid(d.Value):
		r.result.Skipped[SkipUnusable]++
		return nil
	}
	r.taken++
	if !r.Do {
		r.count(d)
		return nil
	}
	if r.group = append(r.group, d); len(r.group) < r.pace.group {
		return nil
	}
	return r.send(ctx)
}

func (r *redelivery) count(d *kafka.DeadWebhook) {
	r.result.Redelivered++
	r.result.Senders[d.Sender]++
	r.result.Reasons[d.Reason]++
}

// send redelivers a group and waits for its acknowledgement.
func (r *redelivery) send(ctx context.Context) error {
	if len(r.group) == 0 {
		return nil
	}
	if err := r.pace.wait(ctx, len(r.group)); err != nil {
		return err
	}
	// A group that was begun is finished, even if ctx ends meanwhile.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	if err := r.queue.Redeliver(within, r.group); err != nil {
		return &UncountedError{Err: err, Letters: len(r.group)}
	}
	for _, d := range r.group {
		r.count(d)
	}
	r.group = r.group[:0]
	if r.Progress != nil {
		r.result.Rate = r.pace.rate()
		r.Progress(r.result)
	}
	return nil
}
