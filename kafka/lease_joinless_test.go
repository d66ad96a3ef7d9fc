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
