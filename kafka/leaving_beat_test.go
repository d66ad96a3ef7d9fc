package kafka

import (
	"context"
	"testing"
	"time"
)

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
