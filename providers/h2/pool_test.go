package h2

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// liveness ends a wait that hangs. It is not an expectation: the machine may be
// busy.
const liveness = time.Minute

// serve starts an HTTP/2 server on loopback.
func serve(t *testing.T, h http.HandlerFunc, conf *http.HTTP2Config) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.HTTP2 = conf
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func roots(s *httptest.Server) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return &tls.Config{RootCAs: pool}
}

// open makes a pool that is closed with the test, for a server with Apple's rule.
func open(t *testing.T, opt Options) *Pool {
	t.Helper()
	if opt.Unauthenticated == nil {
		opt.Unauthenticated = func(*Answer) bool { return true }
	}
	return openAsIs(t, opt)
}

// openAsIs makes a pool that is closed with the test.
func openAsIs(t *testing.T, opt Options) *Pool {
	t.Helper()
	if opt.Lanes == nil {
		opt.Lanes = []Lane{{"only", 1, 10_000}}
	}
	p, err := NewPool(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Close(ctx)
	})
	return p
}

func post(path string) *Request {
	return &Request{
		Path:   []byte(path),
		Header: []Field{{Name: "x-name", Value: []byte(path)}},
		Body:   []byte(`{"path":"` + path + `"}`),
	}
}

// ledger collects requests that are handed back, and fails if one comes twice.
type ledger struct {
	t    *testing.T
	mu   sync.Mutex
	seen map[*Request]bool
	got  []*Request
	all  chan struct{}
	want int
}

func newLedger(t *testing.T, want int) *ledger {
	return &ledger{t: t, seen: map[*Request]bool{}, want: want, all: make(chan struct{})}
}

func (l *ledger) done(rs []*Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rs {
		if l.seen[r] {
			l.t.Errorf("%s handed back twice", r.Path)
		}
		l.seen[r] = true
		l.got = append(l.got, r)
		if len(l.got) == l.want {
			close(l.all)
		}
	}
}

func (l *ledger) wait() {
	l.t.Helper()
	select {
	case <-l.all:
	case <-time.After(liveness):
		l.mu.Lock()
		defer l.mu.Unlock()
		l.t.Fatalf("%d of %d handed back", len(l.got), l.want)
	}
}

// send submits requests and waits for all of them.
func send(t *testing.T, p *Pool, rs ...*Request) {
	t.Helper()
	l := newLedger(t, len(rs))
	if n, err := p.Submit(t.Context(), 0, rs, l.done); n != len(rs) || err != nil {
		t.Fatalf("Submit: %d, %v", n, err)
	}
	l.wait()
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("apns-id", r.Header.Get("x-name"))
	w.Header().Set("unasked", "1")
	w.WriteHeader(http.StatusOK)
	w.Write(body)
}

func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	s := serve(t, echo, nil)
	p := open(t, Options{URL: s.URL, TLS: roots(s), Connections: 10, StreamsPerConnection: 50, Timeout: time.Minute, AnswerHeaders: []string{"apns-id", "retry-after"}})
	rs := make([]*Request, 2000)
	for i := range rs {
		rs[i] = post(fmt.Sprintf("/3/device/%d", i))
	}
	for round := range 2 { // the second round reuses all memory
		send(t, p, rs...)
		for _, r := range rs {
			path := string(r.Path)
			if r.Outcome != Answered || r.Err != nil || r.Answer.Status != 200 {
				t.Fatalf("round %d, %s: %v, %v, status %d", round, path, r.Outcome, r.Err, r.Answer.Status)
			}
			if string(r.Answer.Body) != string(r.Body) || string(r.Answer.Header[0]) != path || len(r.Answer.Header[1]) > 0 || len(r.Answer.Header) != 2 {
				t.Fatalf("round %d, %s: another's answer: %q %q", round, path, r.Answer.Body, r.Answer.Header)
			}
		}
	}
	if st := p.Stats(); st.Waiting != 0 || st.InFlight != 0 || st.Dials > 10 || st.Connections < 2 {
		t.Errorf("after all: %+v", st)
	}
}

