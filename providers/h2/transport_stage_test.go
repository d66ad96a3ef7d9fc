package h2

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// roundTrip is one exchange in flight.
type roundTrip struct {
	done chan struct{}
	res  *http.Response
	err  error
}

func startRoundTrip(ctx context.Context, p *Pool, method, body string) *roundTrip {
	rt := &roundTrip{done: make(chan struct{})}
	go func() {
		defer close(rt.done)
		req, err := http.NewRequestWithContext(ctx, method, "https://push.example/x", strings.NewReader(body))
		if err != nil {
			rt.err = err
			return
		}
		rt.res, rt.err = (&Transport{Pool: p}).RoundTrip(req)
	}()
	synctest.Wait()
	return rt
}

// read reads the answer's body.
func (rt *roundTrip) read(t *testing.T) (string, error) {
	t.Helper()
	<-rt.done
	if rt.err != nil {
		t.Fatal(rt.err)
	}
	defer rt.res.Body.Close()
	b, err := io.ReadAll(rt.res.Body)
	return string(b), err
}

// silent reads until the client has closed the connection.
func silent(c *peerConn, _ uint32) {
	for c.next() != nil {
	}
}

// Each way in which an exchange can end without an answer, with its certainty.
func TestTransportOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		script  func(c *peerConn, stream uint32)
		outcome Outcome
		err     error
	}{
		"connection lost":                 {func(c *peerConn, _ uint32) {}, Ambiguous, ErrConnectionLost},
		"reset":                           {func(c *peerConn, id uint32) { c.WriteRSTStream(id, http2.ErrCodeInternal); c.next() }, Ambiguous, ErrConnectionLost},
		"refused for good":                {func(c *peerConn, id uint32) { c.WriteRSTStream(id, http2.ErrCodeRefusedStream); c.next() }, NotAccepted, ErrConnectionLost},
		"above GOAWAY's last":             {func(c *peerConn, id uint32) { c.WriteGoAway(0, http2.ErrCodeNo, nil); c.next() }, NotAccepted, ErrConnectionLost},
		"no answer in time":               {silent, Ambiguous, ErrDeadline},
		"no answer in the context's time": {silent, Ambiguous, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPeer(t)
				s.script = func(c *peerConn, _ int) {
					if id := c.request(); id != 0 {
						tc.script(c, id)
						c.out.flush()
					}
				}
				p := s.pool(Options{Connections: 1, Resends: -1, Timeout: time.Second})
				ctx := t.Context()
				if tc.err == context.DeadlineExceeded {
					short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
					ctx = short
				}
				rt := startRoundTrip(ctx, p, "POST", "x")
				<-rt.done
				var e *RoundTripError
				if !errors.As(rt.err, &e) || e.Outcome != tc.outcome || !errors.Is(rt.err, tc.err) {
					t.Errorf("%v", rt.err)
				}
				if said := map[Outcome]string{Ambiguous: " (ambiguous)", NotAccepted: " (not_accepted)"}[tc.outcome]; !strings.HasSuffix(rt.err.Error(), said) {
					t.Errorf("%v: not told how sure that is", rt.err)
				}
			})
		})
	}
}

// Requests that the server has certainly not processed are sent again,
// including the body.
func TestTransportSendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		bodies := make(chan string, 10)
		s.script = func(c *peerConn, n int) {
			body := ""
			for {
				switch f := c.next().(type) {
				case nil:
					return
				case *http2.DataFrame:
					body += string(f.Data())
					if !f.StreamEnded() {
						continue
					}
					bodies <- body
					body = ""
					if n == 1 {
						c.WriteRSTStream(f.StreamID, http2.ErrCodeRefusedStream)
						c.WriteGoAway(0, http2.ErrCodeNo, nil)
						continue
					}
					c.headers(f.StreamID, false, ":status", "200", "content-length", "2")
					c.WriteData(f.StreamID, true, []byte("ok"))
				}
			}
		}
		p := s.pool(Options{Connections: 1})
		rt := startRoundTrip(t.Context(), p, "POST", "the body")
		if b, err := rt.read(t); b != "ok" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		for range 2 {
			if b := <-bodies; b != "the body" {
				t.Errorf("%q", b)
			}
		}
	})
}

