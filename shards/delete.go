package shards

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// keysPerTrip bounds what Delete and Count ask for in one round trip.
const keysPerTrip = 1000

// Keys names a key of each owner, in the owner's shard.
func Keys(owners []string, key func(shard int, owner string) string) []string {
	keys := make([]string, len(owners))
	for i, owner := range owners {
		keys[i] = key(UserShard(owner), owner)
	}
	return keys
}

// Delete deletes keys of any shards and returns how many there were. Each has a
// command of its own, as a cluster refuses one command for keys of different slots
// (CROSSSLOT). After an error some may be deleted; doing it again does no harm.
func Delete(ctx context.Context, client Client, keys []string) (int, error) {
	return eachKey(ctx, client, keys, func(pipe redis.Pipeliner, key string) *redis.IntCmd { return pipe.Del(ctx, key) })
}

// Count returns how many of the keys, of any shards, there are.
func Count(ctx context.Context, client Client, keys []string) (int, error) {
	return eachKey(ctx, client, keys, func(pipe redis.Pipeliner, key string) *redis.IntCmd { return pipe.Exists(ctx, key) })
}

// eachKey adds up the answers to one command a key.
func eachKey(ctx context.Context, client Client, keys []string, ask func(redis.Pipeliner, string) *redis.IntCmd) (sum int, err error) {
	for len(keys) > 0 {
		trip := keys[:min(keysPerTrip, len(keys))]
		keys = keys[len(trip):]
		pipe := client.Pipeline()
		cmds := make([]*redis.IntCmd, len(trip))
		for i, key := range trip {
			cmds[i] = ask(pipe, key)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return sum, fmt.Errorf("asking Redis about %d keys: %w", len(trip), err)
		}
		for _, cmd := range cmds {
			sum += int(cmd.Val())
		}
	}
	return sum, nil
}
