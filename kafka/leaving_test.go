package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A member that drains may take long until it leaves the group. Whoever joins meanwhile
// gets all partitions, as nobody would read those that are given to the one that drains.
func TestAMemberThatDrainsIsGivenNothing(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{CooperativeSticky, EagerRange} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			const partitions = 4
			c := newCluster(t, partitions, []string{"push"})
			so := SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Drain: patience, Balancer: balancer}
			a := c.source(so)
			eventually(t, "the first member has all partitions", func() bool { return len(a.State()) == partitions })
			c.produce("push", 0, 0, 10)
			sent := nextItems(t, a, 10)

			a.Leaving() // and is not closed before the test ends
			b := c.source(so)
			eventually(t, "what is in flight is asked back", func() bool { return sent[0].Tracker.Draining() })
			done(sent...)
			eventually(t, "the second member has all partitions", func() bool { return len(b.State()) == partitions })
			if n := len(a.State()); n != 0 {
				t.Errorf("the member that drains has %d partitions", n)
			}
			if got := c.committed("g", "push", 0); got != 10 {
				t.Errorf("got commit %d, want 10: what ended while it drained", got)
			}

			d := c.source(so) // the group goes on as if the one that drains were not there
			eventually(t, "the third member has its share", func() bool { return len(b.State()) == 2 && len(d.State()) == 2 })
			if n := len(a.State()); n != 0 {
				t.Errorf("the member that drains was given %d partitions", n)
			}
		})
	}
}

// A session that begins while a source is closed gives it nothing that it would not read.
func TestAClosedSourceWantsNothing(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	s := c.unjoined(SourceOptions{Topics: mainTopic("push")})
	wants := func() int {
		var meta kmsg.ConsumerMemberMetadata
		if err := meta.ReadFrom(leavingBalancer{kgo.CooperativeStickyBalancer(), &s.draining}.JoinGroupMetadata([]string{"push"}, nil, 1)); err != nil {
			t.Fatal(err)
		}
		return len(meta.Topics)
	}
	if n := wants(); n != 1 {
		t.Errorf("wants %d topics before it is closed", n)
	}
	for range 2 { // it may be closed twice
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := wants(); n != 0 {
			t.Errorf("wants %d topics when it is closed", n)
		}
	}
}
