// Package state is what the user shards in Redis say of themselves: which build of a shard this is, the offsets of
// push.users that it has applied, whether something is open in it, and under which keys that is kept. It reads;
// only the registry in package users writes, by one script.
package state

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
)

// Shard is the state of one user shard as it was read. The zero value is a shard that
// is not there: never built, or wiped.
type Shard struct {
	Version Version   // the fence: changes with every write
	Applied []int64   // per partition: the next offset to apply
	At      time.Time // when the shard was last known to be current
	Ready   bool      // its epoch marker is set
	Marker  string    // the epoch marker as read
	Open    bool      // it may have open cases
	Unread  int64     // parts in quarantine
}

// Load reads the state of these shards, in one round trip.
func Load(ctx context.Context, client redis.UniversalClient, list []int) ([]Shard, error) {
	pipe := client.Pipeline()
	fields := make([]*redis.MapStringStringCmd, len(list))
	markers := make([]*redis.StringCmd, len(list))
	opens := make([]*redis.IntCmd, len(list))
	unread := make([]*redis.IntCmd, len(list))
	for i, s := range list {
		fields[i] = pipe.HGetAll(ctx, shards.OffsetsKey(s))
		markers[i] = pipe.Get(ctx, shards.EpochKey(s))
		opens[i] = pipe.Exists(ctx, OpenKey(s))
		unread[i] = pipe.SCard(ctx, UnreadKey(s))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	states := make([]Shard, len(list))
	for i, s := range list {
		if err := markers[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("reading the state of shard %d: %w", s, err)
		}
		if err := errors.Join(fields[i].Err(), opens[i].Err(), unread[i].Err()); err != nil {
			return nil, fmt.Errorf("reading the state of shard %d: %w", s, err)
		}
		st, err := parseState(fields[i].Val())
		if err != nil {
			return nil, fmt.Errorf("reading the state of shard %d: %w", s, err)
		}
		st.Marker, st.Open, st.Unread = markers[i].Val(), opens[i].Val() > 0, unread[i].Val()
		st.Ready = st.Marker != "" && st.Marker == FormatBuild(st.Version.Build)
		states[i] = st
	}
	return states, nil
}

func parseState(fields map[string]string) (Shard, error) {
	var st Shard
	if fields[fieldVersion] == "" {
		return Shard{}, nil // wiped: offsets without a version mean nothing
	}
	var err error
	if st.Version, err = parseVersion(fields[fieldVersion]); err != nil {
		return Shard{}, err
	}
	offsets := make(map[int]int64, len(fields))
	for name, value := range fields {
		if name == fieldVersion {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return Shard{}, fmt.Errorf("a field of o: %w", record.ErrCorrupt)
		}
		if name == FieldAt {
			st.At = time.UnixMilli(n)
			continue
		}
		p, err := strconv.Atoi(name)
		if err != nil || p < 0 {
			return Shard{}, fmt.Errorf("a field of o: %w", record.ErrVersion)
		}
		offsets[p] = n
	}
	// A build begins with an offset for each partition, so these are the
	// partitions that the topic had then.
	st.Applied = make([]int64, len(offsets))
	for p, n := range offsets {
		if p >= len(offsets) {
			return Shard{}, fmt.Errorf("offsets of o: %w", record.ErrCorrupt)
		}
		st.Applied[p] = n
	}
	return st, nil
}
