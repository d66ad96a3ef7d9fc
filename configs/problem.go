package configs

import (
	"fmt"
	"strconv"
	"strings"
)

// Problem is one fault of a configuration. It names the key and never the
// value.
type Problem struct {
	Path     string // of the key: "lanes[0].topic"; empty for the whole file
	Line     int    // in the file; 0 = the key is not in it
	Variable string // the environment variable the value came from, if it did
	Message  string
}

// String says where first: "line 12: lanes[0].topic: must not be empty".
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Variable != "":
		b.WriteString(p.Variable + ": ")
	case p.Line > 0:
		b.WriteString("line " + strconv.Itoa(p.Line) + ": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems is the error of Load and Validate: everything that is wrong at
// once, in the order of the keys.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, 0, len(ps)+1)
	if len(ps) > 1 {
		lines = append(lines, strconv.Itoa(len(ps))+" problems")
	}
	for _, p := range ps {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n  ")
}

// orNil keeps an empty list from being a non-nil error.
func (ps Problems) orNil() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

func (ps *Problems) add(path, format string, args ...any) {
	*ps = append(*ps, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}
