package users

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// Quarantined is a record of push.users that cannot be read, as the compacted
// topic push.users.quarantine tells it: its key is that of the part, and a
// tombstone says that the part can be read again. The value is not in it, as
// it may hold a token; it stands at its place in push.users.
type Quarantined struct {
	User   string `json:"user_id"`
	Device string `json:"device,omitempty"` // the hash of its token
	// Part is record.ProfilePart or LimitsPart; empty = the device, or without one
	// the preferences.
	Part record.Part `json:"part,omitempty"`
	// Reason is record.UnknownVersion, UnknownPlatform or BrokenRule.
	Reason    string `json:"reason"`
	Partition int    `json:"partition"` // of push.users
	Offset    int64  `json:"offset"`
	// Stands: what was there before holds. Otherwise the user's notifications
	// wait, or are kept back: see push.Quarantine.
	Stands bool  `json:"stands"`
	AtMS   int64 `json:"at_ms"` // when the registry reported it
}

// record is the one of push.users.quarantine that tells it now.
func (q Quarantined) record(now time.Time) (Record, error) {
	q.AtMS = now.UnixMilli()
	value, err := json.Marshal(q)
	if err != nil {
		return Record{}, fmt.Errorf("encoding a part in quarantine: %w", err)
	}
	return Record{Key: q.Key(), Value: value}, nil
}

// ReadQuarantined decodes the value of a record of push.users.quarantine.
func ReadQuarantined(value []byte) (q Quarantined, err error) {
	if json.Unmarshal(value, &q) != nil || record.CheckUser(q.User) != nil {
		return Quarantined{}, fmt.Errorf("part in quarantine: %w", record.ErrCorrupt) // the library's error may quote the content
	}
	return q, nil
}

// Key is that of the part in push.users.
func (q *Quarantined) Key() string { return record.Key(q.User, q.part()) }

func (q *Quarantined) part() record.Part {
	switch {
	case q.Device != "":
		return record.DevicePart(q.Device)
	case q.Part != "":
		return q.Part
	}
	return record.PreferencesPart
}

// QuarantinedAt says of which part a key in push.users is, and no more.
func QuarantinedAt(key string) (q Quarantined) {
	user, part, _ := record.PartOf(key)
	q = Quarantined{User: user, Device: part.Hash()}
	if part == record.ProfilePart || part == record.LimitsPart {
		q.Part = part
	}
	return q
}

// InQuarantine says which parts of users are in quarantine now, by their keys
// in push.users.
func InQuarantine(ctx context.Context, client redis.UniversalClient) (map[string]bool, error) {
	pipe := client.Pipeline()
	var sets [shards.Users]*redis.StringSliceCmd
	for s := range sets {
		sets[s] = pipe.SMembers(ctx, state.UnreadKey(s))
	}
	_, err := pipe.Exec(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading who is in quarantine: %w", err)
	}
	keys := make(map[string]bool)
	for _, set := range sets {
		for _, key := range set.Val() {
			keys[key] = true
		}
	}
	return keys, nil
}

// tell reports the parts of a shard that entered or left quarantine to its
// topic, and adds their cases to those that are closed. A topic that cannot be
// written blocks nothing else: then the cases stay open.
func (r *Registry) tell(ctx context.Context, st *settling) error {
	if len(st.told) == 0 {
		return nil
	}
	if err := r.topics.Quarantine.Append(ctx, st.told); err != nil {
		r.metrics.errors.Inc()
		r.logger.Error("registry: cannot report parts in quarantine, retrying", "parts", len(st.told), "error", err)
		return ctx.Err()
	}
	for i := range st.told {
		st.closed[record.Quarantined+st.told[i].Key] = false
	}
	return nil
}

// quarantineRecord says what the user's record says of a part.
func (st *settling) quarantineRecord(raw []byte, key string) (Record, error) {
	_, part, err := record.PartOf(key)
	if err != nil {
		return Record{}, err
	}
	var u record.User
	_ = u.Decode(raw, st.build) // what cannot be read is told again after its repair
	if why, aside := u.Aside(part); aside {
		q := QuarantinedAt(key)
		q.Reason, q.Partition, q.Offset, q.Stands = why.Reason, why.Partition, why.Offset, why.Stands
		return q.record(st.now)
	}
	return Record{Key: key}, nil
}

// lookAgain takes out of quarantine what this version can read and the one
// before could not: the devices of platforms that it knows. It is not done while
// somebody else writes one of the shards.
func (r *Registry) lookAgain(ctx context.Context) (done bool, err error) {
	var writes []*shardWrite
	for s := range r.shards {
		if st := &r.shards[s]; !st.known || st.Unread == 0 {
			continue
		}
		released, err := r.readable(ctx, s)
		if err != nil {
			return false, fmt.Errorf("looking again at the quarantine of shard %d: %w", s, err)
		}
		if len(released) == 0 {
			continue
		}
		w := &shardWrite{shard: s, cases: map[string]bool{}, unread: map[string]bool{}}
		for _, key := range released {
			w.unread[key], w.cases[record.Quarantined+key] = false, true
		}
		writes = append(writes, w)
	}
	if len(writes) == 0 {
		return true, nil
	}
	fenced, err := r.write(ctx, writes)
	if err != nil {
		return false, fmt.Errorf("releasing from quarantine: %w", err)
	}
	_, err = r.reload(ctx, fenced)
	return len(fenced) == 0, err
}

// readable are those of a shard's parts in quarantine of which their users'
// records do not say that they cannot be read.
func (r *Registry) readable(ctx context.Context, s int) (released []string, err error) {
	keys, err := r.client.SMembers(ctx, state.UnreadKey(s)).Result()
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	names := make([]string, len(keys))
	for i, key := range keys {
		user, _, _ := record.PartOf(key)
		names[i] = shards.UserKey(s, user)
	}
	values, err := r.client.MGet(ctx, names...).Result()
	if err == nil && len(values) != len(keys) {
		err = errReply
	}
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		var u record.User
		if u.Decode(bytesOf(values[i]), r.shards[s].Version.Build) != nil {
			continue // what cannot be read is told again after its repair
		}
		_, part, _ := record.PartOf(key)
		if _, aside := u.Aside(part); !aside {
			released = append(released, key)
		}
	}
	return released, nil
}
