package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progress shows how far something is: on a terminal one line that changes,
// elsewhere a line now and then. It is for one goroutine.
type progress struct {
	w        io.Writer
	terminal bool
	last     time.Time
	shown    bool
}

// quietFor is the pause between two lines where there is no terminal.
const quietFor = 2 * time.Second

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// line shows one state.
func (p *progress) line(format string, args ...any) {
	switch {
	case p.terminal:
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
	case time.Since(p.last) >= quietFor:
		_, _ = fmt.Fprintf(p.w, format+"\n", args...)
		p.last = time.Now()
	}
	p.shown = true
}

// end leaves the last line as it is.
func (p *progress) end() {
	if p.terminal && p.shown {
		_, _ = fmt.Fprintln(p.w)
	}
}
