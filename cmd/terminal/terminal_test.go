package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile is every rune that controls a terminal.
func hostile() (runes []rune) {
	add := func(from, to rune) {
		for r := from; r <= to; r++ {
			runes = append(runes, r)
		}
	}
	add(0, 0x1f)
	add(0x7f, 0x9f)
	add(0x202a, 0x202e)
	add(0x2066, 0x2069)
	return append(runes, 0x061c, 0x200e, 0x200f)
}

func TestNothingMovesTheCursor(t *testing.T) {
	for _, r := range hostile() {
		s := "a" + string(r) + "z"
		if got := Word(s); got != "a?z" {
			t.Errorf("Word(%q) = %q", s, got)
		}
		want := "a?z"
		if r == '\n' || r == '\t' {
			want = s
		}
		if got := Text(s); got != want {
			t.Errorf("Text(%q) = %q", s, got)
		}
		var out bytes.Buffer
		if err := WriteJSON(&out, map[string]string{s: s}, ""); err != nil {
			t.Fatal(err)
		}
		for _, printed := range strings.TrimSuffix(out.String(), "\n") {
			if control(printed) {
				t.Errorf("JSON of %q is %q", s, out.String())
			}
		}
		var back map[string]string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back[s] != s {
			t.Errorf("JSON of %q is %q, which reads as %q: %v", s, out.String(), back, err)
		}
	}
	for _, plain := range []string{"", "order 17", "Grüße, 你好, שלום, 🎉", "a b", "<&>"} {
		if Word(plain) != plain || Text(plain) != plain {
			t.Errorf("%q became %q and %q", plain, Word(plain), Text(plain))
		}
	}
	// A byte alone is a control to a terminal that is not UTF-8: 0x9b is CSI.
	if got := Word("a\x9bz\xff"); got != "a?z?" {
		t.Errorf("invalid UTF-8 became %q", got)
	}
}

// The output does not depend on the pieces in which a text is written.
func TestWriterTakesRunesInParts(t *testing.T) {
	const text = "\x1b[31mrot\u009b2J\u202eüber 🎉\r\n\tend\x9b\n"
	want := Text(text)
	for size := 1; size < len(text); size++ {
		var out bytes.Buffer
		w := NewWriter(&out)
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			piece := rest[:min(size, len(rest))]
			if n, err := w.Write(piece); n != len(piece) || err != nil {
				t.Fatalf("Write gave %d, %v", n, err)
			}
		}
		if out.String() != want {
			t.Errorf("in pieces of %d: %q, want %q", size, out.String(), want)
		}
	}
	if strings.ContainsFunc(want, func(r rune) bool { return control(r) && r != '\n' && r != '\t' }) || !utf8.ValidString(want) {
		t.Errorf("%q is let through", want)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriterTellsErrors(t *testing.T) {
	if _, err := NewWriter(broken{}).Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write: %v", err)
	}
	if err := WriteJSON(broken{}, 1, ""); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("WriteJSON: %v", err)
	}
	if err := WriteJSON(io.Discard, func() {}, ""); err == nil {
		t.Error("WriteJSON took a function")
	}
}

func TestBehindIsNoTerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, w := range []io.Writer{f, NewWriter(f), io.Discard, NewWriter(io.Discard)} {
		if _, ok := Behind(w); ok {
			t.Errorf("%T is taken for a terminal", w)
		}
	}
}

func FuzzEscapeJSON(f *testing.F) {
	f.Add(`{"a":"` + "\u202e\u009b" + `\n"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		var before, after any
		escaped := EscapeJSON([]byte(text))
		if err := json.Unmarshal([]byte(text), &before); err != nil {
			return // a number beyond float64
		}
		if err := json.Unmarshal(escaped, &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%q became %q: %v", text, escaped, err)
		}
		if strings.ContainsFunc(string(escaped), func(r rune) bool { return r >= 0x7f && control(r) }) {
			t.Errorf("%q became %q", text, escaped)
		}
	})
}
