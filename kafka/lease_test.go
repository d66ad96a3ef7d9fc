package kafka

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leased is a session short enough for these tests to outlive it.
const leased = 6 * time.Second

// heartbeats controls how the broker answers heartbeats, and notes when they arrived.
type heartbeats struct {
	mu    sync.Mutex
	times []time.Time
	code  int16         // answered instead of the broker's own; 0 = the broker's own
	hold  chan struct{} // if set, heartbeats are not answered until it is closed
	of    string        // the member whose heartbeats first wait for until
	until func()
}

func (c *cluster) controlHeartbeats() *heartbeats {
	h := &heartbeats{}
	c.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		h.mu.Lock()
		h.times = append(h.times, time.Now())
		code, hold := h.code, h.hold
		if h.until != nil && r.(*kmsg.HeartbeatRequest).MemberID == h.of {
			until := h.until
			h.mu.Unlock()
			c.SleepControl(until)
			return nil, nil, false
		}
		h.mu.Unlock()
		if hold != nil {
			c.SleepControl(func() { <-hold })
		}
		if code == 0 {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = code
		return resp, nil, true
	})
	return h
}

// set changes how further heartbeats are answered, and returns how many arrived before.
func (h *heartbeats) set(code int16, hold chan struct{}) (before int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.code, h.hold = code, hold
	return len(h.times)
}

// setFor makes a member's further heartbeats wait until until returns.
func (h *heartbeats) setFor(member string, until func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of, h.until = member, until
}

func (h *heartbeats) seen() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.times)
}

// leasedMember is a member with short sessions and one record open, whose heartbeats the test controls.
func leasedMember(t *testing.T, change ...func(*SourceOptions)) (c *cluster, h *heartbeats, s *Source, open *pipeline.Batch) {
	t.Helper()
	c = newCluster(t, 1, []string{"push"})
	h = c.controlHeartbeats()
	o := SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond, Session: leased}
	for _, f := range change {
		f(&o)
	}
	s = c.source(o)
	c.produce("push", 0, 0, 1)
	return c, h, s, nextItems(t, s, 1)[0]
}

// A heartbeat is sent after the previous one was answered, and before it arrives. So its
// lease ends later than a session after the previous one arrived, and no later than a
// session after its own arrival.
func TestSwallowedHeartbeatsLetTheLeaseLapse(t *testing.T) {
	t.Parallel()
	_, h, _, open := leasedMember(t)
	tracker := open.Tracker
	eventually(t, "two heartbeats are answered", func() bool { return len(h.seen()) >= 2 })
	hold := make(chan struct{})
	defer close(hold)
	before := h.set(0, hold)
	eventually(t, "one is swallowed", func() bool { return len(h.seen()) > before })

	// The heartbeat that was swallowed since has not extended the lease.
	seen := h.seen()
	if tracker.Lapsed(seen[before-2].Add(leased)) {
		t.Error("the last answered heartbeat did not renew the lease")
	}
	if !tracker.Lapsed(seen[before-1].Add(leased)) {
		t.Error("the lease is valid a session after the last answered heartbeat")
	}
}

func TestAHeartbeatDuringARebalanceRenewsTheLease(t *testing.T) {
	t.Parallel()
	_, h, s, b := leasedMember(t, func(o *SourceOptions) { o.Balancer, o.Drain = EagerRange, patience })
	h.set(kerr.RebalanceInProgress.Code, nil)
	eventually(t, "the partition drains", b.Tracker.Draining) // while its item is in flight
	draining := len(h.seen())
	eventually(t, "heartbeats go on", func() bool { return len(h.seen()) >= draining+3 })
	// The second heartbeat was answered, because another one followed it.
	if s.member.lease.Lapsed(h.seen()[draining].Add(leased)) {
		t.Error("a heartbeat answered with REBALANCE_IN_PROGRESS did not renew the lease")
	}
	h.set(0, nil)
	done(b)
}

func TestAPendingJoinKeepsTheLeaseOnlyWhileTheCoordinatorAnswers(t *testing.T) {
	t.Parallel()
	c, h, _, b := leasedMember(t)
	joining, joined := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(joining) })
	c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		begun()
		c.KeepControl()
		c.SleepControl(func() { <-joined }) // as if another member drained
		return nil, nil, false
	})
	h.set(kerr.RebalanceInProgress.Code, nil)
	select {
	case <-joining:
	case <-time.After(patience):
		t.Fatal("the member did not rejoin")
	}
	pending := len(h.seen())
	eventually(t, "it is heard of for longer than a session", func() bool {
		seen := h.seen()
		return len(seen) > pending+2 && seen[len(seen)-2].Sub(seen[pending]) > leased
	})
	// The last heartbeat but one was answered, since another one followed it.
	seen := h.seen()
	if b.Tracker.Draining() || b.Tracker.Lapsed(seen[len(seen)-3].Add(leased)) {
		t.Error("the coordinator answers, but kept partitions may not send")
	}
	hold := make(chan struct{})
	pending = h.set(0, hold)
	eventually(t, "a heartbeat is swallowed", func() bool { return len(h.seen()) > pending })
	if !b.Tracker.Lapsed(h.seen()[pending-1].Add(leased)) {
		t.Error("a pending JoinGroup counts as a lease although nobody answers")
	}
	close(hold)
	close(joined)
}