func TestFirstRequestGoesAlone(t *testing.T) {
	var mu sync.Mutex
	flying, answered := map[string]int{}, map[string]bool{}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		flying[r.RemoteAddr]++
		if flying[r.RemoteAddr] > 1 && !answered[r.RemoteAddr] {
			t.Error("a second request before the first answer on a connection")
		}
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		flying[r.RemoteAddr]--
		answered[r.RemoteAddr] = true
		mu.Unlock()
	}, nil)
	p := open(t, Options{URL: s.URL, TLS: roots(s), Connections: 3})
	rs := make([]*Request, 200)
	for i := range rs {
		rs[i] = post("/a")
	}
	send(t, p, rs...)
}

func TestServersStreamLimitIsObeyed(t *testing.T) {
	var flying, most atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := flying.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Millisecond)
		flying.Add(-1)
	}, &http.HTTP2Config{MaxConcurrentStreams: 7})
	p := open(t, Options{URL: s.URL, TLS: roots(s), Connections: 1})
	rs := make([]*Request, 100)
	for i := range rs {
		rs[i] = post("/a")
	}
	send(t, p, rs...)
	for _, r := range rs {
		if r.Outcome != Answered {
			t.Fatalf("%v: %v", r.Outcome, r.Err)
		}
	}
	if most.Load() > 7 || p.Stats().Dials != 1 {
		t.Errorf("%d in flight at once over %d connections; the server grants 7 on one", most.Load(), p.Stats().Dials)
	}
}

func TestServerKilledInFlightIsAmbiguous(t *testing.T) {
	arrived := make(chan struct{}, 100)
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if string(r.URL.Path) == "/warm" {
			return
		}
		io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-release
	}, nil)
	defer close(release)
	p := open(t, Options{URL: s.URL, TLS: roots(s), Connections: 1})
	send(t, p, post("/warm"))
	rs := []*Request{post("/a"), post("/b"), post("/c")}
	l := newLedger(t, len(rs))
	if _, err := p.Submit(t.Context(), 0, rs, l.done); err != nil {
		t.Fatal(err)
	}
	for range rs {
		<-arrived
	}
	s.CloseClientConnections()
	l.wait()
	for _, r := range rs {
		if r.Outcome != Ambiguous || !errors.Is(r.Err, ErrConnectionLost) {
			t.Errorf("%s: %v, %v; want ambiguous, connection lost", r.Path, r.Outcome, r.Err)
		}
	}
}

func TestNoServerIsNotAccepted(t *testing.T) {
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
	p := open(t, Options{URL: "https://push.example", Connections: 2, Dial: refuse, Timeout: 300 * time.Millisecond, Backoff: 10 * time.Millisecond, MaxBackoff: 20 * time.Millisecond})
	r := post("/a")
	expired := post("/b")
	expired.Expires = time.Now().Add(50 * time.Millisecond)
	send(t, p, r, expired)
	if r.Outcome != NotAccepted || !errors.Is(r.Err, ErrNotConnected) {
		t.Errorf("%v, %v; want not accepted, not connected", r.Outcome, r.Err)
	}
	if r.Conn == 0 || int64(r.Conn) > p.Stats().Dials {
		t.Errorf("over connection %d, want that of the latest dial, %d", r.Conn, p.Stats().Dials)
	}
	if expired.Outcome != ExpiredUnsent {
		t.Errorf("expired: %v, %v", expired.Outcome, expired.Err)
	}
	if st := p.Stats(); st.DialFailures == 0 || st.Connections != 0 {
		t.Errorf("%+v", st)
	}
}

func TestSilenceUntilTheDeadlineIsAmbiguous(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/silent" {
			<-release
		}
	}, nil)
	defer close(release)
	p := open(t, Options{URL: s.URL, TLS: roots(s), Connections: 1})
	send(t, p, post("/warm"))
	silent, expired, late := post("/silent"), post("/x"), post("/y")
	silent.Deadline = time.Now().Add(2 * time.Second) // until it is written
	expired.Expires = time.Now().Add(-time.Second)
	late.Deadline = time.Now().Add(-time.Second)
	send(t, p, silent, expired, late)
	if silent.Outcome != Ambiguous || !errors.Is(silent.Err, ErrDeadline) {
		t.Errorf("silent: %v, %v", silent.Outcome, silent.Err)
	}
	if expired.Outcome != ExpiredUnsent {
		t.Errorf("expired: %v, %v", expired.Outcome, expired.Err)
	}
	if late.Outcome != NotAccepted || !errors.Is(late.Err, ErrDeadline) {
		t.Errorf("late: %v, %v", late.Outcome, late.Err)
	}
	again := post("/ok")
	send(t, p, again)
	if again.Outcome != Answered || p.Stats().Dials != 1 {
		t.Errorf("after a deadline the connection goes on: %v, %d dials", again.Outcome, p.Stats().Dials)
	}
}

