package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Admin reads and changes topics and groups of the cluster. It is safe for
// concurrent use.
type Admin struct {
	client *kgo.Client
	admin  *kadm.Client
}

// NewAdmin makes an Admin. It does not connect before the first call.
func NewAdmin(o Options) (*Admin, error) {
	client, err := o.newClient()
	if err != nil {
		return nil, fmt.Errorf("kafka admin: %w", err)
	}
	return &Admin{client: client, admin: kadm.NewClient(client)}, nil
}

// Close closes the connections.
func (a *Admin) Close() { a.client.Close() }

// Ping returns nil if any broker answers before ctx ends.
func (a *Admin) Ping(ctx context.Context) error {
	if err := a.client.Ping(ctx); err != nil {
		return fmt.Errorf("reaching Kafka: %w", err)
	}
	return nil
}

// MissingTopicsError names required topics that do not exist.
type MissingTopicsError struct{ Topics []string }

func (e *MissingTopicsError) Error() string {
	return "topics are missing: " + strings.Join(e.Topics, ", ")
}

// CheckTopics returns a *MissingTopicsError if any of the topics does not exist.
func (a *Admin) CheckTopics(ctx context.Context, topics ...string) error {
	if len(topics) == 0 {
		return nil
	}
	have, err := a.admin.ListTopics(ctx, topics...)
	if err != nil {
		return fmt.Errorf("listing topics: %w", err)
	}
	var missing []string
	for _, t := range topics {
		switch d, ok := have[t]; {
		case !ok, errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			missing = append(missing, t)
		case d.Err != nil:
			return fmt.Errorf("topic %s: %w", t, d.Err)
		}
	}
	if len(missing) > 0 {
		return &MissingTopicsError{Topics: missing}
	}
	return nil
}

// TopicConfig returns the value of one of a topic's settings, which may be the
// default; empty = the broker does not tell it.
func (a *Admin) TopicConfig(ctx context.Context, topic, key string) (string, error) {
	resources, err := a.admin.DescribeTopicConfigs(ctx, topic)
	var on kadm.ResourceConfig
	if err == nil {
		on, err = resources.On(topic, nil)
	}
	if err == nil {
		err = on.Err
	}
	if err != nil {
		return "", fmt.Errorf("reading the configuration of %s: %w", topic, err)
	}
	for _, c := range on.Configs {
		if c.Key == key {
			return c.MaybeValue(), nil
		}
	}
	return "", nil
}

// PartitionLag is how far a group is behind in one partition.
type PartitionLag struct {
	Topic     string
	Partition int32
	Committed int64 // -1 = nothing committed
	End       int64
	Lag       int64 // -1 = not known
}

// Lag returns the group's lag, by topic and partition. A group that does not
// exist has none.
func (a *Admin) Lag(ctx context.Context, group string) ([]PartitionLag, error) {
	lags, err := a.admin.Lag(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the lag of group %s: %w", group, err)
	}
	described := lags[group]
	if err := described.Error(); errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the lag of group %s: %w", group, err)
	}
	var out []PartitionLag
	for _, l := range described.Lag.Sorted() {
		out = append(out, PartitionLag{Topic: l.Topic, Partition: l.Partition, Committed: l.Commit.At, End: l.End.Offset, Lag: l.Lag})
	}
	return out, nil
}

// Committed returns a group's committed offsets of one topic, by partition. A
// group that does not exist has none.
func (a *Admin) Committed(ctx context.Context, group, topic string) (map[int32]int64, error) {
	offsets, err := a.admin.FetchOffsetsForTopics(ctx, group, topic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("reading offsets of group %s: %w", group, err)
	}
	out := make(map[int32]int64)
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			out[o.Partition] = o.At
		}
	})
	return out, nil
}

// EndOffsets returns the end offset of each partition of a topic: the offset of its
// next record.
func (a *Admin) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	return endOffsets(ctx, a.admin, topic)
}

// StartOffsets returns the first offset of each partition of a topic that can still
// be read.
func (a *Admin) StartOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	return startOffsets(ctx, a.admin, topic)
}

func startOffsets(ctx context.Context, admin *kadm.Client, topic string) (map[int32]int64, error) {
	listed, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the start offsets of %s: %w", topic, err)
	}
	starts := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { starts[o.Partition] = o.Offset })
	return starts, nil
}

func endOffsets(ctx context.Context, admin *kadm.Client, topic string) (map[int32]int64, error) {
	listed, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the end offsets of %s: %w", topic, err)
	}
	ends := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends, nil
}
