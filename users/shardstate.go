package users

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// shardState is what a registry believes of one user shard: what it read or
// wrote last.
type shardState struct {
	known   bool      // false = not looked at yet, or to be built anew
	version version   // the fence: changes with every write
	applied []int64   // per partition: the next offset to apply
	at      time.Time // when the shard was last known to be current
	ready   bool      // its epoch marker is set
	marker  string    // the epoch marker as read
	open    bool      // it may have open cases

	target []int64   // while not ready: what must be applied first
	beat   time.Time // when this registry last wrote its offsets without need
}

// version is the field v of o:{s}: the build, and a count of its writes. The
// zero value stands for a shard that is not there.
type version struct {
	build  uint64
	writes uint64
}

func (v version) String() string {
	if v == (version{}) {
		return ""
	}
	return formatBuild(v.build) + "." + strconv.FormatUint(v.writes, 10)
}

func parseVersion(s string) (version, error) {
	build, writes, ok := strings.Cut(s, ".")
	if ok {
		b, err := parseBuild(build)
		n, err2 := strconv.ParseUint(writes, 10, 64)
		if err == nil && err2 == nil && n > 0 {
			return version{b, n}, nil
		}
	}
	return version{}, fmt.Errorf("version of a shard: %w", ErrVersion)
}

// Names of the fields of o:{s} besides the partitions' numbers.
const (
	versionField = "v"
	atField      = "at"
)

// openKey is the set of a shard's open cases. It has the tag of a user shard;
// token shards share theirs with every fourth of them.
func openKey(s int) string { return "t:{" + shards.UserTag(s) + "}:open" }

// tokenHome is the user shard whose script writes the token index entry of
// this device hash: the two share a hash tag.
func tokenHome(hash string) int { return shards.TokenShard(hash) * (shards.Users / shards.Filters) }

func tokenKey(hash string) string { return shards.TokenKey(shards.TokenShard(hash), hash) }

// loadShards reads the state of these shards, in one round trip.
func loadShards(ctx context.Context, client redis.UniversalClient, list []int, partitions int) ([]shardState, error) {
	pipe := client.Pipeline()
	fields := make([]*redis.MapStringStringCmd, len(list))
	markers := make([]*redis.StringCmd, len(list))
	opens := make([]*redis.IntCmd, len(list))
	for i, s := range list {
		fields[i] = pipe.HGetAll(ctx, shards.OffsetsKey(s))
		markers[i] = pipe.Get(ctx, shards.EpochKey(s))
		opens[i] = pipe.Exists(ctx, openKey(s))
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading the state of shards: %w", err)
	}
	states := make([]shardState, len(list))
	for i, s := range list {
		if err := markers[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("reading the state of shard %d: %w", s, err)
		}
		// The pipeline's error is only the first one.
		if err := errors.Join(fields[i].Err(), opens[i].Err()); err != nil {
			return nil, fmt.Errorf("reading the state of shard %d: %w", s, err)
		}
		st, err := parseState(fields[i].Val(), partitions)
		if err != nil {
			return nil, fmt.Errorf("reading the state of shard %d: %w", s, err)
		}
		st.marker, st.open = markers[i].Val(), opens[i].Val() > 0
		st.ready = st.marker != "" && st.marker == formatBuild(st.version.build)
		states[i] = st
	}
	return states, nil
}

func parseState(fields map[string]string, partitions int) (shardState, error) {
	st := shardState{applied: make([]int64, partitions)}
	if fields[versionField] == "" {
		return st, nil // wiped: offsets without a version mean nothing
	}
	var err error
	if st.version, err = parseVersion(fields[versionField]); err != nil {
		return st, err
	}
	for name, value := range fields {
		if name == versionField {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return st, fmt.Errorf("a field of o: %w", ErrCorrupt)
		}
		if name == atField {
			st.at = time.UnixMilli(n)
			continue
		}
		p, err := strconv.Atoi(name)
		if err != nil || p < 0 {
			return st, fmt.Errorf("a field of o: %w", ErrVersion)
		}
		if p >= partitions {
			return st, fmt.Errorf("%w: it had at least %d, now %d", errPartitions, p+1, partitions)
		}
		st.applied[p] = n
	}
	return st, nil
}
