package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pushfleet/pushfleet/providers/sim"
)

// mirror answers with what it received, as a header and a body.
func mirror(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Request", fmt.Sprintf("%s %s %d %q", r.Method, r.RequestURI, r.ContentLength, r.Host))
	w.Header().Add("X-Two", "one")
	w.Header().Add("X-Two", "two")
	w.Header().Set("Trailer", "X-After")
	if r.Header.Get("X-Interim") != "" {
		w.WriteHeader(http.StatusEarlyHints)
	}
	w.Write(body)
	w.Header().Set("X-After", "1")
}

// client is an http.Client over a pool to s.
func client(t *testing.T, s *httptest.Server, opt Options) (*http.Client, *Pool) {
	t.Helper()
	opt.URL, opt.TLS = s.URL, roots(s)
	p := open(t, opt)
	return &http.Client{Transport: &Transport{Pool: p}}, p
}

func TestTransportSpeaksToNetHTTP(t *testing.T) {
	s := serve(t, mirror, nil)
	c, p := client(t, s, Options{Connections: 1})
	big := strings.Repeat("0123456789", 50_000) // several windows in each direction
	for _, tc := range []struct {
		name, method, target, body string
		length                     int64 // announced; -1 = not
		seen                       int64 // by the server
	}{
		{"no body", "GET", "/a?b=c%20d&e=%2F", "", 0, 0},
		{"an empty body that is announced", "POST", "/", "", 0, 0},
		{"a body", "POST", "/p", "hello", 5, 5},
		{"a body of unknown length", "PUT", "/p", "hello", -1, 5},
		{"a long one", "PATCH", "/p", big, int64(len(big)), int64(len(big))},
		{"a body where few have one", "DELETE", "/p", "x", 1, 1},
		{"a method of its own", "PROPFIND", "/", "", 0, 0},
		{"escapes", "GET", "/%41%20/../%2e", "", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequest(tc.method, s.URL+tc.target, iotest.OneByteReader(strings.NewReader(tc.body)))
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tc.length
			req.Header = http.Header{"X-Interim": {"1"}, "Connection": {"X-Named, close"}, "X-Named": {"1"}, "Te": {"gzip"}, "Keep-Alive": {"1"}}
			res, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if err != nil || string(body) != tc.body {
				t.Errorf("%d bytes, %v; want %d", len(body), err, len(tc.body))
			}
			res.Body.Close()
			want := fmt.Sprintf("%s %s %d %q", tc.method, tc.target, tc.seen, p.host)
			if got := res.Header.Get("X-Request"); got != want || res.StatusCode != 200 || res.Status != "200 OK" {
				t.Errorf("%q, status %q; want %q", got, res.Status, want)
			}
			if got := res.Header["X-Two"]; !reflect.DeepEqual(got, []string{"one", "two"}) || res.Header.Get("X-After") != "" || res.Header.Get("Trailer") != "" {
				t.Errorf("header %v", res.Header)
			}
			if res.TLS == nil || res.ProtoMajor != 2 || res.Request != req {
				t.Errorf("TLS %v, protocol %d", res.TLS, res.ProtoMajor)
			}
		})
	}
	if st := p.Stats(); st.Dials != 1 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestTransportHundredAtOnce(t *testing.T) {
	s := serve(t, mirror, &http.HTTP2Config{MaxConcurrentStreams: 30})
	c, p := client(t, s, Options{Connections: 3, Lanes: []Lane{{"only", 1, 10}}})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for k := range 10 {
				want := strings.Repeat(fmt.Sprintf("%d/%d ", i, k), 1+500*k)
				res, err := c.Post(s.URL+"/x", "text/plain", strings.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || string(got) != want {
					t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
				}
			}
		})
	}
	wg.Wait()
	if st := p.Stats(); st.InFlight != 0 || st.Waiting != 0 || st.Dials > 3 {
		t.Errorf("%+v", st)
	}
}

func TestTransportAnswersWithoutBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/head":
			w.Header().Set("Content-Length", "1234")
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/moved":
			http.Redirect(w, r, "/head", http.StatusFound)
		}
	}, nil)
	c, _ := client(t, s, Options{})
	for _, tc := range []struct {
		method, path string
		status       int
		length       int64
	}{{"HEAD", "/head", 200, 1234}, {"GET", "/none", 204, 0}, {"GET", "/absent", 200, 0}, {"HEAD", "/moved", 200, 1234}} {
		req, _ := http.NewRequest(tc.method, s.URL+tc.path, nil)
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if res.StatusCode != tc.status || len(b) != 0 || err != nil || tc.length != res.ContentLength {
			t.Errorf("%s %s: %d, %d bytes, %v, length %d", tc.method, tc.path, res.StatusCode, len(b), err, res.ContentLength)
		}
		res.Body.Close()
	}
}

