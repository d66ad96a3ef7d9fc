package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/events"
)

// eventStatsFlags are the command line of events stats.
type eventStatsFlags struct {
	eventFilter
	by []string
}

// eventKinds are what counts can be summed up by.
var eventKinds = []string{"lane", "app", "type", "provider", "state", "reason"}

func newEventsStatsCommand(a *app) *cobra.Command {
	var f eventStatsFlags
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Sum up the counts in push.events",
		Long: `Sum up the counts in push.events: devices, and notifications that ended before their devices were looked
up. A device that is RETRYING or HELD is counted again when it ends. Each record of a lane counts once, also
where workers were killed; what is missing is said. The status store is exact.`,
		Example: "  pushctl events stats --since 24h\n  pushctl events stats --by app,state --lane transactional --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.sumEvents(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	f.flags(flags)
	flags.Var(&f.since, "since", "from this time on: RFC 3339, a day, or a duration before now; default: an hour ago")
	flags.StringSliceVar(&f.by, "by", []string{"lane", "provider", "state", "reason"}, "sum up by these `kinds`: "+strings.Join(eventKinds, ", "))
	return cmd
}

// eventSum is the sum for one combination of kinds.
type eventSum struct {
	Lane     string  `json:"lane,omitempty"`
	App      string  `json:"app,omitempty"`
	Type     string  `json:"type,omitempty"`
	Provider string  `json:"provider,omitempty"`
	State    string  `json:"state,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	N        int64   `json:"n"`
	Share    float64 `json:"share"` // of all, 0 to 1
}

// eventStats is the JSON answer of `pushctl events stats`.
type eventStats struct {
	Since  time.Time  `json:"since"`
	By     []string   `json:"by"`
	Total  int64      `json:"total"`
	Counts []eventSum `json:"counts"`
}

func (a *app) sumEvents(ctx context.Context, f *eventStatsFlags) error {
	if err := f.check(a); err != nil {
		return err
	}
	for _, kind := range f.by {
		if !slices.Contains(eventKinds, kind) {
			return usagef("--by: %q is not one of %s", kind, strings.Join(eventKinds, ", "))
		}
	}
	if f.since.IsZero() {
		f.since.Time = time.Now().Add(-time.Hour)
	}
	r, err := a.openEvents(ctx)
	if err != nil {
		return err
	}
	extent, err := r.Extent(ctx, f.since.Time, time.Time{})
	if err != nil {
		return err
	}
	show := newProgress(a.stderr)
	defer show.end()
	sums, read := make(map[eventSum]int64), 0
	err = r.read(ctx, extent, f.since.Time, func(e *events.Event) error {
		if read++; read%1000 == 0 {
			show.line("%d of %d records", read, extent.Records())
		}
		r.tally.Add(e, func(c *events.Count, _ time.Time) {
			if f.passesCount(c) {
				sums[f.key(c)] += c.N
			}
		})
		return nil
	})
	show.end()
	if err != nil {
		return err
	}
	maps.DeleteFunc(sums, func(_ eventSum, n int64) bool { return n == 0 }) // told again as something else
	if err := a.show(f.explain(sums)); err != nil {
		return err
	}
	if missing := r.tally.Missing(); missing > 0 {
		_, _ = fmt.Fprintf(a.stderr, "of %d offsets nobody told what became of their records: they are missing above\n", missing)
	}
	return r.verdict()
}

// key is the combination that a count belongs to.
func (f *eventStatsFlags) key(c *events.Count) (k eventSum) {
	for _, kind := range f.by {
		switch kind {
		case "lane":
			k.Lane = strings.TrimSuffix(c.Lane, ".retry")
		case "app":
			k.App = c.App
		case "type":
			k.Type = c.Type
		case "provider":
			k.Provider = c.Provider
		case "state":
			k.State = c.State
		case "reason":
			k.Reason = c.Reason
		}
	}
	return k
}

func (s *eventSum) cell(kind string) string {
	return map[string]string{"lane": s.Lane, "app": s.App, "type": s.Type, "provider": s.Provider, "state": s.State, "reason": s.Reason}[kind]
}

func (f *eventStatsFlags) explain(sums map[eventSum]int64) terminal.Answer {
	v := eventStats{Since: f.since.UTC().Truncate(time.Second), By: f.by, Counts: make([]eventSum, 0, len(sums))}
	for k, n := range sums {
		v.Total += n
		k.N = n
		v.Counts = append(v.Counts, k)
	}
	slices.SortFunc(v.Counts, func(x, y eventSum) int {
		for _, kind := range f.by {
			if kind == "lane" { // lanes by name, everything else by the count
				if c := strings.Compare(x.Lane, y.Lane); c != 0 {
					return c
				}
			}
		}
		return cmp.Or(cmp.Compare(y.N, x.N), strings.Compare(x.App+x.Type+x.Provider+x.State+x.Reason, y.App+y.Type+y.Provider+y.State+y.Reason))
	})
	t := terminal.Table{Columns: append(slices.Clone(f.by), "n", "share")}
	for i := range v.Counts {
		s := &v.Counts[i]
		s.Share = float64(s.N) / float64(v.Total)
		var cells []string
		for _, kind := range f.by {
			cells = append(cells, s.cell(kind))
		}
		t.Add(append(cells, strconv.FormatInt(s.N, 10), fmt.Sprintf("%.2f %%", 100*s.Share))...)
	}
	return terminal.Answer{Value: v, Table: t, After: fmt.Sprintf("%d counted since %s", v.Total, v.Since.Format(time.RFC3339))}
}
