package h2

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// stage is a server that the test moves step by step: it records what arrives,
// and answers when told to. It is for tests in virtual time, between two calls
// of synctest.Wait.
type stage struct {
	t *testing.T
	*peer

	mu      sync.Mutex
	conns   []*peerConn
	open    map[place]bool    // streams that are not finished
	held    []place           // complete requests, in order
	bodies  map[uint32][]byte // of the latest connection
	limit   int               // in force: acknowledged
	coming  int               // sent
	resets  map[uint32]http2.ErrCode
	probes  int // PINGs received
	goAway  *http2.ErrCode
	blocks  int            // HEADERS received
	granted map[uint32]int // WINDOW_UPDATEs, by stream
}

// place is a stream of a connection.
type place struct {
	c  *peerConn
	id uint32
}

func newStage(t *testing.T, settings ...http2.Setting) *stage {
	s := &stage{t: t, peer: newPeer(t), open: map[place]bool{}, limit: 1 << 30, coming: 1 << 30}
	s.peer.settings = settings
	s.granted = map[uint32]int{}
	s.peer.onPing = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.probes++
	}
	s.peer.onWindow = func(f *http2.WindowUpdateFrame) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.StreamID != 0 {
			s.granted[f.StreamID] += int(f.Increment)
		}
	}
	s.peer.script = s.run
	return s
}

func (s *stage) run(c *peerConn, _ int) {
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.bodies, s.resets = map[uint32][]byte{}, map[uint32]http2.ErrCode{}
	s.mu.Unlock()
	for s.frame(c, c.next()) {
	}
}

func (s *stage) frame(c *peerConn, f http2.Frame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f := f.(type) {
	case nil:
		return false
	case *http2.SettingsFrame:
		s.limit = s.coming
	case *http2.PingFrame:
		// an answer to one of the tests
	case *http2.MetaHeadersFrame:
		s.blocks++
		if len(s.open) >= s.limit {
			s.t.Errorf("stream %d opened beside %d others; %d are granted", f.StreamID, len(s.open), s.limit)
		}
		s.open[place{c, f.StreamID}] = true
		if f.StreamEnded() {
			s.held = append(s.held, place{c, f.StreamID})
		}
	case *http2.DataFrame:
		s.bodies[f.StreamID] = append(s.bodies[f.StreamID], f.Data()...)
		if f.StreamEnded() {
			s.held = append(s.held, place{c, f.StreamID})
		}
	case *http2.RSTStreamFrame:
		s.resets[f.StreamID] = f.ErrCode
		delete(s.open, place{c, f.StreamID})
	case *http2.GoAwayFrame:
		s.goAway = &f.ErrCode
	}
	return true
}

// conn is the latest connection.
func (s *stage) conn() *peerConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[len(s.conns)-1]
}

// answers finishes the n oldest complete requests.
func (s *stage) answers(n int) {
	synctest.Wait()
	s.mu.Lock()
	at := s.held[:n]
	for _, h := range at {
		delete(s.open, h)
	}
	s.held = s.held[n:]
	s.mu.Unlock()
	for _, h := range at {
		h.c.answer(h.id)
	}
	synctest.Wait()
}

// set sends SETTINGS.
func (s *stage) set(settings ...http2.Setting) {
	c := s.conn()
	s.mu.Lock()
	for _, v := range settings {
		if v.ID == http2.SettingMaxConcurrentStreams {
			s.coming = int(v.Val)
			s.limit = max(s.limit, s.coming)
		}
	}
	s.mu.Unlock()
	c.WriteSettings(settings...)
	synctest.Wait()
}

// counts are the numbers of open streams and of complete requests without an
// answer.
func (s *stage) counts() (open, held int) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), len(s.held)
}

func (s *stage) expect(what string, open, held int) {
	s.t.Helper()
	if o, h := s.counts(); o != open || h != held {
		s.t.Fatalf("%s: %d streams open, %d requests complete; want %d and %d", what, o, h, open, held)
	}
}

// submit queues requests and returns their ledger.
func submit(t *testing.T, p *Pool, rs ...*Request) *ledger {
	t.Helper()
	l := newLedger(t, len(rs))
	if n, err := p.Submit(t.Context(), 0, rs, l.done); n != len(rs) || err != nil {
		t.Fatalf("Submit: %d, %v", n, err)
	}
	synctest.Wait()
	return l
}

// lease lapses at a time that the test sets.
type lease struct{ until atomic.Pointer[time.Time] }

// leased returns a lease that lapses after d.
func leased(d time.Duration) *lease {
	l := &lease{}
	l.extend(d)
	return l
}

func (l *lease) extend(d time.Duration) {
	until := time.Now().Add(d)
	l.until.Store(&until)
}

func (l *lease) Lapsed(now time.Time) bool { return now.After(*l.until.Load()) }

