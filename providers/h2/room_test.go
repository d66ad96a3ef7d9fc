package h2

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// If a server has finished a stream that we had reset, the next request need
// not wait for the answer to the PING after the reset.
func TestServerFinishesAStreamThatWasReset(t *testing.T) {
	for how, finish := range map[string]func(c *peerConn, id uint32){
		"answers in full": func(c *peerConn, id uint32) { c.answer(id) },
		"ends its body": func(c *peerConn, id uint32) {
			c.headers(id, false, ":status", "200")
			c.WriteData(id, true, []byte("late"))
		},
		"resets it, too": func(c *peerConn, id uint32) { c.WriteRSTStream(id, http2.ErrCodeCancel) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPeer(t)
				s.script = func(c *peerConn, _ int) {
					for { // it answers no PING
						f, _ := c.ReadFrame()
						switch f := f.(type) {
						case nil:
							return
						case *http2.RSTStreamFrame:
							finish(c, f.StreamID)
						case *http2.DataFrame:
							if f.StreamID != 1 {
								c.answer(f.StreamID)
							}
						}
					}
				}
				p := s.pool(Options{Connections: 1, Timeout: 5 * time.Second})
				late, next := post("/late"), post("/next")
				late.Deadline = time.Now().Add(time.Second)
				submit(t, p, late, next).wait()
				if late.Outcome != Ambiguous || next.Outcome != Answered || p.Stats().Dials != 1 {
					t.Errorf("%v, then %v, %v over %d connections", late.Outcome, next.Outcome, next.Err, p.Stats().Dials)
				}
			})
		})
	}
}

// A connection that has become full passes a wake-up on to another one. One
// that has room is not woken by answers.
func TestFullConnectionHandsItsWakeUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.fill(append(posts(9), post("/last"))...) // all its streams
		h.send()
		answer := func(ids ...uint32) (nudged bool) {
			h.c.nudge = false
			for _, id := range ids {
				h.read(append(appendFrameHeader(nil, 1, http2.FrameHeaders, 5, id), 0x88))
			}
			return h.c.nudge
		}
		h.fill()
		if !answer(1) {
			t.Error("an answer makes room, and the writer is not told")
		}
		h.fill()
		if answer(3, 5) {
			t.Error("the writer is woken for nothing")
		}
		another := newWaiter()
		one(h.p.queue, &another)
		h.read(oneSetting(http2.SettingMaxConcurrentStreams, 7)) // as many as are open
		h.fill(post("/a"))
		select {
		case <-another.wake:
		default:
			t.Error("the request waits beside a free connection")
		}
	})
}

// A write is one TLS record, as nearly as possible: waiting requests go out in
// full records, whatever they already contain and whatever their size was
// before.
func TestWritesAreFullRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.p.opt.StreamsPerConnection = 1000
		h.c.streams = newStreams(1000, time.Now())
		h.p.queue = newQueue([]Lane{{"only", 1, 1000}})
		h.fill(posts(900)...)
		for n := range 2 { // the first begins with the connection preface
			each := len(h.c.out) / len(h.c.fresh)
			if got := len(h.c.out); got > recordSize || got < recordSize-2*each {
				t.Errorf("write %d is of %d bytes, of %d; a request has %d", n, got, recordSize, each)
			}
			h.send()
			h.fill()
		}
	})
}

// Bodies that a window has released are also written about one record at a
// time, so that other frames are not delayed for long.
func TestHeldBodiesGoOnInRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.c.peerInitial, h.c.sendWindow = 0, 1<<20
		rs := posts(8)
		for _, r := range rs {
			r.Body = make([]byte, 12_000)
		}
		h.fill(rs...)
		h.send()
		h.read(oneSetting(http2.SettingInitialWindowSize, 20_000))
		sent := 0
		for n := 0; sent < 8*12_000; n++ {
			h.fill()
			if got := len(h.c.out); got > recordSize+12_000+2*frameHeader || got == 0 {
				t.Fatalf("write %d is of %d bytes, after %d", n, got, sent)
			}
			sent = int(1<<20 - h.c.sendWindow)
			h.send()
		}
	})
}

// mute is a connection that can be read but no longer written.
type mute struct {
	net.Conn
	broken *atomic.Bool
}

func (m mute) Write(b []byte) (int, error) {
	if m.broken.Load() {
		return 0, errors.New("broken pipe")
	}
	return m.Conn.Write(b)
}

// A connection that cannot be written is closed at once, although it can be
// read. Requests that were not written are not lost.
func TestConnectionThatCannotBeWrittenIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.answerAll()
		var broken []*atomic.Bool
		s.wrap = func(c net.Conn) net.Conn {
			broken = append(broken, new(atomic.Bool))
			return mute{c, broken[len(broken)-1]}
		}
		p := s.pool(Options{Connections: 1})
		submit(t, p, post("/warm")).wait()
		broken[0].Store(true)
		start := time.Now()
		r := post("/a")
		submit(t, p, r).wait()
		if st := p.Stats(); r.Outcome != Answered || st.Dials != 2 || st.Resent != 1 || time.Since(start) > time.Second {
			t.Errorf("%v, %v after %v; %+v", r.Outcome, r.Err, time.Since(start), st)
		}
	})
}
