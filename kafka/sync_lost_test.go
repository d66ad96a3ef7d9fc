package kafka

import (
	"sync/atomic"
	"testing"
	"time"
)

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
