package h2

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is a server that speaks frame by frame over connections in memory,
// without TLS, for tests in virtual time.
type peer struct {
	t  *testing.T
	wg sync.WaitGroup

	// script plays a connection, the n-th from 1, until it returns.
	script func(c *peerConn, n int)
	// settings are sent first on each connection.
	settings []http2.Setting
	// wrap, unless nil, wraps the client's end.
	wrap func(net.Conn) net.Conn

	// onWindow and onPing, unless nil, are called with WINDOW_UPDATEs and
	// PINGs.
	onWindow func(*http2.WindowUpdateFrame)
	onPing   func()

	mu    sync.Mutex
	conns int
	open  []net.Conn
}

func newPeer(t *testing.T) *peer {
	s := &peer{t: t}
	t.Cleanup(func() {
		s.mu.Lock()
		for _, c := range s.open {
			c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

// pool opens a pool to the peer.
func (s *peer) pool(opt Options) *Pool { return open(s.t, s.reachedBy(opt)) }

// reachedBy returns options with which a pool reaches the peer.
func (s *peer) reachedBy(opt Options) Options {
	opt.URL = "https://push.example"
	opt.Dial = s.dial
	opt.secure = func(_ context.Context, c net.Conn) (net.Conn, error) { return c, nil }
	return opt
}

func (s *peer) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	s.mu.Lock()
	s.conns++
	n := s.conns
	s.open = append(s.open, theirs)
	s.mu.Unlock()
	s.wg.Go(func() {
		defer theirs.Close()
		c := &peerConn{peer: s, Conn: theirs}
		c.enc = hpack.NewEncoder(&c.block)
		out := newLazyWriter(theirs)
		defer out.end()
		c.Framer = http2.NewFramer(out, theirs)
		c.Framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		c.out, c.acks = out, http2.NewFramer(out, nil)
		if _, err := io.ReadFull(theirs, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		c.WriteSettings(s.settings...)
		s.script(c, n)
	})
	if s.wrap != nil {
		return s.wrap(ours), nil
	}
	return ours, nil
}

// lazyWriter writes in the background: a pipe has no buffer, so two ends that
// both write would wait for each other.
type lazyWriter struct {
	mu     sync.Mutex
	cond   *sync.Cond
	queue  [][]byte
	busy   bool
	closed bool
	failed bool
	wg     sync.WaitGroup
}

func newLazyWriter(c net.Conn) *lazyWriter {
	w := &lazyWriter{}
	w.cond = sync.NewCond(&w.mu)
	w.wg.Go(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for {
			for len(w.queue) == 0 && !w.closed {
				w.cond.Wait()
			}
			if len(w.queue) == 0 {
				return
			}
			b := w.queue[0]
			w.queue, w.busy = w.queue[1:], true
			w.mu.Unlock()
			_, err := c.Write(b)
			w.mu.Lock()
			w.failed = w.failed || err != nil
			w.busy = false
			w.cond.Broadcast()
		}
	})
	return w
}

func (w *lazyWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, append([]byte(nil), b...))
	w.cond.Broadcast()
	return len(b), nil
}

// flush waits until everything is written.
func (w *lazyWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > 0 || w.busy {
		w.cond.Wait()
	}
}

func (w *lazyWriter) end() {
	w.mu.Lock()
	w.closed = true
	w.cond.Broadcast()
	w.mu.Unlock()
	w.wg.Wait()
}

// peerConn is one connection of a peer.
type peerConn struct {
	*peer
	net.Conn
	*http2.Framer
	out   *lazyWriter
	acks  *http2.Framer // for the answers of next, apart from what the test writes
	enc   *hpack.Encoder
	block sliceWriter
}

// next reads until a frame that is not about the connection, and acknowledges
// those that are. It returns nil at the end.
func (c *peerConn) next() http2.Frame {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			var stream http2.StreamError
			var conn http2.ConnectionError
			if errors.As(err, &stream) || errors.As(err, &conn) {
				c.t.Errorf("the client sent %v", err)
			}
			return nil
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.acks.WriteSettingsAck()
			} else {
				return f
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				if c.onPing != nil {
					c.onPing()
				}
				c.acks.WritePing(true, f.Data)
			} else {
				return f
			}
		case *http2.WindowUpdateFrame:
			if c.onWindow != nil {
				c.onWindow(f)
			}
		default:
			return f
		}
	}
}

// request reads frames until a request is complete, and returns its stream, or
// 0 at the end.
func (c *peerConn) request() uint32 {
	for {
		switch f := c.next().(type) {
		case nil:
			return 0
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() {
				return f.StreamID
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return f.StreamID
			}
		}
	}
}

// headers writes a HEADERS frame.
func (c *peerConn) headers(stream uint32, end bool, fields ...string) {
	c.block = c.block[:0]
	for i := 0; i < len(fields); i += 2 {
		c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.block, EndHeaders: true, EndStream: end})
}

func (c *peerConn) answer(stream uint32) { c.headers(stream, true, ":status", "200") }

// raw writes a frame of any kind and length.
func (c *peerConn) raw(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) {
	b := append([]byte(nil), byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), byte(kind), byte(flags))
	c.out.Write(append(binary.BigEndian.AppendUint32(b, stream), payload...))
}

// answerAll is a script that answers everything.
func (s *peer) answerAll() {
	s.script = func(c *peerConn, _ int) {
		for {
			stream := c.request()
			if stream == 0 {
				return
			}
			c.answer(stream)
		}
	}
}

// nowhere is a connection that can only be closed.
type nowhere struct{ net.Conn }

func (nowhere) Close() error { return nil }

// recorder is a connection that keeps what is written.
type recorder struct {
	nowhere
	b      []byte
	writes int
	before func() // unless nil, called first
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.before != nil {
		r.before()
	}
	r.writes++
	r.b = append(r.b, b...)
	return len(b), nil
}
