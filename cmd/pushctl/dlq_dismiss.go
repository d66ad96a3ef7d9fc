package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/kafka"
)

// dismissFlags are the command line of dlq dismiss.
type dismissFlags struct {
	letterFilter
	expired bool
	yes     bool
	by      string
}

func newDLQDismissCommand(a *app) *cobra.Command {
	var f dismissFlags
	cmd := &cobra.Command{
		Use:   "dismiss",
		Short: "Put dead letters away, so that ls leaves them out: a dry run, unless --yes",
		Long: `Note in the audit topic that nothing is to be done about these dead letters: ls and redrive leave them out
from then on. Nothing is deleted, and --all still finds them.`,
		Example: "  pushctl dlq dismiss --expired\n  pushctl dlq dismiss --reason bad_json --sender orders --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.dismiss(cmd.Context(), &f) },
	}
	f.flags(cmd.Flags())
	flags := cmd.Flags()
	_ = flags.MarkHidden("all") // what is put away stays so
	flags.BoolVar(&f.expired, "expired", false, "only those that a redrive would not send any more")
	flags.BoolVar(&f.yes, "yes", false, "do it")
	flags.StringVar(&f.by, "by", "", "who does it, for the audit topic; default: $USER")
	return cmd
}

// dismissAnswer is what `pushctl dlq dismiss` says. In a dry run Dismissed is
// what would be.
type dismissAnswer struct {
	DryRun    bool `json:"dry_run"`
	Dismissed int  `json:"dismissed"`
}

// so is err and, unless it is a dry run, how far it went by then.
func (v *dismissAnswer) so(err error) error {
	if v.DryRun {
		return err
	}
	return partlyf(err, "at least %d dead letters are dismissed; it may be run again", v.Dismissed)
}

// dismissGroup is how many marks are written at once.
const dismissGroup = 500

func (a *app) dismiss(ctx context.Context, f *dismissFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	lanes, err := a.dlqLanes(f.lanes)
	if err != nil {
		return err
	}
	f.all = false
	by, now := a.who(f.by), time.Now()
	v := dismissAnswer{DryRun: !f.yes}
	for _, lane := range lanes {
		q, marks, err := a.openDLQ(ctx, lane, f.yes)
		if err != nil {
			return v.so(err)
		}
		extent, err := q.Since(ctx, f.since.Time)
		if err != nil {
			return v.so(err)
		}
		var group []kafka.Mark
		flush := func() error {
			if f.yes {
				if err := q.Audit().Write(ctx, group); err != nil {
					return err
				}
			}
			v.Dismissed += len(group)
			group = group[:0]
			return nil
		}
		err = q.Read(ctx, extent, func(d *kafka.DeadLetter) error {
			l := newLetter(lane, d, marks)
			if !f.passes(&l) || f.expired && !l.expired(now) {
				return nil
			}
			if group = append(group, kafka.MarkOf(d, kafka.Dismissed, by, now)); len(group) == dismissGroup {
				return flush()
			}
			return nil
		})
		if err = errors.Join(err, flush()); err != nil {
			return v.so(err)
		}
	}
	ans := terminal.Answer{Value: v, After: fmt.Sprintf("%d dead letters dismissed", v.Dismissed)}
	if v.DryRun {
		ans.After = fmt.Sprintf("dry run: %d dead letters would be dismissed; --yes does it", v.Dismissed)
	}
	return a.show(ans)
}
