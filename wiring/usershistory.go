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
type UsersHistory struct{ follower *kafka.Follower }

// NewUsersHistory does not connect before the first Read. The caller closes it.
func NewUsersHistory(options kafka.Options) (*UsersHistory, error) {
	f, err := kafka.NewFollower(options, kafka.UsersTopic, nil)
	if err != nil {
		return nil, err
	}
	return &UsersHistory{f}, nil
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
	err = h.follower.ReadExtent(ctx, kafka.Extent{partition: r}, func(rec kafka.Record) error {
		return each(users.FetchedRecord{Record: UsersRecord(rec), Offset: rec.Offset})
	})
	return partition, r.To, err
}