func TestTransportStreamsTheAnswer(t *testing.T) {
	next := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprint(w, i)
			w.(http.Flusher).Flush()
			<-next
		}
	}, nil)
	c, _ := client(t, s, Options{})
	res, err := c.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for i := range 3 {
		b := make([]byte, 10)
		if n, err := res.Body.Read(b); string(b[:n]) != fmt.Sprint(i) || err != nil {
			t.Fatalf("part %d: %q, %v", i, b[:n], err)
		}
		next <- struct{}{}
	}
	if n, err := res.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
}

// The caller cancels at each point of an exchange. The server notices, and the
// stream is free for another request.
func TestTransportCancel(t *testing.T) {
	arrived, left := make(chan string, 10), make(chan string, 10)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/warm" {
			return
		}
		if r.URL.Path == "/body" {
			io.WriteString(w, "begins")
			w.(http.Flusher).Flush()
		}
		arrived <- r.URL.Path
		<-r.Context().Done()
		left <- r.URL.Path
	}, nil)
	c, p := client(t, s, Options{Connections: 1, StreamsPerConnection: 1, Timeout: time.Minute})
	must := func(ch chan string, what string) {
		t.Helper()
		select {
		case <-ch:
		case <-time.After(liveness):
			t.Fatal("the server did not see " + what)
		}
	}
	res, err := c.Get(s.URL + "/warm")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	why := errors.New("went home")
	do := func(ctx context.Context, path string) error {
		req, _ := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
		res, err := c.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.ReadAll(res.Body)
		return err
	}
	check := func(err error, o Outcome) {
		t.Helper()
		var e *RoundTripError
		if !errors.Is(err, why) || errors.As(err, &e) && e.Outcome != o {
			t.Errorf("%v", err)
		}
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- do(ctx, "/flying") }()
	must(arrived, "the request")
	// The only stream is taken, so this request waits in the queue.
	waits, cancelWaiting := context.WithCancelCause(t.Context())
	waiting := make(chan error, 1)
	go func() { waiting <- do(waits, "/waiting") }()
	for deadline := time.Now().Add(liveness); p.Stats().Waiting == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the second request does not wait")
		}
	}
	cancelWaiting(why)
	check(<-waiting, NotAccepted)
	cancel(why)
	check(<-ended, Ambiguous)
	must(left, "the reset")

	ctx, cancel = context.WithCancelCause(t.Context())
	go func() { ended <- do(ctx, "/body") }()
	must(arrived, "the request")
	cancel(why)
	check(<-ended, Ambiguous)
	must(left, "the reset in the body")

	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(why)
	check(do(ctx, "/never"), NotAccepted)
	short := &http.Client{Transport: c.Transport, Timeout: 2 * time.Second} // until it has been received
	_, err = short.Get(s.URL + "/slow")
	var timeout interface{ Timeout() bool }
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v is no time-out", err)
	}
	must(left, "the end of the slow one")
	if st := p.Stats(); st.InFlight != 0 || st.Waiting != 0 || st.Dials != 1 {
		t.Errorf("%+v", st)
	}
}

func TestTransportBodyClosedEarly(t *testing.T) {
	left := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 10_000)); err != nil {
				break
			}
		}
		close(left)
	}, nil)
	c, p := client(t, s, Options{})
	res, err := c.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(res.Body, make([]byte, 1_000_000)); err != nil {
		t.Fatal(n, err) // much more than a window
	}
	res.Body.Close()
	if _, err := res.Body.Read(make([]byte, 1)); err != http.ErrBodyReadAfterClose {
		t.Errorf("read after close: %v", err)
	}
	select {
	case <-left:
	case <-time.After(liveness):
		t.Fatal("the server still writes")
	}
	if st := p.Stats(); st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

