package h2

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// flood writes frames until the client closes the connection.
func flood(c *peerConn, write func()) {
	for range 1_000_000 {
		write()
		c.out.flush()
		if c.gone() {
			return
		}
	}
	c.t.Error("a million frames, and the client goes on")
}

// gone reports whether the other end is closed.
func (c *peerConn) gone() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.failed
}

// T-45: what no server should send ends that connection with constant memory,
// and the others go on.
func TestHostileServers(t *testing.T) {
	block := func(n int) []byte { // literal fields without indexing
		var b []byte
		for len(b) < n {
			b = append(b, 0, 1, 'x', 100)
			b = append(b, bytes.Repeat([]byte("y"), 100)...)
		}
		return b
	}
	for why, play := range map[string]func(c *peerConn, s uint32){
		"CONTINUATION flood": func(c *peerConn, s uint32) {
			c.raw(http2.FrameHeaders, 0, s, []byte{0x88})
			flood(c, func() { c.raw(http2.FrameContinuation, 0, s, block(1000)) })
		},
		"empty CONTINUATION flood": func(c *peerConn, s uint32) {
			c.raw(http2.FrameHeaders, 0, s, []byte{0x88})
			flood(c, func() { c.raw(http2.FrameContinuation, 0, s, nil) })
		},
		"PING flood":     func(c *peerConn, s uint32) { flood(c, func() { c.WritePing(false, [8]byte{}) }) },
		"PING answers":   func(c *peerConn, s uint32) { flood(c, func() { c.WritePing(true, [8]byte{}) }) },
		"SETTINGS flood": func(c *peerConn, s uint32) { flood(c, func() { c.WriteSettings() }) },
		"RST flood":      func(c *peerConn, s uint32) { flood(c, func() { c.WriteRSTStream(s, http2.ErrCodeCancel) }) },
		"interim flood":  func(c *peerConn, s uint32) { flood(c, func() { c.headers(s, false, ":status", "103") }) },
		"empty DATA flood": func(c *peerConn, s uint32) {
			c.headers(s, false, ":status", "200")
			flood(c, func() { c.WriteData(s, false, nil) })
		},
		"padding only": func(c *peerConn, s uint32) {
			c.headers(s, false, ":status", "200")
			flood(c, func() { c.WriteDataPadded(s, false, nil, make([]byte, 200)) })
		},
		"WINDOW_UPDATE flood": func(c *peerConn, s uint32) { flood(c, func() { c.WriteWindowUpdate(s, 1) }) },
		"unknown frames":      func(c *peerConn, s uint32) { flood(c, func() { c.raw(0xee, 0, 0, nil) }) },
		"huge headers":        func(c *peerConn, s uint32) { c.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, s, block(16000)) },
		"a small block that counts as much": func(c *peerConn, s uint32) {
			c.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, s, bytes.Repeat([]byte{0x82}, 10_000))
		},
		"bad HPACK": func(c *peerConn, s uint32) {
			c.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, s, []byte{0xff, 0xff, 0xff})
		},
		"index beyond the table": func(c *peerConn, s uint32) { c.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, s, []byte{0xc0}) },
		"oversize frame":         func(c *peerConn, s uint32) { c.raw(http2.FrameData, 0, s, make([]byte, 17<<10)) },
		"oversize unknown frame": func(c *peerConn, s uint32) { c.raw(0xee, 0, 0, make([]byte, 1<<20)) },
		"padding over the frame": func(c *peerConn, s uint32) { c.raw(http2.FrameData, http2.FlagDataPadded, s, []byte{5, 1, 2}) },
		"DATA on an idle stream": func(c *peerConn, s uint32) { c.WriteData(99, false, nil) },
		"HEADERS on an even one": func(c *peerConn, s uint32) { c.headers(2, true, ":status", "200") },
		"HEADERS interrupted": func(c *peerConn, s uint32) {
			c.raw(http2.FrameHeaders, 0, s, []byte{0x88})
			c.WritePing(false, [8]byte{})
		},
		"a push":                func(c *peerConn, s uint32) { c.raw(http2.FramePushPromise, 4, s, []byte{0, 0, 0, 2, 0x82}) },
		"PING of 7 bytes":       func(c *peerConn, s uint32) { c.raw(http2.FramePing, 0, 0, make([]byte, 7)) },
		"SETTINGS of 5 bytes":   func(c *peerConn, s uint32) { c.raw(http2.FrameSettings, 0, 0, make([]byte, 5)) },
		"SETTINGS on a stream":  func(c *peerConn, s uint32) { c.raw(http2.FrameSettings, 0, s, nil) },
		"RST_STREAM of 3 bytes": func(c *peerConn, s uint32) { c.raw(http2.FrameRSTStream, 0, s, make([]byte, 3)) },
		"GOAWAY of 7 bytes":     func(c *peerConn, s uint32) { c.raw(http2.FrameGoAway, 0, 0, make([]byte, 7)) },
		"a window over 2^31":    func(c *peerConn, s uint32) { c.WriteWindowUpdate(0, maxWindow) },
		"an initial one over it": func(c *peerConn, s uint32) {
			c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		},
		"one over it with what the stream was granted": func(c *peerConn, s uint32) {
			c.WriteWindowUpdate(s, 1<<30)
			c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow})
		},
		"GOAWAY on a stream": func(c *peerConn, s uint32) { c.raw(http2.FrameGoAway, 0, s, make([]byte, 8)) },
		"a frame size out of range": func(c *peerConn, s uint32) {
			c.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 100})
		},
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPeer(t)
				s.script = func(c *peerConn, n int) {
					stream := c.request()
					if n > 1 { // the other connections are honest
						for ; stream != 0; stream = c.request() {
							c.answer(stream)
						}
						return
					}
					left := make(chan struct{}) // closed by the reader when the client has closed the connection
					c.wg.Go(func() {            // whatever the client sends
						defer close(left)
						for c.next() != nil {
						}
					})
					play(c, stream)
					select {
					case <-left:
					case <-time.After(time.Hour):
						t.Error("the client stays")
					}
				}
				p := s.pool(Options{Connections: 2, StreamsPerConnection: 1, Backoff: time.Millisecond, MaxBackoff: time.Millisecond, Timeout: time.Minute})
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				r := post("/a")
				submit(t, p, r).wait()
				runtime.GC()
				runtime.ReadMemStats(&after)
				if r.Outcome == NotAccepted || r.Outcome == Unfinished {
					t.Errorf("%v, %v", r.Outcome, r.Err)
				}
				if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 2<<20 {
					t.Errorf("%d KB more memory", grown>>10)
				}
				rs := posts(10)
				submit(t, p, rs...).wait()
				time.Sleep(time.Minute)
				wantAll(t, rs, Answered)
				if d := p.Stats().Dials; d < 2 {
					t.Errorf("the hostile connection is still in use")
				}
			})
		})
	}
}

