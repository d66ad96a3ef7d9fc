package engine

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

// bodyLimit is far above what a push takes: a longer body is cut here, and for
// the session to refuse.
const bodyLimit = 64 << 10

// http1Server serves HTTP/1.1, by net/http. It gets its connections from the
// Engine, after their handshake.
type http1Server struct {
	now       func() time.Time
	only2     func(path string) string
	server    *http.Server
	exchanges sync.Pool          // of *exchange
	cancel    context.CancelFunc // ends the waiting of slow answers

	running sync.RWMutex // held for reading by every handler, so that close can wait
	closed  bool
}

// http1Conn carries the session of a connection through net/http.
type http1Conn struct {
	*tls.Conn
	session Answers
	first   []byte // what was read already
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

// exchange is the memory of one request.
type exchange struct {
	req  Request
	body []byte
}

type sessionKey struct{}

func newHTTP1Server(o *Options) *http1Server {
	e := &http1Server{now: o.Now, only2: o.HTTP2Only}
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
			return context.WithValue(ctx, sessionKey{}, c.(*http1Conn).session) // handedOver has no others
		},
	}
	return e
}

func (e *http1Server) shutdown(ctx context.Context) error { return e.server.Shutdown(ctx) }

// close drops all connections and waits for the handlers to notice.
func (e *http1Server) close() error {
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

// ServeHTTP carries one request to its session and the answer back.
func (e *http1Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.running.RLock()
	defer e.running.RUnlock()
	if e.closed {
		panic(http.ErrAbortHandler)
	}
	if why := e.only2(r.URL.Path); why != "" {
		http.Error(w, why, http.StatusHTTPVersionNotSupported)
		return
	}
	x := e.exchanges.Get().(*exchange)
	defer e.exchanges.Put(x)
	if !x.read(r) {
		panic(http.ErrAbortHandler) // the client went away in the middle
	}
	x.req.At = e.now()
	session := r.Context().Value(sessionKey{}).(Answers)
	ans := session.Answer(&x.req)
	if !wait(r.Context(), ans) {
		if !ans.Never {
			session.Dropped(0, ans.Receipt, false)
		}
		panic(http.ErrAbortHandler) // returning would answer 200
	}
	write(w, ans)
}

// read takes a request apart. It reports false when the body broke off.
func (x *exchange) read(r *http.Request) bool {
	var err error
	if x.body, err = readAll(x.body[:0], io.LimitReader(r.Body, bodyLimit)); err != nil {
		return false
	}
	x.req = Request{Method: r.Method, Path: r.RequestURI, Fields: x.req.Fields[:0], Body: x.body}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		for _, v := range values {
			x.req.Fields = append(x.req.Fields, Field{name, v})
		}
	}
	return true
}

func write(w http.ResponseWriter, ans *Answer) {
	h := w.Header()
	h["Date"] = nil // it goes by another clock; the session's, if any, is among the fields
	for _, f := range ans.Fields {
		// net/http may write them after the answer's memory is another one's.
		h[http.CanonicalHeaderKey(f.Name)] = []string{strings.Clone(f.Value)}
	}
	w.WriteHeader(ans.Status)
	if len(ans.Body) > 0 {
		_, _ = w.Write(ans.Body) // a client that is gone reads no answer
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

// wait lets the latency pass. It reports false when there is to be no answer,
// at once or after nobody waits any more.
func wait(ctx context.Context, ans *Answer) bool {
	d := ans.Latency
	switch {
	case ans.Cut:
		return false
	case ans.Never:
		d = Forever
	case d <= 0:
		return ctx.Err() == nil
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