func posts(n int) []*Request {
	rs := make([]*Request, n)
	for i := range rs {
		rs[i] = post("/a")
	}
	return rs
}

func wantAll(t *testing.T, rs []*Request, o Outcome) {
	t.Helper()
	for i, r := range rs {
		if r.Outcome != o {
			t.Fatalf("request %d: %v, %v; want %v", i, r.Outcome, r.Err, o)
		}
	}
}

func TestStreamLimitFollowsSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1000})
		p := s.pool(Options{Connections: 1})
		limit := func(n uint32) { s.set(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: n}) }
		rs := posts(4000)
		l := submit(t, p, rs...)
		s.expect("before the first answer", 1, 1)
		s.answers(1)
		s.expect("after it", 1000, 1000)
		limit(1)
		s.answers(999)
		s.expect("with the limit at 1 while 1000 were open", 1, 1)
		s.answers(1)
		s.expect("then one by one", 1, 1)
		limit(0)
		s.answers(1)
		s.expect("with the limit at 0", 0, 0)
		limit(500)
		s.expect("with the limit at 500", 500, 500)
		for _, held := s.counts(); held > 0; _, held = s.counts() {
			s.answers(held)
		}
		l.wait()
		wantAll(t, rs, Answered)
		if st := p.Stats(); st.Dials != 1 {
			t.Errorf("%d connections", st.Dials)
		}
	})
}

func TestFirstAnswerMustBeAuthenticated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1})
		l := submit(t, p, posts(10)...)
		for range 3 {
			s.expect("one at a time", 1, 1)
			h := s.held[0]
			s.held, s.open = nil, map[place]bool{}
			h.c.headers(h.id, true, ":status", "403")
		}
		s.expect("still one at a time", 1, 1)
		s.answers(1)
		s.expect("after an accepted one", 6, 6)
		s.answers(6)
		l.wait()
	})
}

// Without Apple's rule a slow first answer holds nothing up: only the server's
// SETTINGS are waited for, and a refusal of the sender changes nothing.
func TestAllStreamsAtOnceWithoutTheRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 6})
		p := openAsIs(t, s.reachedBy(Options{Connections: 1, StreamsPerConnection: 4}))
		l := submit(t, p, posts(10)...)
		s.expect("before any answer", 4, 4)
		h := s.held[0]
		s.held = s.held[1:]
		delete(s.open, h)
		h.c.headers(h.id, true, ":status", "401")
		s.expect("after a 401", 4, 4)
		for _, held := s.counts(); held > 0; _, held = s.counts() {
			s.answers(held)
		}
		l.wait()
	})
}

// A connection that the server no longer knows has one stream again, until the
// server knows it. Answers about anything else change nothing.
func TestOneStreamAgainWhenUnauthenticated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, StreamsPerConnection: 4, AnswerHeaders: []string{"why"},
			Unauthenticated: func(a *Answer) bool { return string(a.Header[0]) == "token" }})
		refuse := func(status, why string) {
			t.Helper()
			h := s.held[0]
			s.held = s.held[1:]
			delete(s.open, h)
			h.c.headers(h.id, true, ":status", status, "why", why)
			synctest.Wait()
		}
		l := submit(t, p, posts(20)...)
		s.expect("at first", 1, 1)
		refuse("403", "message")
		s.expect("known, though the message was refused", 4, 4)
		refuse("403", "token")
		s.expect("not known any more: those in flight", 3, 3)
		s.answers(1)
		s.expect("one of them says otherwise", 4, 4)
		refuse("403", "message")
		s.expect("as before", 4, 4)
		for range 4 {
			refuse("401", "token")
		}
		s.expect("one at a time", 1, 1)
		refuse("403", "token")
		s.expect("still", 1, 1)
		refuse("400", "token")
		s.expect("known by an error of another kind", 4, 4)
		for _, held := s.counts(); held > 0; _, held = s.counts() {
			s.answers(held)
		}
		l.wait()
	})
}

func TestFlowControlHoldsBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		p := s.pool(Options{Connections: 1})
		warm := post("/warm") // it is sent before the server's SETTINGS arrive
		l := submit(t, p, warm)
		s.answers(1)
		l.wait()
		rs := posts(3)
		for i, r := range rs {
			r.Body = bytes.Repeat([]byte{'a' + byte(i)}, 40_000)
		}
		l = submit(t, p, rs...)
		s.expect("window 0", 3, 0)
		s.conn().WriteWindowUpdate(3, 100)
		synctest.Wait()
		if n := len(s.bodies[3]); n != 100 {
			t.Errorf("%d bytes of a window of 100", n)
		}
		s.set(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 39_900})
		s.expect("all of the first, the second up to the connection's window", 3, 1)
		sent := func() int { return len(s.bodies[3]) + len(s.bodies[5]) + len(s.bodies[7]) }
		if n := sent() + len(warm.Body); n != 65_535 {
			t.Errorf("%d bytes, want 65535", n)
		}
		// A smaller initial window makes the second stream's window negative,
		// and lets the third send 10 bytes.
		s.set(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
		s.conn().WriteWindowUpdate(0, 1<<20)
		synctest.Wait()
		if n := sent() + len(warm.Body); n != 65_545 {
			t.Errorf("%d bytes, want 65545", n)
		}
		s.conn().WriteWindowUpdate(5, 40_000)
		s.conn().WriteWindowUpdate(7, 40_000)
		s.expect("all", 3, 3)
		for i, id := range []uint32{3, 5, 7} {
			if !bytes.Equal(s.bodies[id], rs[i].Body) {
				t.Errorf("body of stream %d: %d bytes", id, len(s.bodies[id]))
			}
		}
		s.answers(3)
		l.wait()
		wantAll(t, rs, Answered)
	})
}

func TestHeaderTableSizeIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t) // its decoder fails the test if the tables differ
		p := s.pool(Options{Connections: 1})
		table := func(n uint32) {
			s.set(http2.Setting{ID: http2.SettingHeaderTableSize, Val: n})
		}
		one := func() {
			t.Helper()
			r := post("/a")
			r.Header = append(r.Header, Field{Name: "apns-id", Value: []byte("1"), Indexing: NotIndexed}, Field{Name: "secret", Value: []byte("2"), Indexing: NeverIndexed})
			l := submit(t, p, r)
			s.expect("one request", 1, 1)
			s.answers(1)
			l.wait()
			if r.Outcome != Answered {
				t.Fatalf("%v, %v", r.Outcome, r.Err)
			}
		}
		for _, n := range []uint32{4096, 0, 4096, 100, 1 << 20, 0, 64} {
			one()
			table(n)
			one()
			one()
		}
		// Down and up between two blocks: the smaller size must be announced.
		s.set(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096})
		one()
		table(0)
		table(200)
		one()
	})
}

func TestLargeHeadersNeedContinuation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1})
		r := post("/a")
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			r.Header = append(r.Header, Field{Name: name, Value: bytes.Repeat([]byte("x"), 8000), Indexing: NotIndexed})
		}
		l := submit(t, p, r)
		s.expect("one request of 40 KB of headers", 1, 1)
		s.answers(1)
		l.wait()
		s.set(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1 << 20})
		r.Body = bytes.Repeat([]byte("y"), 60_000)
		l = submit(t, p, r)
		s.expect("one request of one large frame", 1, 1)
		s.answers(1)
		l.wait()
		wantAll(t, []*Request{r}, Answered)
	})
}

// Bodies longer than a write are also sent one after the other.
func TestLongBodiesInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		p := s.pool(Options{Connections: 1})
		for i := range 10 {
			r := post("/long")
			r.Body = bytes.Repeat([]byte("x"), 60_000)
			l := submit(t, p, r)
			s.conn().WriteWindowUpdate(0, 60_000)
			s.expect("long body number "+strconv.Itoa(i), 1, 1)
			s.answers(1)
			l.wait()
		}
	})
}

func TestStreamIDsRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, firstStream: lastStream - 8, Backoff: 1, MaxBackoff: 1})
		rs := posts(50)
		l := submit(t, p, rs...)
		for answered := 0; answered < 50; time.Sleep(10 * time.Millisecond) {
			_, held := s.counts()
			s.answers(held)
			answered += held
		}
		l.wait()
		wantAll(t, rs, Answered)
		if d := p.Stats().Dials; d < 2 {
			t.Errorf("%d connections for ids that were used up", d)
		}
	})
}

func TestNearTheVeryLastStreamID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.answerAll()
		p := s.pool(Options{Connections: 1, firstStream: maxStream - 100, Backoff: 1, MaxBackoff: 1})
		rs := posts(20)
		submit(t, p, rs...).wait()
		wantAll(t, rs, Answered)
	})
}

func TestSlowStreamDoesNotBlockItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, StreamsPerConnection: 2})
		l := submit(t, p, post("/warm"))
		s.answers(1)
		l.wait()
		slow := post("/slow")
		submit(t, p, slow)
		synctest.Wait()
		old := s.held[0]
		s.held = nil
		for i := range 100 { // several times around the 16 slots
			l := submit(t, p, post("/fast"))
			s.expect("beside a slow one", 2, 1)
			if s.held[0] == old {
				t.Fatal("an id was used twice")
			}
			s.answers(1)
			l.wait()
			if slow.Outcome != Unfinished {
				t.Fatalf("the slow one was ended by the %d-th other: %v", i, slow.Outcome)
			}
		}
		old.c.answer(old.id)
		synctest.Wait()
		wantAll(t, []*Request{slow}, Answered)
	})
}
