//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/bench/lookup"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func newLookupCommand(b *bench) *cobra.Command {
	o := lookup.Options{ErrorRate: 1e-7}
	cmd := &cobra.Command{
		Use:   "lookup",
		Short: "Measure segments of many users beside Bloom filters",
		Long: `Puts each user into one of the segments by chance, which is the worst case for their bitmaps, and
measures how long it takes to build a file from lists of numbers, to load it as a worker does, and to look
users up: "hot" are 1,024 users again and again, "random" is anyone. Look-ups are measured by CPU time,
and their answers are checked.

Beside that, a Bloom filter with room for all users, as one segment may grow to have them all, is filled
with the users of one segment. As many filters as there are segments would be needed; the others are not
made, their memory is that of the one times their number.

With 270 million users it takes some minutes, 2 GB of memory, and 0.7 GB below --dir.`,
		Example: "  pushbench lookup\n  pushbench lookup --shuffled -o json | tail -1\n  pushbench lookup --users 10000000 --segments 2",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return b.lookup(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Users, "users", 270_000_000, "users")
	f.IntVar(&o.Segments, "segments", 4, "segments of one exclusive group")
	f.Float64Var(&o.ErrorRate, "error-rate", o.ErrorRate, "of the Bloom filters")
	f.BoolVar(&o.Shuffled, "shuffled", false, "lists in no order, instead of ascending")
	f.StringVar(&o.Dir, "dir", "", "directory for the lists and the file; default: that for temporary files")
	return cmd
}

func (b *bench) lookup(ctx context.Context, o lookup.Options) error {
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	o.Progress = func(s string) { _, _ = fmt.Fprintln(b.stderr, s) }
	r, err := lookup.Run(ctx, o)
	if err != nil {
		return err
	}
	return b.show(explainLookup(r))
}

// explainLookup is a table with a row per figure, of segments and of filters.
func explainLookup(r *lookup.Result) terminal.Answer {
	t := terminal.Table{Columns: []string{"figure", "segments", "Bloom filters"}}
	seconds := func(s lookup.Span) string { return fmt.Sprintf("%.1f s (CPU %.1f s)", s.Seconds, s.CPU) }
	ns := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) + " ns" }
	mb := func(v uint64) string { return strconv.FormatFloat(float64(v)/1e6, 'f', 1, 64) + " MB" }
	t.Add("lists", mb(uint64(r.ListBytes)), "")
	t.Add("building: reading the lists", seconds(r.Read), seconds(r.FilterFill)+" for one")
	t.Add("building: checking and writing", seconds(r.Seal), "")
	t.Add("file", mb(uint64(r.FileBytes)), "")
	t.Add("loading", seconds(r.Load), "")
	t.Add("memory", mb(r.Memory), fmt.Sprintf("%s (%d of %s)", mb(r.FiltersBytes), r.Segments, mb(r.FilterBytes)))
	t.Add("memory with room for today's users", "", fmt.Sprintf("%s (%d of %s)", mb(uint64(r.Segments)*r.FilterOwnBytes), r.Segments, mb(r.FilterOwnBytes)))
	t.Add("one look-up, hot", ns(r.SegmentHot), ns(r.FilterHitHot)+" (member)")
	t.Add("one look-up, random", ns(r.SegmentRandom), fmt.Sprintf("%s (member), %s (other)", ns(r.FilterHit), ns(r.FilterMiss)))
	t.Add("segment of a group, hot", ns(r.GroupHot), "")
	t.Add("segment of a group, random", ns(r.GroupRandom), "")
	t.Add("allocations of a look-up", strconv.FormatFloat(r.Allocations, 'f', -1, 64), "")
	t.Add("enumerating, a user", ns(r.EnumerateNS), "")
	t.Add("mistaken", "0", fmt.Sprintf("%d of %d (a filter of one segment)", r.FilterMistaken, r.FilterMissTries))
	return terminal.Answer{Value: r, Table: t, Before: fmt.Sprintf("%d users in %d segments, %d cores, %s", r.Users, r.Segments, r.Cores, r.Go)}
}
