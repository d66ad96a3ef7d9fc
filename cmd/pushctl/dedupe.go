package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/wiring"
)

func newDedupeCommand(a *app) *cobra.Command {
	return newGroup("dedupe", "The Bloom filters of finished notifications", newDedupeFillCommand(a), newDeclareNewCommand(a))
}

// declareNew says what the operator confirms with --yes.
const declareNew = `Declare that this installation has sent nothing in the last two dedupe windows (12 h with the
defaults). Without it, the workers of a new installation look up every notification in the status
store for the first 5 minutes, and those whose id is not a UUIDv7 for two windows. That is slower,
but correct. Run this once, before the first worker starts.

Never run it because Redis lost its data: notifications that were already sent would count as new,
and second copies would be sent. Existing filters are not changed.`

func newDeclareNewCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "declare-new --yes",
		Short:   "Declare that this installation has sent nothing yet",
		Long:    declareNew,
		Example: "  pushctl dedupe declare-new --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usagef("dedupe declare-new needs --yes.\n\n%s", declareNew)
			}
			return a.declareNew(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm that nothing was sent")
	return cmd
}

// filter opens the configured Bloom filters, in a Redis that answers.
func (a *app) filter(ctx context.Context) (*dedupe.Filter, error) {
	client, err := a.reachRedis(ctx)
	if err != nil {
		return nil, err
	}
	f, err := dedupe.New(client, wiring.Filter(a.loaded))
	if err != nil {
		return nil, usageError{err}
	}
	return f, nil
}

func (a *app) declareNew(ctx context.Context) error {
	f, err := a.filter(ctx)
	if err != nil {
		return err
	}
	if err := f.DeclareNew(ctx); err != nil {
		return err
	}
	return a.show(terminal.Answer{Value: map[string]bool{"declared": true}, Before: "declared: filters that did not exist count as complete from the start of their windows"})
}

// fullAt is the fill, 0 to 1, at which a filter counts as too full.
const fullAt = 0.8

func newDedupeFillCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "fill",
		Short: "How full the current window is, and the capacity it needs",
		Long: `Show how full the current window is: the fill of the fullest of its 64 filters. "needed" is the
dedupe.capacity with which the window would end at 60 %, at the rate since it began ("-" in the first
tenth of the window). A full filter loses nothing, but costs a read of the status store for every id.

Exit status 1 at 80 % or more: raise dedupe.capacity. It takes effect with the next window.`,
		Example: "  pushctl dedupe fill\n  pushctl dedupe fill -o json | jq '.windows[0].needed'",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.showFill(cmd.Context()) },
	}
}

// fillRow is a window in the JSON answer.
type fillRow struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	IDs      int64     `json:"ids"`
	Capacity int64     `json:"capacity"`
	Fill     float64   `json:"fill"`
	Needed   int64     `json:"needed"` // 0 = too early to say
	Bytes    int64     `json:"bytes"`
}

func (a *app) showFill(ctx context.Context) error {
	f, err := a.filter(ctx)
	if err != nil {
		return err
	}
	fill, err := f.Fill(ctx)
	if err != nil {
		return err
	}
	if err := a.show(explainFill(fill, f.Options, time.Now())); err != nil {
		return err
	}
	if fill.Ratio >= fullAt {
		return errDifference
	}
	return nil
}

// explainFill shows the window that contains now; windows are counted from 1970.
func explainFill(fill dedupe.Fill, o dedupe.Options, now time.Time) terminal.Answer {
	from := time.Unix(0, now.UnixNano()-now.UnixNano()%int64(o.Window)).UTC()
	r := fillRow{From: from, To: from.Add(o.Window), IDs: fill.IDs, Capacity: fill.Capacity, Fill: fill.Ratio,
		Needed: fill.Needed, Bytes: dedupe.Size(o.Capacity, o.ErrorRate)}
	t := terminal.Table{Columns: []string{"from", "to", "ids", "capacity", "fill", "needed", "mib"}}
	needed := ""
	if r.Needed > 0 {
		needed = strconv.FormatInt(r.Needed, 10)
	}
	t.Add(r.From.Format(time.RFC3339), r.To.Format(time.RFC3339), strconv.FormatInt(r.IDs, 10), strconv.FormatInt(r.Capacity, 10),
		fmt.Sprintf("%.1f %%", 100*r.Fill), needed, fmt.Sprintf("%.1f", float64(r.Bytes)/(1<<20)))
	ans := terminal.Answer{Value: map[string][]fillRow{"windows": {r}}, Table: t}
	if r.Fill >= fullAt {
		ans.After = fmt.Sprintf("too full: set dedupe.capacity to %d", max(r.Needed, 2*r.Capacity))
	}
	return ans
}
