package kafka

import (
	"cmp"
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
	Err        error // why the offsets are not known, as of a partition without a leader; nil = they are
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
	return standingsOf(topics, groups, committed, starts, ends), nil
}

// standingsOf puts answers together.
func standingsOf(topics []string, groups map[string]string, committed kadm.FetchOffsetsResponses, starts, ends kadm.ListedOffsets) (standings []Standing) {
	for _, topic := range topics {
		first := len(standings)
		for partition, end := range ends[topic] {
			if errors.Is(end.Err, kerr.UnknownTopicOrPartition) {
				continue
			}
			p := Standing{Topic: topic, Partition: partition, End: end.Offset, Committed: -1}
			start, _ := starts.Lookup(topic, partition)
			at, known := committed[groups[topic]].Fetched.Lookup(topic, partition)
			if known && at.At >= 0 {
				p.Committed = at.At
			}
			if p.Start, p.Err = start.Offset, cmp.Or(end.Err, start.Err, at.Err); p.Err != nil {
				p = Standing{Topic: topic, Partition: partition, Committed: -1, Err: p.Err}
			}
			standings = append(standings, p)
		}
		slices.SortFunc(standings[first:], func(x, y Standing) int { return int(x.Partition - y.Partition) })
	}
	return standings
}
