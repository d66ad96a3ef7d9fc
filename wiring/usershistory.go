package wiring

import (
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/users"
)

// UsersHistory reads push.users back, a user's partition at a time; it implements
// erase.History. It is not safe for concurrent use.
type UsersHistory struct {
	// Progress, if set, is called by Read after each 1,000 records: so many records
	// were read, and so much of the partition, from 0 to 1.
	Progress func(records int, share float64)

	follower *kafka.Follower
}

// historyStep is how many records are read between two reports of progress.
const historyStep = 1000

// NewUsersHistory does not connect before the first Read. The caller closes it.
func NewUsersHistory(options kafka.Options) (*UsersHistory, error) {
	f, err := kafka.NewFollower(options, kafka.UsersTopic, nil)
	if err != nil {
		return nil, err
	}
	return &UsersHistory{follower: f}, nil
}

// Close closes the connections.
func (h *UsersHistory) Close() { h.follower.Close() }

// Read implements erase.History.
func (h *UsersHistory) Read(ctx context.Context, user string, from int64, each func(users.FetchedRecord) error) (partition int32, next int64, err error) {
	extent, err := h.follower.Extent(ctx, time.Time{}, time.Time{})
	if err != nil {
		return 0, 0, err
	}
	partition = kafka.PartitionOf([]byte(user), len(extent)) // as NewUsersLog's writer does
	r, ok := extent[partition]
	if !ok {
		return 0, 0, fmt.Errorf("reading %s: partition %d does not exist", kafka.UsersTopic, partition)
	}
	if from > r.To {
		return 0, 0, fmt.Errorf("reading %s: partition %d ends at offset %d, before offset %d that was read: was the topic made anew?", kafka.UsersTopic, partition, r.To, from)
	}
	r.From = max(r.From, from)
	records := 0
	err = h.follower.ReadExtent(ctx, kafka.Extent{partition: r}, func(rec kafka.Record) error {
		if records++; records%historyStep == 0 && h.Progress != nil {
			h.Progress(records, float64(rec.Offset+1-r.From)/float64(r.To-r.From)) // compaction leaves gaps
		}
		return each(users.FetchedRecord{Record: UsersRecord(rec), Offset: rec.Offset})
	})
	return partition, r.To, err
}
