package main

import (
	"fmt"
	"io"
	"time"

	"github.com/pushfleet/pushfleet/cmd/terminal"
)

// progress shows how far a run is: on a terminal by one line that is rewritten
// in place, otherwise by a line every quietFor. Not safe for concurrent use.
type progress struct {
	w        io.Writer
	terminal bool
	last     time.Time
	shown    bool
}

// quietFor is the pause between two lines if the output is not a terminal.
const quietFor = 2 * time.Second

func newProgress(w io.Writer) *progress {
	if f, ok := terminal.Behind(w); ok {
		return &progress{w: f, terminal: true}
	}
	return &progress{w: w}
}

// line shows the current state.
func (p *progress) line(format string, args ...any) {
	switch {
	case p.terminal:
		_, _ = io.WriteString(p.w, "\r\x1b[K"+terminal.Text(fmt.Sprintf(format, args...)))
	case time.Since(p.last) >= quietFor:
		_, _ = fmt.Fprintf(p.w, format+"\n", args...)
		p.last = time.Now()
	}
	p.shown = true
}

// end leaves the last line on the screen.
func (p *progress) end() {
	if p.terminal && p.shown {
		_, _ = fmt.Fprintln(p.w)
	}
}
