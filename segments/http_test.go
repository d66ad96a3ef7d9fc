package segments

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openHTTP(t *testing.T, o HTTPOptions) *HTTP {
	t.Helper()
	h, err := NewHTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func TestFileAsSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.seg")
	src := File(path)
	if _, err := src.Open(t.Context(), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := File(filepath.Dir(path)).Open(t.Context(), ""); err == nil {
		t.Error("a directory was opened")
	}
	w := NewWatcher(src, WatcherOptions{})
	for v := range uint64(3) {
		if err := WriteFile(path, lifecycle(t, v+1)); err != nil {
			t.Fatal(err)
		}
		at := noon.Add(time.Duration(v)) // as renaming within a tick of the file system would not be seen
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if err := w.Poll(t.Context()); err != nil || w.Set().Version() != v+1 {
			t.Errorf("%v, version %d", err, w.Set().Version())
		}
		c, err := src.Open(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if info, _ := os.Stat(path); c.Size != info.Size() {
			t.Errorf("size %d", c.Size)
		}
		if _, err := src.Open(t.Context(), c.Tag); !errors.Is(err, ErrUnchanged) {
			t.Errorf("unchanged: %v", err)
		}
		_ = c.Body.Close()
	}
}

// A server with ETags, and one with times: unchanged contents are not sent
// again.
func TestHTTPAsSource(t *testing.T) {
	for _, etags := range []bool{true, false} {
		var mu sync.Mutex // guards file, at and sent
		file, at, sent := fileOf(t, lifecycle(t, 1)), noon, 0
		put := func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			file, at = b, at.Add(time.Minute)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if etags {
				w.Header().Set("ETag", `"`+at.Format(time.RFC3339)+`"`)
				http.ServeContent(counting{w, &sent}, r, "", time.Time{}, bytes.NewReader(file))
				return
			}
			http.ServeContent(counting{w, &sent}, r, "", at, bytes.NewReader(file))
		}))
		defer server.Close()
		w := NewWatcher(openHTTP(t, HTTPOptions{URL: server.URL + "/users.seg"}), WatcherOptions{})
		for range 3 {
			if err := w.Poll(t.Context()); err != nil || w.Set().Version() != 1 {
				t.Fatalf("%v", err)
			}
		}
		mu.Lock()
		if sent != len(file) {
			t.Errorf("etags %v: %d bytes were sent, the file has %d", etags, sent, len(file))
		}
		mu.Unlock()
		put(fileOf(t, lifecycle(t, 2)))
		if err := w.Poll(t.Context()); err != nil || w.Set().Version() != 2 {
			t.Errorf("etags %v: %v, version %d", etags, err, w.Set().Version())
		}
		three := fileOf(t, lifecycle(t, 3))
		put(three[:len(three)-5])
		if err := w.Poll(t.Context()); reasonOf(err) != RefusedTruncated || w.Set().Version() != 2 {
			t.Errorf("etags %v: truncated: %v, version %d", etags, err, w.Set().Version())
		}
	}
}

// counting counts the bytes of the bodies.
type counting struct {
	http.ResponseWriter
	n *int
}

func (c counting) Write(p []byte) (int, error) {
	*c.n += len(p)
	return c.ResponseWriter.Write(p)
}

// A connection that is cut is a failure, whatever the server announced; the next poll
// reads the file again.
func TestHTTPIsCut(t *testing.T) {
	file := fileOf(t, lifecycle(t, 1))
	var cut atomic.Bool
	for _, announced := range []bool{true, false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			if announced {
				http.ServeContent(truncating{w, cut.Load()}, r, "", time.Time{}, bytes.NewReader(file))
				return
			}
			_, _ = w.Write(file[:len(file)/2])
			w.(http.Flusher).Flush()
			if cut.Load() {
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write(file[len(file)/2:])
		}))
		defer server.Close()
		w := NewWatcher(openHTTP(t, HTTPOptions{URL: server.URL}), WatcherOptions{})
		cut.Store(true)
		if err := w.Poll(t.Context()); err == nil || reasonOf(err) != "" {
			t.Errorf("announced %v: %v", announced, err)
		}
		cut.Store(false)
		if err := w.Poll(t.Context()); err != nil || w.Set().Version() != 1 {
			t.Errorf("announced %v, again: %v", announced, err)
		}
	}
}

