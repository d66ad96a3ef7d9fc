package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dlq"
)

// statsFlags are the command line of dlq stats.
type statsFlags struct {
	letterFlags
	top int
}

func newDLQStatsCommand(a *app) *cobra.Command {
	var f statsFlags
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count dead letters by lane, reason, app, sender, provider and day",
		Long: `Count dead letters by lane, reason, the provider's last answer, app, sender, provider and day (UTC) of
dead-lettering. "Open" are those that nobody has redriven or dismissed; "expired" are the open ones that
a redrive would no longer send. A dead letter for several providers counts for each of them.`,
		Example: "  pushctl dlq stats\n  pushctl dlq stats --since 24h --app shop -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.countDLQ(cmd.Context(), &f) },
	}
	f.flags(cmd.Flags())
	flags := cmd.Flags()
	_ = flags.MarkHidden("all") // stats counts all of them, with a column for the open ones
	flags.IntVar(&f.top, "top", 20, "at most `n` values of each kind, the most frequent; 0 = all")
	return cmd
}

func (a *app) countDLQ(ctx context.Context, f *statsFlags) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	show := newProgress(a.stderr)
	defer show.end()
	opts := dlq.StatsOptions{Filter: filter, Top: f.top, Progress: show.reading}
	if err := opts.Check(); err != nil {
		return optionUsage(err)
	}
	queues, err := a.deadLetters(filter.Lanes...)
	if err != nil {
		return err
	}
	s, err := queues.Stats(ctx, opts)
	if err != nil {
		return err
	}
	show.end()
	return a.show(explainStats(s))
}

func explainStats(s dlq.Stats) terminal.Answer {
	t := terminal.Table{Columns: []string{"by", "value", "records", "open", "expired"}}
	for _, kind := range dlq.Kinds() {
		for _, c := range s.By[kind] {
			t.Add(strings.ReplaceAll(kind, "_", " "), short(c.Value, false), strconv.Itoa(c.Records), strconv.Itoa(c.Open), strconv.Itoa(c.Expired))
		}
	}
	return terminal.Answer{Value: s, Table: t, After: fmt.Sprintf("%d dead letters, %d of them open, %d of those expired", s.Records, s.Open, s.Expired)}
}
