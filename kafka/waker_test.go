package kafka

import (
	"context"
	"sync"
	"testing"

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

// A member that waits for records lets the group rebalance between its polls: another
// one that joins gets its share.
func TestAWaitingMemberLetsOthersIn(t *testing.T) {
	c := newCluster(t, 2, []string{"push"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var members sync.WaitGroup
	defer members.Wait()
	defer cancel()
	polls := func(got chan<- int32) {
		k, err := NewConsumer(c.options, "push", "g")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		members.Go(func() {
			for ctx.Err() == nil {
				records, err := k.Poll(ctx, 10)
				if err != nil {
					continue
				}
				for _, r := range records {
					select {
					case got <- r.Partition:
					default:
					}
				}
				if err := k.Commit(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("committing: %v", err)
				}
			}
		})
	}
	first, second := make(chan int32, 1), make(chan int32, 1)
	polls(first)
	c.produce("push", 0, 0, 1)
	select {
	case <-first:
	case <-ctx.Done():
		t.Fatal("the first member got no records")
	}
	client, err := c.options.newClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	polls(second) // the first one has nothing to do now, and waits
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
