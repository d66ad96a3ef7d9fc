package h2

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// severed is the client's end of a connection that breaks. Once it is armed,
// what arrives is seen only after a write has failed, as when the reader is
// slower than the writer. If we close it before, that is lost, as in a socket.
type severed struct {
	net.Conn
	armed, closed atomic.Bool
	takes         int           // bytes of a write that fails
	failed        chan struct{} // closed by the first write that fails
	once          sync.Once
}

func (c *severed) Write(b []byte) (int, error) {
	if !c.armed.Load() {
		return c.Conn.Write(b)
	}
	c.once.Do(func() { close(c.failed) })
	return min(c.takes, len(b)), syscall.EPIPE
}

func (c *severed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.armed.Load() {
		<-c.failed
		time.Sleep(time.Millisecond) // virtual: the writer has noticed
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
	}
	return n, err
}

func (c *severed) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// severing is a server that answers a first request, takes three more, arms the
// first connection, of whose failing write the kernel takes some bytes, and
// calls say with their streams. If say returns true, it closes. Its other
// connections work.
func severing(t *testing.T, takes int, say func(c *peerConn, ids []uint32) bool) *peer {
	s := newPeer(t)
	var first *severed
	s.wrap = func(c net.Conn) net.Conn {
		if first == nil {
			first = &severed{Conn: c, takes: takes, failed: make(chan struct{})}
			return first
		}
		return c
	}
	s.script = func(c *peerConn, n int) {
		c.answer(c.request())
		var ids []uint32
		for id := c.request(); id != 0; id = c.request() {
			if n > 1 {
				c.answer(id)
				continue
			}
			if ids = append(ids, id); len(ids) < 3 {
				continue
			}
			time.Sleep(time.Second) // whatever the client wrote has arrived
			first.armed.Store(true)
			if say(c, ids) {
				c.out.flush()
				return
			}
		}
	}
	return s
}

// When a write fails, what the server has sent before still counts: answers,
// and a GOAWAY that says what was not processed. What was not written goes over
// another connection at once.
func TestWhatArrivedBeforeAWriteFailed(t *testing.T) {
	goAway := func(c *peerConn, last uint32) { c.WriteGoAway(last, http2.ErrCodeNo, []byte(`{"reason":"Shutdown"}`)) }
	for _, tc := range []struct {
		why    string
		say    func(c *peerConn, ids []uint32) bool
		want   [3]Outcome
		resent int64 // also the one that was not written
		waits  time.Duration
	}{
		{"answers, then the end", func(c *peerConn, ids []uint32) bool {
			for _, id := range ids {
				c.headers(id, false, ":status", "200")
				c.WriteData(id, true, []byte("ok"))
			}
			return true
		}, [3]Outcome{Answered, Answered, Answered}, 1, 0},
		{"answers, and it stays open: there is nothing to wait for", func(c *peerConn, ids []uint32) bool {
			for _, id := range ids {
				c.answer(id)
			}
			return false
		}, [3]Outcome{Answered, Answered, Answered}, 1, 0},
		{"GOAWAY after the first, and its answer", func(c *peerConn, ids []uint32) bool {
			goAway(c, ids[0])
			c.answer(ids[0])
			return true
		}, [3]Outcome{Answered, Answered, Answered}, 3, 0},
		{"GOAWAY after the second, and the first one's answer", func(c *peerConn, ids []uint32) bool {
			goAway(c, ids[1])
			c.answer(ids[0])
			return true
		}, [3]Outcome{Answered, Ambiguous, Answered}, 2, 0},
		{"GOAWAY after none, and it stays open", func(c *peerConn, ids []uint32) bool {
			goAway(c, 1)
			return false
		}, [3]Outcome{Answered, Answered, Answered}, 4, 0},
		{"a status, and the end in the middle of its body", func(c *peerConn, ids []uint32) bool {
			c.headers(ids[1], false, ":status", "410")
			c.WriteData(ids[1], false, []byte(`{"rea`))
			return true
		}, [3]Outcome{Ambiguous, Answered, Ambiguous}, 1, 0},
		{"a refusal", func(c *peerConn, ids []uint32) bool {
			c.WriteRSTStream(ids[2], http2.ErrCodeRefusedStream)
			return true
		}, [3]Outcome{Ambiguous, Ambiguous, Answered}, 2, 0},
		{"only the end", func(*peerConn, []uint32) bool { return true }, [3]Outcome{Ambiguous, Ambiguous, Ambiguous}, 1, 0},
		{"nothing: it waits as long as for a PING", func(c *peerConn, ids []uint32) bool {
			return false
		}, [3]Outcome{Ambiguous, Ambiguous, Ambiguous}, 1, 5 * time.Second},
		{"one answer meanwhile", func(c *peerConn, ids []uint32) bool {
			c.answer(ids[0])
			c.out.flush()
			time.Sleep(3 * time.Second)
			c.answer(ids[1])
			return false
		}, [3]Outcome{Answered, Answered, Ambiguous}, 1, 5 * time.Second},
		{"an answer, and a broken rule", func(c *peerConn, ids []uint32) bool {
			c.answer(ids[0])
			c.WriteData(99, true, nil)
			c.answer(ids[1])
			return false
		}, [3]Outcome{Answered, Ambiguous, Ambiguous}, 1, 0},
	} {
		t.Run(tc.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := severing(t, 0, tc.say)
				p := s.pool(Options{Connections: 1, Timeout: time.Hour})
				submit(t, p, post("/warm")).wait()
				rs := posts(3)
				arrived := submit(t, p, rs...)
				time.Sleep(2 * time.Second)
				start := time.Now()
				next := post("/next") // this write fails
				submit(t, p, next).wait()
				if took := time.Since(start); next.Outcome != Answered || took > time.Second {
					t.Errorf("the one that was not written: %v, %v after %v", next.Outcome, next.Err, took)
				}
				arrived.wait()
				if took := time.Since(start); took < tc.waits || took > tc.waits+time.Second {
					t.Errorf("given back after %v, want %v", took, tc.waits)
				}
				for i, r := range rs {
					if r.Outcome != tc.want[i] || r.Outcome == Ambiguous && !errors.Is(r.Err, ErrConnectionLost) {
						t.Errorf("request %d: %v, %v; want %v", i, r.Outcome, r.Err, tc.want[i])
					}
				}
				time.Sleep(10 * time.Millisecond) // until the first one's reader is back
				if st := p.Stats(); st.Connections != 1 || st.Dials != 2 || st.Resent != tc.resent {
					t.Errorf("%+v; want 1 connection, 2 dials, %d sent again", st, tc.resent)
				}
			})
		})
	}
}

