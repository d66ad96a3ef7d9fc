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

// atStart is the offset that stands for the log's first offset in the client.
const atStart = -2

// placeStarts replaces "at the start" by the log's first offset where brokers tell
// it in time.
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
	// What to do with partitions that are missing in the answer is up to the caller.
	listed, _ := admin.ListStartOffsets(ctx, slices.Sorted(maps.Keys(fresh))...)
	starts := byPartition(listed, listedOffset)
	for topic, partitions := range offsets {
		for id, o := range partitions {
			if start, ok := starts[push.Partition{Topic: topic, ID: id}]; ok && o.EpochOffset().Offset == atStart {
				partitions[id] = kgo.NewOffset().At(start)
			}
		}
	}
}

// placeRest replaces "at the start" by 0 where the log's first offset is not known.
// The client obeys SetOffsets only in partitions that it began to read at a known
// offset, and SetOffsets is how data is fetched again or left out. If the records
// at 0 are gone, the fetch says so, and the partition is started anew.
func placeRest(offsets map[string]map[int32]kgo.Offset) {
	for _, partitions := range offsets {
		for id, o := range partitions {
			if o.EpochOffset().Offset == atStart {
				partitions[id] = kgo.NewOffset().At(0)
			}
		}
	}
}
