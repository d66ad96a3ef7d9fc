package h2

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// playOnce answers the first request of each connection with play and all
// others normally, and continues to read.
func (s *peer) playOnce(play func(c *peerConn, stream uint32)) {
	s.script = func(c *peerConn, n int) {
		for first := true; ; first = false {
			stream := c.request()
			switch {
			case stream == 0:
				return
			case first && n == 1:
				play(c, stream)
			default:
				c.answer(stream)
			}
		}
	}
}

func TestShapesOfAnAnswer(t *testing.T) {
	for _, c := range []struct {
		why    string
		play   func(c *peerConn, s uint32)
		status int
		id     string
		body   string
		broken bool
	}{
		{"headers only", func(c *peerConn, s uint32) { c.headers(s, true, ":status", "200", "apns-id", "x") }, 200, "x", "", false},
		{"a body in pieces", func(c *peerConn, s uint32) {
			c.headers(s, false, ":status", "400")
			c.WriteData(s, false, []byte(`{"reason":`))
			c.WriteData(s, false, nil)
			c.WriteData(s, true, []byte(`"BadTopic"}`))
		}, 400, "", `{"reason":"BadTopic"}`, false},
		{"interim answers first, whose headers do not count", func(c *peerConn, s uint32) {
			c.headers(s, false, ":status", "103", "apns-id", "interim")
			c.headers(s, false, ":status", "100")
			c.headers(s, true, ":status", "200")
		}, 200, "", "", false},
		{"trailers", func(c *peerConn, s uint32) {
			c.headers(s, false, ":status", "200", "apns-id", "x")
			c.WriteData(s, false, []byte("ok"))
			c.headers(s, true, "apns-id", "trailer", "grpc-status", "0")
		}, 200, "x", "ok", false},
		{"padding", func(c *peerConn, s uint32) {
			c.block = c.block[:0]
			c.enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: c.block, EndHeaders: true, PadLength: 200, Priority: http2.PriorityParam{StreamDep: 0, Weight: 3}})
			c.WriteDataPadded(s, true, []byte("ok"), make([]byte, 255))
		}, 200, "", "ok", false},
		{"CONTINUATION", func(c *peerConn, s uint32) {
			c.block = c.block[:0]
			c.enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			c.enc.WriteField(hpack.HeaderField{Name: "apns-id", Value: strings.Repeat("x", 600)})
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: c.block[:3], EndStream: true})
			c.WriteContinuation(s, false, c.block[3:100])
			c.WriteContinuation(s, true, c.block[100:])
		}, 200, strings.Repeat("x", 600), "", false},
		{"unknown frames, flags and settings around it", func(c *peerConn, s uint32) {
			c.raw(0xbe, 0xff, 0, []byte("unknown"))
			c.raw(0x0a, 0, s, []byte("ALTSVC"))
			c.WriteSettings(http2.Setting{ID: 0xabc, Val: 1}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
			c.WritePriority(s, http2.PriorityParam{StreamDep: 9})
			c.headers(s, true, ":status", "200", "apns-id", "x")
		}, 200, "x", "", false},
		{"a header with a control character is not passed on", func(c *peerConn, s uint32) {
			c.headers(s, true, ":status", "200", "apns-id", "a\r\nb")
		}, 200, "", "", false},
		{"reset after the status", func(c *peerConn, s uint32) {
			c.headers(s, false, ":status", "410")
			c.WriteRSTStream(s, http2.ErrCodeInternal)
		}, 410, "", "", true},
		{"cut after the status", func(c *peerConn, s uint32) {
			c.headers(s, false, ":status", "410")
			c.WriteData(s, false, []byte(`{"rea`))
			c.out.flush()
			time.Sleep(time.Millisecond) // virtual: what was sent has been read then
			c.Conn.Close()
		}, 410, "", `{"rea`, true},
		{"longer than we keep", func(c *peerConn, s uint32) {
			c.headers(s, false, ":status", "502")
			c.WriteData(s, false, bytes.Repeat([]byte("x"), 16<<10))
			c.WriteData(s, true, bytes.Repeat([]byte("x"), 16<<10))
		}, 502, "", strings.Repeat("x", 16<<10), false},
	} {
		t.Run(c.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPeer(t)
				s.playOnce(c.play)
				p := s.pool(Options{Connections: 1, AnswerHeaders: []string{"apns-id"}})
				r := post("/a")
				submit(t, p, r).wait()
				a := &r.Answer
				if r.Outcome != Answered || a.Status != c.status || string(a.Header[0]) != c.id || string(a.Body) != c.body || a.Broken != c.broken {
					t.Errorf("%v, %v, %d, %.20q, %.20q, broken %v", r.Outcome, r.Err, a.Status, a.Header, a.Body, a.Broken)
				}
				submit(t, p, r).wait() // the connection, or the next one, still works
				if r.Outcome != Answered || a.Status != 200 || a.Broken || len(a.Body) > 0 {
					t.Errorf("afterwards: %v, %v, %d", r.Outcome, r.Err, a.Status)
				}
			})
		})
	}
}

