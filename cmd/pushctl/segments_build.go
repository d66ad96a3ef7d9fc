package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/segments"
)

// segmentsBuildFlags are the command line of segments build.
type segmentsBuildFlags struct {
	overlapping []string
	numbers     []string
	format      string
	column      string
	version     uint64
}

func newSegmentsBuildCommand(a *app) *cobra.Command {
	var f segmentsBuildFlags
	cmd := &cobra.Command{
		Use:   "build OUT GROUP/SEGMENT=LIST...",
		Short: "Build a segment file from lists of user numbers",
		Long: `Build the segment file OUT from lists of users, one list or more for each segment. Segments belong to
groups, and a user is in one segment of a group at most: a user in two of them is an error, unless
--overlapping names the group.

A LIST is a file of any size, or "-" for standard input: text with one user number a line (blank lines and
lines that begin with # are skipped), or CSV (.csv, or --format csv) whose first line names the columns;
--column says which of them has the numbers. The order does not matter, and a user may be listed twice.

User numbers are 0 to 4294967295. --numbers says where workers find a user's number:

  record   in the user's record (default)
  id       the user id itself is the number: decimal, without leading zeros
  hash     the list has user ids, of any form; their number is a hash. Not possible in exclusive groups:
           of 270 million ids, 16 million have the 32-bit hash of another one

OUT is replaced at once when everything has been checked, and stays as it is when the command fails or is
interrupted. Its version is the time of the build; workers take only greater versions than they have.`,
		Example: "  pushctl segments build users.seg lifecycle/new=new.txt lifecycle/active=active.csv\n" +
			"  pushctl segments build users.seg lifecycle/new=new.csv lifecycle/active=active.csv --column user_number\n" +
			"  pushctl segments build interests.seg interests/shoes=shoes.txt interests/hats=- --overlapping interests --numbers hash",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.buildSegments(cmd.Context(), args[0], args[1:], &f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.overlapping, "overlapping", nil, "`group` in which a user may be in several segments")
	flags.StringSliceVar(&f.numbers, "numbers", nil, "`numbering` of all groups (record, id, hash), or group=numbering")
	flags.StringVar(&f.format, "format", "", "text or csv; default: by the list's extension")
	flags.StringVar(&f.column, "column", "", "`name` of the column of CSV files with the users; default: the only one")
	flags.Uint64Var(&f.version, "version", 0, "`number` of the version; default: the time, as 20261123115157 (UTC)")
	return cmd
}

// userList is a list on the command line.
type userList struct{ group, segment, path string }

// builtSegment is a segment in the JSON answer.
type builtSegment struct {
	Group   string `json:"group"`
	Segment string `json:"segment"`
	Read    uint64 `json:"read"` // lines of its lists
	Users   uint64 `json:"users"`
	Bytes   int64  `json:"bytes"`
}

// buildAnswer is the JSON answer of segments build.
type buildAnswer struct {
	File     string         `json:"file"`
	Version  uint64         `json:"version"`
	Checksum string         `json:"checksum"`
	Bytes    int64          `json:"bytes"`
	Seconds  float64        `json:"seconds"`
	Segments []builtSegment `json:"segments"`
}

func (a *app) buildSegments(ctx context.Context, out string, args []string, f *segmentsBuildFlags) error {
	began := time.Now()
	lists, err := userLists(out, args, f.format)
	if err != nil {
		return err
	}
	before, err := replaced(out)
	if err != nil {
		return err
	}
	switch {
	case f.version == 0:
		f.version = max(segments.VersionAt(began), before+1)
	case f.version <= before:
		return fmt.Errorf("--version: %s has version %d, and workers take only greater ones than they have", out, before)
	}
	b, err := f.builder(lists)
	if err != nil {
		return err
	}
	read, err := a.readLists(ctx, b, lists, f)
	if err != nil {
		return fmt.Errorf("%w; %s was not written", err, out)
	}
	s, err := b.Build(f.version, began)
	if err == nil && ctx.Err() == nil {
		err = segments.WriteFile(out, s)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w; %s was not written", err, out)
	}
	return a.show(explainBuild(out, s, read, time.Since(began)))
}

// userLists reads the arguments GROUP/SEGMENT=LIST.
func userLists(out string, args []string, format string) ([]userList, error) {
	if strings.Contains(out, "=") || strings.Contains(out, "://") {
		return nil, usagef("%q is not a file to write: the first argument is OUT (`pushctl segments push` writes to s3)", out)
	}
	if format != "" && format != "text" && format != "csv" {
		return nil, usagef("--format: want text or csv")
	}
	lists, stdin := make([]userList, 0, len(args)), 0
	for _, arg := range args {
		name, path, found := strings.Cut(arg, "=")
		if !found || path == "" {
			return nil, usagef("%q: want GROUP/SEGMENT=LIST, such as lifecycle/new=new.txt", arg)
		}
		group, segment, err := segmentName(name)
		if err != nil {
			return nil, err
		}
		if path == "-" {
			stdin++
		} else if _, err := os.Stat(path); err != nil {
			return nil, usageError{err} // before an hour of reading the lists before it
		}
		lists = append(lists, userList{group, segment, path})
	}
	if stdin > 1 {
		return nil, usagef("only one list can be standard input")
	}
	return lists, nil
}

// replaced is the version of the file that OUT replaces; 0 if there is none, or a
// broken one. It refuses to write over anything else.
func replaced(out string) (version uint64, err error) {
	file, err := os.Open(out)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, usageError{err}
	}
	defer file.Close()
	m, _, err := segments.ReadManifest(file)
	switch refused, is := errors.AsType[*segments.RefusedError](err); {
	case err == nil:
		return m.Version, nil
	case is && refused.Reason != segments.RefusedFormat:
		return 0, nil
	default:
		return 0, usagef("OUT: %s exists, and is no segment file: remove it, or name another one (%w)", out, err)
	}
}

