package kafka

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// joinless is a network that loses what has a connection of its own, JoinGroup and
// SyncGroup, from one moment on, and everything from another one on.
type joinless struct {
	lost, cut atomic.Bool
	synced    func() // called before each SyncGroup; nil = nothing is
	mu        sync.Mutex
	conns     []net.Conn
}

type joinlessConn struct {
	net.Conn
	way *joinless
}

func (j *joinless) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.conns = append(j.conns, conn)
	return &joinlessConn{conn, j}, nil
}

// open lets the network recover. It closes the connections that have lost something.
func (j *joinless) open() {
	j.lost.Store(false)
	j.cut.Store(false)
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.conns {
		_ = c.Close() // the client may have closed it
	}
	j.conns = nil
}

func (c *joinlessConn) Write(b []byte) (int, error) {
	key := kmsg.Key(binary.BigEndian.Uint16(b[4:]))
	if key == kmsg.SyncGroup && c.way.synced != nil {
		c.way.synced()
	}
	if c.way.cut.Load() || c.way.lost.Load() && (key == kmsg.JoinGroup || key == kmsg.SyncGroup) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// The coordinator removes a member that has not joined when the rebalance time-out is
// over, however often it is heard of: that a heartbeat was answered says nothing about
// the time after that. A member whose JoinGroup gets lost, and that is cut off before the
// rebalance is over, may not send what the group has given to another one.
func testJoinThatIsLost(t *testing.T, c *cluster, topic string) {
	so := SourceOptions{Topics: mainTopic(topic), Group: topic, Linger: time.Millisecond, Session: leased,
		Rebalance: leased + 4*time.Second, Drain: time.Second, Commit: time.Second}
	direct := c.options
	way := &joinless{}
	c.options.Dial = way.dial
	zombie := c.source(so)
	c.produce(topic, 0, 0, 1)
	held := nextItems(t, zombie, 1)[0]
	eventually(t, "it may send", func() bool { return !held.Tracker.Lapsed(time.Now()) })

	way.lost.Store(true)
	c.options = direct
	heir := c.source(so)
	// So late that its last heartbeat's session ends after the rebalance, and so early that
	// it is not told of that.
	wait(t.Context(), nil, time.Now().Add(leased+time.Second))
	way.cut.Store(true)
	taken := nextItems(t, heir, 1)[0]
	eventually(t, "its heir may send", func() bool { return !taken.Tracker.Lapsed(time.Now()) })
	if now := time.Now(); held.Tracker.Draining() {
		t.Fatal("setup: the zombie knows that it was removed")
	} else if !held.Tracker.Lapsed(now) {
		t.Error("both members may send what they own")
	}
	way.open()
	done(held)
}

func TestAMemberThatDoesNotRejoinInTimeHasNoLease(t *testing.T) {
	t.Parallel()
	testJoinThatIsLost(t, newCluster(t, 1, []string{"push"}), "push")
}

func TestRealMemberThatDoesNotRejoinInTimeHasNoLease(t *testing.T) {
	topic := ownName(t)
	testJoinThatIsLost(t, realCluster(t, TopicSpec{Name: topic, Partitions: 1, Replication: 1}), topic)
}

// A leader whose SyncGroup gets lost keeps the whole group waiting. The group goes on
// without it when its session is over: nothing keeps it alive for longer than that, such
// as heartbeats on another connection, for all of the rebalance time-out.
func testALeaderWhoseSyncIsLost(t *testing.T, c *cluster, topic string) {
	so := SourceOptions{Topics: mainTopic(topic), Group: topic, Balancer: EagerRange, Linger: time.Millisecond, Session: leased}
	direct := c.options
	way, armed := &joinless{}, atomic.Bool{}
	way.synced = func() {
		if armed.Load() {
			way.lost.Store(true)
		}
	}
	c.options.Dial = way.dial
	leader := c.source(so)
	c.options = direct
	eventually(t, "the first member has both partitions", func() bool { return len(leader.State()) == 2 })
	armed.Store(true)
	other := c.source(so)
	t.Cleanup(func() { // before the sources are closed: they wait for the rebalance
		armed.Store(false)
		way.open()
	})
	eventually(t, "the leader's SyncGroup is lost", way.lost.Load)
	lost := time.Now()
	eventually(t, "the other member has partitions, or three sessions are over", func() bool {
		return len(other.State()) > 0 || time.Since(lost) > 3*leased
	})
	if len(other.State()) == 0 {
		t.Errorf("nobody has any partition %v after the leader's SyncGroup got lost, with sessions of %v", time.Since(lost).Round(time.Second), leased)
	}
}

func TestTheGroupGoesOnWithoutALeaderWhoseSyncIsLost(t *testing.T) {
	t.Parallel()
	testALeaderWhoseSyncIsLost(t, newCluster(t, 2, []string{"push"}), "push")
}

func TestRealGroupGoesOnWithoutALeaderWhoseSyncIsLost(t *testing.T) {
	topic := ownName(t)
	testALeaderWhoseSyncIsLost(t, realCluster(t, TopicSpec{Name: topic, Partitions: 2, Replication: 1}), topic)
}

// A slow member reads the answer to its first JoinGroup late, sends its SyncGroup when the
// group has been stable for long, and is cut off right after the answer. The session counts
// from the first of these answers.
type slowMember struct {
	stall   time.Duration
	joins   atomic.Int32
	synced  atomic.Bool
	cut     atomic.Bool
	stalled chan struct{} // closed when it has been slow
}

type slowConn struct {
	net.Conn
	member *slowMember
	late   atomic.Bool // the next answer is
}

func (m *slowMember) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &slowConn{Conn: conn, member: m}, err
}

