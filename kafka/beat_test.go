package kafka

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/pushfleet/pushfleet/pipeline"
)

// The lease begins with the assignment, and not with the client's first heartbeat, which
// comes a whole interval later.
func TestALeaseBeginsWithTheAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(t)
		s, b := v.joined(v.network.DialContext, func(o *SourceOptions) { o.Balancer = EagerRange })
		now := time.Now()
		if b.Tracker.Lapsed(now) {
			t.Error("there is no lease for the first batch")
		}
		// A session with all of the 10 s: it began with the assignment, just now.
		if !b.Tracker.Lapsed(now.Add(s.options.Session + 1)) {
			t.Error("the lease is longer than a session")
		}
		done(b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// writes notes when a source's heartbeats are written. It can lose them.
type writes struct {
	mu    sync.Mutex
	times []time.Time
	lose  bool
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.times)
}

type writesConn struct {
	net.Conn
	of *writes
}

func (c *writesConn) Write(b []byte) (int, error) {
	if kmsg.Key(binary.BigEndian.Uint16(b[4:])) == kmsg.Heartbeat {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.times = append(c.of.times, time.Now())
		if c.of.lose {
			return len(b), nil
		}
	}
	return c.Conn.Write(b)
}

// waiting runs test in a bubble with a member whose JoinGroup is pending.
func waiting(t *testing.T, test func(t *testing.T, s *Source, open *pipeline.Batch, w *writes)) {
	t.Helper()
	waitingBy(t, Classic, nil, test)
}

// waitingBy does so with a protocol that is asked for, and options of the broker.
func waitingBy(t *testing.T, protocol string, broker []kfake.Opt, test func(t *testing.T, s *Source, open *pipeline.Batch, w *writes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v, w := newVirtual(t, broker...), new(writes)
		s, open := v.joined(func(ctx context.Context, kind, address string) (net.Conn, error) {
			c, err := v.network.DialContext(ctx, kind, address)
			if err != nil {
				return nil, err
			}
			return &writesConn{c, w}, nil
		}, func(o *SourceOptions) { o.Protocol = protocol })
		end := v.rebalance()
		eventually(t, "it joins", s.member.joining)
		test(t, s, open, w)
		end()
		// Not done: a commit that waits with its lock would stop the bubble's time.
		open.Tracker.Abandon(itemsOf(open))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = s.Close(ctx) // it may have lost what was written
	})
}

// A member whose coordinator answers has its lease without a gap, however long the others
// drain. With brokers that do not know the server-side protocol it is one by the classic
// one.
func TestALeaseHasNoGapWhileOthersDrain(t *testing.T) {
	for _, way := range []struct {
		name, protocol string
		broker         []kfake.Opt
	}{
		{"classic", Classic, nil},
		{"server-side, which is not known", ServerSide, []kfake.Opt{kfake.MaxVersions(kversion.V3_6_0())}},
	} {
		t.Run(way.name, func(t *testing.T) {
			waitingBy(t, way.protocol, way.broker, func(t *testing.T, s *Source, open *pipeline.Batch, w *writes) {
				const long = 50 * time.Second
				before := w.count()
				for start := time.Now(); time.Since(start) < long; time.Sleep(100 * time.Millisecond) {
					if open.Tracker.Lapsed(time.Now()) {
						t.Fatalf("lapsed after %v", time.Since(start))
					}
				}
				if !s.member.joining() {
					t.Fatal("setup: the rebalance is over")
				}
				// So often that one of them may be lost.
				if n, want := w.count()-before, int(4*long/s.options.Session); n < want {
					t.Errorf("%d heartbeats in %v, want %d", n, long, want)
				}
			})
		})
	}
}

// A heartbeat without an answer is followed by another one before the session is over.
func TestAHeartbeatThatIsLostWhileJoiningIsFollowedByAnother(t *testing.T) {
	waiting(t, func(t *testing.T, s *Source, _ *pipeline.Batch, w *writes) {
		w.mu.Lock()
		w.lose = true
		before := len(w.times)
		w.mu.Unlock()
		time.Sleep(s.options.Session)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lose = false
		if n := len(w.times) - before; n < 2 {
			t.Errorf("%d heartbeats in a session in which none was answered", n)
		}
	})
}

