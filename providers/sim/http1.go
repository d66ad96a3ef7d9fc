package sim

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// bodyLimit is far above what any provider takes: a longer body is cut here
// and refused as too large by the policy.
const bodyLimit = 64 << 10

// http1Engine serves HTTP/1.1, by net/http: Google speaks it too, and OAuth
// clients often do. It gets its connections from the frameEngine, after their
// handshake.
type http1Engine struct {
	policy    *policy
	server    *http.Server
	exchanges sync.Pool          // of *exchange
	cancel    context.CancelFunc // ends the waiting of slow answers

	running sync.RWMutex // held for reading by every handler, so that close can wait
	closed  bool
}

// http1Conn carries the policies' memory of a connection through net/http.
type http1Conn struct {
	*tls.Conn
	memory *Conn
	first  []byte // what was read already
}

// Read implements net.Conn.
func (c *http1Conn) Read(b []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.first)
	c.first = c.first[n:]
	return n, nil
}

// exchange is the memory of one request and its answer.
type exchange struct {
	req  Request
	ans  Answer
	body []byte
}

type connKey struct{}

func newHTTP1Engine(p *policy) *http1Engine {
	e := &http1Engine{policy: p}
	e.exchanges.New = func() any { return &exchange{body: make([]byte, 0, 4<<10)} }
	base, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	e.server = &http.Server{
		Handler:           e,
		Protocols:         protocols,
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // what clients do wrong is theirs to report
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			memory := NewConn()
			if own, ok := c.(*http1Conn); ok {
				memory = own.memory
			}
			return context.WithValue(ctx, connKey{}, memory)
		},
	}
	return e
}

func (e *http1Engine) shutdown(ctx context.Context) error { return e.server.Shutdown(ctx) }

// close drops all connections and waits for the handlers to notice.
func (e *http1Engine) close() error {
	e.cancel()
	err := e.server.Close()
	e.running.Lock()
	e.closed = true
	e.running.Unlock()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// ServeHTTP carries one request to the policy and its answer back.
func (e *http1Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.running.RLock()
	defer e.running.RUnlock()
	if e.closed {
		panic(http.ErrAbortHandler)
	}
	if providerOf(r.URL.Path) == APNS {
		http.Error(w, "APNs speaks HTTP/2 only", http.StatusHTTPVersionNotSupported)
		return
	}
	x := e.exchanges.Get().(*exchange)
	defer e.exchanges.Put(x)
	if !x.read(r) {
		panic(http.ErrAbortHandler) // the client went away in the middle
	}
	e.policy.Answer(&x.req, &x.ans)
	if e.act(&x.ans); !wait(r.Context(), x.ans.Latency) {
		if x.ans.act == nil || x.ans.act.Do != DoHang { // then it has been counted
			e.policy.dropped(x.req.Conn, 0, x.ans.decided, false)
		}
		panic(http.ErrAbortHandler) // returning would answer 200
	}
	x.write(w)
}

// act does what there is in HTTP/1.1 of an act: never answering, and ending the
// connection instead of answering.
func (e *http1Engine) act(ans *Answer) {
	if ans.act == nil {
		return
	}
	switch ans.act.Do {
	case DoHang, DoMute, DoStall, DoBlackHole:
		ans.Latency = 1<<63 - 1
	case DoKill, DoAbandon, DoDisconnect:
		ans.Latency = -1
	}
}

// read takes a request apart. It reports false when the body broke off.
func (x *exchange) read(r *http.Request) bool {
	var err error
	if x.body, err = readAll(x.body[:0], io.LimitReader(r.Body, bodyLimit)); err != nil {
		return false
	}
	x.req = Request{Method: r.Method, Path: r.RequestURI, Fields: x.req.Fields[:0], Body: x.body}
	x.req.Conn, _ = r.Context().Value(connKey{}).(*Conn)
	for name, values := range r.Header {
		name = strings.ToLower(name)
		for _, v := range values {
			x.req.Fields = append(x.req.Fields, Field{name, v})
		}
	}
	return true
}

func (x *exchange) write(w http.ResponseWriter) {
	h := w.Header()
	h["Date"] = nil // it goes by another clock; the policy's is among the fields
	for _, f := range x.ans.Fields {
		// net/http may write them after the answer's memory is another one's.
		h[http.CanonicalHeaderKey(f.Name)] = []string{strings.Clone(f.Value)}
	}
	w.WriteHeader(x.ans.Status)
	if len(x.ans.Body) > 0 {
		_, _ = w.Write(x.ans.Body) // a client that is gone reads no answer
	}
}

// readAll is io.ReadAll into memory that is there already.
func readAll(b []byte, r io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// wait lets the latency pass. It reports false when it is negative, or when
// nobody waits any more.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return d == 0 && ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