// Answers with a wrong body are not complete answers.
func TestTransportBrokenBodies(t *testing.T) {
	for name, tc := range map[string]struct {
		script func(c *peerConn, id uint32)
		body   string
		err    error
	}{
		"ends short of its content-length": {func(c *peerConn, id uint32) {
			c.headers(id, false, ":status", "200", "content-length", "3")
			c.WriteData(id, true, []byte("ab"))
		}, "ab", io.ErrUnexpectedEOF},
		"longer than its content-length": {func(c *peerConn, id uint32) {
			c.headers(id, false, ":status", "200", "content-length", "1")
			c.WriteData(id, true, []byte("ab"))
		}, "ab", ErrConnectionLost},
		"reset": {func(c *peerConn, id uint32) {
			c.headers(id, false, ":status", "200")
			c.WriteData(id, false, []byte("ab"))
			c.WriteRSTStream(id, http2.ErrCodeInternal)
		}, "ab", ErrConnectionLost},
		"nothing more until the deadline": {func(c *peerConn, id uint32) {
			c.headers(id, false, ":status", "200")
			c.WriteData(id, false, []byte("ab"))
		}, "ab", ErrDeadline},
		"trailers end it": {func(c *peerConn, id uint32) {
			c.headers(id, false, ":status", "200")
			c.WriteDataPadded(id, false, []byte("ab"), make([]byte, 20))
			c.headers(id, true, "grpc-status", "0")
		}, "ab", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPeer(t)
				s.script = func(c *peerConn, _ int) {
					for id := c.request(); id != 0; id = c.request() {
						tc.script(c, id)
					}
				}
				p := s.pool(Options{Connections: 1, Timeout: time.Second})
				b, err := startRoundTrip(t.Context(), p, "GET", "").read(t)
				if b != tc.body || !errors.Is(err, tc.err) {
					t.Errorf("%q, %v", b, err)
				}
				synctest.Wait()
				if st := p.Stats(); st.InFlight != 0 || st.Dials != 1 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// A body that nobody reads stops at the window, and continues when it is read.
func TestTransportHoldsTheServerBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, Timeout: time.Hour})
		rt := startRoundTrip(t.Context(), p, "GET", "")
		s.expect("the request", 1, 1)
		c, id := s.conn(), s.held[0].id
		c.headers(id, false, ":status", "200")
		<-rt.done
		if n, err := rt.res.Body.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing, before there is something: %d, %v", n, err)
		}
		window := p.streamWindow()
		for left := window; left > 0; {
			n := min(left, 16<<10)
			c.WriteData(id, false, make([]byte, n))
			left -= n
		}
		synctest.Wait()
		<-rt.done
		if len(s.granted) != 0 {
			t.Errorf("unread, and %v is granted", s.granted)
		}
		if n, err := io.ReadFull(rt.res.Body, make([]byte, window)); err != nil {
			t.Fatal(n, err)
		}
		synctest.Wait()
		s.mu.Lock()
		granted := s.granted[id]
		s.mu.Unlock()
		if granted < window*3/4 || granted > window {
			t.Errorf("%d of %d read bytes are granted again", granted, window)
		}
		c.WriteData(id, true, []byte("end"))
		if b, err := io.ReadAll(rt.res.Body); string(b) != "end" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// A body that arrived completely and was closed unread cannot be read
// afterwards.
func TestTransportBodyClosedWhenAllIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.playOnce(func(c *peerConn, id uint32) {
			c.headers(id, false, ":status", "200")
			c.WriteData(id, true, []byte("all of it"))
		})
		p := s.pool(Options{Connections: 1})
		rt := startRoundTrip(t.Context(), p, "GET", "")
		<-rt.done
		synctest.Wait()
		if rt.res.ContentLength != -1 {
			t.Errorf("a length of %d that nobody announced", rt.res.ContentLength)
		}
		if n, err := rt.res.Body.Read(make([]byte, 3)); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		rt.res.Body.Close()
		if n, err := rt.res.Body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("read after close: %d, %v", n, err)
		}
		rt = startRoundTrip(t.Context(), p, "GET", "") // answered without a body
		if b, err := rt.read(t); b != "" || err != nil || rt.res.ContentLength != 0 {
			t.Errorf("%q, %v, of %d", b, err, rt.res.ContentLength)
		}
	})
}

// If a body is closed early, the server is told at once, and its stream is free
// for the next exchange.
func TestTransportBodyClosedIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, StreamsPerConnection: 1, Timeout: time.Hour})
		rt := startRoundTrip(t.Context(), p, "GET", "")
		s.expect("the request", 1, 1)
		h := s.held[0]
		s.held = nil
		h.c.headers(h.id, false, ":status", "200")
		h.c.WriteData(h.id, false, []byte("begins"))
		<-rt.done
		start := time.Now()
		if err := rt.res.Body.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if code, ok := s.resets[h.id]; !ok || code != http2.ErrCodeCancel || p.Stats().InFlight != 0 {
			t.Errorf("resets: %v, %d in flight", s.resets, p.Stats().InFlight)
		}
		if n, err := rt.res.Body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("read after close: %d, %v", n, err)
		}
		startRoundTrip(t.Context(), p, "GET", "")
		s.expect("the next", 1, 1)
		if time.Since(start) > 0 {
			t.Errorf("it came after %v", time.Since(start))
		}
		s.answers(1)
	})
}