func TestMalformedNeverReachesTheWire(t *testing.T) {
	var hits atomic.Int64
	s := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) }, nil)
	p := open(t, Options{URL: s.URL, TLS: roots(s)})
	bad := post("/3/device/../x")
	inject := post("/ok")
	inject.Header = append(inject.Header, Field{Name: "apns-collapse-id", Value: []byte("a\r\nb: c")})
	good := post("/ok")
	send(t, p, bad, good, inject)
	for _, r := range []*Request{bad, inject} {
		if r.Outcome != NotAccepted || !errors.Is(r.Err, ErrMalformed) {
			t.Errorf("%v, %v", r.Outcome, r.Err)
		}
	}
	if good.Outcome != Answered || hits.Load() != 1 {
		t.Errorf("neighbour: %v, %d requests arrived", good.Outcome, hits.Load())
	}
}

func TestResendUsesAnotherConnection(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("peer", r.RemoteAddr)
	}, nil)
	p := open(t, Options{URL: s.URL, TLS: roots(s), Connections: 1, AnswerHeaders: []string{"peer"}})
	r := post("/a")
	var peers []string
	done := make(chan struct{})
	again := func(rs []*Request) {
		peers = append(peers, string(rs[0].Answer.Header[0]))
		if len(peers) == 3 {
			close(done)
			return
		}
		p.Resend(rs[0], true)
	}
	if _, err := p.Submit(t.Context(), 0, []*Request{r}, again); err != nil {
		t.Fatal(err)
	}
	<-done
	if peers[0] == peers[1] || peers[1] == peers[2] {
		t.Errorf("a retired connection was used again: %v", peers)
	}
	if n := p.Stats().Resent; n != 2 {
		t.Errorf("%d requests were sent again, want 2", n)
	}
}

func TestCloseFinishesWhatIsInFlight(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/warm" {
			arrived <- struct{}{}
			<-release
		}
	}, nil)
	p := open(t, Options{URL: s.URL, TLS: roots(s), Connections: 1, StreamsPerConnection: 1})
	send(t, p, post("/warm"))
	flying, waiting := post("/flying"), post("/waiting")
	l := newLedger(t, 2)
	if _, err := p.Submit(t.Context(), 0, []*Request{flying, waiting}, l.done); err != nil {
		t.Fatal(err)
	}
	<-arrived
	closed := make(chan error, 1)
	go func() { closed <- p.Close(context.Background()) }()
	for p.Stats().Waiting > 0 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	l.wait()
	if flying.Outcome != Answered {
		t.Errorf("in flight: %v, %v", flying.Outcome, flying.Err)
	}
	if waiting.Outcome != NotAccepted || !errors.Is(waiting.Err, ErrClosed) {
		t.Errorf("waiting: %v, %v", waiting.Outcome, waiting.Err)
	}
	if n, err := p.Submit(t.Context(), 0, []*Request{post("/x")}, l.done); n != 0 || !errors.Is(err, ErrClosed) {
		t.Errorf("Submit after Close: %d, %v", n, err)
	}
	if err := p.Close(context.Background()); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestCloseCutsAtItsDeadline(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
	}, nil)
	defer close(release)
	p := open(t, Options{URL: s.URL, TLS: roots(s)})
	r := post("/a")
	l := newLedger(t, 1)
	if _, err := p.Submit(t.Context(), 0, []*Request{r}, l.done); err != nil {
		t.Fatal(err)
	}
	<-arrived
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	if r.Outcome != Ambiguous || !errors.Is(r.Err, ErrClosed) {
		t.Errorf("%v, %v; want ambiguous, closed", r.Outcome, r.Err)
	}
}

func TestBackoffStaysBelowItsCeiling(t *testing.T) {
	highest := func(n int64) int64 { return n - 1 }
	for failures, want := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond, 9: 25600 * time.Millisecond, 10: 30 * time.Second, 1000: 30 * time.Second} {
		if got := backoff(100*time.Millisecond, 30*time.Second, failures, highest); got != want {
			t.Errorf("after %d failures: at most %v, want %v", failures, got, want)
		}
	}
}
