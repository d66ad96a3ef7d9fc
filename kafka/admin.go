package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Admin asks and changes what the cluster has. It may be used by many
// goroutines at once.
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

// TopicSpec is a topic as it should be.
type TopicSpec struct {
	Name        string
	Partitions  int32
	Replication int16             // -1 = the broker's default
	Configs     map[string]string // only these are compared
}

// The states of a topic after EnsureTopics.
const (
	TopicCreated         = "created"
	TopicWouldCreate     = "would create"
	TopicExists          = "exists"
	TopicPartitionsAdded = "partitions added"
	TopicDiffers         = "differs"
)

// TopicState is one row of EnsureTopics' table.
type TopicState struct {
	Topic string
	State string // one of the constants
	// Differences in words: "would add partitions: 6 to 18",
	// "retention.ms is 1, not 2".
	Differences []string
}

// EnsureOptions say what EnsureTopics may do to topics.
type EnsureOptions struct {
	DryRun bool // change nothing
	// AddPartitions lets existing topics grow. It moves keys to other
	// partitions, so it is never done unasked.
	AddPartitions bool
}

// EnsureTopics creates the topics that are missing and says how the others
// differ from what is wanted. Their configuration is never changed. The table
// is in the order of specs, and holds what was done also when an error is
// returned.
func (a *Admin) EnsureTopics(ctx context.Context, specs []TopicSpec, o EnsureOptions) ([]TopicState, error) {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	have, err := a.admin.ListTopics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	table := make([]TopicState, 0, len(specs))
	for _, spec := range specs {
		var state TopicState
		detail, ok := have[spec.Name]
		switch {
		case !ok, errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
			state, err = a.create(ctx, spec, o)
		case detail.Err != nil:
			err = detail.Err
		default:
			state, err = a.compare(ctx, spec, detail, o)
		}
		if err != nil {
			return table, fmt.Errorf("topic %s: %w", spec.Name, err)
		}
		table = append(table, state)
	}
	return table, nil
}

func (a *Admin) create(ctx context.Context, spec TopicSpec, o EnsureOptions) (TopicState, error) {
	if o.DryRun {
		return TopicState{Topic: spec.Name, State: TopicWouldCreate}, nil
	}
	configs := make(map[string]*string, len(spec.Configs))
	for k, v := range spec.Configs {
		configs[k] = &v
	}
	resp, err := a.admin.CreateTopic(ctx, spec.Partitions, spec.Replication, configs, spec.Name)
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists): // somebody was faster
		return TopicState{Topic: spec.Name, State: TopicExists}, nil
	case err != nil && resp.ErrMessage != "":
		return TopicState{}, fmt.Errorf("creating it: %w: %s", err, resp.ErrMessage)
	case err != nil:
		return TopicState{}, fmt.Errorf("creating it: %w", err)
	}
	return TopicState{Topic: spec.Name, State: TopicCreated}, nil
}

func (a *Admin) compare(ctx context.Context, spec TopicSpec, have kadm.TopicDetail, o EnsureOptions) (TopicState, error) {
	state := TopicState{Topic: spec.Name, State: TopicExists}
	n := int32(len(have.Partitions))
	switch {
	case n < spec.Partitions && o.AddPartitions && !o.DryRun:
		resps, err := a.admin.UpdatePartitions(ctx, int(spec.Partitions), spec.Name)
		if err == nil {
			err = resps.Error()
		}
		if err != nil {
			return state, fmt.Errorf("adding partitions: %w", err)
		}
		state.State = TopicPartitionsAdded
	case n < spec.Partitions:
		state.Differences = append(state.Differences, fmt.Sprintf("would add partitions: %d to %d", n, spec.Partitions))
	case n > spec.Partitions:
		state.Differences = append(state.Differences, fmt.Sprintf("has %d partitions, not %d", n, spec.Partitions))
	}
	if r := have.Partitions.NumReplicas(); spec.Replication > 0 && r != int(spec.Replication) {
		state.Differences = append(state.Differences, fmt.Sprintf("has %d replicas, not %d", r, spec.Replication))
	}
	if len(spec.Configs) > 0 {
		differences, err := a.compareConfigs(ctx, spec)
		if err != nil {
			return state, err
		}
		state.Differences = append(state.Differences, differences...)
	}
	if state.State == TopicExists && len(state.Differences) > 0 {
		state.State = TopicDiffers
	}
	return state, nil
}

func (a *Admin) compareConfigs(ctx context.Context, spec TopicSpec) ([]string, error) {
	resources, err := a.admin.DescribeTopicConfigs(ctx, spec.Name)
	if err == nil {
		_, err = resources.On(spec.Name, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("reading its configuration: %w", err)
	}
	have := make(map[string]string)
	for _, r := range resources {
		for _, c := range r.Configs {
			have[c.Key] = c.MaybeValue()
		}
	}
	var differences []string
	for k, want := range spec.Configs {
		if got := have[k]; got != want {
			differences = append(differences, fmt.Sprintf("%s is %q, not %q", k, got, want))
		}
	}
	slices.Sort(differences)
	return differences, nil
}

// MissingTopicsError names topics that must be there and are not.
type MissingTopicsError struct{ Topics []string }

func (e *MissingTopicsError) Error() string {
	return "topics are missing: " + strings.Join(e.Topics, ", ")
}

// CheckTopics returns a *MissingTopicsError if one of the topics is not there.
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

// EndOffsets returns the end of each of a topic's partitions: the offset that
// the next record gets.
func (a *Admin) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	return endOffsets(ctx, a.admin, topic)
}

func endOffsets(ctx context.Context, admin *kadm.Client, topic string) (map[int32]int64, error) {
	listed, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the end of %s: %w", topic, err)
	}
	ends := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends, nil
}
