package users

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// claimants reads the records of the users who claim the contested tokens among a
// shard's cases. All are of the same offsets as the claims: a user who is missing is not
// known now, because a shard is being built, has been written by somebody else
// meanwhile, or the record cannot be read.
func (r *Registry) claimants(ctx context.Context, s int, cases []string, values [][]byte) (map[string]*record.User, error) {
	pipe := r.client.Pipeline()
	asked := make(map[string]*redis.StringCmd)
	touched := map[int]bool{s: true}
	for i, kase := range cases {
		if kind, _ := record.CutCase(kase); kind != record.Contested {
			continue
		}
		cs, err := record.DecodeClaims(values[i], r.shards[s].Version.Build)
		if err != nil || len(cs) < 2 {
			continue // its answer says so
		}
		for _, c := range cs {
			if home := shards.UserShard(c.User); asked[c.User] == nil {
				asked[c.User] = pipe.Get(ctx, shards.UserKey(home, c.User))
				touched[home] = true
			}
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	current, err := r.current(ctx, slices.Sorted(maps.Keys(touched)))
	if err != nil {
		return nil, err
	}
	users := make(map[string]*record.User, len(asked))
	for user, cmd := range asked {
		raw, err := cmd.Bytes()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("reading who claims a token: %w", err)
		}
		home := shards.UserShard(user)
		if !current[s] || !current[home] {
			continue
		}
		u := new(record.User)
		if u.Decode(raw, r.shards[home].Version.Build) != nil {
			r.repair.ask(home, record.LostUser, user) // and again, until it can be read
			continue
		}
		users[user] = u
	}
	return users, nil
}

// current are those of the shards that are complete, as this registry believes them
// to be, and have applied nothing that it has not read. What was read of them before
// is of that state.
func (r *Registry) current(ctx context.Context, list []int) (map[int]bool, error) {
	states, err := state.Load(ctx, r.client, list)
	if err != nil {
		return nil, err
	}
	current := make(map[int]bool, len(list))
	for i, s := range list {
		st := &r.shards[s]
		current[s] = st.known && st.Ready && st.Version == states[i].Version && !behind(r.pos, st.Applied)
	}
	return current, nil
}
