package sim

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// plainPrefix ends at the first byte that does not stand for itself, wherever
// in a word that is and whatever is behind it.
func TestPlainPrefix(t *testing.T) {
	for c := range 256 {
		special := c < ' ' || c == '"' || c == '\\'
		for at := range 20 {
			for _, behind := range []string{"", "\"\\\x00\xff!", strings.Repeat("\x1f", 20), strings.Repeat("z", 20)} {
				text := strings.Repeat("\x20", at) + string([]byte{byte(c)})
				want := at
				if !special {
					want = at + 1 + strings.IndexAny(behind+`"`, "\"\\\x00\x1f")
				}
				if got := plainPrefix([]byte(text + behind + `"`)); got != want {
					t.Fatalf("%q: got %d, want %d", text+behind, got, want)
				}
			}
		}
	}
}

// The scanner calls malformed what encoding/json does not take, and finds the
// same id.
func FuzzScanPayload(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"pf_id":"n1"}`, `{"aps":{"alert":{"title":"a\"b","body":"\u00e4"}},"pf_id":"n\u0031"}`, ` { "a" : [ 1 , -0.5e+3 , true , null ] } `,
		`{"pf_id":"` + strings.Repeat("long ", 30) + "\x01" + `"}`, `{"a":01}`, `{"a":"\x"}`, `{"a":tru}`, `{"x\"pf_id":"not this"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p := scanPayload(body)
		var want map[string]json.RawMessage
		err := json.Unmarshal(body, &want)
		if good := err == nil && want != nil; good == p.malformed {
			if good && bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("[")) > deepest {
				return // encoding/json goes deeper
			}
			t.Fatalf("%q: malformed is %v; encoding/json: %v", body, p.malformed, err)
		}
		if p.malformed || p.keys != len(want) || !utf8.Valid(body) {
			return // keys that are there twice, and bytes that encoding/json replaces
		}
		var id string
		if json.Unmarshal(want["pf_id"], &id) != nil {
			id = ""
		}
		if string(p.id) != id {
			t.Errorf("%q: got id %q, want %q", body, p.id, id)
		}
	})
}
