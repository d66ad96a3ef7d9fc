package kafka

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a wait that hangs. It is no measurement, since the machine may be busy
// with something else.
const patience = 2 * time.Minute

// cluster is an in-process broker with one topic.
type cluster struct {
	*kfake.Cluster
	t       *testing.T
	options Options
	client  *kgo.Client
}

func newCluster(t *testing.T, partitions int32, topics []string, more ...kfake.Opt) *cluster {
	t.Helper()
	opts := append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100 * time.Millisecond), kfake.SeedTopics(partitions, topics...)}, more...)
	k, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatalf("starting the broker: %v", err)
	}
	t.Cleanup(k.Close)
	c := &cluster{Cluster: k, t: t, options: Options{Brokers: k.ListenAddrs()}}
	return c
}

// produce writes n records with ids id0… into a partition.
func (c *cluster) produce(topic string, partition int32, from, n int) {
	c.t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = record(topic, partition, from+i)
	}
	c.produceRecords(rs...)
}

func record(topic string, partition int32, i int) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte("u1"),
		Value: fmt.Appendf(nil, `{"id":"n-%d-%d","app":"shop","user_id":"u1","title":"t"}`, partition, i)}
}

func (c *cluster) produceRecords(rs ...*kgo.Record) {
	c.t.Helper()
	if c.client == nil {
		client, err := c.options.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			c.t.Fatalf("making a producer: %v", err)
		}
		c.t.Cleanup(client.Close)
		c.client = client
	}
	if err := c.client.ProduceSync(c.t.Context(), rs...).FirstErr(); err != nil {
		c.t.Fatalf("producing: %v", err)
	}
}

// committed returns the group's committed offset of a partition; -1 = none.
func (c *cluster) committed(group, topic string, partition int32) int64 {
	c.t.Helper()
	client, err := c.options.newClient()
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	offsets, err := kadm.NewClient(client).FetchOffsets(context.Background(), group)
	if err != nil {
		c.t.Fatalf("reading committed offsets: %v", err)
	}
	if o, ok := offsets.Lookup(topic, partition); ok {
		return o.At
	}
	return -1
}

// commitAt commits an offset of partition 0 for a group without members.
func (c *cluster) commitAt(group, topic string, at int64) {
	c.t.Helper()
	client, err := c.options.newClient()
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, at, -1)
	if err := kadm.NewClient(client).CommitAllOffsets(c.t.Context(), group, offsets); err != nil {
		c.t.Fatalf("committing: %v", err)
	}
}

func (c *cluster) source(so SourceOptions) *Source {
	c.t.Helper()
	s := c.unjoined(so)
	s.Join()
	return s
}

// unjoined returns a source that has not joined its group.
func (c *cluster) unjoined(so SourceOptions) *Source {
	c.t.Helper()
	if so.Group == "" {
		so.Group = "g"
	}
	// Long enough that a starved process keeps its membership and its commits succeed.
	so.Session = cmp.Or(so.Session, 10*time.Second)
	so.Commit, so.Rebalance = cmp.Or(so.Commit, time.Minute), cmp.Or(so.Rebalance, 5*time.Minute)
	s, err := NewSource(c.options, so)
	if err != nil {
		c.t.Fatalf("making a source: %v", err)
	}
	c.t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ended)
	})
	return s
}

// mortal is a drain so short that a source leaves with its work in flight, as a dead
// owner does, but without waiting for the end of its session.
const mortal = time.Millisecond

// nextItems collects batches until they have n records.
func nextItems(t *testing.T, s *Source, n int) []*pipeline.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var bs []*pipeline.Batch
	for got := 0; got < n; {
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d records: %v", got, n, err)
		}
		bs, got = append(bs, b), got+len(b.Items)
	}
	return bs
}

func itemsOf(b *pipeline.Batch) []*pipeline.Item {
	items := make([]*pipeline.Item, len(b.Items))
	for i := range b.Items {
		items[i] = &b.Items[i]
	}
	return items
}

func done(bs ...*pipeline.Batch) {
	for _, b := range bs {
		b.Tracker.Done(itemsOf(b))
	}
}

// eventually waits until ok returns true, and fails the test if that never happens.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("timed out waiting until %s", what)
}

func mainTopic(name string) []SourceTopic { return []SourceTopic{{Name: name}} }

func tier(name string, delay time.Duration) []SourceTopic {
	return []SourceTopic{{Name: name, Kind: Retry, Delay: delay}}
}
