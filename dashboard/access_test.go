package dashboard

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// fixedKeys are Keys by their own text; the secret of each is its text.
type fixedKeys map[string]Holder

func (k fixedKeys) With(key string) (Holder, error) {
	h, known := k[key]
	switch {
	case !known:
		return h, ErrUnknownKey
	case h.Name == "narrow":
		return h, errors.New("the key narrow is not for all apps")
	}
	return h, nil
}

func (k fixedKeys) Named(name string) (Holder, bool) {
	for _, h := range k {
		if h.Name == name && name != "narrow" {
			return h, true
		}
	}
	return Holder{}, false
}

// By keys with names nobody sees anything without one, whoever asks for whichever name of
// this machine, and a session is that of its key alone, as that key is now.
func TestNamedKeys(t *testing.T) {
	keys := fixedKeys{"e": {"eye", false, []byte("e")}, "h": {"hand", true, []byte("h")}, "n": {"narrow", true, []byte("n")}}
	a := NewNamedAccess(keys, true)
	now := time.Now()
	ask := func(header, value string) visitor {
		return a.who(&http.Request{Host: "fleet.example", Header: http.Header{header: {value}}}, now)
	}
	if v := ask("X", ""); v.role != nobody || v.why != nil {
		t.Errorf("without a key: %+v", v)
	}
	if !a.host(&http.Request{Host: "fleet.example"}) {
		t.Error("a name that is not this machine's is refused, though a key is needed")
	}
	for key, want := range map[string]visitor{"e": {viewer, "eye", nil}, "h": {admin, "hand", nil}, "x": {nobody, "", ErrUnknownKey}} {
		if v := ask("Authorization", "Bearer "+key); v != want {
			t.Errorf("%s: %+v, want %+v", key, v, want)
		}
	}
	if v := ask("Authorization", "Bearer n"); v.role != nobody || v.why == nil || errors.Is(v.why, ErrUnknownKey) {
		t.Errorf("a key that opens nothing: %+v", v)
	}
	until := "99999999999"
	session := func(secret, name string) string {
		return cookieName + "=" + until + "." + sign([]byte(secret), until) + "." + name
	}
	if v := ask("Cookie", session("h", "hand")); v.role != admin || v.key != "hand" {
		t.Errorf("a session: %+v", v)
	}
	for _, wrong := range []string{session("e", "hand"), session("h", ""), session("n", "narrow"), session("x", "x"), strings.Replace(session("h", "hand"), "999.", "998.", 1)} {
		if v := ask("Cookie", wrong); v.role != nobody {
			t.Errorf("%s: %+v", wrong, v)
		}
	}
	if got := a.signature("ann", visitor{key: "hand"}); got != "ann (dashboard, key hand)" {
		t.Errorf("kept is %q", got)
	}
}

// Where there is no key of those who act, or none of those who look, nobody has it: also not
// by a session that the empty key would have signed.
func TestNobodyHasTheEmptyKey(t *testing.T) {
	now, until := time.Now(), "99999999999"
	for _, keys := range []pair{{goodKey, ""}, {"", adminKey}} {
		a := &Access{keys: keys}
		for _, name := range []string{"admin", "viewer", ""} {
			for header, value := range map[string]string{"Cookie": cookieName + "=" + until + "." + sign(nil, until) + "." + name, "Authorization": "Bearer "} {
				if v := a.who(&http.Request{Header: http.Header{header: {value}}}, now); v.role != nobody || v.key != "" {
					t.Errorf("%+v by %s %s: %+v", keys, header, value, v)
				}
			}
		}
	}
}

// A key that is known and opens nothing is answered why, and what to do: by the page that
// asks for another one, or as a problem. What it is named by is text.
func TestARefusedKeyIsToldWhy(t *testing.T) {
	s, err := NewSite(Options{Feed: NewFeed(), Access: NewNamedAccess(refusing{}, true), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for accept, want := range map[string]struct{ kind, says string }{
		"text/html,*/*;q=0.8":      {"text/html; charset=utf-8", `<p id="refused" role="alert" class="bad">the key &lt;img&gt; lacks an app. Ask who keeps the keys`},
		"":                         {"text/html; charset=utf-8", `<form id="login"`},
		"application/json":         {"application/problem+json", `"detail":"the key \u003cimg\u003e lacks an app"`},
		"application/problem+json": {"application/problem+json", `"status":403`},
	} {
		r := httptest.NewRequest("POST", "/login", strings.NewReader("key=known"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", accept)
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, r)
		if got := answer.Body.String(); answer.Code != http.StatusForbidden || answer.Header().Get("Content-Type") != want.kind || !strings.Contains(got, want.says) || strings.Contains(got, refusal) {
			t.Errorf("%q: %d %s %s, want %s with %s", accept, answer.Code, answer.Header().Get("Content-Type"), got, want.kind, want.says)
		}
		if len(answer.Result().Cookies()) > 0 {
			t.Errorf("%q: it has a session", accept)
		}
	}
}

// refusing are Keys that open nothing.
type refusing struct{}

func (refusing) With(string) (Holder, error) {
	return Holder{}, errors.New("the key <img> lacks an app")
}
func (refusing) Named(string) (Holder, bool) { return Holder{}, false }

// Cookies go by https alone where the browser came so: to this server, or to a proxy that
// has TLS, which the origin of the form says.
func TestCookiesGoByHTTPSWhereTheBrowserCameSo(t *testing.T) {
	for _, tt := range []struct {
		secured bool
		origin  string
		want    bool
	}{{false, "http://fleet.example", false}, {false, "", false}, {false, "https://fleet.example", true}, {true, "http://fleet.example", true}} {
		access := NewNamedAccess(fixedKeys{"h": {"hand", true, []byte("h")}}, tt.secured)
		s, err := NewSite(Options{Feed: NewFeed(), Access: access, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/login", "/logout"} {
			r := httptest.NewRequest("POST", "http://fleet.example"+path, strings.NewReader("key=h"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			answer := httptest.NewRecorder()
			s.ServeHTTP(answer, r)
			cookies := answer.Result().Cookies()
			if answer.Code != http.StatusSeeOther || len(cookies) != 2 {
				t.Fatalf("%s of %q: %d with %d cookies", path, tt.origin, answer.Code, len(cookies))
			}
			for _, c := range cookies {
				if c.Secure != tt.want {
					t.Errorf("%s of %q, with TLS here %v: %s is secure: %v", path, tt.origin, tt.secured, c.Name, c.Secure)
				}
			}
		}
	}
}
