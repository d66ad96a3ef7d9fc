// Package terminal is what the commands print through. Ids, reasons and names
// come from producers and providers, who are not to move the cursor, colour the
// screen or turn lines around at whoever reads them.
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// refused stands for what is not printed.
const refused = '?'

// control reports whether a rune does something else than to show itself: the
// controls of C0 and C1, and those that change the direction of text. Line
// breaks and tabs are among them.
func control(r rune) bool {
	switch {
	case r < ' ', 0x7f <= r && r < 0xa0: // C0, DEL and C1
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f: // Arabic letter mark, left-to-right and right-to-left marks
		return true
	case 0x202a <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069: // embeddings, overrides, isolates
		return true
	}
	return false
}

// Word is s without controls, line breaks and tabs included: what is one cell
// of a table or one part of a line.
func Word(s string) string { return clean(s, false) }

// Text is s without controls other than line breaks and tabs.
func Text(s string) string { return clean(s, true) }

// clean is the one function that everything printed goes through.
func clean(s string, lines bool) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || control(r) && (!lines || r != '\n' && r != '\t') {
			return refused
		}
		return r
	}, s)
}

// Writer passes on Text of what is written. A rune may come in parts. Its
// methods may be called at once.
type Writer struct {
	w io.Writer

	mu   sync.Mutex
	part []byte // guarded by mu; the beginning of a rune, without its end so far
}

// NewWriter cleans what goes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.part, p...)
	whole := len(text) - unfinished(text)
	out := Text(string(text[:whole]))
	w.part = append([]byte(nil), text[whole:]...)
	if _, err := w.w.Write([]byte(out)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// unfinished is how many bytes at the end of text begin a rune and do not end
// it.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Behind returns what is behind w, if that is a terminal: for a line that
// changes, which has to move the cursor. What is written to it is to be Text.
func Behind(w io.Writer) (*os.File, bool) {
	if cleaned, ok := w.(*Writer); ok {
		w = cleaned.w
	}
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// WriteJSON writes one value and a line break, indented by indent if there is
// any. Controls in its strings stand escaped: it is the same value.
func WriteJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	if err == nil {
		_, err = w.Write(EscapeJSON(b.Bytes()))
	}
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// EscapeJSON escapes the controls in a JSON text: it means the same, and does
// nothing to a terminal. Controls below the blank stand escaped in valid JSON,
// or are its own line breaks.
func EscapeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r >= 0x7f && control(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}