// A member that is closed while others drain waits for them, and is heard of meanwhile.
func TestAMemberThatIsClosedWhileItJoinsIsHeardOf(t *testing.T) {
	waiting(t, func(t *testing.T, s *Source, _ *pipeline.Batch, w *writes) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { _ = s.Close(ended) }() // the bubble waits for it
		time.Sleep(leaveFor)
		before := w.count()
		time.Sleep(2 * s.options.Session)
		n := w.count() - before
		if !s.member.joining() {
			t.Error("setup: it does not join any more")
		}
		if n < 4 {
			t.Errorf("%d heartbeats in two sessions", n)
		}
	})
}

// A heartbeat that was sent for an ended membership, while its JoinGroup was pending, and
// is answered late says nothing about the membership that has begun since.
func TestALateAnswerToAFormerMemberEndsNoNewMembership(t *testing.T) {
	t.Parallel()
	c, h, s, first := leasedMember(t)
	former, _ := s.client.GroupMetadata()
	joining, beating, refuse := make(chan struct{}), make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(beating) })
	c.ControlKey(int16(kmsg.JoinGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		close(joining)
		c.SleepControl(func() { <-refuse })
		resp := r.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.UnknownMemberID.Code
		return resp, nil, true
	})
	h.set(kerr.RebalanceInProgress.Code, nil) // makes it join again
	select {
	case <-joining:
	case <-time.After(patience):
		t.Fatal("the member did not rejoin")
	}
	// From here on heartbeats of the former member are the Source's own.
	h.set(0, nil)
	hold := make(chan struct{})
	h.setFor(former, func() { begun(); <-hold })
	<-beating
	close(refuse)
	eventually(t, "the tracker is fenced", first.Tracker.Draining)
	done(first)
	eventually(t, "a new membership has begun", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.sessions > 1 && s.session.member != former
	})
	before := len(h.seen())
	close(hold) // the broker answers UNKNOWN_MEMBER_ID to the former member
	eventually(t, "the new member's heartbeats are answered", func() bool { return len(h.seen()) > before+4 })
	ctx, cancel := context.WithTimeout(t.Context(), 2*leased)
	defer cancel()
	switch again, err := s.Next(ctx); {
	case err != nil:
		s.mu.Lock()
		member, sessions := s.session.member, s.sessions
		s.mu.Unlock()
		now, _ := s.client.GroupMetadata()
		t.Errorf("a member that the group knows reads nothing of its partition any more (%v); the same member still: %v, session %d, heartbeats since: %d", err, member == now, sessions, len(h.seen())-before)
	case again.Tracker.Draining() || again.Tracker.Lapsed(time.Now()):
		t.Error("the new membership has ended by the answer to the former one")
	default:
		done(again)
	}
}

// A member that leaves drains as long as Close may take, and is one of the group until its
// last commit: what it drains is nobody else's meanwhile.
func TestALeavingMemberIsHeardOfWhileItDrains(t *testing.T) {
	t.Parallel()
	c, h, s, open := leasedMember(t, func(o *SourceOptions) { o.Drain = patience })
	eventually(t, "a member may send", func() bool { return !open.Tracker.Lapsed(time.Now()) })
	closed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go func() { closed <- s.Close(ctx) }()
	eventually(t, "the partition drains", open.Tracker.Draining)
	began, before := time.Now(), len(h.seen())
	heir := c.source(SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond, Session: leased})
	eventually(t, "a session is over, or another member has the partition", func() bool {
		return len(heir.State()) > 0 || time.Since(began) > 2*leased
	})
	if n := len(heir.State()); n > 0 {
		t.Errorf("another member has got the partition %v after the first one began to drain it; heartbeats meanwhile: %d", time.Since(began).Round(time.Second), len(h.seen())-before)
	}
	done(open)
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := c.committed("g", "push", 0); got != 1 {
		t.Errorf("got commit %d, want 1: what ended during the drain", got)
	}
}
