package h2

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// settings is a SETTINGS frame.
func settings(entries ...http2.Setting) []byte {
	b := appendFrameHeader(nil, 6*len(entries), http2.FrameSettings, 0, 0)
	for _, e := range entries {
		b = appendSetting(b, e.ID, e.Val)
	}
	return b
}

// Each entry of a SETTINGS frame counts against the server like a frame:
// thousands fit into one frame, and an honest server needs six.
func TestEverySettingCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		entries := make([]http2.Setting, maxFrame/6)
		for i := range entries {
			entries[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}
		}
		full := settings(entries...)
		for n := 1; ; n++ {
			_, err := h.c.frames(full, nil)
			var peer peerError
			if errors.As(err, &peer) && peer.code == http2.ErrCodeEnhanceYourCalm {
				break
			}
			if err != nil || n > maxScore/len(entries)+1 {
				t.Fatalf("%d entries: %v, score %d", n*len(entries), err, h.c.score)
			}
		}
	})
}

// Of several entries for one setting only the last is applied; no stream uses
// an initial window in between.
func TestLastSettingIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		r := post("/a")
		r.Body = make([]byte, 100_000)
		h.fill(r)
		h.wantFrames("up to the window", h.send(), "/a", "DATA", "DATA", "DATA", "DATA")
		h.read(appendWindowUpdate(nil, 1, 1<<30), settings(
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow},
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 7},
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 8},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
		if h.c.peerInitial != 10 || h.c.peerStreams != 8 {
			t.Errorf("initial window %d, %d streams", h.c.peerInitial, h.c.peerStreams)
		}
	})
}

// A request whose headers are too long for a server goes to another connection,
// if there is one. It was not accepted, and nothing is wrong with it.
func TestHeaderLimitIsTheConnections(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 400}
	long := func() *Request {
		r := post("/long")
		r.Header = []Field{{Name: "a", Value: bytes.Repeat([]byte("x"), 400)}}
		return r
	}
	t.Run("one of the servers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			p := s.pool(Options{Connections: 1})
			l := submit(t, p, post("/warm"))
			s.answers(1)
			l.wait()
			s.set(limit)
			rs := []*Request{long(), post("/short"), long()}
			l = submit(t, p, rs...)
			for left := len(rs); left > 0; {
				s.untilOpen(1)
				_, held := s.counts()
				s.answers(held)
				left -= held
			}
			l.wait()
			wantAll(t, rs, Answered)
			if st := p.Stats(); st.Dials != 2 || st.Trouble.Cause != ErrHeaderLimit.Error() || st.Resent != 2 {
				t.Errorf("%+v", st)
			}
		})
	})
	t.Run("all of them", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newPeer(t)
			s.settings = []http2.Setting{limit}
			s.answerAll()
			p := s.pool(Options{Connections: 1, Timeout: time.Hour, Resends: -1})
			for range 20 {
				short := post("/short") // it may be sent before the settings arrive, and is short
				submit(t, p, short).wait()
				r := long()
				submit(t, p, r).wait()
				if short.Outcome != Answered || r.Outcome != NotAccepted || !errors.Is(r.Err, ErrHeaderLimit) {
					t.Errorf("short: %v, %v; long: %v, %v", short.Outcome, short.Err, r.Outcome, r.Err)
				}
			}
			if d := p.Stats().Dials; d != 20 {
				t.Errorf("%d connections", d)
			}
		})
	})
}

// If no server accepts it, a request ends after as many connections as one that
// is refused.
func TestHeaderLimitEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		r := post("/a")
		for tries := 1; r.Outcome == Unfinished; tries++ {
			if tries > 1+h.p.opt.Resends {
				t.Fatalf("over connection %d", tries)
			}
			h.c = newConn(h.p, &h.wrote, &wire{Conn: &h.wrote})
			h.c.peerList = 10
			if tries == 1 {
				h.fill(r)
			} else {
				h.fill()
			}
			h.c.back.flush()
			if !h.c.retired {
				t.Fatal("the connection stays in use")
			}
			if r.Outcome == NotAccepted && r.tries == tries && h.p.queue.len() == 1 {
				r.Outcome = Unfinished // it waits for the next connection
			}
		}
		if r.Outcome != NotAccepted || !errors.Is(r.Err, ErrHeaderLimit) || r.tries != 1+h.p.opt.Resends {
			t.Errorf("%v, %v after %d connections", r.Outcome, r.Err, r.tries)
		}
	})
}
