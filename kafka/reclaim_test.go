package kafka

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// A missing answer does not mean that nothing is committed: the log would be read from
// its start.
func TestPositionsAreNotGuessed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 10)
	c.commitAt("g", "push", 7)
	s := c.source(SourceOptions{Topics: mainTopic("push")})
	p := push.Partition{Topic: "push"}
	committed, starts, err := s.positions(t.Context())
	if err != nil || committed[p].committed != 7 || starts[p] != 0 {
		t.Errorf("committed %v, starts %v, %v", committed, starts, err)
	}
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	if _, _, err := s.positions(t.Context()); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("the group's offsets are refused: %v", err)
	}
	refused.Remove()
	refused = c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "push", Err: kerr.TopicAuthorizationFailed, Count: -1})
	if _, _, err := s.positions(t.Context()); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("the log's start is refused: %v", err)
	}
	refused.Remove()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.positions(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: %v", err)
	}
}

// An error of a topic counts for all its partitions, at once, but not for assignments
// that have ended, nor for other topics.
func TestATopicsErrorIsItsPartitions(t *testing.T) {
	const short, long = "push.retry.30s", "push.retry.5m"
	s := newSource(*options(func(o *SourceOptions) { o.Topics = append(tier(short, 30*time.Second), tier(long, 5*time.Minute)...) }), slog.New(slog.DiscardHandler))
	s.onAssigned(t.Context(), nil, map[string][]int32{short: {0, 1, 2}, long: {0}})
	s.parts[push.Partition{Topic: short, ID: 2}].end()
	stopped, _ := s.take(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: short, Partitions: []kgo.FetchPartition{{Partition: -1, Err: kerr.UnknownTopicOrPartition}}}}}})
	for p, named := range map[push.Partition]bool{{Topic: short}: true, {Topic: short, ID: 1}: true, {Topic: short, ID: 2}: false, {Topic: long}: false} {
		if err := s.parts[p].trouble(); (err != nil) != named || named && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("%v: %v, want it named: %v", p, err, named)
		}
	}
	if len(stopped) > 0 {
		t.Errorf("stopped: %v", stopped)
	}
	s.tellHealth() // without a Health function
}

// A watermark below the committed offset commits nothing and is counted: it is a bug,
// or the log was cut short. It is neither where records are read again.
func TestACommittedOffsetNeverGoesBack(t *testing.T) {
	p := push.Partition{Topic: "push"}
	for _, tt := range []struct {
		reason            string
		committed, reread int64
		moved             bool
		rewinds           float64
	}{
		{"nothing was committed", -1, 0, true, 0},
		{"a little less was", 4, 0, true, 0},
		{"as much was", 5, 0, false, 0},
		{"more was", 6, 0, false, 1},
		{"more was, and this is read again", 6, 6, false, 0},
	} {
		s := newSource(*options(nil), slog.New(slog.DiscardHandler))
		s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0}})
		a := s.parts[p]
		a.committed, a.reread = tt.committed, tt.reread
		b := &pipeline.Batch{Tracker: a.tracker, Items: make([]pipeline.Item, 1)}
		b.Items[0].Offset = 4
		a.tracker.Admit(b)
		a.tracker.Done(itemsOf(b))
		moved, owned := s.moved()
		if at, ok := moved["push"][0]; ok != tt.moved || ok && at.Offset != 5 {
			t.Errorf("%s: moves to %v, %v; want %v", tt.reason, at, ok, tt.moved)
		}
		if n := testutil.ToFloat64(a.topic.metrics.rewinds); n != tt.rewinds || len(owned.owned) != 1 {
			t.Errorf("%s: %v rewinds, want %v; %d owned", tt.reason, n, tt.rewinds, len(owned.owned))
		}
	}
}
