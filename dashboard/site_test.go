package dashboard

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

const goodKey = "a-key-of-more-than-24-characters"

// newSite is a site with a feed of one count, and without a Kafka.
func newSite(t *testing.T, key string) *Site {
	t.Helper()
	access, err := NewAccess(key, "", false)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFeed()
	f.Add(counted("a", 1, time.Now(), sent("critical", "shop", 5), sent("promotional", "bank", 2)), time.Now())
	s, err := NewSite(Options{Feed: f, Lookups: &toldLookups{rows: map[string][]push.Row{}}, Access: access, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask asks a site as a browser on its machine does.
func ask(s http.Handler, method, target string, with func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:8095"
	if with != nil {
		with(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every answer says what a page may do; nothing in the page asks for more, and text is
// never taken for markup.
func TestPolicy(t *testing.T) {
	s := newSite(t, "")
	for _, path := range []string{"/", "/login", "/snapshot.json", "/nowhere", "/lookup"} {
		if got := ask(s, "GET", path, nil).Header.Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: %q", path, got)
		}
	}
	unsafe := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|style=|onclick=|<script>|https?://[^w]`)
	err := fs.WalkDir(assets, "assets", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := assets.ReadFile(path)
		if found := unsafe.FindString(string(text)); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Files are named by their content and kept for ever; the page is asked for anew, and
// told if it is the same.
func TestFilesAreNamedByContent(t *testing.T) {
	s := newSite(t, "")
	page := ask(s, "GET", "/", nil)
	names := regexp.MustCompile(`/assets/[a-z]+\.[0-9a-f]{16}\.(js|css|svg)`).FindAllString(body(t, page), -1)
	if len(names) != 3 {
		t.Fatalf("the page names %v", names)
	}
	for i := 0; i < len(names); i++ { // modules name others
		r := ask(s, "GET", names[i], nil)
		if r.StatusCode != http.StatusOK || !strings.Contains(r.Header.Get("Cache-Control"), "immutable") || r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, %v", names[i], r.StatusCode, r.Header)
		}
		text := body(t, r)
		names = append(names, regexp.MustCompile(`/assets/[a-z]+\.[0-9a-f]{16}\.js`).FindAllString(text, -1)...)
		if plain := regexp.MustCompile(`/assets/[a-z]+\.js`).FindString(text); plain != "" {
			t.Errorf("%s names %s without its content", names[i], plain)
		}
	}
	if len(names) < 7 {
		t.Errorf("only %v", names)
	}
	again := ask(s, "GET", "/", func(r *http.Request) { r.Header.Set("If-None-Match", page.Header.Get("ETag")) })
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("the same page: %d", again.StatusCode)
	}
	if r := ask(s, "GET", "/assets/main.js", nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("a name without content: %d", r.StatusCode)
	}
}

// Without a key only this machine's own names are served.
func TestOtherNamesAreRefused(t *testing.T) {
	s := newSite(t, "")
	for host, want := range map[string]int{"localhost:8095": 200, "127.0.0.1": 200, "[::1]:8095": 200, "[::1]": 200, "127.9.9.9:1": 200, "evil.example:8095": 421, "10.0.0.1:8095": 421, "": 421} {
		if r := ask(s, "GET", "/snapshot.json", func(r *http.Request) { r.Host = host }); r.StatusCode != want {
			t.Errorf("%q: %d, want %d", host, r.StatusCode, want)
		}
	}
}

// With a key nothing is seen without it; a form of another page makes no session.
func TestKey(t *testing.T) {
	s := newSite(t, goodKey)
	for _, path := range []string{"/snapshot.json", "/events", "/lookup?id=x"} {
		if r := ask(s, "GET", path, nil); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	if r := ask(s, "GET", "/", nil); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/login" {
		t.Errorf("the page: %d, %v", r.StatusCode, r.Header)
	}
	for key, want := range map[string]int{goodKey: 200, goodKey + "x": 401, "": 401} {
		if r := ask(s, "GET", "/snapshot.json", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) }); r.StatusCode != want {
			t.Errorf("%q: %d", key, r.StatusCode)
		}
	}
	login := func(key, site string) *http.Response {
		form := url.Values{"key": {key}}.Encode()
		return ask(s, "POST", "/login", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(form)), int64(len(form))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", site)
		})
	}
	if r := login(goodKey, "cross-site"); r.StatusCode != http.StatusForbidden || len(r.Cookies()) > 0 {
		t.Errorf("a form of another page: %d, %v", r.StatusCode, r.Cookies())
	}
	if r := login("wrong", "same-origin"); r.Header.Get("Location") != "/login?wrong=1" || len(r.Cookies()) > 0 {
		t.Errorf("a wrong key: %v", r.Header)
	}
	r := login(goodKey, "same-origin")
	if len(r.Cookies()) != 2 || !r.Cookies()[0].HttpOnly || r.Cookies()[0].SameSite != http.SameSiteStrictMode || strings.Contains(r.Cookies()[0].Value, goodKey) {
		t.Fatalf("the session: %v", r.Cookies())
	}
	session := r.Cookies()[0]
	with := func(value string) int {
		return ask(s, "GET", "/snapshot.json", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName, Value: value}) }).StatusCode
	}
	later := strings.Replace(session.Value, "1", "2", 1)
	if with(session.Value) != 200 || with(later) != 401 || with("") != 401 || with("99999999999.") != 401 {
		t.Error("sessions are told apart wrongly")
	}
	if s.access.role(&http.Request{Header: http.Header{"Cookie": {session.Name + "=" + session.Value}}}, time.Now().Add(12*time.Hour+time.Minute)) != nobody {
		t.Error("a session does not end")
	}
	if _, err := NewAccess("short", "", false); err == nil {
		t.Error("a short key is taken")
	}
}