// A violation of the rules of one stream ends that stream only.
func TestBrokenStreams(t *testing.T) {
	for why, play := range map[string]func(c *peerConn, s uint32){
		"no status":            func(c *peerConn, s uint32) { c.headers(s, true, "apns-id", "x") },
		"status of 4 digits":   func(c *peerConn, s uint32) { c.headers(s, true, ":status", "2000") },
		"status no number":     func(c *peerConn, s uint32) { c.headers(s, true, ":status", "2x0") },
		"two statuses":         func(c *peerConn, s uint32) { c.headers(s, true, ":status", "200", ":status", "400") },
		"interim and the end":  func(c *peerConn, s uint32) { c.headers(s, true, ":status", "100") },
		"switching protocols":  func(c *peerConn, s uint32) { c.headers(s, false, ":status", "101") },
		"body without headers": func(c *peerConn, s uint32) { c.WriteData(s, true, []byte("x")) },
		"window too large": func(c *peerConn, s uint32) {
			c.WriteWindowUpdate(s, maxWindow)
		},
		"empty window update": func(c *peerConn, s uint32) { c.raw(http2.FrameWindowUpdate, 0, s, []byte{0, 0, 0, 0}) },
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPeer(t)
				s.playOnce(play)
				p := s.pool(Options{Connections: 1})
				r, next := post("/a"), post("/b")
				submit(t, p, r).wait()
				submit(t, p, next).wait()
				if r.Outcome != Ambiguous || !errors.Is(r.Err, ErrConnectionLost) {
					t.Errorf("%v, %v", r.Outcome, r.Err)
				}
				if next.Outcome != Answered || p.Stats().Dials != 1 {
					t.Errorf("next: %v, %v, %d connections", next.Outcome, next.Err, p.Stats().Dials)
				}
			})
		})
	}
}

func TestTwoGoAwaysInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, Resends: -1, Timeout: time.Minute})
		l := submit(t, p, post("/warm"))
		s.answers(1)
		l.wait()
		rs := posts(4) // streams 3, 5, 7, 9
		submit(t, p, rs...)
		s.expect("four", 4, 4)
		old := s.conn()
		old.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
		synctest.Wait()
		wantAll(t, rs, Unfinished)
		after := post("/after") // over a new connection, although the old one is still open
		submit(t, p, after)
		time.Sleep(time.Second)
		if o, h := s.counts(); o != 5 || h != 5 || p.Stats().Connections != 2 {
			t.Errorf("%d streams open, %d complete, %d connections", o, h, p.Stats().Connections)
		}
		old.WriteGoAway(5, http2.ErrCodeInternal, []byte(`{"reason":"BadCertificateEnvironment"}`))
		synctest.Wait()
		wantAll(t, rs[:2], Unfinished)
		wantAll(t, rs[2:], NotAccepted)
		old.answer(3)
		synctest.Wait()
		wantAll(t, rs[:1], Answered)
		old.out.flush()
		old.Conn.Close()
		synctest.Wait()
		wantAll(t, rs[1:2], Ambiguous)
		for _, r := range rs[1:] {
			var why *GoAwayError
			if !errors.As(r.Err, &why) || why.Reason != "BadCertificateEnvironment" || why.Code != http2.ErrCodeInternal || !errors.Is(r.Err, ErrConnectionLost) {
				t.Errorf("%v", r.Err)
			}
		}
		s.conn().answer(1)
		synctest.Wait()
		wantAll(t, []*Request{after}, Answered)
	})
}

func TestGoAwayReason(t *testing.T) {
	for debug, want := range map[string]string{
		`{"reason":"Shutdown"}`:                                "Shutdown",
		`{ "timestamp": 1, "reason" : "ExpiredProviderToken"}`: "ExpiredProviderToken",
		``: "", `Maximum active streams violated for this endpoint.`: "",
		`{"reason":"a b"}`: "", `{"reason":"a\nb"}`: "", `{"reason":12}`: "", `{"reason":"open`: "",
		`{"reason":"` + strings.Repeat("a", 65) + `"}`: "",
		`{"reason":"` + strings.Repeat("a", 64) + `"}`: strings.Repeat("a", 64),
		`{"reason":"azAZ09"}`:                          "azAZ09",
		`{"reason":"a@"}`:                              "", `{"reason":"a["}`: "", "{\"reason\":\"a`\"}": "", `{"reason":"a{"}`: "",
		`{"reason":"a/"}`: "", `{"reason":"a:"}`: "",
		strings.Repeat(" ", 1024-len(`"reason":"ab"`)) + `"reason":"ab"`: "ab",
		strings.Repeat(" ", 1025-len(`"reason":"ab"`)) + `"reason":"ab"`: "",
	} {
		if got := goAwayReason([]byte(debug)); got != want {
			t.Errorf("%q: %q, want %q", debug, got, want)
		}
	}
}
