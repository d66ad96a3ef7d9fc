package gateway

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

const (
	click     = "List-Unsubscribe=One-Click"
	clickForm = "application/x-www-form-urlencoded"
	clickPart = "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n"
)

// link makes one for a user and a message type.
func (w *world) link(user, name string) string {
	w.t.Helper()
	got := w.as(keyLogins, "POST", "/v1/users/"+user+"/unsubscribe-links", `{"app":"shop","type":"`+name+`"}`)
	if got.status != 201 {
		w.t.Fatalf("no link: %d %s", got.status, got.text)
	}
	return got.string("path")
}

// click makes one.
func (w *world) click(path, contentType, body string) *reply {
	w.t.Helper()
	return w.do(request{method: "POST", path: path, body: body, header: map[string]string{"Content-Type": contentType}})
}

// types are those that a user has opted out of.
func (w *world) types(user string) string {
	u, _ := w.people.Stored(w.t.Context(), user)
	return fmt.Sprint(u.Preferences.Types)
}

// A click opts out of one type, leaves all else, and needs no key; a second one changes
// nothing; a GET never does.
func TestOneClick(t *testing.T) {
	for kind, form := range map[string][2]string{
		"a form": {clickForm, click}, "with a charset": {clickForm + "; charset=utf-8", click}, "in parts": {"multipart/form-data; boundary=b", clickPart},
		"with more in it": {clickForm, "a=b&" + click},
	} {
		w := newWorld(t)
		if got := w.as(keyLogins, "PUT", "/v1/users/u42/preferences", `{"opt_out_types":["news"],"opt_out_senders":["orders"]}`); got.status != 202 {
			t.Fatal(got.text)
		}
		path := w.link("u42", "promo")
		for _, method := range []string{"GET", "HEAD", "PUT"} {
			if got := w.do(request{method: method, path: path}); got.status != 405 || got.header.Get("Allow") != "POST" {
				t.Errorf("%s by %s: %d, %v", kind, method, got.status, got.header)
			}
		}
		if got := w.types("u42"); got != "[news]" {
			t.Fatalf("%s: without a click: %s", kind, got)
		}
		for range 3 {
			if got := w.click(path, form[0], form[1]); got.status != 200 || got.string("unsubscribed") != "promo" {
				t.Errorf("%s: %d %s", kind, got.status, got.text)
			}
		}
		if got := w.types("u42"); got != "[news promo]" || w.people.count() != 2 {
			t.Errorf("%s: opted out of %s, by %d records", kind, got, w.people.count())
		}
		if u := w.people.users["u42"]; fmt.Sprint(u.Preferences.Senders) != "[orders]" {
			t.Errorf("%s: the rest became %+v", kind, u.Preferences)
		}
	}
}

// Whoever makes clicks, and needs no key for it, takes a fourth of the requests that may be
// under way at most, however slowly they come: sends go on.
func TestClicksAreBounded(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Limits.Requests = 40 })
	path := w.link("u42", "promo")
	var all sync.WaitGroup
	var ends []*io.PipeWriter
	for range 40 {
		body, end := io.Pipe()
		ends = append(ends, end)
		r := httptest.NewRequest("POST", path, body)
		r.Header.Set("Content-Type", clickForm)
		all.Go(func() {
			w.gateway.ServeHTTP(httptest.NewRecorder(), r)
			_ = body.Close()
		})
	}
	for _, end := range ends {
		_, _ = io.WriteString(end, "L") // whoever reads it is under way, and the others are answered
	}
	if got := w.post(plain); got.status != 202 {
		t.Errorf("a message meanwhile: %d %s", got.status, got.text)
	}
	if got := w.click(path, clickForm, click); got.code() != "busy" || got.header.Get("Retry-After") != "1" {
		t.Errorf("one more click: %d %s", got.status, got.text)
	}
	for _, end := range ends {
		_ = end.Close()
	}
	all.Wait()
	if got := w.click(path, clickForm, click); got.status != 200 {
		t.Errorf("afterwards: %d %s", got.status, got.text)
	}
}

