package gateway

import (
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/users/record"
)

// callersOf are callers in force without a file.
func callersOf(list ...*Caller) *Callers {
	c := &Callers{}
	c.now.Store(newRing(list))
	return c
}

// A token says what was signed, fits into a header, and no other text is one.
func TestTokensSayWhatWasSigned(t *testing.T) {
	s := signer(t, strings.Repeat("a", 32))
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,63}`)
		c := &Caller{Name: name.Draw(t, "key"), apps: map[string]bool{}, rights: map[Right]bool{Manage: true}, hash: [32]byte{1}}
		p := &pass{key: c.Name, app: name.Draw(t, "app"), user: rapid.StringN(1, 64, 128).Draw(t, "user"),
			until: time.Unix(rapid.Int64Range(0, 1<<36).Draw(t, "until"), 0).UTC()}
		c.apps[p.app] = true
		token := s.signPass(c, p)
		if len(token) > maxKey || !token68(token) {
			t.Fatalf("a token of %d bytes: %s", len(token), token)
		}
		callers := callersOf(&Caller{Name: "other" + c.Name}, c)
		if _, got, ok := s.openPass(callers, token); !ok || !reflect.DeepEqual(got, p) {
			t.Fatalf("signed\n%+v\nread\n%+v", p, got)
		}
		at := rapid.IntRange(0, len(token)-1).Draw(t, "changed")
		changed := []byte(token)
		changed[at] ^= byte(rapid.IntRange(1, 127).Draw(t, "by"))
		if _, _, ok := s.openPass(callers, string(changed)); ok {
			t.Fatalf("with byte %d changed it is good", at)
		}
	})
}

// What was signed for one use is good for no other.
func TestUsesAreApart(t *testing.T) {
	s := signer(t, strings.Repeat("a", 32))
	c := &Caller{Name: "a", apps: map[string]bool{"": true}, rights: map[Right]bool{Manage: true}}
	body := []byte("the same body")
	for _, use := range []string{forReceipts, forPasses} {
		if _, valid := s.verified(s.signed(body, use, string(c.hash[:])), forReceipts, string(c.hash[:])); valid != (use == forReceipts) {
			t.Errorf("signed for %q it is valid for receipts: %v", use, valid)
		}
	}
	if _, _, ok := s.openPass(callersOf(c), passPrefix+strings.SplitN(string(s.sign(nil, "s", &claim{id: "n", mode: AtLeastOnce, at: time.UnixMilli(1)})), "~", 2)[1]); ok {
		t.Error("a receipt is a token")
	}
}

// Tokens from outside do nothing but not be one.
func FuzzUserToken(f *testing.F) {
	s, err := NewSigner(strings.Repeat("a", 32))
	if err != nil {
		f.Fatal(err)
	}
	c := &Caller{Name: "logins", apps: map[string]bool{"shop": true}, rights: map[Right]bool{Manage: true}}
	callers := callersOf(c)
	one := s.signPass(c, &pass{key: c.Name, app: "shop", user: "u42", until: time.Unix(1_764_000_000, 0)})
	f.Add(one)
	f.Add(one[:20] + "\n" + one[20:]) // which base64 passes over
	f.Add(passPrefix + "AQ")
	f.Add(strings.TrimPrefix(one, passPrefix))
	f.Fuzz(func(t *testing.T, text string) {
		if got, p, ok := s.openPass(callers, text); ok && (got != c || s.signPass(c, p) != text) {
			t.Errorf("%q is read, and signed it is %q", text, s.signPass(c, p))
		}
	})
}

// Bodies, users and hashes of any bytes are answered as the contract says; what is
// accepted is a record that a registry can read.
func FuzzUserRoutes(f *testing.F) {
	for _, seed := range []string{phone, `{}`, `{"quiet_hours":[{"from":"22:00","to":"07:00","days":["fri"]}],"opt_out_types":["a"]}`, `{"app":"shop","expires_in":60}`,
		`{"platform":"apns","environment":"sandbox","app":"shop","token":"` + strings.Repeat("0a", 32) + `"}`, `{"app":"shop","app":"bank"}`, `[{"a":[1,{"b":null}]}]`, "{\"app\":\"\xff\"}"} {
		for route := range byte(6) {
			f.Add(route, "u42", phoneHash, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, route byte, user, device string, body []byte) {
		w := newWorld(t)
		routes := []string{"PUT preferences", "PUT devices", "POST tokens", "PUT devices/", "DELETE devices/", "GET devices/"}
		method, rest, _ := strings.Cut(routes[int(route)%len(routes)], " ")
		path := "/v1/users/" + escaped(user) + "/" + rest
		if strings.HasSuffix(rest, "/") {
			path += escaped(device)
		}
		req := httptest.NewRequest(method, path, strings.NewReader(string(body)))
		req.Header.Set("Authorization", "Bearer "+keySupport)
		req.Header.Set("Content-Type", "application/json")
		got := w.exchange(req)
		if got.status == 202 != (w.people.count() == 1) {
			t.Errorf("%s %s: %d, and %d records", method, path, got.status, w.people.count())
		}
		if got.status == 202 {
			r := w.people.last()
			var c record.Change
			if err := c.Read(r.Key, r.Value, time.Now()); err != nil || c.User != user {
				t.Errorf("of user %q became %q: %v", user, r.Key, err)
			}
		}
	})
}

// escaped is a segment of a path with each byte percent-encoded.
func escaped(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		b.Write([]byte{'%', digits[s[i]>>4], digits[s[i]&15]})
	}
	return b.String()
}
