package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/wiring"
)

// redriveFlags are the command line of dlq redrive.
type redriveFlags struct {
	letterFlags
	rate        float64
	limit       int
	maxRedrives int
	maxAge      time.Duration
	yes         bool
	by          string
	list        int
}

func newDLQRedriveCommand(a *app) *cobra.Command {
	var f redriveFlags
	cmd := &cobra.Command{
		Use:   "redrive",
		Short: "Send dead letters again: a dry run, unless --yes",
		Long: `Say which dead letters would be sent again, and with --yes do it: each goes to the retry topic of its lane,
at most --rate a second, and is noted in the audit topic, so that ls leaves it out from then on.

What is redriven is what the DLQ holds at the start; what is dead-lettered again meanwhile waits for the
next redrive. A worker takes it up when the retry tier's delay has passed, with all its retries anew,
and reads its status first: what was delivered meanwhile, or was redriven twice because this command was
interrupted, is not sent again.

Left out are: what expires before it would be taken up, what was redriven --max-redrives times, what was
first seen longer than --max-age ago, what was dead-lettered longer ago than the status store keeps, and
what no worker could use: records that do not decode, have no value, unreadable headers, or an app that
the configuration does not have.`,
		Example: "  pushctl dlq redrive --lane transactional --reason retries_used_up --provider fcm --since 2h\n  pushctl dlq redrive --reason unknown_app --app shop --rate 500 --yes\n  pushctl dlq redrive --id 0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21 --all --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.redrive(cmd.Context(), &f) },
	}
	f.flags(cmd.Flags())
	flags := cmd.Flags()
	flags.Float64Var(&f.rate, "rate", 100, "at most `n` a second, 0.1 to 100,000")
	flags.IntVar(&f.limit, "limit", 0, "at most `n` in all, the first ones of each partition; 0 = all")
	flags.IntVar(&f.maxRedrives, "max-redrives", 3, "leave out what was redriven `n` times")
	flags.DurationVar(&f.maxAge, "max-age", 0, "leave out what was first seen longer ago; 0 = only what its lane calls too old")
	flags.BoolVar(&f.yes, "yes", false, "do it")
	flags.StringVar(&f.by, "by", "", "who does it, for the audit topic; default: $USER")
	flags.IntVar(&f.list, "list", 20, "name the first `n`")
	return cmd
}

func (a *app) redrive(ctx context.Context, f *redriveFlags) error {
	show := newProgress(a.stderr)
	defer show.end()
	opts := dlq.RedriveOptions{Filter: f.Filter, Rate: f.rate, Limit: f.limit, MaxRedrives: f.maxRedrives, MaxAge: f.maxAge, Do: f.yes, By: a.who(f.by), List: f.list,
		Progress: func(p dlq.Redriving) {
			show.line("%d redriven (%.0f/s of %g/s), %d left out", p.Redriven, p.Rate, f.rate, p.LeftOut)
		}}
	err := optionUsage(opts.Check())
	if err != nil {
		return err
	}
	if opts.Filter, err = f.filter(); err != nil {
		return err
	}
	queues, err := a.deadLetters(opts.Lanes...)
	if err != nil {
		return err
	}
	v, err := queues.Redrive(ctx, opts)
	show.end()
	if more, ok := errors.AsType[*dlq.UncountedError](err); ok {
		err = &partly{more.Err, more.Done()}
	}
	if shown := a.show(explainRedriven(v, wiring.Tiers(a.loaded)[0].Delay)); shown != nil {
		return errors.Join(err, shown)
	}
	return err
}

// explainRedriven says what was redriven, and that the workers take it up after
// this delay.
func explainRedriven(v dlq.Redriven, delay time.Duration) terminal.Answer {
	t := terminal.Table{Columns: []string{"place", "id", "app", "reason", "detail", "provider", "redrives", "expires"}}
	for _, l := range v.Letters {
		t.Add(l.Place, l.ID, l.App, l.Reason, short(l.Detail, false), strings.Join(l.Providers, ","), strconv.Itoa(l.Redrives), timeOf(l.ExpiresAt))
	}
	var after []string
	if more := v.Redriven - len(v.Letters); more > 0 {
		after = append(after, fmt.Sprintf("and %d more", more))
	}
	for _, why := range slices.Sorted(maps.Keys(v.Skipped)) {
		after = append(after, fmt.Sprintf("%d left out: %s", v.Skipped[why], strings.ReplaceAll(why, "_", " ")))
	}
	if v.DryRun {
		after = append(after, fmt.Sprintf("dry run: %d of %d would be redriven; --yes does it", v.Redriven, v.Matched))
	} else {
		after = append(after, fmt.Sprintf("%d of %d redriven; the workers take them up after %v", v.Redriven, v.Matched, delay))
	}
	return terminal.Answer{Value: v, Table: t, After: strings.Join(after, "\n")}
}

// who does it, as the audit topic is told.
func (a *app) who(by string) string {
	if by != "" {
		return by
	}
	for _, v := range a.environ {
		if name, ok := strings.CutPrefix(v, "USER="); ok && name != "" {
			return name
		}
	}
	return "unknown"
}
