package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/wiring"
)

// replayFlags are the command line of replay.
type replayFlags struct {
	dlq.ReplayOptions
	since, until moment
	shed, dryRun bool
}

func newReplayCommand(a *app) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --shed --since TIME",
		Short: "Send what was shed; a dry run without --yes",
		Long: `Read what the lanes' own topics still hold from --since on, look each notification up in the status
store, and list those whose outcome is SHED; with --yes, send them. Each goes to its lane's retry topic,
at most --rate a second. Workers read it after the retry tier's delay, check the status store first, and
ask the limits as always; what is replayed is never shed. A notification that is replayed twice, because
this command was interrupted, is sent once. The lane's audit topic records who replayed what, and how many.

Left out are notifications that would expire before a worker reads them, and those of apps that are not
configured.`,
		Example: "  pushctl replay --shed --since 2h\n  pushctl replay --shed --since 2026-11-21T08:00:00Z --until 2026-11-21T09:00:00Z --lane promotional --rate 500 --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.replay(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.shed, "shed", false, "what was shed: required, as nothing else can be replayed")
	flags.Var(&f.since, "since", "only written at this time or later: RFC 3339, a day, or a duration before now; required")
	flags.Var(&f.until, "until", "only written before this time")
	flags.StringSliceVar(&f.Lanes, "lane", nil, "only of this lane, or this topic; default: all `lanes`")
	flags.StringSliceVar(&f.Apps, "app", nil, "only of this `app`")
	flags.StringSliceVar(&f.Senders, "sender", nil, "only of this `sender_id`")
	flags.StringSliceVar(&f.IDs, "id", nil, "only this notification `id`")
	flags.Float64Var(&f.Rate, "rate", 100, "at most `n` a second, 0.1 to 100,000")
	flags.IntVar(&f.Limit, "limit", 0, "at most `n` in all; 0 = all")
	flags.BoolVar(&f.Do, "yes", false, "do it")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only list, as without --yes")
	flags.StringVar(&f.By, "by", "", "your name, for the audit topic; default: $USER")
	flags.IntVar(&f.List, "list", 20, "list the first `n`")
	return cmd
}

func (a *app) replay(ctx context.Context, f *replayFlags) error {
	switch {
	case !f.shed:
		return usagef("replay wants --shed: nothing else can be replayed")
	case f.since.IsZero():
		return usagef("replay wants --since: how far back to read")
	case f.Do && f.dryRun:
		return usagef("--yes and --dry-run exclude each other")
	case !f.until.IsZero() && !f.since.Before(f.until.Time):
		return usagef("--since must be before --until")
	}
	o := f.ReplayOptions
	o.Since, o.Until, o.By = f.since.Time, f.until.Time, a.who(f.By)
	if err := optionUsage(o.Check()); err != nil {
		return err
	}
	queues, err := a.deadLetters(o.Lanes...)
	if err != nil {
		return err
	}
	logs, err := a.cluster()
	if err != nil {
		return err
	}
	store, err := a.statusStore(ctx)
	if err != nil {
		return err
	}
	show := newProgress(a.stderr)
	defer show.end()
	o.Progress = func(p dlq.Replaying) { show.line("%d of %d records read, %d replayed", p.Read, p.Of, p.Replayed) }
	v, err := queues.Replay(ctx, logs, store, o)
	show.end()
	return a.showDone(explainReplayed(v, wiring.Tiers(a.loaded)[0].Delay), err)
}

// explainReplayed says what was replayed, and that workers read it after this delay.
func explainReplayed(v dlq.Replayed, delay time.Duration) terminal.Answer {
	t := terminal.Table{Columns: []string{"place", "id", "app", "priority", "reason", "expires"}}
	for _, s := range v.Shed {
		t.Add(s.Place, s.ID, s.App, s.Priority, s.Reason, timeOf(s.ExpiresAt))
	}
	var after []string
	if more := v.Replayed - len(v.Shed); more > 0 {
		after = append(after, fmt.Sprintf("and %d more", more))
	}
	for _, why := range slices.Sorted(maps.Keys(v.Skipped)) {
		after = append(after, fmt.Sprintf("%d left out: %s", v.Skipped[why], strings.ReplaceAll(why, "_", " ")))
	}
	if v.DryRun {
		after = append(after, fmt.Sprintf("dry run: %d of %d shed would be replayed, of %d records read; --yes does it", v.Replayed, v.Matched, v.Read))
	} else {
		after = append(after, fmt.Sprintf("%d of %d shed replayed, of %d records read; workers read them after %v", v.Replayed, v.Matched, v.Read, delay))
	}
	return terminal.Answer{Value: v, Table: t, After: strings.Join(after, "\n")}
}
