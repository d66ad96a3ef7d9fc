package h2

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawServer speaks HTTP/2 frame by frame, so that it can send what net/http's
// server never would.
type rawServer struct {
	listener net.Listener
	conf     *tls.Config
	wg       sync.WaitGroup
	conns    atomic.Int64
	// on is called when a request is complete; n counts all of them.
	on func(c *rawConn, stream uint32, n int64)
	n  atomic.Int64
}

type rawConn struct {
	*http2.Framer
	net.Conn
	number int64
}

func (c *rawConn) answer(t *testing.T, stream uint32) {
	var block sliceWriter
	if err := hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"}); err != nil {
		t.Error(err)
	}
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true, EndStream: true})
}

type sliceWriter []byte

func (w *sliceWriter) Write(b []byte) (int, error) {
	*w = append(*w, b...)
	return len(b), nil
}

func startRaw(t *testing.T, on func(*rawConn, uint32, int64)) (url string, conf *tls.Config) {
	t.Helper()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.EnableHTTP2 = true
	certificate.StartTLS() // for its certificate only
	t.Cleanup(certificate.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{listener: l, on: on, conf: &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2"}}}
	s.wg.Go(s.accept)
	t.Cleanup(func() {
		l.Close()
		s.wg.Wait()
	})
	return "https://" + l.Addr().String(), roots(certificate)
}

func (s *rawServer) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.speak(tls.Server(c, s.conf)) })
	}
}

func (s *rawServer) speak(c net.Conn) {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	rc := &rawConn{Framer: http2.NewFramer(c, c), Conn: c, number: s.conns.Add(1)}
	rc.WriteSettings()
	for {
		f, err := rc.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				rc.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				rc.WritePing(true, f.Data)
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				s.on(rc, f.StreamID, s.n.Add(1))
			}
		}
	}
}

func TestEndsOfAStream(t *testing.T) {
	for _, c := range []struct {
		why   string
		on    func(c *rawConn, stream uint32, n int64) bool // false = answer
		want  Outcome
		tries int64 // requests that the server must have received
	}{
		{"refused once: not processed, so it is sent again", func(c *rawConn, s uint32, n int64) bool {
			return n == 1 && c.WriteRSTStream(s, http2.ErrCodeRefusedStream) == nil
		}, Answered, 2},
		{"refused for ever: given back after four", func(c *rawConn, s uint32, n int64) bool {
			return c.WriteRSTStream(s, http2.ErrCodeRefusedStream) == nil
		}, NotAccepted, 4},
		{"cancelled by the server: who knows", func(c *rawConn, s uint32, n int64) bool {
			return c.WriteRSTStream(s, http2.ErrCodeCancel) == nil
		}, Ambiguous, 1},
		{"internal error: who knows", func(c *rawConn, s uint32, n int64) bool {
			return c.WriteRSTStream(s, http2.ErrCodeInternal) == nil
		}, Ambiguous, 1},
		{"enhance your calm: who knows", func(c *rawConn, s uint32, n int64) bool {
			return c.WriteRSTStream(s, http2.ErrCodeEnhanceYourCalm) == nil
		}, Ambiguous, 1},
		{"GOAWAY below us: not processed, so it goes over another connection", func(c *rawConn, s uint32, n int64) bool {
			return c.number == 1 && c.WriteGoAway(0, http2.ErrCodeNo, nil) == nil
		}, Answered, 2},
		{"GOAWAY below us with an error: the same", func(c *rawConn, s uint32, n int64) bool {
			return c.number == 1 && c.WriteGoAway(0, http2.ErrCodeRefusedStream, []byte("Maximum active streams violated for this endpoint.")) == nil
		}, Answered, 2},
		{"GOAWAY at us, then the end: it may have been processed", func(c *rawConn, s uint32, n int64) bool {
			return c.WriteGoAway(s, http2.ErrCodeNo, nil) == nil && c.Close() == nil
		}, Ambiguous, 1},
		{"cut without a word", func(c *rawConn, s uint32, n int64) bool { return c.Close() == nil }, Ambiguous, 1},
	} {
		t.Run(c.why, func(t *testing.T) {
			var seen atomic.Int64
			url, conf := startRaw(t, func(rc *rawConn, stream uint32, n int64) {
				seen.Store(n)
				if !c.on(rc, stream, n) {
					rc.answer(t, stream)
				}
			})
			p := open(t, Options{URL: url, TLS: conf, Connections: 1, Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond})
			r := post("/a")
			send(t, p, r)
			if r.Outcome != c.want || seen.Load() != c.tries {
				t.Errorf("%v (%v) after %d tries; want %v after %d", r.Outcome, r.Err, seen.Load(), c.want, c.tries)
			}
		})
	}
}

func TestGoAwayKeepsWhatItStillAnswers(t *testing.T) {
	var mu sync.Mutex
	var held []uint32
	url, conf := startRaw(t, func(c *rawConn, stream uint32, n int64) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case n == 1 || c.number > 1:
			c.answer(t, stream)
		default:
			held = append(held, stream)
			if len(held) == 4 { // the first two will be answered, the others not
				slices.Sort(held) // bodies need not end in the order of streams
				c.WriteGoAway(held[1], http2.ErrCodeNo, []byte(`{"reason":"Shutdown"}`))
				c.answer(t, held[0])
				c.answer(t, held[1])
			}
		}
	})
	p := open(t, Options{URL: url, TLS: conf, Connections: 1})
	send(t, p, post("/warm"))
	rs := []*Request{post("/a"), post("/b"), post("/c"), post("/d")}
	send(t, p, rs...)
	for _, r := range rs {
		if r.Outcome != Answered {
			t.Errorf("%s: %v, %v", r.Path, r.Outcome, r.Err)
		}
	}
	if st := p.Stats(); st.Dials != 2 || st.Resent != 2 {
		t.Errorf("%d dials, %d sent again; want 2 and 2", st.Dials, st.Resent)
	}
}

func TestOtherProtocolIsRefused(t *testing.T) {
	s := httptest.NewUnstartedServer(nil) // HTTP/1.1 only
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	p := open(t, Options{URL: s.URL, TLS: roots(s), Connections: 1, Timeout: 200 * time.Millisecond})
	r := post("/a")
	send(t, p, r)
	if r.Outcome != NotAccepted || !errors.Is(r.Err, ErrNotConnected) {
		t.Errorf("%v, %v", r.Outcome, r.Err)
	}
}