// A request of which a part was written may have arrived, unless the server says
// that it has not.
func TestHalfWrittenRequest(t *testing.T) {
	for want, accepted := range map[Outcome]uint32{Ambiguous: maxStream, Answered: 7} {
		t.Run(want.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := severing(t, 10, func(c *peerConn, ids []uint32) bool {
					c.WriteGoAway(accepted, http2.ErrCodeNo, nil)
					for _, id := range ids {
						c.answer(id)
					}
					return true
				})
				p := s.pool(Options{Connections: 1, Timeout: time.Hour})
				submit(t, p, post("/warm")).wait()
				rs := posts(3) // streams 3, 5 and 7
				l := submit(t, p, rs...)
				time.Sleep(2 * time.Second)
				half := post("/half")
				submit(t, p, half).wait()
				l.wait()
				wantAll(t, rs, Answered)
				wantAll(t, []*Request{half}, want)
			})
		})
	}
}

// A connection that only reads on ends when nobody waits for it any more: the
// deadlines have passed, or the pool is closed.
func TestDrainingEndsEarly(t *testing.T) {
	for why, tc := range map[string]struct {
		deadline time.Duration
		close    bool
		want     error
	}{
		"deadlines": {3 * time.Second, false, ErrDeadline},
		"Close":     {time.Hour, true, ErrClosed},
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := severing(t, 0, func(*peerConn, []uint32) bool { return false })
				p := s.pool(Options{Connections: 1, Timeout: time.Hour})
				submit(t, p, post("/warm")).wait()
				rs := posts(3)
				for _, r := range rs {
					r.Deadline = time.Now().Add(tc.deadline)
				}
				l := submit(t, p, rs...)
				time.Sleep(2 * time.Second)
				submit(t, p, post("/next")).wait()
				start := time.Now()
				if tc.close {
					over, cancel := context.WithCancel(t.Context())
					cancel()
					p.Close(over)
				}
				l.wait()
				time.Sleep(10 * time.Millisecond) // until the first one's reader is back
				if st := p.Stats(); time.Since(start) > 2*time.Second || !tc.close && st.Connections != 1 {
					t.Errorf("after %v: %+v", time.Since(start), st)
				}
				for _, r := range rs {
					if r.Outcome != Ambiguous || !errors.Is(r.Err, tc.want) {
						t.Errorf("%v, %v", r.Outcome, r.Err)
					}
				}
			})
		})
	}
}

// Nothing new is left to a connection that only reads on, although it was the first to
// wait for more: it would lie there until that connection ends.
func TestNothingNewWaitsForWhoOnlyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.fill(post("/under way"))
		h.send()
		h.c.mu.Lock()
		h.c.mute = syscall.EPIPE
		h.c.retire()
		h.c.mu.Unlock()
		var drain sync.WaitGroup
		drain.Go(h.c.drain)
		synctest.Wait()
		other := newWaiter()
		h.p.queue.take(&other, nil, 1, 1)
		if _, err := h.p.queue.push(t.Context(), 0, posts(1)); err != nil {
			t.Fatal(err)
		}
		if len(other.wake) == 0 {
			t.Error("the connection that can still write was not woken")
		}
		h.c.cut()
		drain.Wait()
	})
}