// builder makes a builder with the groups of the lists.
func (f *segmentsBuildFlags) builder(lists []userList) (*segments.Builder, error) {
	all, numbers := segments.ByRecord, map[string]segments.Numbering{}
	for _, s := range f.numbers {
		group, kind, found := strings.Cut(s, "=")
		var n segments.Numbering
		if !found {
			kind = s
		}
		if err := n.Set(kind); err != nil {
			return nil, usagef("--numbers: %w", err)
		}
		if found {
			numbers[group] = n
		} else {
			all = n
		}
	}
	b, added := &segments.Builder{}, map[string]bool{}
	for _, l := range lists {
		if !added[l.group] {
			n, own := numbers[l.group]
			if !own {
				n = all
			}
			if err := b.AddGroup(l.group, !slices.Contains(f.overlapping, l.group), n); err != nil {
				return nil, usageError{err}
			}
			added[l.group] = true
		}
		if err := b.AddUsers(l.group, l.segment, segments.Users{}); err != nil { // its name is checked before anything is read
			return nil, usageError{err}
		}
	}
	for group := range numbers {
		if !added[group] {
			return nil, usagef("--numbers: no list is of group %q", group)
		}
	}
	for _, group := range f.overlapping {
		if !added[group] {
			return nil, usagef("--overlapping: no list is of group %q", group)
		}
	}
	return b, nil
}

// readLists adds all lists, and returns how many lines each segment took.
func (a *app) readLists(ctx context.Context, b *segments.Builder, lists []userList, f *segmentsBuildFlags) (map[string]uint64, error) {
	show, began := newProgress(a.stderr), time.Now()
	defer show.end()
	read, total := map[string]uint64{}, uint64(0)
	for _, l := range lists {
		in, err := a.open(l.path)
		if err != nil {
			return nil, err
		}
		name, told := l.group+"/"+l.segment, uint64(0)
		n, err := b.AddList(ctx, l.group, l.segment, segments.List{
			R: in, CSV: f.format == "csv" || f.format == "" && strings.EqualFold(filepath.Ext(l.path), ".csv"), Column: f.column,
			Progress: func(n uint64) {
				if n-told >= 1<<20 {
					told = n
					show.line("%s: %d users of %s read, %.0f/s", name, n, l.path, float64(total+n)/time.Since(began).Seconds())
				}
			},
		})
		_ = in.Close()
		if err != nil {
			show.end()
			return nil, fmt.Errorf("%s: %w", l.path, err)
		}
		read[name] += n
		total += n
	}
	return read, nil
}

func explainBuild(out string, s *segments.Set, read map[string]uint64, took time.Duration) terminal.Answer {
	m := s.Manifest()
	v := buildAnswer{File: out, Version: m.Version, Checksum: s.Checksum().String(), Bytes: m.FileBytes(), Seconds: took.Seconds(), Segments: []builtSegment{}}
	t := terminal.Table{Columns: []string{"group", "segment", "read", "users", "bytes"}}
	for _, g := range m.Groups {
		for _, seg := range g.Segments {
			n := read[g.Name+"/"+seg.Name]
			v.Segments = append(v.Segments, builtSegment{Group: g.Name, Segment: seg.Name, Read: n, Users: seg.Users, Bytes: seg.Bytes})
			t.Add(g.Name, seg.Name, strconv.FormatUint(n, 10), strconv.FormatUint(seg.Users, 10), strconv.FormatInt(seg.Bytes, 10))
		}
	}
	return terminal.Answer{Value: v, Table: t, After: fmt.Sprintf("%s: version %d, %d bytes, built in %.1f s; checksum %s", out, v.Version, v.Bytes, v.Seconds, v.Checksum)}
}
