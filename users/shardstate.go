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
	"github.com/pushfleet/pushfleet/users/record"
)

// shardState is what a registry believes about one user shard: what it read or
// wrote last.
type shardState struct {
	known   bool      // false = not looked at yet, or to be built anew
	version version   // the fence: changes with every write
	applied []int64   // per partition: the next offset to apply
	at      time.Time // when the shard was last known to be current
	ready   bool      // its epoch marker is set
	marker  string    // the epoch marker as read
	open    bool      // it may have open cases
	unread  int64     // parts in quarantine, as of the last look

	target []int64   // while not ready: the offsets that must be applied first
	beat   time.Time // when this registry last wrote its offsets without need
}

// version is the field v of o:{s}: the build, and a random number of its latest
// write, never 0. A counter would not do: after a failover that lost writes it
// would reach the same number again, for another state. The zero value means
// that the shard does not exist.
type version struct {
	build uint64
	write uint64
}

// next is the version after another write.
func (v version) next() version {
	for {
		if next := (version{v.build, random()}); next.write != 0 && next != v {
			return next
		}
	}
}

func (v version) String() string {
	if v == (version{}) {
		return ""
	}
	return formatBuild(v.build) + "." + strconv.FormatUint(v.write, 10)
}

func parseVersion(s string) (version, error) {
	build, write, ok := strings.Cut(s, ".")
	if ok {
		b, err := parseBuild(build)
		n, err2 := strconv.ParseUint(write, 10, 64)
		if err == nil && err2 == nil && n > 0 {
			return version{b, n}, nil
		}
	}
	return version{}, fmt.Errorf("version of a shard: %w", record.ErrVersion)
}

// Names of the fields of o:{s} besides the partitions' numbers.
const (
	versionField = "v"
	atField      = "at"
)

// openKey is the set of a shard's open cases. It has the tag of a user shard;
// token shards share theirs with every fourth of them.
func openKey(s int) string { return "t:{" + shards.UserTag(s) + "}:open" }

// unreadKey is the set of the keys of a shard's parts that are in quarantine.
func unreadKey(s int) string { return "t:{" + shards.UserTag(s) + "}:unread" }

// tokenHome is the user shard whose script writes the token index entry of
// this device hash: the two share a hash tag.
func tokenHome(hash string) int { return shards.TokenShard(hash) * (shards.Users / shards.Filters) }

func tokenKey(hash string) string { return shards.TokenKey(shards.TokenShard(hash), hash) }

// loadShards reads the state of these shards, in one round trip.
func loadShards(ctx context.Context, client redis.UniversalClient, list []int) ([]shardState, error) {
	pipe := client.Pipeline()
	fields := make([]*redis.MapStringStringCmd, len(list))
	markers := make([]*redis.StringCmd, len(list))
	opens := make([]*redis.IntCmd, len(list))
	unread := make([]*redis.IntCmd, len(list))
	for i, s := range list {
		fields[i] = pipe.HGetAll(ctx, shards.OffsetsKey(s))
		markers[i] = pipe.Get(ctx, shards.EpochKey(s))
		opens[i] = pipe.Exists(ctx, openKey(s))
		unread[i] = pipe.SCard(ctx, unreadKey(s))
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
		if err := errors.Join(fields[i].Err(), opens[i].Err(), unread[i].Err()); err != nil {
			return nil, fmt.Errorf("reading the state of shard %d: %w", s, err)
		}
		st, err := parseState(fields[i].Val())
		if err != nil {
			return nil, fmt.Errorf("reading the state of shard %d: %w", s, err)
		}
		st.marker, st.open, st.unread = markers[i].Val(), opens[i].Val() > 0, unread[i].Val()
		st.ready = st.marker != "" && st.marker == formatBuild(st.version.build)
		states[i] = st
	}
	return states, nil
}

func parseState(fields map[string]string) (shardState, error) {
	var st shardState
	if fields[versionField] == "" {
		return st, nil // wiped: offsets without a version mean nothing
	}
	var err error
	if st.version, err = parseVersion(fields[versionField]); err != nil {
		return st, err
	}
	offsets := make(map[int]int64, len(fields))
	for name, value := range fields {
		if name == versionField {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return st, fmt.Errorf("a field of o: %w", record.ErrCorrupt)
		}
		if name == atField {
			st.at = time.UnixMilli(n)
			continue
		}
		p, err := strconv.Atoi(name)
		if err != nil || p < 0 {
			return st, fmt.Errorf("a field of o: %w", record.ErrVersion)
		}
		offsets[p] = n
	}
	// A build begins with an offset for each partition, so these are the
	// partitions that the topic had then.
	st.applied = make([]int64, len(offsets))
	for p, n := range offsets {
		if p >= len(offsets) {
			return st, fmt.Errorf("offsets of o: %w", record.ErrCorrupt)
		}
		st.applied[p] = n
	}
	return st, nil
}
