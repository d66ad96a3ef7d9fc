package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

var began = time.Date(2026, 11, 24, 1, 0, 0, 0, time.UTC)

// The greatest value touches the top, zero the bottom, and what is outside the axis its edge.
func TestLines(t *testing.T) {
	a := Axis{began, began.Add(10 * time.Second)}
	got := string(Lines(a, "a <second>", []Series{{"c1", "rate & co", []Point{
		{began.Add(-time.Second), 0}, {began.Add(5 * time.Second), 40_000}, {began.Add(time.Minute), 20_000},
	}}}))
	for _, want := range []string{
		`d="M170.0,150.0L580.0,0.0L990.0,75.0"`, `>40k<`, `>20k<`, `a &lt;second&gt;`, `rate &amp; co`, `>5s<`, `>10s<`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	wellFormed(t, got)
}

// A file has the titles, the text and every line, and is one XML document.
func TestFile(t *testing.T) {
	a := Axis{began, began.Add(time.Minute)}
	points := []Point{{began, 1}, {began.Add(time.Minute), 2}}
	var b strings.Builder
	err := File(&b, "One <worker>", []string{"4 cores"}, a, []Panel{
		{"Rate", "a second", []Series{{"c1", "committed", points}, {"c2", "accepted", points}}},
		{"Latency", "ms", []Series{{"c3", "one-time passwords", points}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{"One &lt;worker&gt;", "4 cores", "Rate", "Latency", "committed", "accepted", "one-time passwords"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "<path"); n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
	wellFormed(t, got)
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestFileThatCannotBeWritten(t *testing.T) {
	if err := File(full{}, "", nil, Axis{began, began.Add(1)}, nil); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 9.99: "10", 42.4: "42", 12_345: "12k"} {
		if got := number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

// There are about 200 steps of whole seconds, and no more than a thousand points or two.
func TestStepsAndPoints(t *testing.T) {
	for length, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: time.Second, time.Hour: 18 * time.Second} {
		if got := (Axis{began, began.Add(length)}).Step(); got != want {
			t.Errorf("of %v: %v, want %v", length, got, want)
		}
	}
	if n := len(Thin(make([]Point, 5000))); n != 1000 {
		t.Errorf("%d points of 5000", n)
	}
	if n := len(Thin(make([]Point, 7))); n != 7 {
		t.Errorf("%d points of 7", n)
	}
}
