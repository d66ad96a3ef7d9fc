package kafka

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// On a busy machine, the client loses its wake-up in one of some thousand changes of its
// offsets. Records must come all the same.
func TestRecordsComeHoweverOftenOffsetsAreSet(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 10)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var readers sync.WaitGroup
	for range 16 {
		client, err := c.options.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"push": {0: kgo.NewOffset().At(0)}}))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		readers.Go(func() {
			w := waker{client: client}
			for i := range 2000 {
				if fetches := w.wait(ctx, 4); fetches.NumRecords() == 0 {
					t.Errorf("after setting the offsets %d times no more records come: %v", i, fetches.Err())
					return
				}
				for _, at := range []int64{1, 0} {
					client.SetOffsets(map[string]map[int32]kgo.EpochOffset{"push": {0: {Epoch: -1, Offset: at}}})
				}
			}
		})
	}
	readers.Wait()
}

// idlePolls counts the polls that a client has begun since it was set to 0.
type idlePolls struct{ atomic.Int32 }

func (n *idlePolls) OnPollStart(context.Context) { n.Add(1) }

// A member that waits for records lets the group rebalance between its polls: another
// one that joins gets its share. It joins after a poll has timed out. Before that the
// client lets everybody in, since it blocks a rebalance only once a poll has returned.
func TestAWaitingMemberLetsOthersIn(t *testing.T) {
	c := newCluster(t, 2, []string{"push"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var members sync.WaitGroup
	defer members.Wait()
	defer cancel()
	var idle idlePolls // of the first member
	polls := func(k *Consumer, committed func(), got chan<- int32) {
		t.Cleanup(k.Close)
		members.Go(func() {
			for ctx.Err() == nil {
				records, err := k.Poll(ctx, 10)
				if err != nil {
					continue
				}
				if err := k.Commit(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("committing: %v", err)
				}
				committed()
				for _, r := range records {
					select {
					case got <- r.Partition:
					default:
					}
				}
			}
		})
	}
	first, second := make(chan int32, 1), make(chan int32, 1)
	// As NewConsumer makes it, but for the hook.
	counted, err := c.options.newClient(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("push"), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(time.Second), kgo.WithHooks(&idle))
	if err != nil {
		t.Fatal(err)
	}
	polls(&Consumer{topic: "push", client: counted, closing: newClosing(), waker: waker{client: counted}}, func() { idle.Store(0) }, first)
	c.produce("push", 0, 0, 1)
	select {
	case <-first:
	case <-ctx.Done():
		t.Fatal("the first member got no records")
	}
	eventually(t, "a poll of the first member has timed out", func() bool { return idle.Load() >= 2 })
	client, err := c.options.newClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	other, err := NewConsumer(c.options, "push", "g")
	if err != nil {
		t.Fatal(err)
	}
	polls(other, func() {}, second) // the first one has nothing to do now, and waits
	eventually(t, "both are in the group, and each has a partition", func() bool {
		groups, err := kadm.NewClient(client).DescribeGroups(ctx, "g")
		if err != nil || groups["g"].State != "Stable" || len(groups["g"].Members) != 2 {
			return false
		}
		for _, m := range groups["g"].Members {
			if a, ok := m.Assigned.AsConsumer(); !ok || len(a.Topics) != 1 || len(a.Topics[0].Partitions) != 1 {
				return false
			}
		}
		return true
	})
	c.produce("push", 0, 1, 1)
	c.produce("push", 1, 0, 1)
	select {
	case <-second:
	case <-ctx.Done():
		t.Error("the second member got no records")
	}
}

// A poll that returns records wakes the client as well, once a second: a broker that is
// fetched from says nothing about another one whose wake-up was lost.
func TestRecordsDoNotKeepTheClientFromBeingWoken(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 10)
	client, err := c.options.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"push": {0: kgo.NewOffset().At(0)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if w := (waker{client: client}); w.wait(ctx, 10).NumRecords() != 10 {
		t.Fatal("setup: no records, which the client has then")
	}
	for _, row := range []struct {
		why   string
		ago   time.Duration // since it was last woken
		wakes bool
	}{
		{"long ago", time.Hour, true},
		{"just now", -time.Hour, false}, // however slow this machine is
	} {
		client.SetOffsets(map[string]map[int32]kgo.EpochOffset{"push": {0: {Epoch: -1, Offset: 0}}})
		eventually(t, "records are there to be polled", func() bool { return client.BufferedFetchRecords() > 0 })
		w := waker{client: client, woken: time.Now().Add(-row.ago)}
		before := w.woken
		if n := w.poll(ctx, 1).NumRecords(); n != 1 || w.woken.After(before) != row.wakes {
			t.Errorf("%s: got %d records and woken %v, want 1 and %v", row.why, n, w.woken.After(before), row.wakes)
		}
	}
}

// Who waits for records is told when the client is closed, and not left to poll it
// over and over.
func TestWaitingEndsWithTheClient(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	f, err := NewFollower(c.options, "push", nil)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	f.reading[0] = true // a closed client cannot ask which partitions there are
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := f.Poll(ctx, 1); err == nil || ctx.Err() != nil {
		t.Errorf("the poll ended with %v; its context had ended: %v", err, ctx.Err() != nil)
	}
}