type truncating struct {
	http.ResponseWriter
	cut bool
}

func (w truncating) Write(p []byte) (int, error) {
	if w.cut {
		_, _ = w.ResponseWriter.Write(p[:len(p)/2])
		w.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return w.ResponseWriter.Write(p)
}

func TestHTTPErrors(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/users.seg", http.StatusFound)
	}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of the client that does not trust it
	secure.StartTLS()
	defer secure.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case r.Header.Get("Authorization") != "Bearer right":
			w.WriteHeader(http.StatusForbidden)
		case r.Header.Get("Accept-Encoding") != "identity":
			w.WriteHeader(http.StatusNotAcceptable)
		default:
			w.WriteHeader(http.StatusNotModified) // nobody asked for that
		}
	}))
	defer server.Close()
	token := func(s string, err error) func() (string, error) { return func() (string, error) { return s, err } }
	trusting := secure.Client().Transport.(*http.Transport).TLSClientConfig
	for _, tt := range []struct {
		why  string
		o    HTTPOptions
		text string
	}{
		{"no right", HTTPOptions{URL: server.URL + "/f"}, "403 Forbidden"},
		{"the wrong token", HTTPOptions{URL: server.URL + "/f", Token: token("wrong", nil)}, "403 Forbidden"},
		{"unchanged, without a tag", HTTPOptions{URL: server.URL + "/f", Token: token("right", nil)}, "304 Not Modified"},
		{"no token", HTTPOptions{URL: server.URL + "/f", Token: token("", errors.New("no file"))}, "the token: no file"},
		{"a circle", HTTPOptions{URL: server.URL + "/round"}, "more than 5 redirects"},
		{"a redirect to http", HTTPOptions{URL: secure.URL, TLS: trusting}, "a redirect from https to http"},
		{"a certificate of somebody else", HTTPOptions{URL: secure.URL}, "certificate"},
		{"nobody listens", HTTPOptions{URL: "http://127.0.0.1:1/f?X-Signature=SECRET"}, "connection refused"},
	} {
		_, err := openHTTP(t, tt.o).Open(t.Context(), "")
		if err == nil || !strings.Contains(err.Error(), tt.text) || errors.Is(err, ErrUnchanged) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.text)
		} else if strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s: a secret in %q", tt.why, err)
		}
	}
}

func TestHTTPOptionsAreChecked(t *testing.T) {
	token := func() (string, error) { return "t", nil }
	for _, tt := range []struct {
		o    HTTPOptions
		text string // empty = fine
	}{
		{HTTPOptions{URL: "https://cdn.example.com/users.seg?sig=SECRET", Token: token}, ""},
		{HTTPOptions{URL: "http://cdn.example.com/users.seg"}, ""},
		{HTTPOptions{URL: "http://localhost/users.seg", Token: token}, ""},
		{HTTPOptions{URL: "http://[::1]/users.seg", Token: token}, ""},
		{HTTPOptions{URL: "http://cdn.example.com/users.seg", Token: token}, "https only"},
		{HTTPOptions{URL: "https://u:SECRET@cdn.example.com/"}, "must not contain a user or password"},
		{HTTPOptions{URL: "ftp://cdn.example.com/"}, "not an http or https URL"},
		{HTTPOptions{URL: "https:///users.seg"}, "not an http or https URL"},
		{HTTPOptions{URL: "https://u:SECRET@%zz/"}, "not a URL"},
	} {
		h, err := NewHTTP(tt.o)
		if (err == nil) != (tt.text == "") || err != nil && (!strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "SECRET")) {
			t.Errorf("%s: %v, want %q", tt.o.URL, err, tt.text)
		}
		if err == nil && h.String() != strings.TrimSuffix(tt.o.URL, "?sig=SECRET") {
			t.Errorf("it is called %s", h)
		}
	}
}
