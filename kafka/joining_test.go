package kafka

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
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
func whileJoining(t *testing.T, more ...kfake.Opt) *joined {
	t.Helper()
	return whileJoiningWith(t, SourceOptions{}, more...)
}

func whileJoiningWith(t *testing.T, so SourceOptions, more ...kfake.Opt) *joined {
	t.Helper()
	const partitions, each = 4, 10
	c := newCluster(t, partitions, []string{"push"}, more...)
	so.Topics, so.BatchRecords, so.Linger, so.Drain = mainTopic("push"), each, time.Millisecond, patience
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

// A commit past the client says from where to read again, as one through it does.
func TestACommitWhileJoiningSaysWhatIsUnresolved(t *testing.T) {
	t.Parallel()
	g := whileJoiningWith(t, SourceOptions{Reread: 100})
	b := g.batches[g.open][0]
	b.Tracker.Intend(itemsOf(b))
	b.Tracker.Done(itemsOf(b)[:4])
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := g.waits.Commit(ctx); err != nil {
		t.Fatalf("Commit while joining: %v", err)
	}
	if !g.waits.member.joining() {
		t.Fatal("the rebalance is over: the test shows nothing")
	}
	stands, _, err := g.waits.positions(ctx)
	if want := (stand{committed: 10, unresolved: 4}); err != nil || stands[b.Partition] != want {
		t.Errorf("got %+v, %v; want %+v", stands[b.Partition], err, want)
	}
}

// What was lost after its offset had been collected is not committed past the client
// either.
func TestACommitWhileJoiningOfWhatWasLostMeanwhile(t *testing.T) {
	t.Parallel()
	g := whileJoining(t)
	s, b := g.waits, g.batches[g.open][0]
	g.done(g.open)
	s.committing.Lock()
	defer s.committing.Unlock()
	moved, owned, _ := s.moved()
	past := s.pastClient(t.Context(), moved)
	if past == nil {
		t.Fatal("it would go through the client: the test shows nothing")
	}
	b.Tracker.Fence()
	if _, err := s.commitPastClient(t.Context(), past, owned); !errors.Is(err, errNotOurs) {
		t.Errorf("got %v, want %v", err, errNotOurs)
	}
	if got := g.committed("g", "push", g.open); got >= 0 {
		t.Errorf("got commit %d", got)
	}
}

// An offset of a topic that was deleted is not committed for the one made anew under its
// name, where a member would begin at it and leave out what is before: neither by a
// coordinator that reads topics' ids nor by one that reads their names only.
func TestACommitWhileJoiningForATopicMadeAnew(t *testing.T) {
	t.Parallel()
	for name, broker := range map[string]*kversion.Versions{"by id": kversion.V4_3_0(), "by name": kversion.V4_1_0()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := whileJoining(t, kfake.MaxVersions(broker))
			t.Cleanup(g.Close) // before the sources are closed: they would try to commit, and wait for each other
			s := g.waits
			past := func() bool {
				s.committing.Lock()
				defer s.committing.Unlock()
				moved, _, _ := s.moved()
				return s.pastClient(t.Context(), moved) != nil
			}
			g.done(g.open)
			if !past() {
				t.Fatal("commits wait for the other member to drain")
			}
			s.committing.Lock()
			s.byID = name == "by id" // as a commit before will have said
			s.committing.Unlock()
			client, err := g.options.newClient()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			admin := kadm.NewClient(client)
			if _, err := admin.DeleteTopic(t.Context(), "push"); err != nil {
				t.Fatal(err)
			}
			if _, err := admin.CreateTopic(t.Context(), 4, 1, nil, "push"); err != nil {
				t.Fatal(err)
			}
			if past() { // for a coordinator that knows ids
				if _, err := s.commitOnce(t.Context()); !errors.Is(err, kerr.UnknownTopicID) {
					t.Errorf("got %v, want %v", err, kerr.UnknownTopicID)
				}
			}
			if !s.member.joining() {
				t.Fatal("the rebalance is over: the test shows nothing")
			}
			if got := g.committed("g", "push", g.open); got >= 0 {
				t.Errorf("got commit %d in the topic made anew", got)
			}
		})
	}
}

// Brokers that know no ids of topics get commits through the client only.
func TestACommitWhileJoiningWithoutIDsOfTopics(t *testing.T) {
	t.Parallel()
	g := whileJoining(t, kfake.MaxVersions(kversion.V2_7_0()))
	s := g.waits
	g.done(g.open)
	s.committing.Lock()
	defer s.committing.Unlock()
	moved, _, _ := s.moved()
	if past := s.pastClient(t.Context(), moved); len(moved) == 0 || past != nil {
		t.Errorf("%d topics have moved, and are committed by name alone: %v", len(moved), past)
	}
}

