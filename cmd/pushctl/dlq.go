package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

func newDLQCommand(a *app) *cobra.Command {
	return newGroup("dlq", "Dead letters: list, show, count, redrive, dismiss, purge",
		newDLQLsCommand(a), newDLQShowCommand(a), newDLQStatsCommand(a), newDLQRedriveCommand(a), newDLQDismissCommand(a), newDLQPurgeCommand(a))
}

// deadLetters opens the DLQs of the configured lanes. It first checks that
// lanes with these names exist.
func (a *app) deadLetters(lanes ...string) (*dlq.Queues, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	cluster, err := a.cluster()
	if err != nil {
		return nil, err
	}
	q := dlq.New(wiring.DeadLetters(c), cluster)
	_, err = q.Lanes(lanes...)
	return q, optionUsage(err)
}

// cluster is the configured Kafka for package dlq.
func (a *app) cluster() (*dlq.Cluster, error) { return of(a, (*reach.Servers).Cluster) }

// optionUsage turns an invalid option into a usageError that names its flag.
func optionUsage(err error) error {
	if option, ok := errors.AsType[*dlq.OptionError](err); ok {
		return usagef("--%w", option)
	}
	return err
}

// letterFlags are the flags that select dead letters.
type letterFlags struct {
	dlq.Filter
	since, until moment
}

func (f *letterFlags) flags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.Filter.Lanes, "lane", nil, "only of this lane, or this topic; default: all `lanes`")
	flags.StringSliceVar(&f.Filter.Reasons, "reason", nil, "only with this reason `code` (docs/reasons.md), or this last answer of a provider")
	flags.StringSliceVar(&f.Filter.Apps, "app", nil, "only of this `app`")
	flags.StringSliceVar(&f.Filter.Senders, "sender", nil, "only of this `sender_id`")
	flags.StringSliceVar(&f.Filter.Providers, "provider", nil, "only for this `provider`: "+push.PlatformNames(" or "))
	flags.StringSliceVar(&f.Filter.IDs, "id", nil, "only of this notification `id`")
	flags.Var(&f.since, "since", "only dead-lettered at this time or later: RFC 3339, a day, or a duration before now")
	flags.Var(&f.until, "until", "only dead-lettered before this time")
	flags.BoolVar(&f.Filter.Marked, "all", false, "include those that were redriven or dismissed")
}

// filter is the selection of the flags, or a usageError.
func (f *letterFlags) filter() (dlq.Filter, error) {
	if err := f.Filter.Check(); err != nil {
		return dlq.Filter{}, optionUsage(err)
	}
	if !f.since.IsZero() && !f.until.IsZero() && !f.since.Before(f.until.Time) {
		return dlq.Filter{}, usagef("--since must be before --until")
	}
	filter := f.Filter
	filter.Since, filter.Until = f.since.Time, f.until.Time
	return filter, nil
}

// reading shows how much of a DLQ has been read.
func (p *progress) reading(r dlq.Reading) {
	p.line("%s: %d of %d records read", r.Topic, r.Read, r.Of)
}
