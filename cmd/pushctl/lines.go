package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/pushfleet/pushfleet/cmd/terminal"
)

// maxLine is the longest line of a file in bytes: a message of 64 KiB with room
// for escapes.
const maxLine = 256 << 10

// errLongLine is the rule that a line over maxLine breaks.
var errLongLine = fmt.Errorf("longer than %d bytes", maxLine)

// line is one line of a file; its number counts from 1.
type line struct {
	number int
	text   []byte // without its end; valid until the next line
	err    error  // errLongLine: text is missing
}

// readLines yields the lines that are not blank. Of a line that is too long it
// yields only the error, so that a file without line breaks does not fill the
// memory. After the last line, failed is the error of reading, if any.
func readLines(r io.Reader, failed *error) iter.Seq[line] {
	return func(yield func(line) bool) {
		in := bufio.NewReaderSize(r, 64<<10)
		var long []byte
		for n := 1; ; n++ {
			long = long[:0]
			tooLong, text, err := false, []byte(nil), error(nil)
			for {
				text, err = in.ReadSlice('\n')
				if !errors.Is(err, bufio.ErrBufferFull) {
					break
				}
				if tooLong = tooLong || len(long)+len(text) > maxLine; !tooLong {
					long = append(long, text...)
				}
			}
			if len(long) > 0 {
				long = append(long, text...)
				text = long
			}
			l := line{number: n, text: bytes.TrimRight(text, "\r\n")}
			if n == 1 {
				l.text = bytes.TrimPrefix(l.text, []byte("\xef\xbb\xbf"))
			}
			if tooLong || len(l.text) > maxLine {
				l.text, l.err = nil, errLongLine
			}
			if (l.err != nil || len(bytes.TrimSpace(l.text)) > 0) && !yield(l) {
				return
			}
			if err != nil {
				if err != io.EOF {
					*failed = err
				}
				return
			}
		}
	}
}

// onError is what a command does after a bad line.
type onError string

const (
	stopAtError onError = "stop"
	skipErrors  onError = "skip"
)

// Set implements pflag.Value.
func (o *onError) Set(s string) error {
	switch v := onError(s); v {
	case stopAtError, skipErrors:
		*o = v
		return nil
	}
	return fmt.Errorf("want %s or %s", stopAtError, skipErrors)
}

func (o *onError) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *onError) Type() string { return "what" }

// refusals are the bad lines of a file: each is reported on standard error and
// counted by the rule that it breaks.
type refusals struct {
	w     io.Writer
	rules map[string]int
	count int
}

func newRefusals(w io.Writer) *refusals { return &refusals{w: w, rules: make(map[string]int)} }

func (r *refusals) add(number int, rule error) {
	r.count++
	r.rules[rule.Error()]++
	_, _ = fmt.Fprintf(r.w, "line %d: %v\n", number, rule)
}

// table shows how often each rule was broken.
func (r *refusals) table() terminal.Table {
	t := terminal.Table{Columns: []string{"refused", "rule"}}
	for _, rule := range slices.Sorted(maps.Keys(r.rules)) {
		t.Add(strconv.Itoa(r.rules[rule]), rule)
	}
	return t
}

// open opens a file to read, or standard input for "-".
func (a *app) open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(a.stdin), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, usageError{err}
	}
	return f, nil
}

// progress is a line on a terminal that is rewritten in place; if the output is
// not a terminal, it prints nothing. Not safe for concurrent use.
type progress struct {
	w        io.Writer
	terminal bool
	shown    bool
}

func newProgress(w io.Writer) *progress {
	f, ok := terminal.Behind(w)
	return &progress{w: f, terminal: ok}
}

func (p *progress) line(format string, args ...any) {
	if p.terminal {
		_, _ = io.WriteString(p.w, "\r\x1b[K"+terminal.Text(fmt.Sprintf(format, args...)))
		p.shown = true
	}
}

// end removes the line, before the answer is printed.
func (p *progress) end() {
	if p.shown {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
