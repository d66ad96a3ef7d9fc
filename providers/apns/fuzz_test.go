package apns

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/push"
)

// FuzzToken sends to any device token. Its grammar is written independently of
// the encoder's. A valid token is in the path, in lower case and alone.
func FuzzToken(f *testing.F) {
	for _, token := range []string{deviceToken, "", "../../3/device/x", "%2f" + deviceToken[3:], deviceToken[:63], deviceToken + "a", deviceToken[:62] + "g0", deviceToken[:62] + "\r\n",
		deviceToken[:62] + "@`", strings.Repeat("aF", 256), strings.Repeat("a", 514), strings.Repeat("é", 32)} {
		f.Add(token)
	}
	grammar := regexp.MustCompile(`^(?:[0-9a-fA-F]{2})+\z`)
	path := regexp.MustCompile(`^/3/device/[0-9a-f]+\z`)
	c := testCodec(f)
	f.Fuzz(func(t *testing.T, token string) {
		d := delivery(push.Message{Title: "t"})
		d.Device.Token = token
		r := &exchange.Draft{}
		result, ok := c.Encode(d, r)
		if want := grammar.MatchString(token) && len(token) >= 64 && len(token) <= 512; ok != want {
			t.Fatalf("%q: sent %v (%+v), want %v", token, ok, result, want)
		}
		if !ok {
			if result.Class != push.Refused || result.Reason != string(push.InvalidToken) || len(r.Path) != 0 {
				t.Errorf("%q: %+v, path %q", token, result, r.Path)
			}
			return
		}
		if !path.Match(r.Path) || !strings.EqualFold(string(r.Path), "/3/device/"+token) {
			t.Errorf("%q: path %q", token, r.Path)
		}
	})
}

// FuzzDate makes Apple refuse a token with any Date. Only a readable Date that
// is further off than clocks may be corrects the clock, and only once in 20
// minutes, whatever Apple says. The next token is valid at the corrected time.
func FuzzDate(f *testing.F) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, date := range []string{"", "soon", "1790000000", now.Format(http.TimeFormat), now.Add(2 * time.Hour).Format(http.TimeFormat),
		now.Add(-5 * time.Minute).Format(http.TimeFormat), now.Add(5*time.Minute + time.Second).Format(http.TimeFormat),
		"Sunday, 22-Nov-26 14:00:00 GMT", "Sun Nov 22 09:00:00 2026", "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT"} {
		f.Add([]byte(date), []byte(now.Add(-3*time.Hour).Format(http.TimeFormat)))
	}
	key := newKey(f)
	f.Fuzz(func(t *testing.T, date, next []byte) {
		s := source(t, key)
		s.Correct(date, now)
		at, err := http.ParseTime(string(date))
		off := at.Sub(now)
		if moved := s.skew.Load() != 0; moved != (err == nil && off.Abs() > drift) {
			t.Fatalf("%q, %v off (%v): moved %v", date, off, err, moved)
		}
		skew := s.skew.Load()
		if skew != 0 {
			if skew != int64(off) {
				t.Errorf("%q: moved by %v, want %v", date, time.Duration(skew), off)
			}
			if s.Correct(next, now.Add(calm-time.Second)); s.skew.Load() != skew {
				t.Errorf("%q: moved by %q again within 20 minutes", date, next)
			}
		}
		text, err := s.Authorization(now)
		if err != nil {
			t.Fatal(err)
		}
		if issued, clock := issuedAt(t, text), now.Add(time.Duration(skew)); issued.After(clock) || clock.Sub(issued) >= tokenSlice {
			t.Errorf("%q: at %v the token is of %v", date, clock, issued)
		}
	})
}

// issuedAt reads the time of a provider token.
func issuedAt(t *testing.T, text []byte) time.Time {
	t.Helper()
	parts := bytes.Split(bytes.TrimPrefix(text, []byte("bearer ")), []byte("."))
	if len(parts) != 3 {
		t.Fatalf("token of %d parts", len(parts))
	}
	claims, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ IAT *int64 }
	if err := json.Unmarshal(claims, &c); err != nil || c.IAT == nil {
		t.Fatalf("claims %q: %v", claims, err)
	}
	return time.Unix(*c.IAT, 0)
}
