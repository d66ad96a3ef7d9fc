package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/pushfleet/pushfleet/cmd/terminal"
)

// format is how a command shows what it has to say.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
)

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	switch v := format(s); v {
	case formatTable, formatJSON:
		*f = v
		return nil
	}
	return fmt.Errorf("want %s or %s", formatTable, formatJSON)
}

func (f *format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *format) Type() string { return "format" }

// table is rows of text under the names of their columns.
type table struct {
	columns []string
	rows    [][]string
}

// add appends a row; an empty cell shows as "-".
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// answer is what a command has to say: a value for scripts, whose keys are
// stable, and text for people. Before and after are single lines around the
// table; either may be empty.
type answer struct {
	value  any
	before string
	table  table
	after  string
}

// show writes an answer in the format that was asked for.
func (a *app) show(ans answer) error {
	if a.format == formatJSON {
		return writeJSON(a.stdout, ans.value)
	}
	return ans.writeText(a.stdout)
}

// writeJSON writes one indented value and a line break.
func writeJSON(w io.Writer, v any) error { return terminal.WriteJSON(w, v, "  ") }

func (ans *answer) writeText(w io.Writer) error {
	var b strings.Builder
	if ans.before != "" {
		b.WriteString(ans.before + "\n")
	}
	if len(ans.table.rows) > 0 {
		ans.table.write(&b)
	}
	if ans.after != "" {
		b.WriteString(ans.after + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

func (t *table) write(b *strings.Builder) {
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			if c == "" {
				c = "-"
			}
			fmt.Fprint(tw, terminal.Word(c))
		}
		fmt.Fprintln(tw)
	}
	head := make([]string, len(t.columns))
	for i, c := range t.columns {
		head[i] = strings.ToUpper(c)
	}
	line(head)
	for _, row := range t.rows {
		line(row)
	}
	tw.Flush()
}
