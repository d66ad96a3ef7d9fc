package terminal

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Format is the format of a command's answer.
type Format string

// The formats.
const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
)

// Set implements pflag.Value.
func (f *Format) Set(s string) error {
	switch v := Format(s); v {
	case FormatTable, FormatJSON:
		*f = v
		return nil
	}
	return fmt.Errorf("want %s or %s", FormatTable, FormatJSON)
}

// String implements pflag.Value.
func (f *Format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *Format) Type() string { return "format" }

// Table is rows of text under the names of their columns.
type Table struct {
	Columns []string
	rows    [][]string
}

// Add appends a row; an empty cell shows as "-".
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Answer is a command's answer: Value as JSON for scripts, whose keys are stable,
// and the rest as text for people. Before and After are the text around the
// table; any of them may be empty.
type Answer struct {
	Value  any
	Before string
	Table  Table
	After  string
}

// Write writes the answer in a format. JSON is indented by indent, or on one line
// if indent is empty.
func (a *Answer) Write(w io.Writer, f Format, indent string) error {
	if f == FormatJSON {
		return WriteJSON(w, a.Value, indent)
	}
	return a.writeText(w)
}

func (a *Answer) writeText(w io.Writer) error {
	var b strings.Builder
	if a.Before != "" {
		b.WriteString(a.Before + "\n")
	}
	if len(a.Table.rows) > 0 {
		a.Table.write(&b)
	}
	if a.After != "" {
		b.WriteString(a.After + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

func (t *Table) write(b *strings.Builder) {
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	line := func(cells []string) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			if c == "" {
				c = "-"
			}
			fmt.Fprint(tw, Word(c))
		}
		fmt.Fprintln(tw)
	}
	head := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = strings.ToUpper(c)
	}
	line(head)
	for _, row := range t.rows {
		line(row)
	}
	tw.Flush()
}