func FuzzReader(f *testing.F) {
	frame := func(kind http2.FrameType, flags http2.Flags, id uint32, payload ...byte) []byte {
		return append(appendFrameHeader(nil, len(payload), kind, flags, id), payload...)
	}
	settings := frame(http2.FrameSettings, 0, 0)
	f.Add(append(settings, frame(http2.FrameHeaders, 5, 1, 0x88)...))
	f.Add(append(settings, append(frame(http2.FrameHeaders, 0, 1, 0x88), frame(http2.FrameContinuation, 4, 1)...)...))
	f.Add(append(settings, append(frame(http2.FrameHeaders, 4, 3, 0x88), frame(http2.FrameData, 9, 3, 1, 'x', 0)...)...))
	f.Add(append(settings, frame(http2.FrameGoAway, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0)...))
	f.Add(append(settings, frame(http2.FrameRSTStream, 0, 1, 0, 0, 0, 7)...))
	f.Add(append(settings, frame(http2.FrameWindowUpdate, 0, 1, 0x7f, 0xff, 0xff, 0xff)...))
	p := &Pool{opt: Options{StreamsPerConnection: 4, MaxAnswer: 100, AnswerHeaders: []string{"apns-id"}}, queue: newQueue([]Lane{{"only", 1, 10}})}
	p.opt.setDefaults()
	f.Fuzz(func(t *testing.T, in []byte) {
		c := newConn(p, nil, &wire{Conn: nowhere{}})
		c.nextID = 1
		back := map[*Request]int{}
		g := NewGroup(func(rs []*Request) {
			for _, r := range rs {
				back[r]++
			}
		})
		rs := posts(3)
		c.mu.Lock()
		for _, r := range rs {
			r.group, r.until, r.tries = g, time.Now().Add(time.Hour), 100
			c.start(r, time.Now())
		}
		c.mu.Unlock()
		// In one piece or byte by byte, the result is the same.
		used, err := 0, error(nil)
		if len(in) > 0 && in[0]&1 == 0 {
			used, err = c.frames(in, nil)
		} else {
			for n := range in {
				k, e := c.frames(in[used:n+1], nil)
				used, err = used+k, e
				if e != nil {
					break
				}
			}
		}
		if err == nil && len(in)-used >= frameHeader+maxFrame {
			t.Errorf("%d bytes left over", len(in)-used)
		}
		if err == nil && len(in)-used >= frameHeader {
			if n := int(binary.BigEndian.Uint32(append([]byte{0}, in[used:]...))); len(in)-used >= n+frameHeader {
				t.Errorf("a whole frame of %d bytes was left", n)
			}
		}
		c.got.flush()
		c.mu.Lock()
		c.fail(errSilent)
		c.mu.Unlock()
		c.end()
		for i, r := range rs {
			if back[r] != 1 || r.Outcome == Unfinished {
				t.Errorf("request %d was handed back %d times: %v", i, back[r], r.Outcome)
			}
			if len(r.Answer.Body) > 100 {
				t.Errorf("%d bytes of answer", len(r.Answer.Body))
			}
		}
		if c.live != 0 {
			t.Errorf("%d streams are still live", c.live)
		}
	})
}

// If a server answers before it has the body, whose window it never opens, its
// finished streams leave nothing in the list of waiting bodies.
func TestBodiesThatNobodyWaitsForAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.script = func(c *peerConn, _ int) {
			c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			for f := c.next(); f != nil; f = c.next() {
				if head, ok := f.(*http2.MetaHeadersFrame); ok {
					c.headers(head.StreamID, true, ":status", "413")
				}
			}
		}
		p := s.pool(Options{Connections: 1, StreamsPerConnection: 10, Timeout: time.Hour})
		time.Sleep(time.Second) // its SETTINGS have arrived
		for range 200 {
			rs := posts(10)
			submit(t, p, rs...).wait()
			wantAll(t, rs, Answered)
		}
		conns := p.all(nil)
		if len(conns) != 1 {
			t.Fatalf("%d connections", len(conns))
		}
		c := conns[0]
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.held); n == 0 || n > len(c.slots) {
			t.Errorf("%d of 2,000 streams that ended are on the list; it has room for %d open ones", n, len(c.slots))
		}
	})
}
