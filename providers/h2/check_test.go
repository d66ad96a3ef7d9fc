package h2

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckPath(t *testing.T) {
	for _, c := range []struct {
		path string
		ok   bool
		why  string
	}{
		{"/3/device/00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0", true, "Apple's"},
		{"/v1/projects/p-1:x/messages:send", true, "Google's, with colons"},
		{"/", false, "an empty segment"},
		{"", false, "empty"},
		{"3/device/00", false, "relative"},
		{"/3/device/", false, "an empty last segment: a token was missing"},
		{"/3//device", false, "an empty segment"},
		{"/3/device/../../admin", false, "dot segments"},
		{"/3/device/.", false, "a dot segment"},
		{"/3/device/a%2fb", false, "an escaped slash"},
		{"/3/device/a?x=1", false, "a query"},
		{"/3/device/a#x", false, "a fragment"},
		{"/3/device/a\\b", false, "a backslash, which some read as a slash"},
		{"/3/device/a b", false, "a space"},
		{"/3/device/a\r\nx: y", false, "a new line"},
		{"/3/device/a\x00", false, "NUL"},
		{"/3/device/a\x7f", false, "DEL"},
		{"/3/device/ä", false, "not ASCII"},
		{"/3/device/" + strings.Repeat("a", 10<<10), false, "10 KB"},
	} {
		err := checkPath([]byte(c.path))
		if (err == nil) != c.ok {
			t.Errorf("%s: %.40q: err = %v", c.why, c.path, err)
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: not ErrMalformed: %v", c.why, err)
		}
	}
}

func TestCheckField(t *testing.T) {
	for _, c := range []struct {
		name, value string
		ok          bool
		why         string
	}{
		{"apns-topic", "com.example.app", true, "usual"},
		{"apns-collapse-id", "a key: 1/2, three", true, "all printable ASCII inside"},
		{"apns-collapse-id", "", true, "empty is not sent"},
		{"apns-collapse-id", "a\r\nauthorization: bearer x", false, "CR LF"},
		{"apns-collapse-id", "a\nb", false, "LF"},
		{"apns-collapse-id", "a\x00b", false, "NUL"},
		{"apns-collapse-id", "a\tb", false, "a control"},
		{"apns-collapse-id", "a\x7f", false, "DEL"},
		{"apns-collapse-id", "é", false, "not ASCII"},
		{"apns-collapse-id", " a", false, "space in front"},
		{"apns-collapse-id", "a ", false, "space behind"},
		{"apns-collapse-id", strings.Repeat("a", 10<<10), false, "10 KB"},
		{"", "x", false, "no name"},
		{":path", "/x", false, "a pseudo header"},
		{"Apns-Topic", "x", false, "upper case cannot be sent over HTTP/2"},
		{"a b", "x", false, "a space in the name"},
		{"a\r\nb", "x", false, "CR LF in the name"},
		{"connection", "close", false, "the connection's"},
		{"transfer-encoding", "chunked", false, "the connection's"},
		{"content-length", "3", false, "counted, not said"},
	} {
		err := checkField(Field{Name: c.name, Value: []byte(c.value)})
		if (err == nil) != c.ok {
			t.Errorf("%s: %q: err = %v", c.why, c.name, err)
		}
		if err != nil && c.value != "" && len(c.value) > 3 && strings.Contains(err.Error(), c.value) {
			t.Errorf("%s: the error repeats the value: %v", c.why, err)
		}
	}
}

func FuzzCheckPath(f *testing.F) {
	f.Add("/3/device/00")
	f.Add("/v1/projects/p/messages:send")
	f.Add("/a/../b")
	f.Fuzz(func(t *testing.T, s string) {
		if checkPath([]byte(s)) != nil {
			return
		}
		for _, bad := range []string{"\r", "\n", "\x00", " ", "%", "?", "#", "\\", "//", "/./", "/../"} {
			if strings.Contains(s+"/", bad) {
				t.Errorf("%q passed with %q in it", s, bad)
			}
		}
	})
}

// Every byte at every position of a value is judged as if it were alone.
func TestCheckFieldSeesEveryByte(t *testing.T) {
	for length := 1; length <= 20; length++ {
		for at := range length {
			for b := range 256 {
				v := []byte(strings.Repeat("a", length))
				v[at] = byte(b)
				space := b == ' ' && (at == 0 || at == length-1)
				want := b >= 0x20 && b <= 0x7e && !space
				if got := checkField(Field{Name: "x", Value: v}) == nil; got != want {
					t.Fatalf("byte 0x%02x at %d of %d: accepted %v, want %v", b, at, length, got, want)
				}
			}
		}
	}
}

func checkField(f Field) error {
	return check(&Request{Path: []byte("/a"), Header: []Field{f}}, nil)
}

// A field is skipped as already checked only if it is the very same memory.
func TestCheckBesideTheOneBefore(t *testing.T) {
	shared := []byte("shared value")
	before := &Request{Path: []byte("/a"), Header: []Field{{Name: "a", Value: shared}, {Name: "b", Value: []byte("x")}}}
	if err := check(before, nil); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		why    string
		header []Field
		ok     bool
	}{
		{"all the same", before.Header, true},
		{"equal, elsewhere in memory", []Field{{Name: "a", Value: []byte("shared value")}, {Name: "b", Value: []byte("x")}}, true},
		{"a cut of it that ends in a space", []Field{{Name: "a", Value: shared[:7]}}, false},
		{"another value under the same name", []Field{{Name: "a", Value: []byte("a\r\nb: c ....")}}, false},
		{"the same value under another name", []Field{{Name: "A", Value: shared}}, false},
		{"the same value under a name of the connection's", []Field{{Name: "te", Value: shared}}, false},
		{"one more than before", []Field{before.Header[0], before.Header[1], {Name: "c", Value: []byte("\n")}}, false},
		{"no name", []Field{{Value: shared}}, false},
	} {
		if err := check(&Request{Path: []byte("/a"), Header: tc.header}, before); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.why, err)
		}
	}
	// A request without headers before one with a nameless field.
	if check(&Request{Path: []byte("/a"), Header: []Field{{}}}, &Request{Header: []Field{{}}}) == nil {
		t.Error("no name is known from before")
	}
}
