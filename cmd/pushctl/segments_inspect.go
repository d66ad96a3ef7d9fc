package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/segments"
)

func newSegmentsInspectCommand(a *app) *cobra.Command {
	var f sourceFlags
	cmd := &cobra.Command{
		Use:   "inspect SOURCE",
		Short: "Check a segment file from beginning to end, and show what is in it",
		Long: `Load a segment file as a worker does, with all checks: checksums, every bitmap, and that nobody is in two
segments of an exclusive group. Then show its version and its segments. Exit status 1 if a worker would
refuse it, with the reason. "memory" is what the bitmaps take in a worker, and twice that while it
changes from one version to the next.
` + sourceHelp,
		Example: "  pushctl segments inspect users.seg\n  pushctl segments inspect https://cdn.example.com/users.seg -o json | jq .version\n" +
			"  pushctl segments inspect s3://audience/users.seg --s3-credentials s3.credentials --s3-region eu-central-1",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.inspectSegments(cmd.Context(), args[0], &f) },
	}
	f.flags(cmd.Flags())
	return cmd
}

// inspectAnswer is the JSON answer of segments inspect.
type inspectAnswer struct {
	segmentsManifest
	Memory  uint64  `json:"memory"`  // bytes
	Seconds float64 `json:"seconds"` // of loading
}

// segmentsManifest is a manifest in JSON answers.
type segmentsManifest struct {
	Source   string `json:"source"`
	Checksum string `json:"checksum"`
	Bytes    int64  `json:"bytes"`
	segments.Manifest
}

func (a *app) inspectSegments(ctx context.Context, name string, f *sourceFlags) error {
	began := time.Now()
	s, err := a.loadSegments(ctx, name, f)
	if err != nil {
		return err
	}
	return a.show(explainInspect(name, s, time.Since(began)))
}

func explainInspect(name string, s *segments.Set, took time.Duration) terminal.Answer {
	m := s.Manifest()
	v := inspectAnswer{segmentsManifest{name, s.Checksum().String(), m.FileBytes(), m}, s.Bytes(), took.Seconds()}
	return terminal.Answer{Value: v, Before: manifestLine(&v.segmentsManifest), Table: manifestTable(&m),
		After: fmt.Sprintf("whole and valid; loaded in %.2f s, memory %d bytes", v.Seconds, v.Memory)}
}

func manifestLine(m *segmentsManifest) string {
	return fmt.Sprintf("%s: version %d, built %s, %d bytes\nchecksum %s", terminal.Word(m.Source), m.Version, m.Built.Format(time.RFC3339), m.Bytes, m.Checksum)
}

func manifestTable(m *segments.Manifest) terminal.Table {
	t := terminal.Table{Columns: []string{"group", "exclusive", "numbers", "segment", "users", "bytes"}}
	for _, g := range m.Groups {
		for _, s := range g.Segments {
			t.Add(g.Name, yes(g.Exclusive), g.Numbers.String(), s.Name, strconv.FormatUint(s.Users, 10), strconv.FormatInt(s.Bytes, 10))
		}
	}
	return t
}

func newSegmentsListCommand(a *app) *cobra.Command {
	var f sourceFlags
	cmd := &cobra.Command{
		Use:   "list SOURCE",
		Short: "List the segments of a file, without loading it",
		Long: `List the segments that a file says it has, with their numbers of users. Only the beginning of the file is
read and checked, so this is quick however large it is. Exit status 1 if that, or the length of the file,
is not right; "pushctl segments inspect" checks all of it.
` + sourceHelp,
		Example: "  pushctl segments list users.seg\n  pushctl segments list s3://audience/users.seg --s3-credentials s3.credentials -o json",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.listSegments(cmd.Context(), args[0], &f) },
	}
	f.flags(cmd.Flags())
	return cmd
}

func (a *app) listSegments(ctx context.Context, name string, f *sourceFlags) error {
	c, err := a.openSource(ctx, name, f)
	if err != nil {
		return err
	}
	defer c.Body.Close()
	m, sum, err := segments.ReadManifest(c.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	v := segmentsManifest{name, sum.String(), m.FileBytes(), *m}
	if err := a.show(terminal.Answer{Value: v, Before: manifestLine(&v), Table: manifestTable(m)}); err != nil {
		return err
	}
	if c.Size >= 0 && c.Size != v.Bytes {
		return fmt.Errorf("%s: it has %d bytes, and says that it has %d: workers refuse it", name, c.Size, v.Bytes)
	}
	return nil
}
