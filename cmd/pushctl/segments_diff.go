package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/segments"
)

func newSegmentsDiffCommand(a *app) *cobra.Command {
	var f sourceFlags
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "How many users came, went and changed segments between two files",
		Long: `Compare two segment files: for each segment how many users came and went, and for exclusive groups how many
went from one segment to another. Exit status 1 if they differ. OLD and NEW are sources, so what workers
use can be compared with what is about to be published.
` + sourceHelp,
		Example: "  pushctl segments diff yesterday.seg users.seg\n  pushctl segments diff s3://audience/users.seg users.seg --s3-credentials s3.credentials -o json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.diffSegments(cmd.Context(), args[0], args[1], &f)
		},
	}
	f.flags(cmd.Flags())
	return cmd
}

// diffAnswer is the JSON answer of segments diff.
type diffAnswer struct {
	Old    uint64               `json:"old_version"`
	New    uint64               `json:"new_version"`
	Same   bool                 `json:"same"`
	Groups []segments.GroupDiff `json:"groups"`
}

func (a *app) diffSegments(ctx context.Context, old, later string, f *sourceFlags) error {
	before, err := a.loadSegments(ctx, old, f)
	if err != nil {
		return err
	}
	after, err := a.loadSegments(ctx, later, f)
	if err != nil {
		return err
	}
	ans, same := explainSegmentsDiff(before, after)
	if err := a.show(ans); err != nil {
		return err
	}
	if !same {
		return errDifference
	}
	return nil
}

func explainSegmentsDiff(before, after *segments.Set) (ans terminal.Answer, same bool) {
	v := diffAnswer{Old: before.Version(), New: after.Version(), Same: true, Groups: segments.Diff(before, after)}
	t := terminal.Table{Columns: []string{"group", "segment", "before", "after", "came", "went"}}
	n := func(u uint64) string { return strconv.FormatUint(u, 10) }
	lines := []string{fmt.Sprintf("version %d, then version %d", v.Old, v.New)}
	for _, g := range v.Groups {
		for _, s := range g.Segments {
			t.Add(g.Group, s.Segment, n(s.Before), n(s.After), n(s.Came), n(s.Went))
		}
		for _, m := range g.Moves {
			lines = append(lines, fmt.Sprintf("%s: %d users from %s to %s", g.Group, m.Users, orNone(m.From), orNone(m.To)))
		}
		if len(g.Properties) > 0 {
			lines = append(lines, g.Group+": other properties: "+strings.Join(g.Properties, ", "))
		}
		v.Same = v.Same && !g.Differs()
	}
	if v.Same {
		lines = append(lines, "the same users in the same segments")
	}
	return terminal.Answer{Value: v, Table: t, After: strings.Join(lines, "\n")}, v.Same
}

func orNone(segment string) string {
	if segment == "" {
		return "no segment"
	}
	return segment
}
