// Package terminal is what the commands print through. Ids, reasons and names
// come from producers and providers, and must not be able to move the cursor,
// colour the screen or change the direction of text.
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

// refused replaces what is not printed.
const refused = '?'

// control reports whether a rune controls the terminal instead of being shown:
// C0, C1, and the runes that change the direction of text. Line breaks and tabs
// are among them.
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

// Word replaces all controls in s, including line breaks and tabs. It is for a
// cell of a table or a part of a line.
func Word(s string) string { return clean(s, false) }

// Text replaces all controls in s except line breaks and tabs.
func Text(s string) string { return clean(s, true) }

// clean replaces controls and invalid UTF-8. With lines it keeps line breaks and
// tabs.
func clean(s string, lines bool) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || control(r) && (!lines || r != '\n' && r != '\t') {
			return refused
		}
		return r
	}, s)
}

// Writer writes the Text of everything that is written to it. A rune may be
// split between two writes. Safe for concurrent use.
type Writer struct {
	w io.Writer

	mu   sync.Mutex
	part []byte // guarded by mu; the beginning of a rune whose end has not been written
}

// NewWriter returns a Writer that writes to w.
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

// unfinished counts the bytes of an incomplete rune at the end of text.
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

// Behind returns the terminal behind w, if there is one, for a line that is
// rewritten in place and so must move the cursor. Everything else that is written
// to it must be Text.
func Behind(w io.Writer) (*os.File, bool) {
	if cleaned, ok := w.(*Writer); ok {
		w = cleaned.w
	}
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// WriteJSON writes v as JSON and a line break, indented by indent if that is not
// empty. It escapes the controls in strings, which does not change the value.
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

// EscapeJSON escapes the controls in a JSON text, so that it cannot control a
// terminal and has the same value. In valid JSON, controls below U+0020 are
// already escaped, or are white space of the text itself.
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
