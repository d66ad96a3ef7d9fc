package users

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Quarantined is a record of push.users that cannot be read, as the compacted
// topic push.users.quarantine tells it: its key is that of the part, and a
// tombstone says that the part can be read again. The value is not in it, as
// it may hold a token; it stands at its place in push.users.
type Quarantined struct {
	User   string `json:"user_id"`
	Device string `json:"device,omitempty"` // the hash of its token; empty = preferences
	// Reason is UnknownVersion, UnknownPlatform or BrokenRule.
	Reason    string `json:"reason"`
	Partition int    `json:"partition"` // of push.users
	Offset    int64  `json:"offset"`
	// Stands: what was there before holds. Otherwise the user's notifications
	// wait, or are kept back: see push.Quarantine.
	Stands bool  `json:"stands"`
	AtMS   int64 `json:"at_ms"` // when the registry told it
}

// The reasons of a Quarantined.
const (
	UnknownVersion  = "unknown_version"
	UnknownPlatform = "unknown_platform"
	BrokenRule      = "broken_rule"
)

// record is the one of push.users.quarantine.
func (p *unreadPart) record(user string, now time.Time) (Record, error) {
	reason := BrokenRule
	if p.version {
		reason = UnknownVersion
	}
	return Quarantined{User: user, Device: p.hash, Reason: reason, Partition: p.partition, Offset: p.offset, Stands: p.stands}.record(now)
}

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
	if json.Unmarshal(value, &q) != nil || checkUser(q.User) != nil {
		return Quarantined{}, fmt.Errorf("part in quarantine: %w", ErrCorrupt) // the library's error may quote the content
	}
	return q, nil
}

// Key is that of the part in push.users.
func (q *Quarantined) Key() string { return (&change{user: q.User, hash: q.Device}).key() }

// InQuarantine says which parts of users are in quarantine now, by their keys
// in push.users.
func InQuarantine(ctx context.Context, client redis.UniversalClient) (map[string]bool, error) {
	pipe := client.Pipeline()
	var sets [shards.Users]*redis.StringSliceCmd
	for s := range sets {
		sets[s] = pipe.SMembers(ctx, unreadKey(s))
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
		r.logger.Error("registry: cannot report parts in quarantine, trying again", "parts", len(st.told), "error", err)
		return ctx.Err()
	}
	for i := range st.told {
		st.closed[quarantined+st.told[i].Key] = false
	}
	return nil
}

// quarantineRecord says what the user's record says of a part.
func (st *settling) quarantineRecord(raw []byte, key string) (Record, error) {
	user, hash, err := splitKey(key)
	if err != nil {
		return Record{}, err
	}
	var u stored
	_ = u.decode(raw, st.build) // what cannot be read is told again after its repair
	if i := u.unreadAt(hash); i >= 0 {
		return u.unread[i].record(user, st.now)
	}
	if f := u.foreignAt(hash); f != nil && f.value != nil {
		return Quarantined{User: user, Device: hash, Reason: UnknownPlatform, Partition: f.partition, Offset: f.offset,
			Stands: deviceByHash(&u.User, hash) != nil}.record(st.now)
	}
	return Record{Key: key}, nil
}