// A request that must not be sent is refused: its body is closed, and nothing
// is written.
func TestTransportRefuses(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }, nil)
	_, p := client(t, s, Options{})
	tr := &Transport{Pool: p, MaxRequest: 10}
	broken := errors.New("broken")
	for name, change := range map[string]func(*http.Request){
		"another host":            func(r *http.Request) { r.URL.Host = "elsewhere.example" },
		"another port":            func(r *http.Request) { r.URL.Host = p.name + ":1" },
		"another Host header":     func(r *http.Request) { r.Host = "elsewhere.example" },
		"no TLS":                  func(r *http.Request) { r.URL.Scheme = "http" },
		"CONNECT":                 func(r *http.Request) { r.Method = "CONNECT" },
		"a space in the method":   func(r *http.Request) { r.Method = "GET /x" },
		"a line end in the path":  func(r *http.Request) { r.URL.Opaque = "/a\r\nb" },
		"a fragment":              func(r *http.Request) { r.URL.Opaque = "/a#b" },
		"a space in the query":    func(r *http.Request) { r.URL.RawQuery = "a b" },
		"no slash":                func(r *http.Request) { r.URL.Opaque = "a" },
		"a line end in a header":  func(r *http.Request) { r.Header.Set("X", "a\r\nb: c") },
		"a space in a name":       func(r *http.Request) { r.Header["A B"] = []string{"x"} },
		"a pseudo header":         func(r *http.Request) { r.Header[":path"] = []string{"/x"} },
		"a long body":             func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("12345678901")) },
		"less than was announced": func(r *http.Request) { r.ContentLength = 9 },
		"a body that breaks":      func(r *http.Request) { r.Body = io.NopCloser(iotest.ErrReader(broken)) },
	} {
		t.Run(name, func(t *testing.T) {
			req, _ := http.NewRequest("POST", s.URL+"/x", nil)
			req.Body = io.NopCloser(strings.NewReader("12345"))
			change(req)
			closed := &closeCounter{ReadCloser: req.Body}
			req.Body = closed
			res, err := tr.RoundTrip(req)
			var e *RoundTripError
			if !errors.As(err, &e) || e.Outcome != NotAccepted || !errors.Is(err, ErrMalformed) && !errors.Is(err, broken) {
				t.Errorf("%v, %v", res, err)
			}
			if closed.n != 1 {
				t.Errorf("body closed %d times", closed.n)
			}
		})
	}
	if st := p.Stats(); st.Dials != 0 {
		t.Errorf("%+v", st)
	}
}

type closeCounter struct {
	io.ReadCloser
	n int
}

func (c *closeCounter) Close() error {
	c.n++
	return c.ReadCloser.Close()
}

// A caller that cancels does not wait for its own body.
func TestTransportCancelWhileReadingTheRequest(t *testing.T) {
	s := serve(t, mirror, nil)
	c, _ := client(t, s, Options{})
	from, to := io.Pipe()
	defer to.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", s.URL, from)
	if _, err := c.Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestTransportPoolClosed(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begins")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}, nil)
	c, p := client(t, s, Options{})
	res, err := c.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	p.Close(ctx)
	if b, err := io.ReadAll(res.Body); !bytes.Equal(b, []byte("begins")) || !errors.Is(err, ErrClosed) {
		t.Errorf("%q, %v", b, err)
	}
	var e *RoundTripError
	if _, err := c.Get(s.URL); !errors.Is(err, ErrClosed) || !errors.As(err, &e) || e.Outcome != NotAccepted {
		t.Errorf("%v", err)
	}
}

// Pushes and the simulator's error bodies work through net/http as well.
func TestTransportToTheSimulator(t *testing.T) {
	s, err := sim.New(sim.Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &Transport{Pool: open(t, Options{URL: s.URL(), TLS: s.ClientTLS(), Connections: 2})}}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			res, err := c.Post(fmt.Sprintf("%s/3/device/%064x", s.URL(), i), "application/json", bytes.NewReader(benchBody))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 || len(b) != 0 || res.Header.Get("Apns-Id") == "" {
				t.Errorf("%d, %q, %v, header %v", res.StatusCode, b, err, res.Header)
			}
		})
	}
	wg.Wait()
	if n := s.Ledger().Totals().Accepted; n != 100 {
		t.Errorf("%d accepted", n)
	}
	res, err := c.Post(s.URL()+"/token", "application/x-www-form-urlencoded", strings.NewReader("grant_type=x"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 400 || !bytes.Contains(b, []byte(`"error"`)) {
		t.Errorf("%d, %q, %v", res.StatusCode, b, err)
	}
}