// broken is a connection to which nothing can be written.
type broken struct{ net.Conn }

func (broken) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// What a failed write did not send goes elsewhere in its order, or is handed back at once
// if it may not be sent again. What was answered before it was written is answered.
func TestWhatAFailedWriteGivesBack(t *testing.T) {
	for _, tc := range []struct {
		why     string
		resends int
		status  int // that a server sends for the second one
		again   []string
		want    []Outcome // of those handed back, with the first in /a
	}{
		{"all go elsewhere", 3, 0, []string{"/a", "/b", "/c"}, []Outcome{Unfinished, Unfinished, Unfinished}},
		{"none may be sent again", -1, 0, nil, []Outcome{NotAccepted, NotAccepted, NotAccepted}},
		{"one has a status", 3, 410, []string{"/a", "/c"}, []Outcome{Unfinished, Answered, Unfinished}},
	} {
		h, back := newHalted(t), 0
		h.p.opt.Resends = tc.resends
		h.group = NewGroup(func(rs []*Request) { back += len(rs) })
		rs := []*Request{post("/a"), post("/b"), post("/c")}
		h.fill(rs...)
		h.c.mu.Lock()
		h.c.streams.get(3).status = tc.status
		h.c.mu.Unlock()
		h.c.nc = broken{&h.wrote}
		if h.c.send() {
			t.Fatal("the write went well")
		}
		h.c.drain()
		var again []string
		other := newWaiter()
		for _, r := range h.p.queue.take(&other, nil, 10, 10) {
			again = append(again, string(r.Path))
		}
		if !slices.Equal(again, tc.again) || back != len(rs)-len(tc.again) {
			t.Errorf("%s: %v go elsewhere, %d are handed back; want %v", tc.why, again, back, tc.again)
		}
		for i, r := range rs {
			if handedBack := !slices.Contains(tc.again, string(r.Path)); handedBack && r.Outcome != tc.want[i] {
				t.Errorf("%s: %s is %v, want %v", tc.why, r.Path, r.Outcome, tc.want[i])
			}
		}
	}
}

// slowReader is a TCP connection whose reader stands still from when it is
// armed until a write has failed.
type slowReader struct {
	net.Conn
	armed  atomic.Bool
	failed chan struct{} // closed by the first write that fails
	once   sync.Once
}

func (c *slowReader) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		c.once.Do(func() { close(c.failed) })
	}
	return n, err
}

func (c *slowReader) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.armed.Load() {
		<-c.failed
	}
	return n, err
}

// The same over TLS on loopback: the server says GOAWAY, answers and closes. The
// kernel keeps the answers, although it is told of a reset after them.
func TestWhatArrivedBeforeASocketBroke(t *testing.T) {
	var first *slowReader
	var held []uint32
	url, conf := startRaw(t, func(c *rawConn, stream uint32, n int64) {
		if c.number > 1 || n == 1 {
			c.answer(t, stream)
			return
		}
		if held = append(held, stream); len(held) < 3 {
			return
		}
		slices.Sort(held) // bodies need not end in the order of streams
		first.armed.Store(true)
		c.WriteGoAway(held[1], http2.ErrCodeNo, nil)
		for _, id := range held[:2] {
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}, EndHeaders: true})
			c.WriteData(id, true, make([]byte, maxFrame)) // more than the reader takes at once
		}
		c.Close()
	})
	p := open(t, Options{URL: url, TLS: conf, Connections: 1, PingTimeout: liveness, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil || first != nil {
			return c, err
		}
		first = &slowReader{Conn: c, failed: make(chan struct{})}
		return first, nil
	}})
	send(t, p, post("/warm"))
	var rs []*Request
	l := newLedger(t, 3)
	more := func(n int, done func([]*Request)) {
		t.Helper()
		next := posts(n)
		if _, err := p.Submit(t.Context(), 0, next, done); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, next...)
	}
	more(3, l.done)
	var others sync.WaitGroup
	for broken := false; !broken; {
		if first.armed.Load() { // the end of the connection is under way: a write will fail
			others.Add(1)
			more(1, func([]*Request) { others.Done() })
		}
		select {
		case <-first.failed:
			broken = true
		case <-time.After(time.Millisecond):
		}
	}
	l.wait()
	others.Wait()
	for i, r := range rs {
		if r.Outcome != Answered || i < 2 && len(r.Answer.Body) != maxFrame {
			t.Errorf("request %d of %d: %v, %v, %d bytes", i, len(rs), r.Outcome, r.Err, len(r.Answer.Body))
		}
	}
	if st := p.Stats(); st.Dials != 2 || st.Resent != int64(len(rs)-2) {
		t.Errorf("%+v; want 2 dials, %d sent again", st, len(rs)-2)
	}
}
