package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// joined is a group in which a member waits in JoinGroup for another one that drains.
type joined struct {
	*cluster
	waits  *Source // its JoinGroup is pending
	open   int32   // a partition that it keeps
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
	g := &joined{cluster: c, open: -1, drains: -1, batches: make(map[int32][]*pipeline.Batch)}
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
	for p, s := range owner {
		if s != owner[g.drains] {
			g.open, g.waits = p, s
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

// What is kept in a rebalance goes on, and its offsets are committed, however long
// another member drains.
func TestCommitsGoOnWhileAnotherMemberDrains(t *testing.T) {
	t.Parallel()
	g := whileJoining(t)
	kept := g.batches[g.open][0].Tracker
	g.done(g.open)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := g.waits.Commit(ctx); err != nil {
		t.Fatalf("Commit while joining: %v", err)
	}
	if !g.waits.member.joining() {
		t.Fatal("the rebalance is over: the test shows nothing")
	}
	if got := g.committed("g", "push", g.open); got != 10 {
		t.Errorf("got commit %d while another member drains, want 10", got)
	}
	if kept.Draining() || kept.Lapsed(time.Now()) {
		t.Error("the partition that is kept is lost")
	}
}

// A member that is closed while it waits in JoinGroup leaves as soon as that is over: the
// others do not wait for the end of its session.
func TestLeavingWhileAnotherMemberDrains(t *testing.T) {
	t.Parallel()
	g := whileJoining(t)
	g.waits.Leaving()
	for p := range g.batches {
		if p != g.drains {
			g.done(p)
		}
	}
	ended, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond) // long before the rebalance is over
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- g.waits.Close(ended) }()
	<-ended.Done()
	if !g.waits.member.joining() {
		t.Fatal("the rebalance is over: the test shows nothing")
	}
	g.done(g.drains)
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	groups, err := g.newest.admin.DescribeGroups(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(groups["g"].Members); n != 3 {
		t.Errorf("%d members are in the group, want the 3 that have not left", n)
	}
}
