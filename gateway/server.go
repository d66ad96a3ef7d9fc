package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

// ServerOptions bound the connections of callers.
type ServerOptions struct {
	TLS         *tls.Config   // nil = without
	Connections int           // open at once; more wait to be accepted
	Header      int           // bytes of a request's header, somewhat more are read
	HeaderTime  time.Duration // for a request's header to arrive
	BodyTime    time.Duration // for a request to arrive, header included
	WriteTime   time.Duration // from the header's end to the end of the answer
	IdleTime    time.Duration // between two requests
}

// streams is how many requests a connection of HTTP/2 may have under way.
const streams = 100

// Server is the gateway at an address.
type Server struct {
	inbox  *Inbox // nil = nobody waits for something new
	server http.Server
	served chan error // closed by the goroutine that serves
	addr   net.Addr
}

// Serve answers callers on a listener, which it closes, until Close.
func (g *Gateway) Serve(l net.Listener, o ServerOptions) *Server {
	s := &Server{inbox: g.o.Inbox, served: make(chan error, 1), addr: l.Addr()}
	s.server = http.Server{Handler: g, TLSConfig: o.TLS, ReadHeaderTimeout: o.HeaderTime, ReadTimeout: o.BodyTime, WriteTimeout: o.WriteTime,
		IdleTimeout: o.IdleTime, MaxHeaderBytes: o.Header, ErrorLog: log.New(serverLog{g.o.Log}, "", 0),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}}
	bounded := &boundedListener{Listener: l, places: make(chan struct{}, o.Connections), closed: make(chan struct{}), metrics: g.o.Metrics}
	go func() {
		defer close(s.served)
		if o.TLS != nil {
			s.served <- s.server.ServeTLS(bounded, "", "")
			return
		}
		s.served <- s.server.Serve(bounded)
	}()
	return s
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Ended gets the error with which serving ended; http.ErrServerClosed after Close.
func (s *Server) Ended() <-chan error { return s.served }

// Close takes no new request, waits until those under way are answered or ctx ends, and
// then closes what is left.
func (s *Server) Close(ctx context.Context) {
	if s.inbox != nil {
		s.inbox.Watcher.Close() // who waits for something new is answered now
	}
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	for range s.served { // until it is closed
	}
}

// serverLog passes on what net/http says of connections. It may quote a caller's bytes,
// so that only its first words are kept, at debug level.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Write(p []byte) (int, error) {
	l.log.Debug("connection of a caller", "says", strconv.QuoteToASCII(string(p[:min(len(p), 80)])))
	return len(p), nil
}

// ServeHTTP implements http.Handler: it bounds what is under way, and gives every answer
// that is none as a problem.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	e, problem := g.find(r)
	rw := &recorder{ResponseWriter: w, status: http.StatusOK}
	defer func() { e.answered(rw.status, time.Since(start)) }()
	defer func() {
		if crashed := recover(); crashed != nil {
			g.o.Metrics.panics.Inc()
			g.o.Log.Error("a handler crashed", "route", e.name, "stack", string(debug.Stack()))
			if rw.written {
				panic(http.ErrAbortHandler) // half an answer must not look like one
			}
			newProblem(codeInternal, "the gateway has a bug; it is in its log").write(rw)
		}
	}()
	header := rw.Header()
	header["X-Content-Type-Options"], header["Cache-Control"] = valueNoSniff, valueNoStore
	select {
	case g.requests <- struct{}{}:
		defer func() { <-g.requests }()
	default:
		newProblem(codeBusy, "so many requests are under way that this one was not looked at").after(1).write(rw)
		return
	}
	g.o.Metrics.underWay.Inc()
	defer g.o.Metrics.underWay.Dec()
	switch {
	case problem != nil:
		if problem.allow != "" {
			rw.Header().Set("Allow", problem.allow)
		}
		problem.write(rw)
	case e.fixed:
		e.handler.ServeHTTP(rw, r)
	default:
		g.mux.ServeHTTP(rw, r) // and not its handler: the mux sets the path's values
	}
}

// find finds where a request goes. The mux, which allocates and compares, is asked only
// about what is none of the paths without wildcards, just as they are.
func (g *Gateway) find(r *http.Request) (*endpoint, *misroute) {
	if e := g.fixed[r.URL.Path]; e != nil && e.method == r.Method && r.URL.RawPath == "" {
		return e, nil
	}
	h, pattern := g.mux.Handler(r)
	e := g.endpoints[pattern]
	if e == nil {
		e = g.other
	}
	return e, g.misrouted(r, h, pattern)
}

// misroute is a request that no route takes.
type misroute struct {
	*Problem
	allow string // the methods that it could have had
}

// misrouted is what is wrong with where a request goes; nil = nothing.
func (g *Gateway) misrouted(r *http.Request, h http.Handler, pattern string) *misroute {
	switch {
	case r.URL.Path == "" || r.URL.Path[0] != '/' || unclean(r.URL):
		return &misroute{Problem: newProblem(codeNotFound, "no such path")}
	case r.Method == http.MethodHead && pattern == "GET "+inboxPath:
		return &misroute{newProblem(codeMethod, "this path takes GET alone: a page that nobody sees would spend the user's limits"), http.MethodGet}
	case pattern != "":
		return nil
	}
	var probe answerProbe
	h.ServeHTTP(&probe, r) // the mux's own answer says whether it is the path or the method
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.Header().Get("Allow")
		return &misroute{newProblem(codeMethod, "this path takes "+allow), allow}
	}
	return &misroute{Problem: newProblem(codeNotFound, "no such path")}
}

// unclean reports whether the mux would redirect: a path that is not what it seems is
// nobody's.
func unclean(u *url.URL) bool {
	p := u.EscapedPath()
	clean := path.Clean(p)
	return p != clean
}

// answerProbe keeps the header of an answer and throws the rest away.
type answerProbe struct {
	header http.Header
	status int
}

func (p *answerProbe) Header() http.Header {
	if p.header == nil {
		p.header = http.Header{}
	}
	return p.header
}
func (p *answerProbe) WriteHeader(status int)      { p.status = status }
func (p *answerProbe) Write(b []byte) (int, error) { return len(b), nil }

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status  int
	written bool
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if !r.written {
		r.status, r.written = status, true
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// boundedListener accepts as many connections as there are places.
type boundedListener struct {
	net.Listener
	places  chan struct{} // capacity: connections; one in it for each that is open
	closed  chan struct{} // closed by Close
	once    sync.Once
	metrics *Metrics
}

// Accept implements net.Listener. It waits for a place before it accepts.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, fmt.Errorf("accepting connections: %w", net.ErrClosed)
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	l.metrics.conns.Inc()
	return &boundedConn{Conn: c, left: sync.OnceFunc(func() {
		l.metrics.conns.Dec()
		<-l.places
	})}, nil
}

// Close implements net.Listener.
func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	defer c.left()
	return c.Conn.Close()
}
