package h2

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

func TestBlackHoleIsNoticedWithin20Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.script = func(c *peerConn, n int) {
			for i := 0; ; i++ {
				if n == 1 && i == 1 { // reads on but never sends anything again
					for {
						if _, err := c.Conn.Read(make([]byte, 1024)); err != nil {
							return
						}
					}
				}
				stream := c.request()
				if stream == 0 {
					return
				}
				c.answer(stream)
			}
		}
		p := s.pool(Options{Connections: 1, Timeout: time.Minute})
		submit(t, p, post("/warm")).wait()
		lost := posts(5)
		start := time.Now()
		submit(t, p, lost...).wait()
		if took := time.Since(start); took > 20*time.Second || took < 10*time.Second {
			t.Errorf("noticed after %v", took)
		}
		for _, r := range lost {
			if r.Outcome != Ambiguous || !errors.Is(r.Err, ErrConnectionLost) {
				t.Errorf("%v, %v", r.Outcome, r.Err)
			}
		}
		next := post("/next")
		submit(t, p, next).wait()
		if next.Outcome != Answered || p.Stats().Connections != 1 {
			t.Errorf("afterwards: %v, %d connections", next.Outcome, p.Stats().Connections)
		}
	})
}

func TestSilentButAliveConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1})
		l := submit(t, p, post("/warm"))
		s.answers(1)
		l.wait()
		time.Sleep(time.Hour) // the script answers its PINGs
		l = submit(t, p, post("/again"))
		s.answers(1)
		l.wait()
		if d := p.Stats().Dials; d != 1 {
			t.Errorf("%d connections", d)
		}
	})
}

// slowed is a connection whose reader stands still until a time.
type slowed struct {
	net.Conn
	until *atomic.Pointer[time.Time]
}

func (c slowed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if until := c.until.Load(); until != nil {
		time.Sleep(time.Until(*until))
	}
	return n, err
}

// When a process that stood still goes on, the sweeper may be quicker than the
// readers. Answers that have arrived meanwhile count, and their connection is
// not silent.
func TestAnswersThatCameDuringAStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.script = func(c *peerConn, _ int) {
			c.answer(c.request())
			for id := c.request(); id != 0; id = c.request() {
				time.Sleep(2 * time.Second)
				c.answer(id)
			}
		}
		var reader atomic.Pointer[time.Time]
		s.wrap = func(c net.Conn) net.Conn { return slowed{c, &reader} }
		p := s.pool(Options{Connections: 1, StreamsPerConnection: 1})
		submit(t, p, post("/warm")).wait()
		r, late := post("/a"), post("/late")
		l := submit(t, p, r)
		goesOn := time.Now().Add(30*time.Second - time.Millisecond) // a sweep is due soon
		caughtUp := goesOn.Add(20 * time.Millisecond)
		reader.Store(&caughtUp)
		late.Deadline = time.Now().Add(time.Second)
		// It waits for the stream of the other, and the sweeper hands it back.
		if _, err := p.Submit(t.Context(), 0, []*Request{late}, func([]*Request) { time.Sleep(time.Until(goesOn)) }); err != nil {
			t.Fatal(err)
		}
		l.wait()
		if r.Outcome != Answered || p.Stats().Dials != 1 {
			t.Errorf("%v, %v, %d connections", r.Outcome, r.Err, p.Stats().Dials)
		}
	})
}

// deaf is a server that stops reading after the first answer of its first
// connection, and continues to send what say writes. Other connections work.
func deaf(t *testing.T, say func(c *peerConn)) *peer {
	s := newPeer(t)
	s.script = func(c *peerConn, n int) {
		for stream := c.request(); stream != 0; stream = c.request() {
			c.answer(stream)
			if n == 1 {
				c.next() // the client's acknowledgement of SETTINGS
				say(c)
				return
			}
		}
	}
	return s
}

// A server that sends something every second is not silent. That it no longer
// reads is still noticed, and requests of which it took nothing go elsewhere.
func TestServerThatDoesNotReadIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := deaf(t, func(c *peerConn) {
			for c.WriteWindowUpdate(0, 1) == nil && !c.gone() {
				time.Sleep(time.Second)
			}
		})
		p := s.pool(Options{Connections: 1, Timeout: time.Hour})
		submit(t, p, post("/warm")).wait()
		start := time.Now()
		r := post("/stuck")
		submit(t, p, r).wait()
		if took := time.Since(start); took > 20*time.Second || took < 15*time.Second {
			t.Errorf("noticed after %v", took)
		}
		synctest.Wait()
		if cause := p.Stats().Trouble.Cause; r.Outcome != Answered || p.Stats().Dials != 2 || !strings.Contains(cause, "a write did not end") {
			t.Errorf("%v, %v, %d connections; %s", r.Outcome, r.Err, p.Stats().Dials, cause)
		}
	})
}

