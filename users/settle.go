package users

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/shards"
)

// settle appends to the topic what the open cases ask for: a token claimed by
// two users is removed from all but its owner; a registration that a
// conditional tombstone overtook is registered again. It waits until the
// topic was read to its end: the answer may be there already. The case is
// closed when what is appended here comes back and is applied, so a crash, or
// a second registry, only does it twice.
func (r *Registry) settle(ctx context.Context) error {
	if !r.caughtUp() {
		return nil
	}
	for s := range r.shards {
		st := &r.shards[s]
		if !st.known || !st.open {
			continue
		}
		cases, err := r.client.SMembers(ctx, openKey(s)).Result()
		if err != nil {
			return fmt.Errorf("reading the open cases of shard %d: %w", s, err)
		}
		st.open = len(cases) > 0
		var records []Record
		for _, c := range cases {
			more, err := r.answer(ctx, st.version.build, c)
			if err != nil {
				return fmt.Errorf("settling a case of shard %d: %w", s, err)
			}
			records = append(records, more...)
		}
		if len(records) == 0 {
			continue
		}
		if err := r.log.Append(ctx, records); err != nil {
			return fmt.Errorf("settling the open cases of shard %d: %w", s, err)
		}
		r.metrics.settled.Add(float64(len(records)))
	}
	return nil
}

// answer makes the records that settle one case.
func (r *Registry) answer(ctx context.Context, build uint64, c string) ([]Record, error) {
	if hash, ok := strings.CutPrefix(c, contested); ok {
		raw, err := r.get(ctx, tokenKey(hash))
		if err != nil {
			return nil, err
		}
		cs, err := decodeClaims(raw, build)
		if err != nil || len(cs) < 2 {
			return nil, err
		}
		return evictions(cs, hash), nil
	}
	key, ok := strings.CutPrefix(c, overtaken)
	if !ok {
		return nil, fmt.Errorf("open case: %w", ErrVersion)
	}
	user, hash, err := splitKey(key)
	if err != nil {
		return nil, err
	}
	raw, err := r.get(ctx, shards.UserKey(shards.UserShard(user), user))
	if err != nil {
		return nil, err
	}
	var u pipeline.User
	if err := decodeOf(build, raw, &u); err != nil {
		return nil, err
	}
	d := deviceByHash(&u, hash)
	if d == nil {
		return nil, nil
	}
	record, err := deviceRecord(user, d)
	return []Record{record}, err
}

// evictions removes a token from all but its owner. A former owner who
// registers it once more, and later, keeps it: the removal does not reach that.
func evictions(cs claims, hash string) []Record {
	owner := cs.owner()
	var records []Record
	for _, c := range cs {
		if c.user != owner.user {
			records = append(records, Record{Key: DeviceKey(c.user, hash), IfNotAfter: time.UnixMilli(owner.at)})
		}
	}
	return records
}

// get returns nil for a key that is not there.
func (r *Registry) get(ctx context.Context, key string) ([]byte, error) {
	raw, err := r.client.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return raw, err
}