// What is no click, or no link, changes nothing.
func TestClicksRefused(t *testing.T) {
	w := newWorld(t)
	path := w.link("u42", "promo")
	token := strings.TrimPrefix(w.token(keyLogins, "u42", "shop"), passPrefix)
	for _, tt := range []struct {
		why, path, kind, body string
		status                int
		code                  string
	}{
		{"nothing", path, clickForm, "", 400, "bad_request"},
		{"another word", path, clickForm, "List-Unsubscribe=Two-Clicks", 400, "bad_request"},
		{"twice", path, clickForm, click + "&" + click, 400, "bad_request"},
		{"in small letters", path, clickForm, strings.ToLower(click), 400, "bad_request"},
		{"no form", path, clickForm, "%zz", 400, "bad_request"},
		{"JSON", path, "application/json", click, 415, "media_type"},
		{"no type", path, "", click, 415, "media_type"},
		{"parts without a boundary", path, "multipart/form-data", clickPart, 400, "bad_request"},
		{"parts of another boundary", path, "multipart/form-data; boundary=c", clickPart, 400, "bad_request"},
		{"half a part", path, "multipart/form-data; boundary=b", clickPart[:40], 400, "bad_request"},
		{"a file", path, "multipart/form-data; boundary=b", strings.Replace(clickPart, "\r\n\r\n", "; filename=x\r\n\r\n", 1), 400, "bad_request"},
		{"more than is read", path, clickForm, strings.Repeat("x", 5<<10), 413, "body_too_large"},
		{"a forged one", path[:len(path)-1] + map[bool]string{true: "B", false: "A"}[path[len(path)-1] == 'A'], clickForm, click, 404, "no_such_link"},
		{"none", "/u/x", clickForm, click, 404, "no_such_link"},
		{"a long one", "/u/" + strings.Repeat("A", 2000), clickForm, click, 404, "no_such_link"},
		{"a user's token", "/u/" + token, clickForm, click, 404, "no_such_link"},
		{"one of another secret", "/u/" + signer(t, strings.Repeat("o", 32)).signLink(&link{"shop", "u42", linkType, "promo"}), clickForm, click, 404, "no_such_link"},
		{"about something else", "/u/" + w.gateway.o.Signer.signLink(&link{"shop", "u42", linkType + 1, "promo"}), clickForm, click, 404, "no_such_link"},
	} {
		if got := w.click(tt.path, tt.kind, tt.body); got.status != tt.status || got.code() != tt.code {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
	}
	for _, tt := range []struct{ why, key, body, code string }{
		{"no type", keyLogins, `{"app":"shop"}`, "invalid_field"}, {"a long type", keyLogins, `{"app":"shop","type":"` + strings.Repeat("x", 65) + `"}`, "invalid_field"},
		{"no app", keyLogins, `{"type":"promo"}`, "invalid_field"}, {"others' app", keyLogins, `{"app":"bank","type":"promo"}`, "foreign_app"},
		{"by the user", w.token(keyLogins, "u42", "shop"), `{"app":"shop","type":"promo"}`, "forbidden"}, {"by who may not", keyOrders, `{"app":"shop","type":"promo"}`, "forbidden"},
	} {
		if got := w.as(tt.key, "POST", "/v1/users/u42/unsubscribe-links", tt.body); got.code() != tt.code {
			t.Errorf("a link for %s: %d %s", tt.why, got.status, got.text)
		}
	}
	if w.people.count() != 0 {
		t.Errorf("%d records were appended", w.people.count())
	}
}

// What a user wants so far must be known before anything is added to it: else nothing is
// changed.
func TestClicksInTheDark(t *testing.T) {
	w := newWorld(t)
	path := w.link("u42", "promo")
	for _, tt := range []struct {
		why    string
		change func()
		status int
		code   string
	}{
		{"the registry is away", func() { w.people.readErr = errAway }, 503, "registry_away"},
		{"Kafka is away", func() { w.people.readErr, w.people.err = nil, errAway }, 503, "unconfirmed"},
		{"all is there", func() { w.people.err = nil }, 200, ""},
		{"preferences of a later version", func() { w.people.users["u42"].Quarantine = push.PreferencesUnknown }, 503, "registry_away"},
	} {
		w.people.set(tt.change)
		if got := w.click(path, clickForm, click); got.status != tt.status || got.code() != tt.code {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
	}
	if w.people.count() != 1 {
		t.Errorf("%d records", w.people.count())
	}
	w = newWorld(t, func(o *Options) { o.Users = NewUsers(newPeople(), nil) })
	if got := w.click(w.link("u42", "promo"), clickForm, click); got.code() != "not_configured" {
		t.Errorf("without a registry: %d %s", got.status, got.text)
	}
}

// Clicks of one user at once all count.
func TestClicksAtOnce(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Limits.Requests = 30 * keylessShare })
	var paths []string
	for i := range 30 {
		paths = append(paths, w.link("u42", fmt.Sprintf("t%d", i)))
	}
	var all sync.WaitGroup
	for _, path := range paths {
		all.Go(func() {
			if got := w.click(path, clickForm, click); got.status != 200 {
				t.Errorf("%d %s", got.status, got.text)
			}
		})
	}
	all.Wait()
	if u := w.people.users["u42"]; len(u.Preferences.Types) != 30 {
		t.Errorf("opted out of %q", u.Preferences.Types)
	}
}

// Clicks of any bytes are answered as the contract says, and change nothing unless they
// are one by a link that was signed.
func FuzzClick(f *testing.F) {
	f.Add("", clickForm, []byte(click), true)
	f.Add("", "multipart/form-data; boundary=b", []byte(clickPart), true)
	f.Add("AQE", clickForm, []byte("%"), false)
	f.Add("x", "multipart/form-data; boundary=\"\"", []byte("--\r\n"), true)
	f.Fuzz(func(t *testing.T, token, kind string, body []byte, signed bool) {
		w := newWorld(t)
		path := "/u/" + escaped(token)
		if signed {
			path = w.link("u42", "promo")
		}
		req := httptest.NewRequest("POST", path, strings.NewReader(string(body)))
		req.Header["Content-Type"] = []string{kind}
		got := w.exchange(req)
		if got.status == 200 && !signed || (got.status == 200) != (w.people.count() == 1) {
			t.Errorf("%s: %d, and %d records", path, got.status, w.people.count())
		}
	})
}