// A stream has a whole snapshot at once, of what it is narrowed to, also compressed.
func TestStream(t *testing.T) {
	site := newSite(t, "")
	server := httptest.NewServer(site)
	defer server.Close()
	for _, encoding := range []string{"", "gzip"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/events?lane=critical", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", encoding)
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Header.Get("Content-Type") != "text/event-stream" || answer.Header.Get("X-Accel-Buffering") != "no" || answer.Header.Get("Content-Encoding") != encoding {
			t.Errorf("%q: %v", encoding, answer.Header)
		}
		var in io.Reader = answer.Body
		if encoding == "gzip" {
			if in, err = gzip.NewReader(in); err != nil {
				t.Fatal(err)
			}
		}
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, 2*MaxSnapshot)
		seen := 0
		for seen < 2 && lines.Scan() {
			text, is := strings.CutPrefix(lines.Text(), "data: ")
			if !is {
				continue
			}
			var s Snapshot
			if err := json.Unmarshal([]byte(text), &s); err != nil || s.Outcomes.Total != 5 || s.Filter.Lane != "critical" {
				t.Errorf("%q: %v, %d", encoding, err, s.Outcomes.Total)
			}
			seen++
		}
		if seen != 2 {
			t.Errorf("%q: %d snapshots, %v", encoding, seen, lines.Err())
		}
		cancel()
		_ = answer.Body.Close()
	}
}

// No more browsers than there is room for.
func TestStreamsAreBounded(t *testing.T) {
	s := newSite(t, "")
	for range maxStreams {
		s.streams <- struct{}{}
	}
	if r := ask(s, "GET", "/events", nil); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("one more browser: %d", r.StatusCode)
	}
	for range waiting {
		s.lookups.places <- struct{}{}
	}
	if r := ask(s, "GET", "/lookup?id=x", nil); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more look-up: %d", r.StatusCode)
	}
}

// Look-ups are answered, and what cannot be asked so is said.
func TestLookup(t *testing.T) {
	s := newSite(t, "")
	for path, want := range map[string]string{
		"/lookup?id=order-17": `"outcome":"NONE"`,
		"/lookup?user=u42":    "the user has no device",
		"/lookup?user=nobody": `{"error":"there is no app of that name"}`,
		"/lookup":             "give an id, or a user",
		"/lookup?id=" + strings.Repeat("x", maxWord+1):   "at most 256 bytes",
		"/lookup?id=a&id=b":                              "each word is given once",
		"/snapshot.json?app=" + strings.Repeat("x", 300): "too long",
		"/snapshot.json?app=bank":                        `"total":2,`,
	} {
		if got := body(t, ask(s, "GET", path, nil)); !strings.Contains(got, want) {
			t.Errorf("%.60s: %.300s, want %s", path, got, want)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, ":8095": false, "0.0.0.0:1": false, "10.1.1.1:1": false, "127.0.0.1": false} {
		if IsLoopback(address) != want {
			t.Errorf("%s: %v", address, !want)
		}
	}
}
