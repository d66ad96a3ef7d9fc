package kafka

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

// atStart is the place that stands for a log's first offset, wherever that is.
const atStart = -2

// placeStarts puts the log's first offset in place of "at the start", as far as
// brokers say within the time: the client can only be sent on behind what it
// cannot unpack (SetOffsets) in partitions that it began to read at a known
// place.
func placeStarts(ctx context.Context, admin *kadm.Client, offsets map[string]map[int32]kgo.Offset, within time.Duration) {
	fresh := make(map[string]bool)
	for topic, partitions := range offsets {
		for _, o := range partitions {
			if o.EpochOffset().Offset == atStart {
				fresh[topic] = true
			}
		}
	}
	if len(fresh) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// A partition that is not told of begins at the start all the same.
	listed, _ := admin.ListStartOffsets(ctx, slices.Sorted(maps.Keys(fresh))...)
	starts := byPartition(listed)
	for topic, partitions := range offsets {
		for id, o := range partitions {
			if start, ok := starts[push.Partition{Topic: topic, ID: id}]; ok && o.EpochOffset().Offset == atStart {
				partitions[id] = kgo.NewOffset().At(start)
			}
		}
	}
}
