package limits

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Forget removes what is known of owners' notifications, and what waits for a place:
// every limit begins anew. It returns of how many there was anything. What comes back
// for its place is judged as new.
func Forget(ctx context.Context, client redis.UniversalClient, owners ...string) (int, error) {
	n, err := shards.Delete(ctx, client, shards.Keys(owners, shards.LimiterKey))
	if err != nil {
		return n, fmt.Errorf("forgetting limiter states: %w", err)
	}
	return n, nil
}

const (
	deleteDay   = "DELETE FROM device_limit_days WHERE device=? AND date=?"
	deleteTimes = "DELETE FROM device_limit_times WHERE device=? AND date=?"
)

// Count returns how many rows there are of an owner's devices, which are named as for
// Allow, in the partitions that may live at now: of other devices nothing is known,
// as a partition is found by its device alone.
func (d *DeviceLog) Count(ctx context.Context, owner string, devices []string, now time.Time) (int, error) {
	parts := partitions(owner, devices, now)
	var rows atomic.Int64
	err := d.each(ctx, len(parts), func(ctx context.Context, i int) error {
		l := logged{key: parts[i].key}
		read := d.readDay
		if parts[i].times {
			read = d.readTimes
		}
		err := read(ctx, &l, parts[i].day)
		rows.Add(int64(len(l.read)))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("limits: reading what devices got: %w", err)
	}
	return int(rows.Load()), nil
}

// Forget removes the rows that Count counts: every limit of these devices begins
// anew. What is written meanwhile may stay. Replicas that are away for longer than
// gc_grace_seconds of the tables may bring rows back, until these end by themselves.
// After an error some are removed; it can be repeated.
func (d *DeviceLog) Forget(ctx context.Context, owner string, devices []string, now time.Time) error {
	parts := partitions(owner, devices, now)
	err := d.each(ctx, len(parts), func(ctx context.Context, i int) error {
		r := row{deleteDay, []any{parts[i].key, dayOfNumber(parts[i].day)}}
		if parts[i].times {
			r.statement = deleteTimes
		}
		return d.write(ctx, &r)
	})
	if err != nil {
		return fmt.Errorf("limits: removing what devices got: %w", err)
	}
	return nil
}

// logPartition is one of the log's.
type logPartition struct {
	key   []byte
	day   int32
	times bool // of device_limit_times
}

// partitions are those of devices whose rows may live at now. A row of a day is
// written while the date stands on a clock somewhere, and lives on for its TTL.
func partitions(owner string, devices []string, now time.Time) (list []logPartition) {
	now = now.UTC()
	for _, name := range devices {
		key := logKey{owner, DeviceHash(name)}.hash()
		for day := dayNumber(now.Add(-daysTTL - latestZone)); day <= dayNumber(now.Add(earliestZone)); day++ {
			list = append(list, logPartition{key, day, false})
		}
		for day := dayNumber(now.Add(-timesTTL)); day <= dayNumber(now); day++ {
			list = append(list, logPartition{key, day, true})
		}
	}
	return list
}
