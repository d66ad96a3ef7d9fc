package sim

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const handshakeTime = 10 * time.Second

// frameEngine is an HTTP/2 server on the level of frames: one reader and one
// writer per connection, nothing per request. What does not speak HTTP/2 it
// leaves to net/http.
type frameEngine struct {
	policy *policy
	tls    *tls.Config
	limit  int // concurrent streams of a connection
	http1  *http1Engine
	others *handedOver

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*frameConn]struct{}
	raw       map[net.Conn]struct{} // before and during the handshake
	accepted  uint64
	peers     map[netip.Addr]*peer
	all       peer // stands for every address

	wg sync.WaitGroup // every connection; Add under mu while not closed
}

func newFrameEngine(p *policy, certificate tls.Certificate, streams int) *frameEngine {
	e := &frameEngine{
		policy: p, limit: streams, http1: newHTTP1Engine(p),
		tls: &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{http2.NextProtoTLS, "http/1.1"},
		},
		others:    &handedOver{conns: make(chan net.Conn), done: make(chan struct{})},
		listeners: map[net.Listener]struct{}{}, conns: map[*frameConn]struct{}{}, raw: map[net.Conn]struct{}{},
		peers: map[netip.Addr]*peer{},
	}
	e.wg.Go(func() { _ = e.http1.server.Serve(e.others) })
	return e
}

// serve accepts connections, of one provider's clients or of all, until the
// engine is closed.
func (e *frameEngine) serve(l net.Listener, p Provider) error {
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
		if !e.start(c, p) {
			return errors.Join(http.ErrServerClosed, c.Close())
		}
	}
}

// start looks after a new connection in the background.
func (e *frameEngine) start(c net.Conn, p Provider) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.accepted++
	memory := NewConn()
	memory.id, memory.address, memory.remote = e.accepted, addressOf(c), c.RemoteAddr()
	if e.turnAway(c, memory, p) {
		return true
	}
	e.raw[c] = struct{}{}
	e.wg.Go(func() { e.accept(c, memory, p) })
	return true
}

func (e *frameEngine) accept(c net.Conn, memory *Conn, p Provider) {
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
			e.others.hand(&http1Conn{secure, memory, first})
			return
		}
	}
	fc := newFrameConn(e, secure, socket, memory, p)
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

func (e *frameEngine) forget(c net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.raw, c)
}

// stop closes the listeners, and returns the connections.
func (e *frameEngine) stop() []*frameConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for l := range e.listeners {
		_ = l.Close() // serve reports what matters
	}
	var open []*frameConn
	for c := range e.conns {
		open = append(open, c)
	}
	return open
}

// each calls f for the open connections of a provider's clients (Nobody: all)
// with a number (0: all), and returns how many there are.
func (e *frameEngine) each(p Provider, id uint64, f func(*frameConn)) int {
	e.mu.Lock()
	var found []*frameConn
	for c := range e.conns {
		if id == 0 || c.memory.id == id {
			found = append(found, c)
		}
	}
	e.mu.Unlock()
	n := 0
	for _, c := range found {
		c.mu.Lock()
		ok := p == Nobody || c.provider == p
		c.mu.Unlock()
		if ok {
			n++
			f(c)
		}
	}
	return n
}

// shutdown sends GOAWAY to all, and waits for their last answers to be written.
func (e *frameEngine) shutdown(ctx context.Context) error {
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

// close drops everything and waits until nothing runs any more.
func (e *frameEngine) close() error {
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
	conns chan net.Conn // never closed
	done  chan struct{}
	once  sync.Once
}

func (h *handedOver) hand(c net.Conn) {
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
