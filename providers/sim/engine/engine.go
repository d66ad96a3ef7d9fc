package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const handshakeTime = 10 * time.Second

// Engine is an HTTP/2 server on the level of frames: one reader and one
// writer per connection, nothing per request. What does not speak HTTP/2 it
// leaves to net/http.
type Engine struct {
	now    func() time.Time
	tls    *tls.Config
	http1  *http1Server
	others *handedOver

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*Conn]struct{}
	raw       map[net.Conn]struct{} // before and during the handshake
	accepted  uint64

	wg sync.WaitGroup // every connection; Add under mu while not closed
}

// New makes an engine, which has to be closed.
func New(o Options) *Engine {
	e := &Engine{
		now: o.Now, http1: newHTTP1Server(&o),
		tls: &tls.Config{
			Certificates: []tls.Certificate{o.Certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{http2.NextProtoTLS, "http/1.1"},
		},
		others:    &handedOver{conns: make(chan *http1Conn), done: make(chan struct{})},
		listeners: map[net.Listener]struct{}{}, conns: map[*Conn]struct{}{}, raw: map[net.Conn]struct{}{},
	}
	e.wg.Go(func() { _ = e.http1.server.Serve(e.others) })
	return e
}

// Serve accepts connections until the engine is closed; then it returns
// http.ErrServerClosed. open says who looks after one, or nil: then it is
// reset. It is called for one connection of the listener at a time.
func (e *Engine) Serve(l net.Listener, open func(Client) Session) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	e.listeners[l] = struct{}{}
	e.mu.Unlock()
	for {
		c, err := l.Accept()
		if err != nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.listeners, l)
			if e.closed {
				return http.ErrServerClosed
			}
			return fmt.Errorf("accepting: %w", err)
		}
		if !e.start(c, open) {
			return errors.Join(http.ErrServerClosed, c.Close())
		}
	}
}

// start looks after a new connection in the background. It reports false when
// the engine is closed.
func (e *Engine) start(c net.Conn, open func(Client) Session) bool {
	e.mu.Lock()
	closed := e.closed
	e.accepted++
	client := Client{e.accepted, c.RemoteAddr()}
	e.mu.Unlock()
	if closed {
		return false
	}
	s := open(client)
	if s == nil {
		reset(c)
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.raw[c] = struct{}{}
	e.wg.Go(func() { e.accept(c, s) })
	return true
}

func (e *Engine) accept(c net.Conn, s Session) {
	socket := newReadAhead(c)
	secure := tls.Server(socket, e.tls)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	err := secure.HandshakeContext(ctx)
	var first []byte
	if err == nil {
		version := secure.ConnectionState().NegotiatedProtocol
		if version == "" {
			version, first, err = opening(secure)
		}
		if err == nil && version != http2.NextProtoTLS {
			e.forget(c)
			e.others.hand(&http1Conn{secure, s, first})
			return
		}
	}
	fc := newConn(s, e.now, secure, socket)
	fc.to = copy(fc.in, first)
	e.mu.Lock()
	delete(e.raw, c)
	ok := err == nil && !e.closed
	if ok {
		e.conns[fc] = struct{}{}
	}
	e.mu.Unlock()
	if !ok {
		_ = c.Close() // the client sees the failed handshake, or its own silence
		return
	}
	fc.run()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, fc)
}

func (e *Engine) forget(c net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.raw, c)
}

// stop closes the listeners, and returns the connections.
func (e *Engine) stop() []*Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for l := range e.listeners {
		_ = l.Close() // Serve reports what matters
	}
	return slices.Collect(maps.Keys(e.conns))
}

// open lists the connections.
func (e *Engine) open() []*Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.conns))
}

// Sessions lists those of the open connections that speak HTTP/2.
func (e *Engine) Sessions() []Session {
	var all []Session
	for _, c := range e.open() {
		all = append(all, c.session)
	}
	return all
}

// Wake has every connection look what there is to do: for sessions whose answer
// to Idle has changed.
func (e *Engine) Wake() {
	for _, c := range e.open() {
		c.Wake()
	}
}

// Shutdown sends GOAWAY to all, and waits for their last answers to be written,
// at most until ctx ends.
func (e *Engine) Shutdown(ctx context.Context) error {
	open := e.stop()
	for _, c := range open {
		c.goAway()
	}
	for _, c := range open {
		select {
		case <-c.idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return e.http1.shutdown(ctx)
}

// Close drops everything and waits until nothing runs any more. It may be
// called twice.
func (e *Engine) Close() error {
	for _, c := range e.stop() {
		c.fail()
	}
	e.mu.Lock()
	for c := range e.raw {
		_ = c.Close() // in the middle of its handshake
	}
	e.mu.Unlock()
	err := e.http1.close()
	e.wg.Wait()
	return err
}

// handedOver is the listener through which net/http gets its connections.
type handedOver struct {
	conns chan *http1Conn // never closed
	done  chan struct{}
	once  sync.Once
}

func (h *handedOver) hand(c *http1Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		_ = c.Close() // the engine is closing
	}
}

// Accept implements net.Listener.
func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handedOver) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *handedOver) Addr() net.Addr { return &net.TCPAddr{} }
