package kafka

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The positions of fields in the header of a record batch, version 2 (Kafka's protocol
// guide, "Record Batch").
const (
	batchLengthAt     = 8
	batchLengthFrom   = 12 // the batch length counts from here
	batchAttributesAt = 21
	batchLastDeltaAt  = 23
	batchRecordsAt    = 57
	batchHeader       = 61
	batchIsControl    = 1 << 5
)

// Gaps returns the end of the gap for each position that is in one: where the log has
// only batches without records, the offset after these batches. Compaction leaves such
// batches, also at the end of a partition, and a client would wait there for ever.
// Positions with records, or at the log's end, are left out.
func (f *Follower) Gaps(ctx context.Context, positions map[int32]int64) (map[int32]int64, error) {
	return gaps(ctx, f.client, f.admin, f.topic, positions)
}

func gaps(ctx context.Context, client *kgo.Client, admin *kadm.Client, name string, positions map[int32]int64) (map[int32]int64, error) {
	topics, err := admin.ListTopics(ctx, name)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("looking for gaps in %s: %w", name, err)
	}
	detail := topics[name]
	behind := make(map[int32]int64)
	for p, at := range positions {
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes = 1 << 20
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes = p, at, 1<<20
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID, topic.Partitions = name, detail.ID, []kmsg.FetchRequestTopicPartition{part}
		req.Topics = []kmsg.FetchRequestTopic{topic}
		resp, err := req.RequestWith(ctx, client.Broker(int(detail.Partitions[p].Leader)))
		if err != nil {
			return nil, fmt.Errorf("looking for gaps in %s/%d: %w", name, p, err)
		}
		for _, t := range resp.Topics {
			for _, got := range t.Partitions {
				if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
					return nil, fmt.Errorf("looking for gaps in %s/%d: %w", name, p, err)
				}
				if next := behindEmpty(got.RecordBatches, at); next > at {
					behind[p] = next
				}
			}
		}
	}
	return behind, nil
}

// behindEmpty returns the offset after the batches without records at the start of
// raw; at, if there are none.
func behindEmpty(raw []byte, at int64) int64 {
	for len(raw) >= batchHeader {
		size := batchLengthFrom + int(int32(binary.BigEndian.Uint32(raw[batchLengthAt:])))
		if size < batchHeader {
			return at
		}
		control := binary.BigEndian.Uint16(raw[batchAttributesAt:])&batchIsControl != 0
		if binary.BigEndian.Uint32(raw[batchRecordsAt:]) > 0 && !control {
			return at
		}
		at = max(at, int64(binary.BigEndian.Uint64(raw))+int64(int32(binary.BigEndian.Uint32(raw[batchLastDeltaAt:])))+1)
		raw = raw[min(size, len(raw)):]
	}
	return at
}

// StartOffsets returns the first offset of each partition that can still be read.
func (f *Follower) StartOffsets(ctx context.Context) (map[int32]int64, error) {
	return startOffsets(ctx, f.admin, f.topic)
}
