package users

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// absent is an owner of whom an MGET had no record.
type absent struct {
	owner int32 // its index
	shard int
	key   any // of the record, as it was asked for
}

// lookForOtherTypes marks with push.RecordUnread who of these, which come shard by shard,
// has a key all the same: MGET answers nothing for a key of another type, as somebody else
// may have written it, and without a record a user forbids nothing and has no device. The
// registry is told to build these anew. Who has a record by now, because it has just been
// registered or built anew, is marked too: it was not read. It takes a round trip and a
// command for each touched shard, and another one when there is such a key.
func (r *Reader) lookForOtherTypes(ctx context.Context, missing []absent, owners []string, out []*push.User) error {
	pipe := r.client.Pipeline()
	var there []*redis.IntCmd // of each shard, in order
	args := make([]any, 0, 2*len(missing))
	for from, to := 0, 0; from < len(missing); from = to {
		first := len(args)
		args = append(args, "exists")
		for ; to < len(missing) && missing[to].shard == missing[from].shard; to++ {
			args = append(args, missing[to].key)
		}
		there = append(there, redis.NewIntCmd(ctx, args[first:len(args):len(args)]...))
		_ = pipe.Process(ctx, there[len(there)-1]) // it only queues
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("looking for keys without a record: %w", err)
	}
	types := make([]*redis.StatusCmd, len(missing))
	asked := -1 // index in there
	for i := range missing {
		if i == 0 || missing[i].shard != missing[i-1].shard {
			asked++
		}
		if there[asked].Val() > 0 { // seldom: nearly all were never registered
			types[i] = redis.NewStatusCmd(ctx, "type", missing[i].key)
			_ = pipe.Process(ctx, types[i])
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("looking for the types of keys without a record: %w", err)
	}
	for i, a := range missing {
		if types[i] == nil || types[i].Val() == "none" {
			continue
		}
		out[a.owner].Quarantine = push.RecordUnread
		if types[i].Val() != "string" {
			pipe.SAdd(ctx, state.OpenKey(a.shard), record.LostUser+owners[a.owner])
		}
	}
	_, _ = pipe.Exec(ctx) // if it fails, whoever looks next tells the registry
	return nil
}
