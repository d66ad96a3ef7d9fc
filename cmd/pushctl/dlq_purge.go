package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dlq"
)

// purgeFlags are the command line of dlq purge.
type purgeFlags struct {
	lanes  []string
	before moment
	all    bool
	yes    bool
}

func newDLQPurgeCommand(a *app) *cobra.Command {
	var f purgeFlags
	cmd := &cobra.Command{
		Use:   "purge --before TIME|--all",
		Short: "Delete dead letters up to a time, for good; a dry run without --yes",
		Long: `Delete dead letters for good, up to a time. Kafka can only delete from the start of a partition up to an
offset. So dead letters cannot be purged by reason or app (dismiss them instead), and each partition is
deleted up to its first record that was dead-lettered at that time or later. "Open" are those that
nobody has redriven or dismissed: look at them first. Records that arrive while the command runs are
kept. If the command fails or is interrupted, it still says what it has deleted.`,
		Example: "  pushctl dlq purge --before 168h\n  pushctl dlq purge --lane promotional --before 2026-11-01 --yes\n  pushctl dlq purge --lane promotional --all --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.purge(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.lanes, "lane", nil, "only of this lane, or this topic; default: all `lanes`")
	flags.Var(&f.before, "before", "those dead-lettered before this time: RFC 3339, a day, or a duration before now")
	flags.BoolVar(&f.all, "all", false, "everything that is there now")
	flags.BoolVar(&f.yes, "yes", false, "do it")
	return cmd
}

func (a *app) purge(ctx context.Context, f *purgeFlags) error {
	if f.all == !f.before.IsZero() {
		return usagef("dlq purge needs either --before TIME or --all")
	}
	if f.before.After(time.Now()) {
		return usagef("--before: is in the future; --all deletes everything that is there now")
	}
	queues, err := a.deadLetters(f.lanes...)
	if err != nil {
		return err
	}
	v, err := queues.Purge(ctx, dlq.PurgeOptions{Lanes: f.lanes, Before: f.before.Time, All: f.all, Do: f.yes})
	if err != nil && (v.DryRun || len(v.Partitions) == 0) {
		return err
	}
	// Deleted records are gone for good, so they are reported even after an error.
	return errors.Join(a.show(explainPurged(v)), err)
}

func explainPurged(v dlq.Purged) terminal.Answer {
	t := terminal.Table{Columns: []string{"topic", "partition", "from", "to", "records", "open"}}
	for _, r := range v.Partitions {
		t.Add(r.Topic, strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.From, 10), strconv.FormatInt(r.To, 10), strconv.Itoa(r.Records), strconv.Itoa(r.Open))
	}
	ans := terminal.Answer{Value: v, Table: t, After: fmt.Sprintf("%d dead letters deleted, %d of them open", v.Records, v.Open)}
	if v.DryRun {
		ans.After = fmt.Sprintf("dry run: %d dead letters would be deleted, %d of them open; --yes does it", v.Records, v.Open)
	}
	return ans
}
