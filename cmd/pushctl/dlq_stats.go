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
)

// statsFlags are the command line of dlq stats.
type statsFlags struct {
	letterFilter
	top int
}

func newDLQStatsCommand(a *app) *cobra.Command {
	var f statsFlags
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "How many dead letters, by lane, reason, app, sender, provider and day",
		Long: `How many dead letters there are, by lane, reason, the provider's last word, app, sender, provider and day
(UTC) of dead-lettering. "Open" are those that nobody has redriven or dismissed, "expired" those of the
open that a redrive would not send any more. A letter for both providers counts for each.`,
		Example: "  pushctl dlq stats\n  pushctl dlq stats --since 24h --app shop -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.countDLQ(cmd.Context(), &f) },
	}
	f.flags(cmd.Flags())
	flags := cmd.Flags()
	_ = flags.MarkHidden("all") // the counts have columns of their own for it
	flags.IntVar(&f.top, "top", 20, "at most `n` values of each kind, the most frequent; 0 = all")
	return cmd
}

// letterCount counts dead letters of one value.
type letterCount struct {
	Value   string `json:"value"` // empty: it has none
	Records int    `json:"records"`
	Open    int    `json:"open"`
	Expired int    `json:"expired"` // of the open
}

func (c *letterCount) add(l *letter, expired bool) {
	c.Records++
	if l.marked {
		return
	}
	c.Open++
	if expired {
		c.Expired++
	}
}

// statsKinds are what is counted by, in the order of the table.
var statsKinds = [...]string{"lane", "reason", "last_answer", "app", "sender", "provider", "day"}

// letterStats counts by kind and value.
type letterStats struct {
	total letterCount
	by    map[string]map[string]*letterCount
}

func newLetterStats() *letterStats {
	s := &letterStats{by: make(map[string]map[string]*letterCount)}
	for _, kind := range statsKinds {
		s.by[kind] = make(map[string]*letterCount)
	}
	return s
}

func (s *letterStats) add(l *letter, now time.Time) {
	expired := l.expired(now)
	s.total.add(l, expired)
	count := func(kind, value string) {
		c := s.by[kind][value]
		if c == nil {
			value = strings.Clone(value) // it is cut from a record
			c = &letterCount{Value: value}
			s.by[kind][value] = c
		}
		c.add(l, expired)
	}
	count("lane", l.lane.Name)
	count("reason", l.Reason)
	count("last_answer", lastAnswer(l))
	count("app", l.message.App)
	count("sender", l.message.SenderID)
	count("day", l.Timestamp.UTC().Format(time.DateOnly))
	providers := l.providers()
	if len(providers) == 0 {
		providers = []string{""}
	}
	for _, p := range providers {
		count("provider", p)
	}
}

// statsAnswer is what `pushctl dlq stats` says.
type statsAnswer struct {
	Records int                      `json:"records"`
	Open    int                      `json:"open"`
	Expired int                      `json:"expired"`
	By      map[string][]letterCount `json:"by"`
}

func (a *app) countDLQ(ctx context.Context, f *statsFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.top < 0 {
		return usagef("--top: must be 0 or more")
	}
	f.all = true
	show := newProgress(a.stderr)
	defer show.end()
	s, now := newLetterStats(), time.Now()
	if err := a.eachLetter(ctx, &f.letterFilter, show, func(l letter) error {
		s.add(&l, now)
		return nil
	}); err != nil {
		return err
	}
	show.end()
	return a.show(s.explain(f.top))
}

// explain lists the most frequent values of each kind, days in their order.
func (s *letterStats) explain(top int) terminal.Answer {
	v := statsAnswer{Records: s.total.Records, Open: s.total.Open, Expired: s.total.Expired, By: make(map[string][]letterCount)}
	t := terminal.Table{Columns: []string{"by", "value", "records", "open", "expired"}}
	for _, kind := range statsKinds {
		list := make([]letterCount, 0, len(s.by[kind]))
		for _, c := range slices.Collect(maps.Values(s.by[kind])) {
			list = append(list, *c)
		}
		slices.SortFunc(list, func(x, y letterCount) int {
			if kind == "day" {
				return strings.Compare(y.Value, x.Value) // the newest first
			}
			return cmp.Or(cmp.Compare(y.Records, x.Records), strings.Compare(x.Value, y.Value))
		})
		if top > 0 && len(list) > top {
			list = list[:top]
		}
		v.By[kind] = list
		for _, c := range list {
			t.Add(strings.ReplaceAll(kind, "_", " "), short(c.Value, false), strconv.Itoa(c.Records), strconv.Itoa(c.Open), strconv.Itoa(c.Expired))
		}
	}
	return terminal.Answer{Value: v, Table: t, After: fmt.Sprintf("%d dead letters, %d of them open, %d of those expired", v.Records, v.Open, v.Expired)}
}
