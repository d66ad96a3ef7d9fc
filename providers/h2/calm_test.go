package h2

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// calmStage is a stage with a warm connection.
func calmStage(t *testing.T, opt Options) (*stage, *Pool) {
	s := newStage(t)
	p := s.pool(opt)
	synctest.Wait() // all places have found nothing to do
	l := submit(t, p, post("/warm"))
	s.answers(1)
	l.wait()
	return s, p
}

// untilOpen waits until the server has want requests, and returns how long that
// took.
func (s *stage) untilOpen(want int) time.Duration {
	s.t.Helper()
	start := time.Now()
	for {
		if _, held := s.counts(); held >= want {
			return time.Since(start)
		}
		if time.Since(start) > time.Hour {
			_, held := s.counts()
			s.t.Fatalf("%d of %d requests came within an hour", held, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// calm resets the oldest stream, as an overloaded server does.
func (s *stage) calm() {
	s.t.Helper()
	h := s.held[0]
	s.held = s.held[1:]
	delete(s.open, h)
	h.c.WriteRSTStream(h.id, http2.ErrCodeEnhanceYourCalm)
	synctest.Wait()
}

// within checks a duration that has up to a quarter of jitter and is observed
// in steps.
func within(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want-sweepInterval || got > want+want/4+2*sweepInterval {
		t.Errorf("%s: after %v, want %v", what, got, want)
	}
}

// Each complaint halves the streams, after a pause that doubles. Without
// complaints they return step by step.
func TestCalmResetSlowsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := calmStage(t, Options{Connections: 1, StreamsPerConnection: 16, Timeout: 10 * time.Hour})
		l := submit(t, p, posts(1000)...)
		s.expect("at full speed", 16, 16)
		for i, k := range []struct {
			pause   time.Duration
			streams int
		}{{time.Second, 8}, {2 * time.Second, 4}, {4 * time.Second, 2}, {8 * time.Second, 1}, {10 * time.Second, 1}} {
			p.opt.MaxCalmPause = 10 * time.Second
			s.calm()
			_, held := s.counts()
			for range min(held, 2) {
				s.calm() // more of the same complaint
			}
			_, held = s.counts()
			s.answers(held)
			within(t, "the pause", s.untilOpen(1), k.pause)
			s.expect("slowed down", k.streams, k.streams)
			if st := p.Stats(); st.Calms != int64(i+1) || st.Granted != int64(k.streams) || st.InFlight != st.Granted {
				t.Fatalf("%+v, want %d complaints and %d streams granted and used", st, i+1, k.streams)
			}
		}
		// Four times 10 s, 5 s, 2.5 s … until the next step back. The first
		// step is not visible: a connection keeps one stream.
		for _, k := range []struct {
			after   time.Duration
			streams int
		}{{60 * time.Second, 2}, {10 * time.Second, 4}, {5 * time.Second, 8}, {2500 * time.Millisecond, 16}} {
			within(t, "the step back", s.untilOpen(k.streams), k.after)
			s.expect("one step back", k.streams, k.streams)
			for range 3 { // they are still answered
				s.answers(k.streams)
			}
			s.expect("and not more", k.streams, k.streams)
		}
		for _, held := s.counts(); held > 0; _, held = s.counts() {
			s.answers(held)
		}
		l.wait()
	})
}

// No place replaces a connection that ended with a complaint before the pause
// is over, and each pause is longer than the last.
func TestCalmGoAwaySlowsDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := calmStage(t, Options{Connections: 5, Timeout: time.Hour})
		for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			s.conn().WriteGoAway(1<<31-1, http2.ErrCodeEnhanceYourCalm, []byte(`{"reason":"BadDeviceToken"}`))
			synctest.Wait()
			before := p.Stats().Dials
			l := submit(t, p, post("/a"))
			within(t, "the dial", s.untilOpen(1), pause)
			if st := p.Stats(); st.Dials != before+1 || st.GoAways != int64(i+1) || st.Calms != int64(i+1) {
				t.Errorf("%+v", st)
			}
			s.answers(1)
			l.wait()
		}
		time.Sleep(4 * (8 + 4 + 2 + 1) * time.Second)
		time.Sleep(10 * sweepInterval)
		s.conn().WriteGoAway(1<<31-1, http2.ErrCodeEnhanceYourCalm, nil)
		synctest.Wait()
		l := submit(t, p, post("/a"))
		within(t, "the dial after a long peace", s.untilOpen(1), time.Second)
		s.answers(1)
		l.wait()
	})
}

// Other ends of connections and streams are not complaints.
func TestOnlyCalmIsCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := calmStage(t, Options{Connections: 1, Timeout: time.Hour})
		l := submit(t, p, posts(5)...)
		s.expect("five", 5, 5)
		for _, code := range []http2.ErrCode{http2.ErrCodeCancel, http2.ErrCodeInternal, http2.ErrCodeProtocol} {
			h := s.held[0]
			s.held = s.held[1:]
			delete(s.open, h)
			h.c.WriteRSTStream(h.id, code)
		}
		s.answers(2)
		l.wait()
		s.conn().WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
		synctest.Wait()
		l = submit(t, p, post("/a"))
		if d := s.untilOpen(1); d > 500*time.Millisecond {
			t.Errorf("a new connection after %v", d)
		}
		s.answers(1)
		l.wait()
		if n := p.Stats().Calms; n != 0 {
			t.Errorf("%d complaints", n)
		}
	})
}

// The caller can complain in the server's name, and a pool that pauses can be
// closed at once.
func TestCalmByTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := calmStage(t, Options{Connections: 3, Timeout: time.Hour})
		p.Calm()
		p.Calm()
		rs := posts(100)
		l := submit(t, p, rs...)
		within(t, "the pause", s.untilOpen(100), time.Second)
		s.answers(100)
		l.wait()
		p.Calm()
		rs = posts(10)
		l = submit(t, p, rs...)
		start := time.Now()
		if err := p.Close(t.Context()); err != nil || time.Since(start) > 100*time.Millisecond {
			t.Errorf("closed after %v: %v", time.Since(start), err)
		}
		l.wait()
		wantAll(t, rs, NotAccepted)
	})
}

// After a complaint about its PINGs, a client sends fewer.
func TestTooManyPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := calmStage(t, Options{Connections: 1, Timeout: time.Hour, PingInterval: 10 * time.Second, PingTimeout: 5 * time.Second})
		for _, want := range []int{6, 3, 1, 0, 0} { // a minute's, every 10, 20, 40 and 80 s
			s.mu.Lock()
			s.probes = 0
			s.mu.Unlock()
			time.Sleep(62 * time.Second)
			synctest.Wait()
			s.mu.Lock()
			got := s.probes
			s.mu.Unlock()
			if got != want {
				t.Errorf("%d PINGs in a minute, want %d", got, want)
			}
			s.conn().WriteGoAway(1<<31-1, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
			synctest.Wait()
			l := submit(t, p, post("/a"))
			s.untilOpen(1)
			s.answers(1)
			l.wait()
		}
	})
}
