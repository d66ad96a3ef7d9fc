// Package proxy is a TCP proxy in user space that does to connections what
// networks do: slow them down, let them hang, reset them, cut them in the
// middle of a message. It stands in front of one server and needs no rights.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is what is done to all connections, also to those that are open
// already. The zero value passes everything on.
type Fault struct {
	// Latency is added to every piece of data (up to 32 KiB), in both directions.
	Latency time.Duration
	// HoldUp stops what goes to the server, HoldDown what comes from it. The
	// connections stay open and new ones are accepted; what was held goes on
	// when the fault is over, as after a network's partition. Both together are
	// a black hole, one alone is a half-open connection.
	HoldUp, HoldDown bool
	// Refuse resets new connections.
	Refuse bool
}

// BlackHole accepts everything and answers nothing.
func BlackHole() Fault { return Fault{HoldUp: true, HoldDown: true} }

// HalfOpen lets requests through and holds the answers.
func HalfOpen() Fault { return Fault{HoldDown: true} }

// Proxy listens on a port of 127.0.0.1 and passes on to one server. Its methods
// may be called by several goroutines at once.
type Proxy struct {
	listener net.Listener
	target   atomic.Pointer[string]
	opened   func(local net.Addr)
	state    atomic.Pointer[state]
	serving  sync.WaitGroup

	mu     sync.Mutex
	conns  map[*conn]struct{} // guarded by mu
	closed bool               // guarded by mu
}

// state is a fault, how often the way to the server is shut besides, and a
// channel that is closed when another state follows.
type state struct {
	Fault
	shut int
	over chan struct{}
}

// Listen starts a proxy. target may be empty and set later; until then
// connections are reset. opened, if given, is called with the address that the
// server will see, before it can see a byte of that connection.
func Listen(target string, opened func(local net.Addr)) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: l, opened: opened, conns: make(map[*conn]struct{})}
	p.target.Store(&target)
	p.state.Store(&state{over: make(chan struct{})})
	p.serving.Go(p.accept)
	return p, nil
}

// Addr is the host:port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Target changes the server for connections from now on.
func (p *Proxy) Target(addr string) { p.target.Store(&addr) }

// Set replaces the fault. What is shut stays shut.
func (p *Proxy) Set(f Fault) { p.change(func(s *state) { s.Fault = f }) }

// Shut holds what goes to the server, whatever the fault is, until open is
// called: what the server has then is all that it got before. Answers pass.
// Who shuts while it is shut opens for himself only. open may be called twice.
func (p *Proxy) Shut() (open func()) {
	p.change(func(s *state) { s.shut++ })
	return sync.OnceFunc(func() { p.change(func(s *state) { s.shut-- }) })
}

func (p *Proxy) change(f func(*state)) {
	p.mu.Lock()
	old := p.state.Load()
	next := &state{Fault: old.Fault, shut: old.shut, over: make(chan struct{})}
	f(next)
	p.state.Store(next)
	p.mu.Unlock()
	close(old.over)
}

// Reset ends all open connections as a crashed host does, and returns how many
// there were.
func (p *Proxy) Reset() int {
	conns := p.open()
	for _, c := range conns {
		c.reset()
	}
	return len(conns)
}

// Conns is how many connections it passes on now.
func (p *Proxy) Conns() int { return len(p.open()) }

// Cut resets each open connection once it has passed n more bytes to the
// server: in the middle of whatever is sent then. It returns when none of them
// is left; one that has passed less when ctx ends is reset then.
func (p *Proxy) Cut(ctx context.Context, n int64) {
	conns := p.open()
	for _, c := range conns {
		c.left.Store(n)
	}
	for _, c := range conns {
		select {
		case <-c.gone:
		case <-ctx.Done():
			c.reset()
		}
	}
}

func (p *Proxy) open() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	return conns
}

// Close resets everything and waits until nothing of it runs. It may be called
// twice.
func (p *Proxy) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	err := p.listener.Close()
	p.Set(Fault{})
	p.Reset()
	p.serving.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: some will be free again
			continue
		}
		p.serving.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

// dialTimeout bounds a connection to the server; it is on this machine.
const dialTimeout = 5 * time.Second

func (p *Proxy) serve(client *net.TCPConn) {
	target := *p.target.Load()
	if target == "" || p.state.Load().Refuse {
		abort(client)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		abort(client)
		return
	}
	if p.opened != nil {
		p.opened(server.LocalAddr())
	}
	c := &conn{proxy: p, client: client, server: server.(*net.TCPConn), gone: make(chan struct{})}
	c.left.Store(-1)
	p.mu.Lock()
	closed := p.closed
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	if closed {
		c.reset()
	}
	var down sync.WaitGroup
	down.Go(func() { c.pump(c.client, c.server, false) })
	c.pump(c.server, c.client, true)
	down.Wait()
	c.end()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// conn is one connection and its other half.
type conn struct {
	proxy          *Proxy
	client, server *net.TCPConn
	left           atomic.Int64 // bytes to the server until the cut; negative = no cut
	once           sync.Once
	gone           chan struct{} // closed by the first of end and reset
}

// abort ends a connection with a reset.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close() // the other side sees it
}

func (c *conn) reset() {
	c.once.Do(func() {
		close(c.gone)
		abort(c.client)
		abort(c.server)
	})
}

func (c *conn) end() {
	c.once.Do(func() {
		close(c.gone)
		_ = c.client.Close() // both have ended by themselves
		_ = c.server.Close()
	})
}

// piece is the most data that is held or delayed at once.
const piece = 32 << 10

// pump passes data on until one side ends, and then ends the other.
func (c *conn) pump(to, from *net.TCPConn, up bool) {
	buf := make([]byte, piece)
	for {
		n, err := from.Read(buf)
		if n > 0 && !c.pass(to, buf[:n], up) {
			return
		}
		if err != nil {
			if errors.As(err, new(*net.OpError)) {
				c.reset() // it was reset, or we did it
			} else {
				_ = to.CloseWrite() // it said all it had to say
			}
			return
		}
	}
}

// pass writes a piece once the fault allows it.
func (c *conn) pass(to *net.TCPConn, data []byte, up bool) bool {
	if !c.wait(up) {
		return false
	}
	if up {
		if left := c.left.Load(); left >= 0 {
			if int64(len(data)) >= left {
				_, _ = to.Write(data[:left]) // it ends here in any case
				c.reset()
				return false
			}
			c.left.Add(-int64(len(data)))
		}
	}
	if _, err := to.Write(data); err != nil {
		c.reset()
		return false
	}
	return true
}

// wait returns once data of this direction may pass; false when the connection
// ended meanwhile.
func (c *conn) wait(up bool) bool {
	for delayed := false; ; {
		s := c.proxy.state.Load()
		switch {
		case up && (s.HoldUp || s.shut > 0) || !up && s.HoldDown:
			select {
			case <-s.over:
			case <-c.gone:
				return false
			}
		case s.Latency > 0 && !delayed:
			select {
			case <-time.After(s.Latency):
				delayed = true // and it may be held by now
			case <-c.gone:
				return false
			}
		default:
			return true
		}
	}
}
