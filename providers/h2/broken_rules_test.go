package h2

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// A frame that breaks a rule ends the connection at once, with the code that
// RFC 9113 gives for that rule, and not for a later consequence.
func TestFramesThatBreakARule(t *testing.T) {
	for _, row := range []struct {
		f    frame
		code http2.ErrCode
		what string
	}{
		{frame{kind: http2.FrameGoAway, stream: 1, payload: make([]byte, 8)}, http2.ErrCodeProtocol, "GOAWAY on a stream"},
		{frame{kind: http2.FrameGoAway, payload: make([]byte, 7)}, http2.ErrCodeFrameSize, "short GOAWAY"},
		{frame{kind: http2.FramePriority, payload: make([]byte, 5)}, http2.ErrCodeProtocol, "bad PRIORITY"},
		{frame{kind: http2.FramePriority, stream: 1, payload: make([]byte, 4)}, http2.ErrCodeProtocol, "bad PRIORITY"},
		{frame{kind: http2.FramePushPromise, stream: 1, payload: make([]byte, 8)}, http2.ErrCodeProtocol, "push"},
		{frame{kind: http2.FrameRSTStream, stream: 1, payload: make([]byte, 3)}, http2.ErrCodeFrameSize, "RST_STREAM"},
	} {
		err := (&conn{settled: true}).frame(&row.f)
		var broken peerError
		if !errors.As(err, &broken) || broken.code != row.code || !strings.Contains(broken.what, row.what) {
			t.Errorf("%v on stream %d of %d bytes: %v, want %v about %s", row.f.kind, row.f.stream, len(row.f.payload), err, row.code, row.what)
		}
	}
	for _, fine := range []frame{{kind: http2.FramePriority, stream: 1, payload: make([]byte, 5)}, {kind: 0xee}} {
		c := &conn{settled: true}
		if err := c.frame(&fine); err != nil || c.score == 0 {
			t.Errorf("%v: %v, counted %d", fine.kind, err, c.score)
		}
	}
	if err := (&conn{}).frame(&frame{kind: http2.FramePing, payload: make([]byte, 8)}); err == nil {
		t.Error("something came before SETTINGS")
	}
}

// The size of a header list that is compared with the server's limit is never
// less than its real size.
func TestListSizeIsNoLess(t *testing.T) {
	r := &Request{Path: []byte("/3/device/" + strings.Repeat("a", 64)), Header: []Field{{Name: "apns-topic", Value: []byte("com.example")}}, Body: []byte("x")}
	const host = "api.push.example"
	exact := 0
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", host}, {":path", string(r.Path)},
		{"content-length", "1"}, {"apns-topic", "com.example"}} {
		exact += len(f[0]) + len(f[1]) + 32
	}
	if got := listSize(r, len(host)); got < exact || got > exact+64 {
		t.Errorf("counted as %d, it is %d", got, exact)
	}
}

// In a path or method, exactly the allowed bytes are accepted.
func TestTargetBytes(t *testing.T) {
	for b := range 256 {
		target := []byte{'/', byte(b)}
		if err, good := checkTarget("GET", target), b > ' ' && b <= '~' && b != '#'; (err == nil) != good {
			t.Errorf("byte 0x%02x in a path: %v", b, err)
		}
		method := "G" + string([]byte{byte(b)})
		good := b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b > 0 && b < 128 && strings.ContainsRune("!#$%&'*+-.^_`|~", rune(b))
		if err := checkTarget(method, []byte("/")); (err == nil) != good {
			t.Errorf("byte 0x%02x in a method: %v", b, err)
		}
	}
	for _, row := range []struct {
		method, target string
		good           bool
	}{
		{"OPTIONS", "*", true}, {"GET", "*", false}, {"CONNECT", "/", false}, {"", "/", false}, {strings.Repeat("A", 32), "/", true},
		{strings.Repeat("A", 33), "/", false}, {"GET", "", false}, {"GET", "a", false},
		{"GET", "/" + strings.Repeat("a", maxPath-1), true}, {"GET", "/" + strings.Repeat("a", maxPath), false},
	} {
		if err := checkTarget(row.method, []byte(row.target)); (err == nil) != row.good {
			t.Errorf("%s %.20s: %v", row.method, row.target, err)
		}
	}
}
