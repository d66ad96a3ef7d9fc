package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// caller posts to servers of this machine.
func caller(t *testing.T, s *httptest.Server, check func(netip.Addr) error) (*Caller, *Endpoint) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c := NewCaller(CallerOptions{Timeout: 300 * time.Millisecond, AtOnce: 4, Check: check, Roots: roots, Agent: "pushfleet/test", Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	t.Cleanup(c.Close)
	key, err := ParseSecret(secretA)
	if err != nil {
		t.Fatal(err)
	}
	return c, &Endpoint{URL: s.URL + "/secret-path", Secrets: [][]byte{key}}
}

func anywhere(netip.Addr) error { return nil }

func server(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // else nobody notices that the caller has gone
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// A call is what Standard Webhooks say, and its answer is its status.
func TestPost(t *testing.T) {
	var got *http.Request
	var body string
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
		w.WriteHeader(http.StatusAccepted)
	})
	c, to := caller(t, s, anywhere)
	a := c.Post(t.Context(), to, &Call{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", Body: []byte(`{"test": 2432232314}`), At: time.Unix(1614265330, 0)})
	if !a.Delivered() || a.Status != 202 || a.RetryAfter != 0 {
		t.Fatalf("%+v", a)
	}
	for name, want := range map[string]string{"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330", "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		"content-type": "application/json", "user-agent": "pushfleet/test", "accept-encoding": ""} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q", name, got.Header.Get(name))
		}
	}
	if got.Method != "POST" || body != `{"test": 2432232314}` || got.ContentLength != int64(len(body)) || got.URL.Path != "/secret-path" {
		t.Errorf("%s %s %q", got.Method, got.URL, body)
	}
}

// What an endpoint does wrong is no delivery, ends in time, and is told without its URL.
func TestEndpointsThatMisbehave(t *testing.T) {
	elsewhere := server(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	hijack := func(raw string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, raw)
			_ = conn.Close()
		}
	}
	for what, tt := range map[string]struct {
		serve      http.HandlerFunc
		status     int
		retryAfter time.Duration
		word       string
	}{
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, 307, 0, "answered 307"},
		"429 with seconds": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(429)
		}, 429, 2 * time.Minute, "answered 429"},
		"503 with a date": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", time.Unix(1_800_000_030, 0).UTC().Format(http.TimeFormat))
			w.WriteHeader(503)
		}, 503, 30 * time.Second, "answered 503"},
		"429 for ever": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "2147483647")
			w.WriteHeader(429)
		}, 429, time.Hour, "answered 429"},
		"429 with garbage": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "-1")
			w.WriteHeader(429)
		}, 429, 0, "answered 429"},
		"500 with Retry-After": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(500)
		}, 500, 0, "answered 500"},
		// It stays silent when the caller leaves, too: a mere return would answer 200, which may
		// arrive while the connection is being closed.
		"silence":       {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); panic(http.ErrAbortHandler) }, 0, 0, "no answer in time"},
		"garbage":       {hijack("\x00\x01 no HTTP\r\n\r\n"), 0, 0, "no answer that is HTTP"},
		"a hang-up":     {hijack(""), 0, 0, "no answer that is HTTP"},
		"a huge header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 2*mostHeader)) }, 0, 0, "no answer that is HTTP"},
		"an endless body": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, 500, 0, "answered 500"},
		"a body that trickles": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, 200, 0, "answered 200"},
	} {
		s := server(t, tt.serve)
		c, to := caller(t, s, anywhere)
		a := c.Post(t.Context(), to, &Call{ID: "id", Body: []byte("{}"), At: time.Now()})
		if a.Status != tt.status || a.RetryAfter != tt.retryAfter || a.Word != tt.word {
			t.Errorf("%s: %+v", what, a)
		}
		if a.Delivered() != (tt.status == 200) || strings.Contains(a.Word, "secret-path") {
			t.Errorf("%s: %+v", what, a)
		}
	}
}

// An address inside is not dialled, whatever name it has, and a certificate of nobody is
// not trusted.
func TestWhatIsNotCalled(t *testing.T) {
	s := server(t, func(http.ResponseWriter, *http.Request) { t.Error("it was called") })
	c, to := caller(t, s, CheckAddress)
	if a := c.Post(t.Context(), to, &Call{Body: []byte("{}")}); a.Status != 0 || !strings.Contains(a.Word, "127.0.0.1 is no address of the public internet") {
		t.Errorf("an address: %+v", a)
	}
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	to.URL = "https://localhost:" + port + "/"
	if a := c.Post(t.Context(), to, &Call{Body: []byte("{}")}); a.Status != 0 || !strings.Contains(a.Word, "is no address of the public internet") {
		t.Errorf("a name: %+v", a)
	}
	strict := NewCaller(CallerOptions{Timeout: time.Second, AtOnce: 1, Check: anywhere, Now: time.Now})
	defer strict.Close()
	to.URL = s.URL
	if a := strict.Post(t.Context(), to, &Call{Body: []byte("{}")}); a.Status != 0 || a.Word != "its certificate is not to be trusted" {
		t.Errorf("a certificate of nobody: %+v", a)
	}
	old := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was called") }))
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.Config.ErrorLog = log.New(io.Discard, "", 0)
	old.StartTLS()
	defer old.Close()
	c, to = caller(t, old, anywhere)
	if a := c.Post(t.Context(), to, &Call{Body: []byte("{}")}); a.Status != 0 {
		t.Errorf("TLS 1.1: %+v", a)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if a := c.Post(ended, to, &Call{Body: []byte("{}")}); a.Status != 0 || a.Word != "given up" {
		t.Errorf("given up: %+v", a)
	}
	to.URL = "https://%zz"
	if a := c.Post(t.Context(), to, &Call{}); a.Status != 0 {
		t.Errorf("no URL: %+v", a)
	}
}