// What the coordinator refuses while a member joins is not committed. It is tried again,
// and the membership goes on, for what the error says is over with the join.
func TestACommitThatIsRefusedWhileJoiningIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.CoordinatorLoadInProgress} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			g := whileJoining(t)
			var refused atomic.Int32
			g.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
				g.KeepControl()
				if refused.Add(1) > 3 {
					return nil, nil, false
				}
				return refuseCommit(r.(*kmsg.OffsetCommitRequest), refusal), nil, true
			})
			kept := g.batches[g.open][0].Tracker
			g.done(g.open)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := g.waits.Commit(ctx); err != nil {
				t.Fatalf("Commit while joining: %v", err)
			}
			if n := refused.Load(); n <= 3 {
				t.Errorf("taken for committed after %d refusals", n)
			}
			if got := g.committed("g", "push", g.open); got != 10 {
				t.Errorf("got commit %d, want 10", got)
			}
			if kept.Lapsed(time.Now()) {
				t.Error("the partition that is kept is lost")
			}
		})
	}
}

// A member that the coordinator no longer knows loses what it has, also while it joins.
func TestACommitWhileJoiningOfWhoIsNoMemberAnyMore(t *testing.T) {
	t.Parallel()
	g := whileJoining(t)
	g.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		g.KeepControl()
		return refuseCommit(r.(*kmsg.OffsetCommitRequest), kerr.UnknownMemberID), nil, true
	})
	kept := g.batches[g.open][0].Tracker
	g.done(g.open)
	if err := g.waits.Commit(t.Context()); !errors.Is(err, kerr.UnknownMemberID) {
		t.Errorf("Commit: got %v, want %v", err, kerr.UnknownMemberID)
	}
	eventually(t, "what it had is lost", func() bool { return kept.Lapsed(time.Now()) })
}

// refuseCommit answers as brokers do: from version 10 on by topic id only.
func refuseCommit(req *kmsg.OffsetCommitRequest, refusal *kerr.Error) *kmsg.OffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range req.Topics {
		answer := kmsg.NewOffsetCommitResponseTopic()
		if answer.TopicID = t.TopicID; req.Version < 10 {
			answer.Topic = t.Topic
		}
		for _, p := range t.Partitions {
			of := kmsg.NewOffsetCommitResponseTopicPartition()
			of.Partition, of.ErrorCode = p.Partition, refusal.Code
			answer.Partitions = append(answer.Partitions, of)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	return resp
}

// Only what an answer names without an error is committed.
func TestWhatAnAnswerToACommitSays(t *testing.T) {
	one, two, fine := topicID{1}, topicID{2}, int16(0)
	req := &kmsg.OffsetCommitRequest{Topics: []kmsg.OffsetCommitRequestTopic{
		{Topic: "one", TopicID: one, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 0}, {Partition: 1}}},
		{Topic: "two", TopicID: two, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 0}}},
	}}
	for _, tt := range []struct {
		reason string
		answer []kmsg.OffsetCommitResponseTopic
		want   map[push.Partition]error
	}{
		{"by name, as brokers before version 10", []kmsg.OffsetCommitResponseTopic{
			{Topic: "one", Partitions: []kmsg.OffsetCommitResponseTopicPartition{{Partition: 1, ErrorCode: kerr.RebalanceInProgress.Code}, {Partition: 0, ErrorCode: fine}}},
			{Topic: "two", Partitions: []kmsg.OffsetCommitResponseTopicPartition{{Partition: 0, ErrorCode: fine}}},
		}, map[push.Partition]error{{Topic: "one", ID: 1}: kerr.RebalanceInProgress}},
		{"by id alone", []kmsg.OffsetCommitResponseTopic{
			{TopicID: two, Partitions: []kmsg.OffsetCommitResponseTopicPartition{{Partition: 0, ErrorCode: kerr.UnknownTopicID.Code}}},
			{TopicID: one, Partitions: []kmsg.OffsetCommitResponseTopicPartition{{Partition: 0, ErrorCode: fine}, {Partition: 1, ErrorCode: fine}}},
		}, map[push.Partition]error{{Topic: "two", ID: 0}: kerr.UnknownTopicID}},
		{"a partition and a topic are left out", []kmsg.OffsetCommitResponseTopic{
			{TopicID: one, Partitions: []kmsg.OffsetCommitResponseTopicPartition{{Partition: 0, ErrorCode: fine}}},
		}, map[push.Partition]error{{Topic: "one", ID: 1}: errUnanswered, {Topic: "two", ID: 0}: errUnanswered}},
		{"topics that nobody asked about acknowledge nothing", []kmsg.OffsetCommitResponseTopic{
			{TopicID: topicID{3}, Partitions: []kmsg.OffsetCommitResponseTopicPartition{{Partition: 0, ErrorCode: fine}}},
		}, map[push.Partition]error{{Topic: "one", ID: 0}: errUnanswered, {Topic: "one", ID: 1}: errUnanswered, {Topic: "two", ID: 0}: errUnanswered}},
	} {
		if got := refusals(req, &kmsg.OffsetCommitResponse{Topics: tt.answer}); !maps.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.reason, got, tt.want)
		}
	}
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
