package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/segments"
)

// segmentsEnumerateFlags are the command line of segments enumerate.
type segmentsEnumerateFlags struct {
	sourceFlags
	and, not []string
	after    int64
	limit    uint64
	count    bool
}

func newSegmentsEnumerateCommand(a *app) *cobra.Command {
	var f segmentsEnumerateFlags
	cmd := &cobra.Command{
		Use:   "enumerate SOURCE GROUP/SEGMENT...",
		Short: "Print the numbers of the users in segments, for a fan-out",
		Long: `Print the user numbers of one or more segments in ascending order, one a line, or with -o json as one
array. Several segments are united; --and keeps only those that are in another segment, too, and --not
leaves out those that are. --count prints how many there are instead.

The order is always the same, so a fan-out that was interrupted continues with --after and the last number
that it had. Groups that are numbered by hashes cannot be enumerated: a hash says nothing of the id.
` + sourceHelp,
		Example: "  pushctl segments enumerate users.seg lifecycle/new\n" +
			"  pushctl segments enumerate users.seg lifecycle/new lifecycle/active --and region/nl --not consent/none --count\n" +
			"  pushctl segments enumerate users.seg lifecycle/active --after 8112230 --limit 1000000",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.enumerateSegments(cmd.Context(), args[0], args[1:], &f)
		},
	}
	f.flags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringSliceVar(&f.and, "and", nil, "only users that are in this `segment`, too; several: in each of them")
	flags.StringSliceVar(&f.not, "not", nil, "no users that are in this `segment`")
	flags.Int64Var(&f.after, "after", -1, "only `numbers` greater than this one")
	flags.Uint64Var(&f.limit, "limit", 0, "at most `n`; 0 = all")
	flags.BoolVar(&f.count, "count", false, "print how many there are")
	return cmd
}

func (a *app) enumerateSegments(ctx context.Context, name string, which []string, f *segmentsEnumerateFlags) error {
	if f.after < -1 || f.after > segments.MaxNumber {
		return usagef("--after: want 0 to %d", uint64(segments.MaxNumber))
	}
	for _, list := range [][]string{which, f.and, f.not} {
		for _, s := range list {
			if _, _, err := segmentName(s); err != nil {
				return err
			}
		}
	}
	s, err := a.loadSegments(ctx, name, &f.sourceFlags)
	if err != nil {
		return err
	}
	users, err := f.users(s, which)
	if err != nil {
		return err
	}
	if f.count {
		n := f.counted(users)
		return a.show(terminal.Answer{Value: map[string]uint64{"users": n}, Before: strconv.FormatUint(n, 10)})
	}
	return a.printNumbers(ctx, users, f)
}

// users are the users that the command line asks for.
func (f *segmentsEnumerateFlags) users(s *segments.Set, which []string) (segments.Users, error) {
	var numbering segments.Numbering
	find := func(names []string) (found []segments.Users, err error) {
		for _, n := range names {
			u, by, err := segmentUsers(s, n)
			if err != nil {
				return nil, err
			}
			if numbering == "" {
				numbering = by
			}
			if by != numbering {
				return nil, usagef("%s is numbered by %s, and others by %s: their numbers mean different users", n, by, numbering)
			}
			found = append(found, u)
		}
		return found, nil
	}
	any, err := find(which)
	if err != nil {
		return segments.Users{}, err
	}
	and, err := find(f.and)
	if err != nil {
		return segments.Users{}, err
	}
	not, err := find(f.not)
	if err != nil {
		return segments.Users{}, err
	}
	return segments.Difference(segments.Intersection(append(and, segments.Union(any...))...), not...), nil
}

// segmentUsers finds a segment by its name on the command line.
func segmentUsers(s *segments.Set, name string) (segments.Users, segments.Numbering, error) {
	group, segment, err := segmentName(name)
	if err != nil {
		return segments.Users{}, "", err
	}
	g := s.Group(group)
	if g == nil {
		return segments.Users{}, "", usagef("no group %q in the file: see `pushctl segments list`", group)
	}
	if g.Numbers() == segments.ByHash {
		return segments.Users{}, "", usagef("group %s is numbered by hashes, which say nothing of the ids: it cannot be enumerated", group)
	}
	seg, ok := g.Segment(segment)
	if !ok {
		return segments.Users{}, "", usagef("no segment %q in group %s: see `pushctl segments list`", segment, group)
	}
	return seg.Users, g.Numbers(), nil
}

// counted is how many numbers would be printed.
func (f *segmentsEnumerateFlags) counted(users segments.Users) uint64 {
	n := users.CountFrom(uint64(f.after + 1))
	if f.limit > 0 {
		n = min(n, f.limit)
	}
	return n
}

// flushEvery is after how many numbers it is asked whether to stop.
const flushEvery = 1 << 16

// printNumbers prints users one by one. When it is interrupted, everything up to the number that
// its error names has been printed.
func (a *app) printNumbers(ctx context.Context, users segments.Users, f *segmentsEnumerateFlags) error {
	out := bufio.NewWriterSize(a.stdout, 256<<10)
	begin, between, end := "", "\n", "\n"
	if a.format == terminal.FormatJSON {
		begin, between, end = "[", ",", "]\n"
	}
	_, _ = io.WriteString(out, begin)
	n, last, line := uint64(0), uint32(0), make([]byte, 0, 16)
	var err error
	if f.after < segments.MaxNumber {
		for number := range users.From(uint32(f.after + 1)) {
			if n%flushEvery == 0 && n > 0 {
				if err = errors.Join(out.Flush(), ctx.Err()); err != nil {
					break
				}
			}
			if line = line[:0]; n > 0 {
				line = append(line, between...)
			}
			_, _ = out.Write(strconv.AppendUint(line, uint64(number), 10))
			n, last = n+1, number
			if n == f.limit {
				break
			}
		}
	}
	if err == nil && (n > 0 || begin != "") {
		_, _ = io.WriteString(out, end)
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil && n > 0 {
		return partlyf(fmt.Errorf("printing the numbers: %w", err), "%d numbers were printed, the last one is %d: continue with --after %d", n, last, last)
	}
	return err
}
