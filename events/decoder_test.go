package events

import (
	"fmt"
	"strings"
	"testing"
)

// A copy has the source and number of its original. Each source has numbers of
// its own.
func TestDecoderDropsCopies(t *testing.T) {
	var d Decoder
	for _, tt := range []struct {
		source string
		number int64
		copied bool
	}{{"a", 1, false}, {"a", 2, false}, {"b", 1, false}, {"a", 1, true}, {"b", 1, true}, {"b", 2, false}} {
		e, err := d.Decode(fmt.Appendf(nil, `{"v":1,"source":%q,"n":%d}`, tt.source, tt.number))
		if err != nil || (e == nil) != tt.copied || e != nil && (e.Source != tt.source || e.Number != tt.number) {
			t.Errorf("%s %d: %+v, %v, want a copy: %v", tt.source, tt.number, e, err, tt.copied)
		}
	}
}

// The memory of a source is bounded, and still finds every copy that may come.
func TestDecoderForgetsOldNumbers(t *testing.T) {
	var d Decoder
	const last = 5 * copiesWithin
	for n := range int64(last) {
		if d.isCopy("a", n+1) {
			t.Fatalf("%d is new", n+1)
		}
		if most := len(d.seen["a"]); most > 2*copiesWithin {
			t.Fatalf("%d numbers are kept", most)
		}
	}
	for n := int64(last); n > last-copiesWithin; n-- {
		if !d.isCopy("a", n) {
			t.Fatalf("the copy of %d is not found", n)
		}
	}
}

func TestDecoderRefuses(t *testing.T) {
	for value, want := range map[string]string{
		"":                              "not an event",
		"[]":                            "not an event",
		`{"v":1,"n":"x"}`:               "not an event",
		`{"v":2,"source":"a","n":1}`:    "version 2; this program knows version 1",
		`{"source":"a","n":1}`:          "version 0",
		`{"v":1,"source":"a","n":1} {}`: "not an event",
	} {
		var d Decoder
		if e, err := d.Decode([]byte(value)); e != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", value, e, err, want)
		}
	}
}