// A server that also breaks the protocol gets less time to read why the
// connection ends.
func TestServerThatDoesNotReadGoAwayIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.script = func(c *peerConn, _ int) {
			c.request()
			c.next()
			c.WriteData(99, true, nil)
			time.Sleep(time.Hour)
		}
		p := s.pool(Options{Connections: 1, Timeout: time.Hour, Resends: -1})
		start := time.Now()
		r := post("/a")
		submit(t, p, r).wait()
		if took := time.Since(start); took > time.Second+2*sweepInterval || r.Outcome != Ambiguous {
			t.Errorf("%v, %v after %v", r.Outcome, r.Err, took)
		}
	})
}

// While answers arrive, the connection's window is refilled before the server
// has used it up, even if the server counts exactly.
func TestConnectionWindowIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = 16 << 10
		window, least := firstWindow, connWindow // as the server counts
		s := newPeer(t)
		s.onWindow = func(f *http2.WindowUpdateFrame) {
			if f.StreamID == 0 {
				window += int(f.Increment)
			}
		}
		s.script = func(c *peerConn, _ int) {
			for stream := c.request(); stream != 0; stream = c.request() {
				c.headers(stream, false, ":status", "200")
				c.WriteData(stream, true, make([]byte, body))
				window -= body
				least = min(least, window)
			}
		}
		p := s.pool(Options{Connections: 1, MaxAnswer: body})
		for range 3 * connWindow / body / 100 {
			rs := posts(100)
			submit(t, p, rs...).wait()
			wantAll(t, rs, Answered)
		}
		synctest.Wait()
		if least < connWindow/2-200*body || window > connWindow || p.Stats().Dials != 1 {
			t.Errorf("a window of %d to %d, of %d; %d connections", least, window, connWindow, p.Stats().Dials)
		}
	})
}

// The slot of a stream that was reset stays taken until the PING after that
// reset is answered. The answer to an earlier PING says nothing about it.
func TestEarlierPingFreesNoLaterSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		first, second, third := post("/first"), post("/second"), post("/third")
		first.until, second.until = time.Now().Add(time.Second), time.Now().Add(2*time.Second)
		h.fill(first, second, third)
		h.send()
		after := func(what string, ended int) {
			t.Helper()
			h.fill()
			h.send()
			if h.c.ended != ended {
				t.Errorf("%s: %d slots wait for the server, want %d", what, h.c.ended, ended)
			}
		}
		pong := func(n uint64) []byte { return appendPing(nil, http2.FlagPingAck, n) }
		time.Sleep(1100 * time.Millisecond)
		h.sweep() // resets the first stream, and sends PING 1
		after("one reset", 1)
		h.read(append(appendFrameHeader(nil, 1, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 5), 0x88)) // the third stream's answer
		time.Sleep(time.Second)
		h.sweep() // resets the second stream
		after("two reset", 2)
		if h.c.pings != 1 {
			t.Errorf("%d PINGs at once", h.c.pings)
		}
		h.read(pong(1))
		after("the PING between them is answered", 1)
		h.read(appendFrameHeader(nil, 0, http2.FrameData, http2.FlagDataEndStream, 5)) // and its end
		h.sweep()                                                                      // sends PING 2
		after("another PING is out", 1)
		h.read(pong(3))
		after("one that was never sent", 1)
		h.read(pong(2))
		after("it is answered", 0)
	})
}

func TestPastDeadlineKeepsItsStreamUntilTheServerKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2})
		p := s.pool(Options{Connections: 1, Timeout: time.Hour})
		l := submit(t, p, post("/warm"))
		s.answers(1)
		l.wait()
		late := posts(2)
		for _, r := range late {
			r.Deadline = time.Now().Add(time.Second)
		}
		l = submit(t, p, late...)
		next := posts(2)
		submit(t, p, next...)
		s.expect("at the limit", 2, 2)
		l.wait()
		for _, r := range late {
			if r.Outcome != Ambiguous || !errors.Is(r.Err, ErrDeadline) {
				t.Errorf("%v, %v", r.Outcome, r.Err)
			}
		}
		synctest.Wait()
		if took := time.Until(late[0].Deadline); took > 0 || took < -2*sweepInterval {
			t.Errorf("ended %v before its deadline", took)
		}
		if len(s.resets) != 2 || s.resets[3] != http2.ErrCodeCancel {
			t.Errorf("resets: %v", s.resets)
		}
		// The script answers the PING after the resets: two streams are free.
		s.mu.Lock()
		s.held = slices.DeleteFunc(s.held, func(h place) bool { _, reset := s.resets[h.id]; return reset })
		s.mu.Unlock()
		s.expect("the next two", 2, 2)
		s.answers(2)
		wantAll(t, next, Answered)
	})
}

func TestAnswerAfterTheDeadlineIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, Timeout: time.Second})
		r := post("/late")
		l := submit(t, p, r)
		s.expect("under way", 1, 1)
		l.wait()
		synctest.Wait()
		s.conn().headers(1, false, ":status", "200", "apns-id", "late")
		s.conn().WriteData(1, true, []byte("late"))
		synctest.Wait()
		if r.Outcome != Ambiguous {
			t.Errorf("%v, %v", r.Outcome, r.Err)
		}
		s.held = nil
		again := post("/again")
		l = submit(t, p, again)
		s.expect("the next", 1, 1)
		s.answers(1)
		l.wait()
		if again.Outcome != Answered || p.Stats().Dials != 1 {
			t.Errorf("%v, %v, %d connections", again.Outcome, again.Err, p.Stats().Dials)
		}
	})
}

func TestLeaseAndExpiryAreCheckedBeforeWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		lease := leased(time.Second)
		p := s.pool(Options{Connections: 1, Timeout: time.Minute, Lease: lease})
		first := post("/first")
		submit(t, p, first)
		waiting, own, expires := post("/waiting"), post("/own"), post("/expires")
		own.Lease = leased(time.Hour)
		expires.Expires = time.Now().Add(500 * time.Millisecond)
		submit(t, p, waiting, own, expires)
		time.Sleep(2 * time.Second)
		s.answers(1)
		wantAll(t, []*Request{first}, Answered)
		if waiting.Outcome != NotAccepted || !errors.Is(waiting.Err, ErrLeaseLapsed) {
			t.Errorf("lapsed: %v, %v", waiting.Outcome, waiting.Err)
		}
		if expires.Outcome != ExpiredUnsent {
			t.Errorf("expired: %v, %v", expires.Outcome, expires.Err)
		}
		s.expect("only the one with its own lease was written", 1, 1)
		s.answers(1)
		wantAll(t, []*Request{own}, Answered)
		after := post("/after")
		submit(t, p, after)
		if after.Outcome != NotAccepted || s.blocks != 2 {
			t.Errorf("after the lease: %v, %v, %d written", after.Outcome, after.Err, s.blocks)
		}
		lease.extend(time.Hour)
		submit(t, p, after)
		s.answers(1)
		wantAll(t, []*Request{after}, Answered)
	})
}

// The process stands still between encoding and writing: nothing may be sent.
// The test plays the writer here and stops in the middle.
func TestStaleAtTheLastMomentIsWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		make    func(r *Request)
		stale   bool
		outcome Outcome
		err     error
	}{
		"lease lapsed":    {func(r *Request) { r.Lease = leased(time.Second) }, true, NotAccepted, ErrLeaseLapsed},
		"expired":         {func(r *Request) { r.Expires = time.Now().Add(time.Second) }, true, ExpiredUnsent, nil},
		"deadline passed": {func(r *Request) { r.until = time.Now().Add(time.Second) }, true, NotAccepted, ErrDeadline},
		"good for long":   {func(r *Request) { r.Lease, r.Expires = leased(time.Hour), time.Now().Add(time.Hour) }, false, Unfinished, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testWithdrawn(t, tc.make, tc.stale, tc.outcome, tc.err) })
		})
	}
}

