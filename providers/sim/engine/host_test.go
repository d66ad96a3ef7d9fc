package engine

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

// refusal is what a host answers to all.
const refusal = `{"reason":"MissingTopic"}`

// head is of a request that a host answers.
var head = []string{":method=POST", ":scheme=https", ":authority=x", ":path=/push"}

// host answers all requests alike and counts what becomes of them.
type host struct {
	latency time.Duration
	streams int // 0 means 1000

	engine  *Engine
	address string
	roots   *x509.CertPool

	mu         sync.Mutex
	received   []string // bodies
	dropped    []uint32 // streams
	complaints []string
}

// guest is the session of one connection to a host.
type guest struct {
	*host
	ans Answer
}

func (g *guest) Answer(r *Request) *Answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.received = append(g.received, string(r.Body))
	g.ans.Reset()
	g.ans.Status, g.ans.Latency = 400, g.latency
	if r.Method == "GET" {
		g.ans.Status = 405
	}
	g.ans.Fields = append(g.ans.Fields, Field{"content-type", g.ans.Keep([]byte("application/json"))})
	g.ans.Body = append(g.ans.Body, refusal...)
	return &g.ans
}

func (g *guest) Dropped(stream uint32, _ Receipt, _ bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropped = append(g.dropped, stream)
}

func (g *guest) Begin(*Conn) int {
	if g.streams == 0 {
		return 1000
	}
	return g.streams
}

func (g *guest) Complained(_ uint32, what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.complaints = append(g.complaints, what)
}

func (g *guest) Over(h Held, stream, _ uint32) { h.Refuse(stream) }
func (g *guest) Adjust(Held)                   {}
func (g *guest) Queued(uint32)                 {}
func (g *guest) Pinged(Held)                   {}
func (g *guest) Idle(Held) time.Duration       { return 0 }

// counts are how many requests came, how many answers were dropped, and what
// the client did wrong.
func (h *host) counts() (received, dropped int, complaints []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.received), len(h.dropped), h.complaints
}

// start serves until the end of the test.
func (h *host) start(t testing.TB) {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil) // it has a certificate
	certified.StartTLS()
	certified.Close()
	h.roots = x509.NewCertPool()
	h.roots.AddCert(certified.Certificate())
	h.engine = New(Options{Certificate: certified.TLS.Certificates[0], Now: time.Now, HTTP2Only: func(string) string { return "" }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = l.Addr().String()
	served := make(chan error)
	go func() { served <- h.engine.Serve(l, func(Client) Session { return &guest{host: h} }) }()
	t.Cleanup(func() {
		if err := h.engine.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
}

// dial connects, offering protocols by ALPN.
func (h *host) dial(t testing.TB, protocols ...string) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", h.address, &tls.Config{RootCAs: h.roots, NextProtos: protocols})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // may be closed by the server already
	return conn
}

// wire is a client on the level of frames, with its server.
type wire struct {
	*wiretest.Client
	host *host
}

func dialWire(t testing.TB, h *host, settings ...http2.Setting) *wire {
	t.Helper()
	h.start(t)
	return &wire{wiretest.New(t, h.dial(t, http2.NextProtoTLS), head, settings...), h}
}
