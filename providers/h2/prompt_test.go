package h2

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// An idle connection answers a server's frames at once, without waiting for the
// next request or a sweep.
func TestIdleConnectionAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		s := newPeer(t)
		s.script = func(c *peerConn, _ int) {
			defer close(over)
			c.answer(c.request())
			if f, ok := c.next().(*http2.SettingsFrame); !ok || !f.IsAck() {
				t.Errorf("%v behind the first request, want the SETTINGS acknowledged", f)
			}
			time.Sleep(time.Second + time.Millisecond) // between two sweeps
			asked := time.Now()
			data := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
			c.WritePing(false, data)
			if f, ok := c.next().(*http2.PingFrame); !ok || f.Data != data || time.Since(asked) != 0 {
				t.Errorf("%v after %v, want the PING's answer", f, time.Since(asked))
			}
			asked = time.Now()
			c.WriteSettings()
			if f, ok := c.next().(*http2.SettingsFrame); !ok || !f.IsAck() || time.Since(asked) != 0 {
				t.Errorf("%v after %v, want the SETTINGS acknowledged", f, time.Since(asked))
			}
		}
		p := s.pool(Options{Connections: 1})
		submit(t, p, post("/a")).wait()
		<-over
	})
}

// A server that breaks the protocol is told the reason before the connection
// ends.
func TestServerHearsWhyItIsLeft(t *testing.T) {
	for code, breaks := range map[http2.ErrCode]func(c *peerConn){
		http2.ErrCodeProtocol:    func(c *peerConn) { c.WriteData(99, true, nil) },
		http2.ErrCodeFrameSize:   func(c *peerConn) { c.raw(http2.FramePing, 0, 0, make([]byte, 7)) },
		http2.ErrCodeFlowControl: func(c *peerConn) { c.WriteWindowUpdate(0, maxWindow) },
		http2.ErrCodeCompression: func(c *peerConn) { c.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte{0x80}) },
		http2.ErrCodeEnhanceYourCalm: func(c *peerConn) {
			for range 5 { // of 2,000 entries each
				c.raw(http2.FrameSettings, 0, 0, make([]byte, 6*2000))
				synctest.Wait() // unsent bytes after the last one would end the connection first
			}
		},
	} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				p := s.pool(Options{Connections: 1, Resends: -1})
				r := post("/a")
				l := submit(t, p, r)
				s.expect("in flight", 1, 1)
				breaks(s.conn())
				l.wait()
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.goAway == nil || *s.goAway != code {
					t.Errorf("GOAWAY: %v, want %v", s.goAway, code)
				}
				if r.Outcome != Ambiguous || !errors.Is(r.Err, ErrConnectionLost) {
					t.Errorf("%v, %v", r.Outcome, r.Err)
				}
			})
		})
	}
}

// The same on a connection that was to end after its last stream, which is not
// waited for.
func TestServerThatBreaksRulesAfterItsGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, Resends: -1, Timeout: time.Hour})
		r := post("/a")
		l := submit(t, p, r)
		s.expect("in flight", 1, 1)
		s.conn().WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
		synctest.Wait()
		start := time.Now()
		s.conn().WriteData(99, true, nil)
		l.wait()
		if r.Outcome != Ambiguous || time.Since(start) > 0 {
			t.Errorf("%v, %v, after %v", r.Outcome, r.Err, time.Since(start))
		}
	})
}

// A connection that we no longer need ends with a GOAWAY.
func TestServerHearsOfAnOrderlyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1})
		r := post("/a")
		l := submit(t, p, r)
		s.answers(1)
		l.wait()
		p.Retire(r)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.goAway == nil || *s.goAway != http2.ErrCodeNo {
			t.Errorf("GOAWAY: %v, want %v", s.goAway, http2.ErrCodeNo)
		}
	})
}

// A server that answers before it has the whole body is not sent the rest, and
// is told so. Otherwise its stream would stay open for ever.
func TestAnswerBeforeTheBodyEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1})
		r := post("/a")
		r.Body = make([]byte, 100_000)
		l := submit(t, p, r)
		s.expect("a part of it", 1, 0)
		had := len(s.bodies[1])
		s.conn().headers(1, true, ":status", "413")
		l.wait()
		s.conn().WriteWindowUpdate(1, 1<<20)
		s.conn().WriteWindowUpdate(0, 1<<20)
		synctest.Wait()
		if code, ok := s.resets[1]; !ok || code != http2.ErrCodeNo || len(s.bodies[1]) != had {
			t.Errorf("resets %v, %d bytes after %d", s.resets, len(s.bodies[1]), had)
		}
		if r.Outcome != Answered || r.Answer.Status != 413 || r.Answer.Broken {
			t.Errorf("%v, %v, %d", r.Outcome, r.Err, r.Answer.Status)
		}
	})
}

// Bytes after a PING in the same read do not cancel its answer.
func TestPingIsAnsweredWhateverFollows(t *testing.T) {
	for what, frames := range map[string][]byte{
		"nothing":                   nil,
		"the connection's window":   appendWindowUpdate(nil, 0, 10),
		"a stream's window":         appendWindowUpdate(nil, 3, 10),
		"another stream's":          appendWindowUpdate(nil, 1, 10),
		"SETTINGS":                  settings(),
		"an acknowledgement":        rawFrame(http2.FrameSettings, http2.FlagSettingsAck, 0),
		"a PING's answer":           appendPing(nil, http2.FlagPingAck, 1),
		"an answer":                 rawFrame(http2.FrameHeaders, 5, 1, 0x88),
		"a part of one":             rawFrame(http2.FrameHeaders, 4, 1, 0x88),
		"a reset":                   appendReset(nil, 1, http2.ErrCodeCancel),
		"a reset of what is held":   appendReset(nil, 3, http2.ErrCodeCancel),
		"what nobody knows":         rawFrame(0xee, 0, 0),
		"a frame that gets nowhere": rawFrame(http2.FramePriority, 0, 1, 0, 0, 0, 0, 1),
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHalted(t)
			h.c.peerInitial = 20
			held := post("/held")
			held.Body = make([]byte, 100)
			h.fill(post("/a"), held)
			h.send()
			h.c.nudge = false
			h.read(appendPing(nil, 0, 1), frames)
			if !h.c.nudge {
				t.Errorf("%s: the writer is not told of the PING before it", what)
			}
		})
	}
}
