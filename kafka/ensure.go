package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TopicSpec describes a topic as it should be.
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

// TopicState is one row of the table that EnsureTopics returns.
type TopicState struct {
	Topic string
	State string // one of the constants
	// Differences says how the topic differs: "would add partitions: 6 to 18",
	// "retention.ms is 1, not 2".
	Differences []string
}

// EnsureOptions say what EnsureTopics may do to topics.
type EnsureOptions struct {
	DryRun bool // change nothing
	// AddPartitions adds partitions to existing topics. It is not the default, because
	// it moves keys to other partitions.
	AddPartitions bool
}

// EnsureTopics creates missing topics and returns how the others differ from their
// specs. It never changes the configuration of existing topics. The table is in the
// order of specs; with an error, it holds what was done before. When EnsureTopics
// returns, topics that it created or added partitions to can be written to. It waits
// for that, because a controller reports "created" before the brokers know the topic;
// on a busy cluster that takes seconds.
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
	return table, a.awaitLeaders(ctx, specs, table)
}

// How long the brokers may take until they serve a new topic, and how often they are
// asked meanwhile.
const (
	leadersWithin = time.Minute
	leadersPause  = 50 * time.Millisecond
)

// awaitLeaders waits until each partition of topics that were created, or that got
// more partitions, has a leader that serves it.
func (a *Admin) awaitLeaders(ctx context.Context, specs []TopicSpec, table []TopicState) error {
	limited, cancel := context.WithTimeoutCause(ctx, leadersWithin, fmt.Errorf("some partitions have no leader after %v", leadersWithin))
	defer cancel()
	for i, state := range table {
		if state.State != TopicCreated && state.State != TopicPartitionsAdded {
			continue
		}
		for !a.served(limited, specs[i]) {
			select {
			case <-time.After(leadersPause):
			case <-limited.Done():
				return fmt.Errorf("topic %s: %s, but: %w", state.Topic, state.State, context.Cause(limited))
			}
		}
	}
	return nil
}

// served reports whether each partition has a leader that answers for it. A broker may
// list a topic before it leads its partitions; only the leader can tell a partition's
// end.
func (a *Admin) served(ctx context.Context, spec TopicSpec) bool {
	ends, err := endOffsets(ctx, a.admin, spec.Name)
	return err == nil && len(ends) >= int(spec.Partitions)
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
	case errors.Is(err, kerr.TopicAlreadyExists): // somebody else created it meanwhile
		return TopicState{Topic: spec.Name, State: TopicExists}, nil
	case err != nil && resp.ErrMessage != "":
		return TopicState{}, fmt.Errorf("creating the topic: %w: %s", err, resp.ErrMessage)
	case err != nil:
		return TopicState{}, fmt.Errorf("creating the topic: %w", err)
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
