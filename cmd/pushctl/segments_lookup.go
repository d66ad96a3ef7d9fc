package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/segments"
)

// segmentsLookupFlags are the command line of segments lookup.
type segmentsLookupFlags struct {
	sourceFlags
	ids []string
}

func newSegmentsLookupCommand(a *app) *cobra.Command {
	var f segmentsLookupFlags
	cmd := &cobra.Command{
		Use:   "lookup SOURCE [NUMBER...]",
		Short: "Which segments users are in",
		Long: `Show which segments of each group users are in, by their user numbers, or with --id by their user ids.
Groups that are numbered by the users' records answer only to numbers, and groups that are numbered by
hashes only to ids.
` + sourceHelp,
		Example: "  pushctl segments lookup users.seg 42 4711\n  pushctl segments lookup interests.seg --id u42 -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.lookUpSegments(cmd.Context(), args[0], args[1:], &f)
		},
	}
	f.flags(cmd.Flags())
	cmd.Flags().StringSliceVar(&f.ids, "id", nil, "user `id`, instead of a number")
	return cmd
}

// lookupRow is a user's segments of a group in the JSON answer.
type lookupRow struct {
	User     string   `json:"user"` // as on the command line
	Group    string   `json:"group"`
	Segments []string `json:"segments"`
}

func (a *app) lookUpSegments(ctx context.Context, name string, numbers []string, f *segmentsLookupFlags) error {
	if len(numbers)+len(f.ids) == 0 {
		return usagef("whom to look up? Give user numbers, or --id")
	}
	parsed := make([]uint32, len(numbers))
	for i, text := range numbers {
		n, err := segments.ParseNumber(text)
		if err != nil {
			return usagef("NUMBER %d: %w (--id looks up user ids)", i+1, err)
		}
		parsed[i] = n
	}
	s, err := a.loadSegments(ctx, name, &f.sourceFlags)
	if err != nil {
		return err
	}
	rows := []lookupRow{}
	for g := range s.Groups() {
		for i, n := range parsed {
			if g.Numbers() != segments.ByHash {
				rows = append(rows, lookupRow{numbers[i], g.Name(), g.AppendOf([]string{}, n)})
			}
		}
		for _, id := range f.ids {
			if n, ok := g.Numbers().Of(id, 0, false); ok {
				rows = append(rows, lookupRow{id, g.Name(), g.AppendOf([]string{}, n)})
			}
		}
	}
	return a.show(explainLookup(rows, len(numbers)+len(f.ids)))
}

func explainLookup(rows []lookupRow, users int) terminal.Answer {
	t := terminal.Table{Columns: []string{"user", "group", "segments"}}
	for _, r := range rows {
		t.Add(r.User, r.Group, strings.Join(r.Segments, ","))
	}
	ans := terminal.Answer{Value: rows, Table: t}
	if len(rows) == 0 {
		ans.After = "none of the file's groups can be asked for these " + strconv.Itoa(users) + " users: see `pushctl segments list` for how groups are numbered"
	}
	return ans
}
