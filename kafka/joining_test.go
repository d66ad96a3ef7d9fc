package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pushfleet/pushfleet/pipeline"
)

// joined is a group in which a member waits in JoinGroup for another one that drains.
type joined struct {
	*cluster
	waits  *Source // its JoinGroup is pending
	newest *Source // the last to join; waits too

	batches map[int32][]*pipeline.Batch // that are in flight, by partition
	drains  int32                       // the partition of the other member; done ends the rebalance
}

func (g *joined) done(partition int32) {
	done(g.batches[partition]...)
	delete(g.batches, partition)
}

// whileJoining makes a third member join two, so that one of them gives a partition back
// in which something is in flight, and then a fourth: for that all have to join again, and
// the one that drains does not.
func whileJoining(t *testing.T) *joined {
	t.Helper()
	const partitions, each = 4, 10
	c := newCluster(t, partitions, []string{"push"})
	so := SourceOptions{Topics: mainTopic("push"), BatchRecords: each, Linger: time.Millisecond, Drain: patience}
	g := &joined{cluster: c, drains: -1, batches: make(map[int32][]*pipeline.Batch)}
	a, b := c.source(so), c.source(so)
	eventually(t, "both members have two partitions", func() bool { return len(a.State()) == 2 && len(b.State()) == 2 })
	owner := make(map[int32]*Source)
	for p := range int32(partitions) {
		c.produce("push", p, 0, each)
	}
	for _, s := range []*Source{a, b} {
		for _, batch := range nextItems(t, s, 2*each) {
			p := batch.Partition.ID
			owner[p], g.batches[p] = s, append(g.batches[p], batch)
		}
	}
	c.source(so)
	eventually(t, "a partition is asked back", func() bool {
		for p, batches := range g.batches {
			if batches[0].Tracker.Draining() {
				g.drains = p
			}
		}
		return g.drains >= 0
	})
	for _, s := range owner {
		if s != owner[g.drains] {
			g.waits = s
		}
	}
	g.newest = c.source(so)
	t.Cleanup(func() { // before the sources are closed: nothing that is asked back later is waited for
		for p := range g.batches {
			done(g.batches[p]...)
		}
	})
	eventually(t, "the fourth member waits in JoinGroup, and the one that keeps its partitions too", func() bool {
		member, _ := g.newest.client.GroupMetadata()
		return member != "" && g.waits.member.joining()
	})
	return g
}

// A member that is closed while it waits in JoinGroup, be it its first or a later one,
// leaves as soon as that is over: the others do not wait for the end of its session.
func TestLeavingWhileAnotherMemberDrains(t *testing.T) {
	t.Parallel()
	for name, who := range map[string]func(*joined) *Source{
		"a member":             func(g *joined) *Source { return g.waits },
		"who is to become one": func(g *joined) *Source { return g.newest },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := whileJoining(t)
			leaves := who(g)
			id, _ := leaves.client.GroupMetadata()
			ended, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond) // long before the rebalance is over
			defer cancel()
			closed := make(chan error, 1)
			go func() { closed <- leaves.Close(ended) }()
			<-ended.Done()
			wait(t.Context(), nil, time.Now().Add(2*leaveFor))
			if !leaves.member.between() {
				t.Fatal("the rebalance is over: the test shows nothing")
			}
			g.done(g.drains)
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
			}
			client, err := g.options.newClient()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			groups, err := kadm.NewClient(client).DescribeGroups(t.Context(), "g")
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range groups["g"].Members {
				if m.MemberID == id {
					t.Errorf("the member that has left is one of %d in the group", len(groups["g"].Members))
				}
			}
		})
	}
}