func TestAnUnknownMemberHasNoLease(t *testing.T) {
	t.Parallel()
	_, h, s, first := leasedMember(t)
	eventually(t, "a member may send", func() bool { return !first.Tracker.Lapsed(time.Now()) })
	h.set(kerr.UnknownMemberID.Code, nil)
	eventually(t, "the lease ends", func() bool { return first.Tracker.Lapsed(time.Now()) })
	eventually(t, "the tracker is fenced", func() bool { _, ours := first.Tracker.Watermark(); return first.Tracker.Draining() && !ours })
	h.set(0, nil)
	done(first)
	again := nextItems(t, s, 1)[0]
	eventually(t, "the new assignment may send", func() bool { return !again.Tracker.Lapsed(time.Now()) })
	if !first.Tracker.Lapsed(time.Now()) {
		t.Error("the old assignment may send")
	}
}

func TestAMemberThatIsForgottenWhileItJoinsStartsAnew(t *testing.T) {
	t.Parallel()
	c, h, s, first := leasedMember(t)
	c.ControlKey(int16(kmsg.JoinGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		resp := r.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.UnknownMemberID.Code
		return resp, nil, true
	})
	h.set(kerr.RebalanceInProgress.Code, nil) // makes it join again
	// The client calls no callback: it joins as a new member and keeps its partitions.
	eventually(t, "the tracker is fenced", first.Tracker.Draining)
	h.set(0, nil)
	done(first)
	again := nextItems(t, s, 1)[0]
	if again.Tracker == first.Tracker || !again.Items[0].Confirm {
		t.Error("the partition kept the tracker of the ended membership")
	}
	eventually(t, "the new assignment may send", func() bool { return !again.Tracker.Lapsed(time.Now()) })
	if !first.Tracker.Lapsed(time.Now()) {
		t.Error("the old assignment may send")
	}
}

// tap is a network that can swallow everything and recover.
type tap struct {
	closed atomic.Bool
	mu     sync.Mutex
	conns  []net.Conn
}

type tapped struct {
	net.Conn
	tap *tap
}

func (t *tap) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = append(t.conns, conn)
	return &tapped{conn, t}, nil
}

// open lets the network recover. It closes the old connections, because they have lost
// what was swallowed.
func (t *tap) open() {
	t.closed.Store(false)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		_ = c.Close() // the client may have closed it
	}
	t.conns = nil
}

func (c *tapped) Write(b []byte) (int, error) {
	if c.tap.closed.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *tapped) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.tap.closed.Load() {
			return n, err
		}
	}
}

func TestRealMemberBehindADeadNetworkStopsBeforeItsSuccessorStarts(t *testing.T) {
	topic := ownName(t)
	c := realCluster(t, TopicSpec{Name: topic, Partitions: 1, Replication: 1})
	zombieNet := &tap{}
	so := SourceOptions{Topics: mainTopic(topic), Group: topic, Linger: time.Millisecond, Session: 6 * time.Second}
	direct := c.options
	c.options.Dial = zombieNet.dial
	zombie := c.source(so)
	c.options = direct
	c.produce(topic, 0, 0, 1)
	held := nextItems(t, zombie, 1)[0]

	zombieNet.closed.Store(true)
	dead := time.Now()
	successor := c.source(so)
	taken := nextItems(t, successor, 1)[0]
	now := time.Now()
	if held.Tracker.Draining() {
		t.Fatal("setup: the zombie knows that it was expelled")
	}
	if !held.Tracker.Lapsed(now) {
		t.Error("both members may send what they own")
	}
	if held.Tracker.Lapsed(dead) {
		t.Error("setup: the lease ended before the network failed")
	}
	if taken.Tracker.Lapsed(now) || !taken.Items[0].Confirm {
		t.Error("the successor may not send, or does not make confirm reads")
	}
	zombieNet.open()
	done(held)
	eventually(t, "the zombie is told", func() bool { _, ours := held.Tracker.Watermark(); return !ours })
}

func TestLeaseHasOneDeadline(t *testing.T) {
	now := time.Now()
	l := newLease()
	step := func(what string, lapsed bool) {
		t.Helper()
		if l.Lapsed(now) != lapsed {
			t.Errorf("%s: got lapsed %v", what, !lapsed)
		}
	}
	step("before the first answer", true)
	l.extend(now.Add(10 * time.Second))
	step("extended", false)
	l.extend(now.Add(time.Second))
	now = now.Add(5 * time.Second)
	step("an older answer that comes later moves nothing back", false)
	now = now.Add(6 * time.Second)
	step("past its deadline", true)
	l.extend(now.Add(time.Second))
	step("heard again", false)
	l.end()
	step("lost", true)
	l.extend(now.Add(time.Second))
	step("joined again", false)
}

// While a machine is suspended its monotonic clock stands still, and the wall clock is set
// when it goes on. Here the deadline is moved instead, which is the same.
func TestASuspendedMachineHasNoLease(t *testing.T) {
	now := time.Now()
	l := newLease()
	suspended := func(long time.Duration) {
		was := l.until.Load()
		l.until.Store(&deadline{was.monotonic, was.wall - int64(long)})
	}
	for _, step := range []struct {
		what   string
		do     func()
		lapsed bool
	}{
		{"a lease", func() { l.extend(now.Add(10 * time.Second)) }, false},
		{"suspended for less than that", func() { suspended(9 * time.Second) }, false},
		{"for longer", func() { suspended(2 * time.Second) }, true},
		{"an answer of before that comes late renews nothing", func() { l.extend(now.Add(9 * time.Second)) }, true},
		{"a heartbeat is answered", func() { l.extend(now.Add(11 * time.Second)) }, false},
		{"the wall clock is set back: the other one counts", func() { suspended(-time.Hour); now = now.Add(12 * time.Second) }, true},
	} {
		step.do()
		if got := l.Lapsed(now); got != step.lapsed {
			t.Errorf("%s: lapsed %t, want %t", step.what, got, step.lapsed)
		}
	}
}
