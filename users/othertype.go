package users

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// OtherTypes returns which owners, by their indexes, have a key of another type in the
// place of their record, as somebody else may have written it: to Fetch they look like
// owners without a record. The registry is told to build these anew. It takes a round
// trip and a command for each touched shard, and another one when there are such keys.
func (r *Reader) OtherTypes(ctx context.Context, owners []string) (others []int, err error) {
	var groups shards.Groups
	groups.Arrange(len(owners), shards.Users, func(i int) int { return shards.UserShard(owners[i]) })
	var keys []string
	key := func(s int, i int32) string { return shards.UserKey(s, owners[i]) }
	pipe := r.client.Pipeline()
	there := make(map[int]*redis.IntCmd)
	for s, of := range groups.All() {
		keys = keys[:0]
		for _, i := range of {
			keys = append(keys, key(s, i))
		}
		there[s] = pipe.Exists(ctx, keys...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("looking for keys of users: %w", err)
	}
	types := make(map[int]*redis.StatusCmd) // by index
	for s, n := range there {
		if n.Val() == 0 {
			continue // nearly always: they were never registered
		}
		for _, i := range groups.Of(s) {
			types[int(i)] = pipe.Type(ctx, key(s, i))
		}
	}
	if len(types) == 0 {
		return nil, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("looking for keys of users: %w", err)
	}
	for i := range owners {
		if t := types[i]; t != nil && t.Val() != "string" && t.Val() != "none" {
			others = append(others, i)
			pipe.SAdd(ctx, state.OpenKey(shards.UserShard(owners[i])), record.LostUser+owners[i])
		}
	}
	_, _ = pipe.Exec(ctx) // if it fails, whoever looks next tells the registry
	return others, nil
}
