package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
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
		Short: "Delete dead letters up to a time, for good: a dry run, unless --yes",
		Long: `Delete dead letters for good, up to a time. Kafka deletes only from the start of a partition up to an
offset: so there is no purging by reason or app (dismiss puts those away), and a partition is deleted up
to its first record that was dead-lettered at that time or later. "Open" are those that nobody has
redriven or dismissed: look at them first. What comes while the command runs stays. If it fails or is
interrupted half-way, what was deleted before is told.`,
		Example: "  pushctl dlq purge --before 168h\n  pushctl dlq purge --lane promotional --before 2026-11-01 --yes\n  pushctl dlq purge --lane promotional --all --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.purge(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.lanes, "lane", nil, "only of this lane, or this topic; default: all `lanes`")
	flags.Var(&f.before, "before", "dead-lettered before this time: RFC 3339, a day, or a duration before now")
	flags.BoolVar(&f.all, "all", false, "all that is there now")
	flags.BoolVar(&f.yes, "yes", false, "do it")
	return cmd
}

// purgeRow is what is deleted of one partition.
type purgeRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"` // the offset that becomes the first
	Records   int    `json:"records"`
	Open      int    `json:"open"` // neither redriven nor dismissed
}

// purgeAnswer is what `pushctl dlq purge` says. In a dry run it is what would
// be.
type purgeAnswer struct {
	DryRun     bool       `json:"dry_run"`
	Records    int        `json:"records"`
	Open       int        `json:"open"`
	Partitions []purgeRow `json:"partitions"` // in which there is something to delete
}

func (a *app) purge(ctx context.Context, f *purgeFlags) error {
	if f.all == !f.before.IsZero() {
		return usagef("say either --before TIME or --all")
	}
	if f.before.After(time.Now()) {
		return usagef("--before: lies ahead; --all deletes all that is there now")
	}
	lanes, err := a.dlqLanes(f.lanes)
	if err != nil {
		return err
	}
	v := purgeAnswer{DryRun: !f.yes, Partitions: []purgeRow{}}
	for _, lane := range lanes {
		rows, err := a.purgeLane(ctx, lane, f)
		v.add(rows)
		if err != nil {
			return a.showPurged(&v, err)
		}
	}
	return a.show(v.explain())
}

// showPurged ends a purge that failed: what is deleted by then is gone for
// good, so it is told whatever else goes wrong.
func (a *app) showPurged(v *purgeAnswer, err error) error {
	if v.DryRun || len(v.Partitions) == 0 {
		return err
	}
	return errors.Join(a.show(v.explain()), err)
}

// purgeLane deletes of one DLQ, or says what it would. With an error the rows
// are what was deleted before.
func (a *app) purgeLane(ctx context.Context, lane *configs.Lane, f *purgeFlags) ([]purgeRow, error) {
	q, marks, err := a.openDLQ(ctx, lane, f.yes)
	if err != nil {
		return nil, err
	}
	extent, err := q.Before(ctx, f.before.Time)
	if err != nil {
		return nil, err
	}
	rows, err := countPurged(ctx, q, extent, marks)
	if err != nil || !f.yes {
		return rows, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// What was begun is waited for, whether or not ctx ends meanwhile: it cannot
	// be taken back, and nobody could say what is gone.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTime)
	defer cancel()
	err = q.Delete(within, extent)
	var some *kafka.DeleteError
	if errors.As(err, &some) {
		rows = slices.DeleteFunc(rows, func(r purgeRow) bool {
			_, deleted := some.Deleted[r.Partition]
			return !deleted
		})
	}
	return rows, err
}

// countPurged is what is to be deleted of one DLQ, by partition.
func countPurged(ctx context.Context, q *kafka.DLQ, e kafka.Extent, marks kafka.Marks) ([]purgeRow, error) {
	byPartition := make(map[int32]*purgeRow)
	for p, r := range e {
		if r.To > r.From {
			byPartition[p] = &purgeRow{Topic: q.Topic(), Partition: p, From: r.From, To: r.To}
		}
	}
	err := q.Read(ctx, e, func(d *kafka.DeadLetter) error {
		row := byPartition[d.Partition]
		row.Records++
		if _, marked := marks.Of(d); !marked {
			row.Open++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var rows []purgeRow
	for _, p := range slices.Sorted(maps.Keys(byPartition)) {
		rows = append(rows, *byPartition[p])
	}
	return rows, nil
}

// add adds what was deleted, or would be.
func (v *purgeAnswer) add(rows []purgeRow) {
	v.Partitions = append(v.Partitions, rows...)
	for _, r := range rows {
		v.Records += r.Records
		v.Open += r.Open
	}
}

func (v *purgeAnswer) explain() terminal.Answer {
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
