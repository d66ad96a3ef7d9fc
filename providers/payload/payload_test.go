package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendString(t *testing.T) {
	for _, s := range []string{
		"", "plain", `"quoted" \ back`, "line\nreturn\rtab\t", "\x00\x01\x1f\x7f", "Grüße 世界 🎉", "<b>&amp;", "\u2028",
	} {
		got := appendString(nil, s)
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != s {
			t.Errorf("%q became %s: %q, %v", s, got, back, err)
		}
	}
	if got := string(appendString(nil, "a\xffb")); got != "\"a\uFFFDb\"" {
		t.Errorf("invalid UTF-8 became %s", got)
	}
}

// Eight bytes are looked at together: each byte at each place is what it is alone.
func TestAppendStringOfEveryByteAtEveryPlace(t *testing.T) {
	for b := range 256 {
		alone := appendString(nil, string([]byte{byte(b)}))
		for at := range 20 {
			text := bytes.Repeat([]byte("x"), 20)
			text[at] = byte(b)
			want := `"` + strings.Repeat("x", at) + string(alone[1:len(alone)-1]) + strings.Repeat("x", 19-at) + `"`
			if got := string(appendString(nil, string(text))); got != want {
				t.Fatalf("byte %#x at %d: %s, want %s", b, at, got, want)
			}
		}
	}
}

// What a producer escaped is text like any other: it counts, and is sent, as
// UTF-8. Half a surrogate pair is what the decoder reads it as everywhere.
func TestAppendQuoted(t *testing.T) {
	for in, want := range map[string]string{
		`""`: `""`, `"plain"`: `"plain"`, `"Grüße 🎉"`: `"Grüße 🎉"`,
		`"\u0413\u043e\u0434"`: `"Год"`, `"\u4f60\u597d"`: `"你好"`, `"\ud83c\udf89"`: `"🎉"`, `"\uD83C\uDF89!"`: `"🎉!"`,
		`"\u0041\u0022\u005c\u002f"`: `"A\"\\/"`, `"\"\\\/"`: `"\"\\/"`, `"\b\f\n\r\t"`: `"\b\f\n\r\t"`,
		`"\u0008\u000c\u000a\u000d\u0009\u0000\u001f\u007f"`: `"\b\f\n\r\t\u0000\u001f` + "\x7f" + `"`,
		`"\ud83d"`: "\"\uFFFD\"", `"a\ud83db"`: "\"a\uFFFDb\"", `"\udf89\ud83c"`: "\"\uFFFD\uFFFD\"", `"\ud83d\u0041"`: "\"\uFFFDA\"", `"\ud83d\n"`: "\"\uFFFD\\n\"",
	} {
		got := string(appendQuoted(nil, []byte(in)))
		if got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
		var a, b string
		if json.Unmarshal([]byte(in), &a) != nil || json.Unmarshal([]byte(got), &b) != nil || a != b {
			t.Errorf("%s became %s, which means another thing", in, got)
		}
		if n := TextLen([]byte(in)); n != len(a) {
			t.Errorf("%s is %d bytes of text, not %d", in, len(a), n)
		}
	}
	for value, want := range map[string]int{`17`: 2, `true`: 4, `{"a":1}`: 7, `[1]`: 3} {
		if n := TextLen([]byte(value)); n != want {
			t.Errorf("%s: %d, want %d", value, n, want)
		}
	}
}

func FuzzAppendQuoted(f *testing.F) {
	for _, s := range []string{`"\ud83c\udf89"`, `"\u00`, `"\`, `"`, ``, `"\ud83d\u`, `"\uZZZZ"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, n := appendQuoted(nil, []byte(in)), TextLen([]byte(in)) // no input panics
		var want, back string
		if json.Unmarshal([]byte(in), &want) != nil || in != strings.TrimSpace(in) || in[0] != '"' || !utf8.ValidString(in) {
			return
		}
		if err := json.Unmarshal(got, &back); err != nil || back != want || n != len(want) || len(got) > len(in) {
			t.Fatalf("%s became %s, %d bytes: %v", in, got, n, err)
		}
	})
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
		{`{"\u0061":"\u0413"}`, `{"\u0062":["\u0413\ud83d",{"\u0063":"\/"}]}`, "", "{\"a\":\"Г\",\"b\":[\"Г\uFFFD\",{\"c\":\"/\"}]}", "escapes become UTF-8"},
		{`{"a":"}\"{"}`, `{"b":"],{\\"}`, "", `{"a":"}\"{","b":"],{\\"}`, "brackets in strings"},
	} {
		if got := string(AppendMerged(nil, []byte(c.base), []byte(c.over), c.except)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.why, got, c.want)
		}
	}
}

func TestFind(t *testing.T) {
	const raw = `{"a":{"b":{"c":1},"d":"x"},"\u0065":[{"b":2}]}`
	for path, want := range map[string]string{"": raw, "a": `{"b":{"c":1},"d":"x"}`, "a b c": "1", "a d": `"x"`, "e": `[{"b":2}]`, "b": "", "a c": "", "a d x": "", "e b": "", "x y z": ""} {
		if got := string(Find([]byte(raw), strings.Fields(path)...)); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, k := range []struct {
		key, name  string
		is, begins bool
	}{
		{`"aps"`, "aps", true, true}, {`"aps2"`, "aps", false, true}, {`"ap"`, "aps", false, false}, {`""`, "aps", false, false}, {`""`, "", true, true},
		{`"\u0061ps"`, "aps", true, true}, {`"\u0061p\u0073x"`, "aps", false, true}, {`"a\ps"`, "aps", false, false}, {`"`, "aps", false, false}, {``, "", false, false},
		{`"` + strings.Repeat(`\u0061`, 100) + `"`, strings.Repeat("a", 100), true, true},
	} {
		it := Iterator{Key: []byte(k.key)}
		if it.Is(k.name) != k.is || it.Begins(k.name) != k.begins {
			t.Errorf("%s, %s: is %v, begins %v", k.key, k.name, it.Is(k.name), it.Begins(k.name))
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

// wide is an object of n members, their keys escaped.
func wide(n int, value string) []byte {
	b := []byte{'{'}
	for i := range n {
		b = append(comma(b), fmt.Sprintf(`"\u006b%d":"%s"`, i, value)...)
	}
	return append(b, '}')
}

// An object of many members is looked up in another way, with the same result.
func TestMergeOfWideObjects(t *testing.T) {
	for _, n := range []int{1, 15, 16, 17, 100} {
		for _, m := range []int{1, 16, 17, 200} {
			base, over := wide(n, "ours"), bytes.ReplaceAll(wide(m, "theirs"), []byte(`\u006b`), []byte("k"))
			var b, o, got map[string]any
			if json.Unmarshal(base, &b) != nil || json.Unmarshal(over, &o) != nil {
				t.Fatal("no JSON")
			}
			merged := AppendMerged(nil, base, over, "k0")
			if err := json.Unmarshal(merged, &got); err != nil {
				t.Fatal(err)
			}
			delete(o, "k0")
			if want := merge(b, o); !reflect.DeepEqual(got, want) || count(merged) != 2+2*len(want) {
				t.Errorf("%d and %d: %s", n, m, merged)
			}
		}
	}
}

// Two objects that fill a record between them.
func BenchmarkMergeOfWideObjects(b *testing.B) {
	base, over := wide(2000, ""), wide(2000, "x")
	var buf []byte
	b.SetBytes(int64(len(base) + len(over)))
	for b.Loop() {
		buf = AppendMerged(buf[:0], base, over, "")
	}
}
