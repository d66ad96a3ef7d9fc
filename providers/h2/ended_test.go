package h2

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// A request that a connection gave back, and that waits for another one, can
// still be canceled long after the first one has ended.
func TestCancelAfterTheConnectionHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.script = func(c *peerConn, _ int) {
			if c.request() != 0 {
				c.WriteGoAway(0, http2.ErrCodeNo, nil)
				for c.next() != nil {
				}
			}
		}
		p := s.pool(Options{Connections: 1, Timeout: time.Hour, Backoff: 1000 * time.Hour, MaxBackoff: 1000 * time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		rt := startRoundTrip(ctx, p, "POST", "x")
		time.Sleep(time.Second)
		if st := p.Stats(); st.Connections != 0 || st.Waiting != 1 {
			t.Fatalf("%+v: want it waiting and no connection", st)
		}
		cancel()
		<-rt.done
		var e *RoundTripError
		if !errors.As(rt.err, &e) || e.Outcome != NotAccepted || !errors.Is(rt.err, context.Canceled) {
			t.Errorf("%v", rt.err)
		}
	})
}

// The second GOAWAY of a graceful shutdown can take the last request away. The
// connection is then closed at once, not after a long silence.
func TestSecondGoAwayOfAnIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.pool(Options{Connections: 1, Resends: -1})
		l := submit(t, p, posts(1)...)
		c := s.conn()
		c.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
		synctest.Wait()
		c.WriteGoAway(0, http2.ErrCodeNo, nil)
		l.wait()
		synctest.Wait()
		if st := p.Stats(); st.Connections != 0 {
			t.Errorf("%+v: it stays", st)
		}
	})
}

// renewed is a lease that is extended right after it was found lapsed.
type renewed struct{ asked atomic.Int32 }

func (r *renewed) Lapsed(time.Time) bool { return r.asked.Add(1) == 1 }

// A request that was taken out of the queue as lapsed is given back as lapsed,
// whatever the lease says a moment later. Every request ends with an outcome.
func TestLeaseRenewedWhileARequestIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Options{URL: "https://push.example", Connections: 1, Timeout: time.Hour, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }})
		r := post("/a")
		r.Lease = &renewed{}
		submit(t, p, r).wait()
		if r.Outcome != NotAccepted || !errors.Is(r.Err, ErrLeaseLapsed) {
			t.Errorf("%v, %v", r.Outcome, r.Err)
		}
	})
}

// A request that a GOAWAY did not accept is sent again unchanged, unless the
// server says that something is wrong with it; then its caller may change it.
func TestGoAwayThatAsksForAChange(t *testing.T) {
	for reason, again := range map[string]bool{"Old": false, "Shutdown": true} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				p := s.pool(Options{Connections: 1, Outdated: func(reason string) bool { return reason == "Old" }})
				l := submit(t, p, post("/warm"))
				s.answers(1)
				l.wait()
				rs := posts(3)
				l = submit(t, p, rs...)
				s.expect("in flight", 3, 3)
				s.held = s.held[:1] // the others are forgotten
				s.conn().WriteGoAway(s.held[0].id, http2.ErrCodeNo, []byte(`{"reason":"`+reason+`"}`))
				s.answers(1)
				for range 2 {
					if again {
						s.untilOpen(1)
						s.answers(1)
					}
				}
				l.wait()
				wantAll(t, rs[:1], Answered)
				for _, r := range rs[1:] {
					left, told := errors.AsType[*GoAwayError](r.Err)
					if again && r.Outcome != Answered || !again && (r.Outcome != NotAccepted || !told || left.Reason != reason) {
						t.Errorf("%v, %v", r.Outcome, r.Err)
					}
				}
			})
		})
	}
}
