package payload

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestAppendString(t *testing.T) {
	for _, s := range []string{
		"", "plain", `"quoted" \ back`, "line\nreturn\rtab\t", "\x00\x01\x1f\x7f", "Grüße 世界 🎉", "<b>&amp;", "\u2028",
	} {
		got := AppendString(nil, s)
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != s {
			t.Errorf("%q became %s: %q, %v", s, got, back, err)
		}
	}
	if got := string(AppendString(nil, "a\xffb")); got != "\"a\uFFFDb\"" {
		t.Errorf("invalid UTF-8 became %s", got)
	}
}

func TestAppendMerged(t *testing.T) {
	for _, c := range []struct{ base, over, except, want, why string }{
		{`{"a":"1"}`, `{}`, "", `{"a":"1"}`, "nothing to merge"},
		{`{}`, `{"a":"1"}`, "", `{"a":"1"}`, "all from the producer"},
		{`{"a":"1","b":"2"}`, `{"b":"3","c":"4"}`, "", `{"a":"1","b":"3","c":"4"}`, "the producer's value wins"},
		{`{"aps":{"alert":{"title":"t"},"badge":1}}`, `{"aps":{"alert":{"body":"b"},"badge":2}}`, "",
			`{"aps":{"alert":{"title":"t","body":"b"},"badge":2}}`, "objects are merged deep"},
		{`{"aps":{"alert":{"title":"t"}}}`, `{"aps":{"alert":"text"}}`, "", `{"aps":{"alert":"text"}}`, "an object gives way to a string"},
		{`{"a":"1"}`, `{"a":{"x":[1,2]}}`, "", `{"a":{"x":[1,2]}}`, "a string gives way to an object"},
		{`{"a":[1,2]}`, `{"a":[3]}`, "", `{"a":[3]}`, "arrays are replaced"},
		{`{"aps":{"a":1}}`, `{"\u0061ps":{"a":2}}`, "", `{"aps":{"a":2}}`, "an escaped key is the same key"},
		{`{"token":"ours","x":"1"}`, `{"token":"theirs","x":"2"}`, "token", `{"token":"ours","x":"2"}`, "what is excepted stays ours"},
		{`{"x":"1"}`, `{"tok\u0065n":"theirs"}`, "token", `{"x":"1"}`, "the exception holds for escaped keys too"},
		{`{"a":"1"}`, "\n{ \"b\" : [ 1 , \"x y\" ] ,\t\"c\":null }", "", `{"a":"1","b":[1,"x y"],"c":null}`, "white space goes, not in strings"},
		{`{"a":"1"}`, `[]`, "", `{"a":"1"}`, "not an object: ignored"},
		{`{"a":"}\"{"}`, `{"b":"],{\\"}`, "", `{"a":"}\"{","b":"],{\\"}`, "brackets in strings"},
	} {
		if got := string(AppendMerged(nil, []byte(c.base), []byte(c.over), c.except)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.why, got, c.want)
		}
	}
}

// merge is the plain meaning of AppendMerged.
func merge(base, over map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range base {
		out[k] = v
	}
	for k, v := range over {
		b, isB := out[k].(map[string]any)
		o, isO := v.(map[string]any)
		if isB && isO {
			v = merge(b, o)
		}
		out[k] = v
	}
	return out
}

func FuzzAppendMerged(f *testing.F) {
	f.Add(`{"aps":{"alert":{"title":"t"}},"x":1}`, `{"aps":{"alert":{"body":"b"}},"y":[{}]}`)
	f.Add(`{"a":"\u0061"}`, `{"\u0061":{}}`)
	f.Add(`{`, `{"a"`)
	f.Fuzz(func(t *testing.T, base, over string) {
		got := AppendMerged(nil, []byte(base), []byte(over), "")
		var b, o, g map[string]any
		if strict(base, &b) != nil || strict(over, &o) != nil || len(base) > 1<<12 || strings.Count(base, "{") > maxDepth {
			return // only no panic is promised
		}
		if err := json.Unmarshal(got, &g); err != nil {
			t.Fatalf("%s + %s = %s: %v", base, over, got, err)
		}
		if want := merge(b, o); !reflect.DeepEqual(g, want) {
			t.Fatalf("%s + %s = %s", base, over, got)
		}
	})
}

// strict is what the decoder lets through: an object without duplicate keys.
func strict(s string, into *map[string]any) error {
	if err := json.Unmarshal([]byte(s), into); err != nil || *into == nil {
		return errNotObject
	}
	again, _ := json.Marshal(*into)
	if count(again) != count([]byte(s)) || strings.ContainsRune(string(again), '\uFFFD') {
		return errNotObject // a duplicate key, or broken UTF-8
	}
	return nil
}

var errNotObject = json.Unmarshal([]byte("x"), new(int))

// count counts the members of all objects in valid JSON.
func count(b []byte) (n int) {
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		t, err := d.Token()
		if err != nil {
			return n
		}
		_ = t
		n++
	}
}

func TestMergeIntoAWarmBufferAllocatesNothing(t *testing.T) {
	base, over := []byte(`{"aps":{"alert":{"title":"t"}},"x":"1"}`), []byte(`{"aps":{"alert":{"body":"b"}},"y":[1,2]}`)
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { buf = AppendMerged(buf[:0], base, over, "pf_id") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
