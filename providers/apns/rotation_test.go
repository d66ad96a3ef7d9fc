package apns

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"

	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/push"
)

var tenOClock = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// keyIn is the id of the key that has signed a token.
func keyIn(t *testing.T, authorization string) string {
	t.Helper()
	parsed, _, err := jwt.NewParser().ParseUnverified(strings.TrimPrefix(authorization, "bearer "), jwt.MapClaims{})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := parsed.Header["kid"].(string)
	return id
}

// A file names its key's id itself, or the configuration does.
func TestAKeyFileMayNameItsKey(t *testing.T) {
	plain := p8(t, newKey(t))
	with := func(lines string) []byte { return append([]byte(lines), plain...) }
	for _, c := range []struct {
		file []byte
		want string // empty = refused
	}{
		{plain, "KEY1234567"},
		{with("Key-Id: NEW7654321\n"), "NEW7654321"},
		{with("# of the shop\r\n  Key-Id:NEW7654321  \r\n\r\n"), "NEW7654321"},
		{append(bytes.Clone(plain), "Key-Id: NEW7654321\n"...), "KEY1234567"}, // after the block it is no header
		{with("KEY-ID : NEW7654321\n"), "NEW7654321"},
		{with("key-id: new7654321\n"), ""},
		{with("Key-Id: \n"), ""},
		{with("Key-Id: new7654321\n"), ""},
		{with("Key-Id: NEW76543210\n"), ""},
		{with("Key-Id: NEW7654321\nKey-Id: NEW7654321\n"), ""},
	} {
		s, err := NewTokenSource("TEAM123456", "KEY1234567", c.file)
		if (err == nil) != (c.want != "") {
			t.Errorf("%q: %v", c.file[:20], err)
			continue
		}
		if err == nil && (s.KeyID() != c.want || keyIn(t, authorize(t, s, tenOClock)) != c.want) {
			t.Errorf("%q: key %s, want %s", c.file[:20], s.KeyID(), c.want)
		}
	}
}

// Another key signs at once, the same on every worker, and the one before it for the
// connections that it opened; what is no key changes nothing.
func TestAnotherKeySignsAtOnce(t *testing.T) {
	s, other := source(t, newKey(t)), source(t, newKey(t))
	first := authorize(t, s, tenOClock.Add(time.Minute))
	next := append([]byte("Key-Id: NEW7654321\n"), p8(t, newKey(t))...)
	for _, source := range []*TokenSource{s, other} {
		if changed, err := source.SetKey(next); !changed || err != nil {
			t.Fatalf("%v, %v", changed, err)
		}
	}
	second := authorize(t, s, tenOClock.Add(2*time.Minute))
	if second == first || keyIn(t, second) != "NEW7654321" || authorize(t, other, tenOClock.Add(25*time.Minute)) != second {
		t.Error("the new key's token is not used at once, or not by all")
	}
	if old, of, err := s.authorizationOf(0, tenOClock.Add(3*time.Minute)); string(old) != first || of != 0 || err != nil {
		t.Errorf("by the former key: identity %d, %v", of, err)
	}
	for _, broken := range [][]byte{nil, next[:len(next)/2], []byte("Key-Id: x\n")} {
		if changed, err := s.SetKey(broken); changed || err == nil || strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("a broken file: %v, %v", changed, err)
		}
	}
	if changed, err := s.SetKey(append([]byte("\n"), next...)); changed || err != nil || s.identity() != 1 {
		t.Errorf("the same key in other words: %v, %v", changed, err)
	}
	s.TooManyUpdates(tenOClock.Add(4 * time.Minute)) // there is no earlier token of this key to go back to
	if authorize(t, s, tenOClock.Add(5*time.Minute)) != second {
		t.Error("a complaint brings the former key back")
	}
}

// What Apple says of a key that is no longer in use halts nothing, and is sent again
// with the one that is.
func TestARefusalOfTheFormerKeyIsSentAgain(t *testing.T) {
	for _, reason := range []string{"InvalidProviderToken", "ExpiredProviderToken", "TooManyProviderTokenUpdates", "BadEnvironmentKeyInToken"} {
		c := testCodec(t)
		r := answered(403, `{"reason":"`+reason+`"}`)
		if _, err := c.tokens.SetKey(p8(t, newKey(t))); err != nil {
			t.Fatal(err)
		}
		got, next := c.Read(plain(), r)
		if got.Halt || got.Pause || next != exchange.RepeatElsewhere || r.Identity != 1 || string(r.Header[0].Value) != authorize(t, c.tokens, time.Now()) || c.refusal.Word() != "" {
			t.Errorf("%s of the former key: %+v, %v, refused: %q", reason, got, next, c.refusal.Word())
		}
	}
	c := testCodec(t)
	r := answered(403, `{"reason":"InvalidProviderToken"}`)
	r.Header[0].Value = []byte(authorize(t, c.tokens, time.Now()))
	if got, _ := c.Read(plain(), r); !got.Halt || got.Scope != push.ScopeRoute || c.refusal.Word() != "InvalidProviderToken" {
		t.Errorf("of the key in use: %+v, refused: %q", got, c.refusal.Word())
	}
	c.accepted(new(push.Message))
	if c.refusal.Word() != "" {
		t.Error("still refused after an acceptance")
	}
}
