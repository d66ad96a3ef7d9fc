package main

import (
	"context"
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
		Short: "Send dead letters again; a dry run without --yes",
		Long: `List the dead letters that would be sent again; with --yes, send them. Each goes to its lane's retry
topic, at most --rate a second, and is recorded in the audit topic, so that ls no longer lists it.

A redrive covers what the DLQ contains when it starts. Notifications that are dead-lettered again while
it runs wait for the next redrive. A worker reads a redriven record after the retry tier's delay, with
all its retries available again. It checks the status store first, so a notification that has been
delivered since, or was redriven twice because this command was interrupted, is not sent again.

Left out are dead letters that would expire before a worker reads them, that were redriven
--max-redrives times, that were first seen longer than --max-age ago, that are older than the status
store's retention, and that no worker could use: records that do not decode, that have no value or
unreadable headers, or whose app is not configured.`,
		Example: "  pushctl dlq redrive --lane transactional --reason retries_used_up --provider fcm --since 2h\n  pushctl dlq redrive --reason unknown_app --app shop --rate 500 --yes\n  pushctl dlq redrive --id 0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21 --all --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.redrive(cmd.Context(), &f) },
	}
	f.flags(cmd.Flags())
	flags := cmd.Flags()
	flags.Float64Var(&f.rate, "rate", 100, "at most `n` a second, 0.1 to 100,000")
	flags.IntVar(&f.limit, "limit", 0, "at most `n` in all, the first ones of each partition; 0 = all")
	flags.IntVar(&f.maxRedrives, "max-redrives", 3, "leave out those redriven `n` times")
	flags.DurationVar(&f.maxAge, "max-age", 0, "leave out those first seen longer ago; 0 = the lane's greatest_age")
	flags.BoolVar(&f.yes, "yes", false, "do it")
	flags.StringVar(&f.by, "by", "", "your name, for the audit topic; default: $USER")
	flags.IntVar(&f.list, "list", 20, "list the first `n`")
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
	return a.showDone(explainRedriven(v, wiring.Tiers(a.loaded)[0].Delay), err)
}

// explainRedriven says what was redriven, and that workers read it after this
// delay.
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
		after = append(after, fmt.Sprintf("%d of %d redriven; workers read them after %v", v.Redriven, v.Matched, delay))
	}
	return terminal.Answer{Value: v, Table: t, After: strings.Join(after, "\n")}
}

// who is the name that the audit topic records.
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
