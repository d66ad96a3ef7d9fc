package kafka

import (
	"testing"
	"time"
)

// The coordinator removes a member that has not joined when the rebalance time-out is
// over, which may be sooner than a session after its last heartbeat. A member that drains
// what it gives back and is cut off meanwhile may not send what it keeps once the group
// has given it to another one.
func TestAMemberCutOffWhileItDrainsHasNoLeaseWhenTheRebalanceIsOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, []string{"push"})
	// As check wants them, and the configuration: a session is less than a rebalance.
	so := SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond, Session: 9 * time.Second,
		Rebalance: 10 * time.Second, Drain: 8 * time.Second, Commit: time.Second}
	way := &tap{}
	direct := c.options
	c.options.Dial = way.dial
	zombie := c.source(so)
	c.options = direct
	c.produce("push", 0, 0, 1)
	c.produce("push", 1, 0, 1)
	held := nextItems(t, zombie, 2)
	second := c.source(so)
	drains := func() bool { return held[0].Tracker.Draining() || held[1].Tracker.Draining() }
	eventually(t, "a partition is asked back", drains)
	kept := held[0]
	if kept.Tracker.Draining() {
		kept = held[1]
	}
	third := c.source(so) // for which the group is to join again
	joining := time.Now()
	wait(t.Context(), nil, joining.Add(6*time.Second))
	if kept.Tracker.Lapsed(time.Now()) || zombie.member.joining() {
		t.Fatal("setup: it does not keep a partition while it drains another one")
	}
	way.closed.Store(true)
	eventually(t, "another member may send what it kept", func() bool {
		now := time.Now()
		for _, heir := range []*Source{second, third} {
			if tracker := trackers(heir)[kept.Partition]; tracker != nil && !tracker.Lapsed(now) {
				return true
			}
		}
		return false
	})
	if !kept.Tracker.Lapsed(time.Now()) {
		t.Errorf("both members may send what they own, %v after the rebalance began", time.Since(joining).Round(time.Second/10))
	}
	way.open()
	done(held...)
}
