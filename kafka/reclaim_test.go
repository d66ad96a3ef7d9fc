package kafka

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
)

// Where a group stands is known or it is not: an answer that did not come is no
// answer that nothing is committed, which would read a log from its start.
func TestPositionsAreNotGuessed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 10)
	c.commitAt("g", "push", 7)
	s := c.source(SourceOptions{Topics: mainTopic("push")})
	p := pipeline.Partition{Topic: "push"}
	committed, starts, err := s.positions(t.Context())
	if err != nil || committed[p].committed != 7 || starts[p] != 0 {
		t.Errorf("committed %v, starts %v, %v", committed, starts, err)
	}
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	if _, _, err := s.positions(t.Context()); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("the group's offsets are refused: %v", err)
	}
	refused.Remove()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.positions(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits for the answer: %v", err)
	}
}

// An error of a whole topic is that of its partitions, at once, and of no other
// topic's; one that has ended has none.
func TestATopicsErrorIsItsPartitions(t *testing.T) {
	s := newSource(*options(func(o *SourceOptions) {
		o.Topics = append(mainTopic("push"), tier("push.retry.30s", 30*time.Second)...)
	}), slog.New(slog.DiscardHandler))
	s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0, 1, 2}, "push.retry.30s": {0}})
	s.parts[pipeline.Partition{Topic: "push", ID: 2}].end()
	stopped, _ := s.take(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "push", Partitions: []kgo.FetchPartition{{Partition: -1, Err: kerr.UnknownTopicOrPartition}}}}}})
	for p, named := range map[pipeline.Partition]bool{{Topic: "push"}: true, {Topic: "push", ID: 1}: true, {Topic: "push", ID: 2}: false, {Topic: "push.retry.30s"}: false} {
		if err := s.parts[p].trouble(); (err != nil) != named || named && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("%v: %v, want it named: %v", p, err, named)
		}
	}
	if len(stopped) > 0 {
		t.Errorf("stopped: %v", stopped)
	}
}
