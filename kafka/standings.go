package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Standing is how far a group is with a partition.
type Standing struct {
	Topic      string
	Partition  int32
	Start, End int64 // the first offset that can be read, and that of the next record
	Committed  int64 // -1 = the group has committed nothing, or no group was named
}

// Standings returns how groups stand with all partitions of topics, in the order of topics and
// partitions, with as few requests as the brokers allow: groups are the consumer groups
// by topic, empty = none reads it. Topics that do not exist are left out. Offsets are
// asked for before ends, so that none is committed beyond its end.
func (a *Admin) Standings(ctx context.Context, topics []string, groups map[string]string) ([]Standing, error) {
	var names []string
	for _, g := range groups {
		if g != "" && !slices.Contains(names, g) {
			names = append(names, g)
		}
	}
	committed := a.admin.FetchManyOffsets(ctx, names...)
	for _, g := range committed {
		if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
			return nil, fmt.Errorf("reading offsets of group %s: %w", g.Group, g.Err)
		}
	}
	starts, err := a.admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("reading the start offsets of %d topics: %w", len(topics), err)
	}
	ends, err := a.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("reading the end offsets of %d topics: %w", len(topics), err)
	}
	var standings []Standing
	for _, topic := range topics {
		first := len(standings)
		for partition, end := range ends[topic] {
			if end.Err != nil {
				continue
			}
			p := Standing{Topic: topic, Partition: partition, End: end.Offset, Committed: -1}
			if s, known := starts.Lookup(topic, partition); known && s.Err == nil {
				p.Start = s.Offset
			}
			if at, known := lookup(committed, groups[topic], topic, partition); known {
				p.Committed = at
			}
			standings = append(standings, p)
		}
		slices.SortFunc(standings[first:], func(x, y Standing) int { return int(x.Partition - y.Partition) })
	}
	return standings, nil
}

// lookup is what a group has committed; false = nothing.
func lookup(all kadm.FetchOffsetsResponses, group, topic string, partition int32) (int64, bool) {
	at, known := all[group].Fetched.Lookup(topic, partition)
	return at.At, known && at.Err == nil && at.At >= 0
}