func testWithdrawn(t *testing.T, change func(*Request), stale bool, outcome Outcome, why error) {
	h := newHalted(t)
	flying, late, other := post("/flying"), post("/late"), post("/other")
	late.until = time.Now().Add(time.Minute)
	change(late)
	h.fill(flying)
	h.wantFrames("in flight", h.send(), "/flying", "DATA")
	window := h.c.sendWindow
	h.fill(late, other)
	time.Sleep(1500 * time.Millisecond)
	if !stale {
		h.wantFrames("both", h.send(), "/late", "DATA", "/other", "DATA")
		return
	}
	h.wantFrames("nothing", h.send())
	if late.Outcome != outcome || !errors.Is(late.Err, why) {
		t.Errorf("late: %v, %v", late.Outcome, late.Err)
	}
	if h.p.queue.len() != 1 || other.Outcome != Unfinished || h.c.sendWindow != window {
		t.Errorf("%d wait to be written; %v; window %d of %d", h.p.queue.len(), other.Outcome, h.c.sendWindow, window)
	}
	h.fill()
	h.wantFrames("the other, over the same connection", h.send(), "/other", "DATA")
	h.read(append(appendFrameHeader(nil, 1, http2.FrameHeaders, 5, 1), 0x88))
	wantAll(t, []*Request{flying}, Answered)
}

func TestReserveIsForTheFirstLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, StreamsPerConnection: 10, Reserve: 3, Lanes: []Lane{{"critical", 1, 100}, {"bulk", 1, 100}}})
		l := submit(t, p, post("/warm"))
		s.expect("one until the server knows us", 1, 1)
		if n := p.Stats().Granted; n != 1 {
			t.Errorf("%d streams granted before the first answer, want 1", n)
		}
		s.answers(1)
		l.wait()
		bulk := posts(20)
		if _, err := p.Submit(t.Context(), 1, bulk, func([]*Request) {}); err != nil {
			t.Fatal(err)
		}
		s.expect("bulk leaves three", 7, 7)
		urgent := posts(5)
		submit(t, p, urgent...)
		s.expect("the first lane has them", 10, 10)
		s.held = append(s.held[7:], s.held[:7]...)
		s.answers(3)
		wantAll(t, urgent[:3], Answered)
		s.expect("and the next of it", 9, 9)
		for range 20 {
			_, held := s.counts()
			s.answers(held)
		}
		wantAll(t, bulk, Answered)
		wantAll(t, urgent, Answered)
	})
}

func TestDialsAreSpreadAndFreshlyLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.answerAll()
		var mu sync.Mutex
		var dialed []string
		var times []time.Time
		lookups, under, most := 0, 0, 0
		opt := Options{URL: "https://push.example", Connections: 12, StreamsPerConnection: 1, Lanes: []Lane{{"only", 1, 1000}}}
		opt.secure = func(_ context.Context, c net.Conn) (net.Conn, error) { return c, nil }
		opt.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
			mu.Lock()
			defer mu.Unlock()
			lookups++
			if host != "push.example" {
				t.Errorf("looked up %q", host)
			}
			return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("::ffff:10.0.0.3"), netip.MustParseAddr("2001:db8::4")}, nil
		}
		opt.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			under++
			most = max(most, under)
			times = append(times, time.Now())
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			under--
			if strings.HasPrefix(address, "10.0.0.2") {
				return nil, errors.New("refused")
			}
			dialed = append(dialed, address)
			return s.dial(ctx, network, address)
		}
		p := open(t, opt)
		rs := posts(200)
		submit(t, p, rs...).wait()
		wantAll(t, rs, Answered)
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		count := map[string]int{}
		for _, a := range dialed {
			count[a]++
		}
		if len(count) != 3 || count["10.0.0.3:443"] < 2 || count["[2001:db8::4]:443"] < 2 || count["10.0.0.1:443"] < 2 {
			t.Errorf("connections per address: %v", count)
		}
		if int64(lookups) != p.Stats().Dials {
			t.Errorf("%d lookups for %d dials", lookups, p.Stats().Dials)
		}
		if most > dialsAtOnce {
			t.Errorf("%d dials at once", most)
		}
		if times[0].Equal(times[3]) {
			t.Error("no jitter between dials")
		}
	})
}

func TestConnectionsThatDieAtOnceAreNotStormed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.script = func(c *peerConn, _ int) { // GOAWAY after each answer
			stream := c.request()
			c.WriteGoAway(stream, http2.ErrCodeNo, []byte(`{"reason":"Shutdown"}`))
			c.answer(stream)
			for c.next() != nil {
			}
		}
		p := s.pool(Options{Connections: 4, Timeout: time.Hour})
		rs := posts(200)
		start := time.Now()
		submit(t, p, rs...)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wantAll(t, rs, Answered)
		st := p.Stats()
		if st.Dials > 220 || st.GoAways < 200 || float64(st.Dials) > 8+10*time.Since(start).Seconds() {
			t.Errorf("%d dials in %v, %d GOAWAYs", st.Dials, time.Since(start), st.GoAways)
		}
	})
}