func (c *slowConn) Write(b []byte) (int, error) {
	switch kmsg.Key(binary.BigEndian.Uint16(b[4:])) {
	case kmsg.JoinGroup: // the first one gets a member id
		c.late.Store(c.member.joins.Add(1) == 2)
	case kmsg.SyncGroup:
		c.member.synced.Store(true)
	case kmsg.Heartbeat:
		c.member.cut.Store(c.member.cut.Load() || c.member.synced.Load())
	}
	if c.member.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.late.CompareAndSwap(true, false) {
		time.Sleep(c.member.stall) // the process is slow
		close(c.member.stalled)
	}
	return n, err
}

// A member that is slow between its join and its SyncGroup, and cut off then, may not send
// what the group has given to another one.
func testLateSync(t *testing.T, c *cluster, topic string) {
	so := SourceOptions{Topics: mainTopic(topic), Group: topic, Balancer: EagerRange, Linger: time.Millisecond, Session: leased}
	first := c.source(so)
	c.produce(topic, 0, 0, 1)
	c.produce(topic, 1, 0, 1)
	done(nextItems(t, first, 2)...)
	slow := &slowMember{stall: leased * 2 / 3, stalled: make(chan struct{})}
	direct := c.options
	c.options.Dial = slow.dial
	zombie := c.source(so)
	c.options = direct
	eventually(t, "the slow member has partitions", func() bool { return len(trackers(zombie)) > 0 })
	<-slow.stalled
	given := trackers(zombie)
	eventually(t, "the group has given them to the other one", func() bool { return len(trackers(first)) == 2 })
	now := time.Now()
	for p, tracker := range given {
		if !tracker.Lapsed(now) {
			t.Errorf("two members may send what is in partition %d", p.ID)
		}
	}
}

// trackers returns those of the partitions that a source has.
func trackers(s *Source) map[push.Partition]*pipeline.Tracker {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := make(map[push.Partition]*pipeline.Tracker)
	for p, a := range s.parts {
		of[p] = a.tracker
	}
	return of
}

func TestALateSyncGroupRenewsNoLease(t *testing.T) {
	t.Parallel()
	testLateSync(t, newCluster(t, 2, []string{"push"}), "push")
}

func TestRealLateSyncGroupRenewsNoLease(t *testing.T) {
	topic := ownName(t)
	testLateSync(t, realCluster(t, TopicSpec{Name: topic, Partitions: 2, Replication: 1}), topic)
}
