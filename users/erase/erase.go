// Package erase removes a user from push.users, and waits until Redis has nothing of them any more. It is for the operator
// who must: a worker or a registry has no use for it.
package erase

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// History reads push.users back.
type History interface {
	// Read calls each with the records of the partition that a user's keys are in, of
	// all users, in the order of their offsets: from an offset on, or from the first that
	// there is, up to the partition's end as it is when Read is called. next is
	// that end. An error of each ends it.
	Read(ctx context.Context, user string, from int64, each func(users.FetchedRecord) error) (partition int32, next int64, err error)
}

// Erasure removes everything that push.users has of one user, also what Redis does
// not show: devices above the limit or that cannot be read, parts that only a newer
// fleet knows, records that no registry has applied yet. The registry then
// removes what Redis has. It also finds what an earlier build of the user's shard
// left behind in Redis, as far as the topic, or the user's record there, names it.
//
// What was in the topic before the last of the tombstones goes. What is registered
// or set behind it stays, as with every user: who registers while it runs may
// lose that, who does afterwards never. An Erasure may be repeated; it is not safe for
// concurrent use.
type Erasure struct {
	user    string
	log     users.Log
	history History
	client  redis.UniversalClient

	partition int32
	next      int64 // offset up to which the topic was read
	latest    map[record.Part]latestRecord
	stored    storedUser
}

// latestRecord is the latest one of a part in the topic.
type latestRecord struct {
	offset  int64
	live    bool  // no tombstone
	removed int64 // offset behind the part's last tombstone, also when it is live again; 0 = none
}

// storedUser is what Redis has of a user, of whatever build.
type storedUser struct {
	there  bool
	user   record.User         // empty if it cannot be read
	tokens map[string]struct{} // device hashes whose entries of the token index name the user
	others map[string]struct{} // those that somebody else has registered, and the user not since
}

// New begins one. The user is 1 to 128 bytes, of any kind: an id that today's
// rules would refuse can be erased. The error wraps record.ErrInvalid otherwise.
func New(log users.Log, history History, client redis.UniversalClient, user string) (*Erasure, error) {
	if err := record.CheckKeyUser(user); err != nil {
		return nil, fmt.Errorf("erasing a user: %w", err)
	}
	return &Erasure{user: user, log: log, history: history, client: client, latest: make(map[record.Part]latestRecord)}, nil
}

// Remains is what there is of a user.
type Remains struct {
	Devices     int  // in the topic, in Redis, or both
	Others      int  // keys that are none of the parts that this version knows
	Preferences bool // as all that follow
	Profile     bool
	Limits      bool // personal ones
	Record      bool // in Redis
	Tokens      int  // entries of the token index that name the user
	// Hashes are those of the Devices, sorted.
	Hashes []string
	// Had are those, and those of devices that push.users still says were the user's: what is
	// kept about a device outlives its registration. Sorted.
	Had []string
	// Owned are those of Had that are not somebody else's now.
	Owned []string
	// Number stands for the user in segments, as far as Redis has the profile.
	Number    uint32
	HasNumber bool
}

// Look reads what there is now. The first time it reads the user's partition of
// push.users from its first record, which takes a minute for some gigabytes; later only
// what has come since.
func (e *Erasure) Look(ctx context.Context) (Remains, error) {
	if err := e.read(ctx); err != nil {
		return Remains{}, err
	}
	if err := e.readRedis(ctx); err != nil {
		return Remains{}, err
	}
	r := Remains{Record: e.stored.there, Tokens: len(e.stored.tokens),
		Number: e.stored.user.Profile.Number, HasNumber: e.stored.user.Profile.HasNumber}
	for part := range e.parts() {
		switch {
		case part == record.PreferencesPart:
			r.Preferences = true
		case part == record.ProfilePart:
			r.Profile = true
		case part == record.LimitsPart:
			r.Limits = true
		case e.known(part):
			r.Devices++
			r.Hashes = append(r.Hashes, part.Hash())
		default:
			r.Others++
		}
	}
	slices.Sort(r.Hashes)
	r.Had = e.had(r.Hashes)
	r.Owned = e.owned(r.Had)
	return r, nil
}

// read reads on in the topic.
func (e *Erasure) read(ctx context.Context) error {
	partition, next, err := e.history.Read(ctx, e.user, e.next, func(r users.FetchedRecord) error {
		if part, ok := strings.CutPrefix(r.Key, e.user+"/"); ok && !strings.Contains(part, "/") {
			l := latestRecord{offset: r.Offset, live: r.Value != nil, removed: e.latest[record.Part(part)].removed}
			if !l.live {
				l.removed = r.Offset + 1
			}
			e.latest[record.Part(part)] = l
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("looking for a user in push.users: %w", err)
	}
	e.partition, e.next = partition, next
	return nil
}

// had are the hashes of live devices and of those that were the user's.
func (e *Erasure) had(live []string) []string {
	all := slices.Clone(live)
	for part := range e.latest {
		if hash := part.Hash(); hash != "" && e.known(part) {
			all = append(all, hash)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// owned are those that nobody else has registered since.
func (e *Erasure) owned(had []string) []string {
	return slices.DeleteFunc(slices.Clone(had), func(hash string) bool {
		_, others := e.stored.others[hash]
		return others
	})
}

// tokensPerTrip bounds the entries of the token index that are read in one round trip.
const tokensPerTrip = 1000

// readRedis reads what Redis has. What cannot be read, also a key of another type, is
// there all the same; the registry rebuilds it from the topic.
func (e *Erasure) readRedis(ctx context.Context) error {
	raw, err := e.client.Get(ctx, shards.UserKey(shards.UserShard(e.user), e.user)).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) && !otherType(err) {
		return fmt.Errorf("looking for a user in Redis: %w", err)
	}
	e.stored = storedUser{there: !errors.Is(err, redis.Nil), tokens: make(map[string]struct{}), others: make(map[string]struct{})}
	_ = e.stored.user.Decode(raw, record.BuildOf(raw)) // empty then
	of := make(map[string]struct{})
	for part := range e.latest {
		of[part.Hash()] = struct{}{}
	}
	for _, part := range e.stored.user.Parts() {
		of[part.Hash()] = struct{}{}
	}
	delete(of, "") // the other parts
	for hashes := range slices.Chunk(slices.Sorted(maps.Keys(of)), tokensPerTrip) {
		if err := e.readTokens(ctx, hashes); err != nil {
			return fmt.Errorf("looking for a user's tokens in Redis: %w", err)
		}
	}
	return nil
}

// otherType reports whether err is Redis' word that a key holds no string.
func otherType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

func (e *Erasure) readTokens(ctx context.Context, hashes []string) error {
	pipe := e.client.Pipeline() // of any shards: a command each
	cmds := make([]*redis.StringCmd, len(hashes))
	for i, hash := range hashes {
		cmds[i] = pipe.Get(ctx, state.TokenKey(hash))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, hash := range hashes {
		raw, err := cmds[i].Bytes()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if otherType(err) {
			e.stored.tokens[hash] = struct{}{}
			continue
		}
		if err != nil {
			return err
		}
		claims, err := record.DecodeClaims(raw, record.BuildOf(raw))
		if err != nil || slices.ContainsFunc(claims, func(c record.Claim) bool { return c.User == e.user }) {
			e.stored.tokens[hash] = struct{}{}
		}
		if err == nil && len(claims) > 0 && claims.Latest().User != e.user {
			e.stored.others[hash] = struct{}{}
		}
	}
	return nil
}

// parts are those of which there is something: what is live in the topic, and what
// Redis names.
func (e *Erasure) parts() map[record.Part]struct{} {
	parts := make(map[record.Part]struct{})
	for part, latest := range e.latest {
		if latest.live {
			parts[part] = struct{}{}
		}
	}
	for _, part := range e.stored.user.Parts() {
		parts[part] = struct{}{}
	}
	for hash := range e.stored.tokens {
		parts[record.DevicePart(hash)] = struct{}{}
	}
	return parts
}

// doomed are the parts that need a tombstone. If Redis has a record that names none
// of those that a registry knows, it is the preferences, so that it is written anew.
func (e *Erasure) doomed() map[record.Part]struct{} {
	parts := e.parts()
	if e.stored.there && !slices.ContainsFunc(slices.Collect(maps.Keys(parts)), e.known) {
		parts[record.PreferencesPart] = struct{}{}
	}
	return parts
}

// known reports whether a registry of this version applies records of the part.
func (e *Erasure) known(part record.Part) bool {
	_, _, err := record.PartOf(record.Key(e.user, part))
	return err == nil
}

// tombstonesPerAppend bounds what one append holds in memory.
const tombstonesPerAppend = 1000

// Append appends the tombstones of everything that the last Look found, and of what
// came before them meanwhile, and returns their number: 0 when there was nothing.
// After an error some of them may be there.
func (e *Erasure) Append(ctx context.Context) (tombstones int, err error) {
	parts := e.doomed()
	end := int64(0) // behind the last tombstone of the first round
	for len(parts) > 0 {
		for some := range slices.Chunk(slices.Sorted(maps.Keys(parts)), tombstonesPerAppend) {
			records := make([]users.Record, len(some))
			for i, part := range some {
				records[i].Key = record.Key(e.user, part)
			}
			if err := e.log.Append(ctx, records); err != nil {
				return tombstones, fmt.Errorf("appending tombstones: %w", err)
			}
			tombstones += len(records)
		}
		if err := e.read(ctx); err != nil {
			return tombstones, err
		}
		if end == 0 {
			for part := range parts {
				end = max(end, e.latest[part].removed)
			}
		}
		parts = make(map[record.Part]struct{})
		for part, l := range e.latest {
			if l.live && l.offset < end {
				parts[part] = struct{}{} // came between the look and the tombstones
			}
		}
	}
	return tombstones, nil
}

// Pauses between two looks at what the registry has applied.
const firstAppliedPause, longAppliedPause = 20 * time.Millisecond, time.Second

// Await waits until the registry has applied everything that the topic has of the
// user, and has nothing left to do about the user: then Redis holds
// what was registered or set after Append, and nothing else. It returns ctx's error
// when that ends first.
func (e *Erasure) Await(ctx context.Context) error {
	for pause := firstAppliedPause; ; pause = min(2*pause, longAppliedPause) {
		done, err := e.applied(ctx)
		if err != nil {
			return err
		}
		if done {
			before := maps.Clone(e.latest)
			if err := e.read(ctx); err != nil {
				return err
			}
			if maps.Equal(before, e.latest) {
				return nil
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// applied reports whether all shards concerned have applied the topic's records as
// far as they were read, and have no open case about the user.
func (e *Erasure) applied(ctx context.Context) (bool, error) {
	home := shards.UserShard(e.user)
	need := map[int]int64{home: 0} // per shard: the offset behind the last record that is about it
	for part, l := range e.latest {
		if !e.known(part) {
			continue
		}
		need[home] = max(need[home], l.offset+1)
		if hash := part.Hash(); hash != "" {
			need[state.TokenHome(hash)] = max(need[state.TokenHome(hash)], l.offset+1)
		}
	}
	list := slices.Sorted(maps.Keys(need))
	states, err := state.Load(ctx, e.client, list)
	if err != nil {
		return false, err
	}
	for i, st := range states {
		if int(e.partition) >= len(st.Applied) || st.Applied[e.partition] < need[list[i]] {
			return false, nil
		}
	}
	return e.settled(ctx, home, list)
}

// settled reports whether no open case, and no part in quarantine, names the user.
func (e *Erasure) settled(ctx context.Context, home int, list []int) (bool, error) {
	pipe := e.client.Pipeline()
	cases := make([]*redis.StringSliceCmd, len(list))
	for i, s := range list {
		cases[i] = pipe.SMembers(ctx, state.OpenKey(s))
	}
	unread := pipe.SMembers(ctx, state.UnreadKey(home))
	if _, err := pipe.Exec(ctx); err != nil {
		return false, fmt.Errorf("reading the open cases of shards: %w", err)
	}
	for _, cmd := range cases {
		if slices.ContainsFunc(cmd.Val(), func(c string) bool { return record.CaseNames(c, e.user) }) {
			return false, nil
		}
	}
	return !slices.ContainsFunc(unread.Val(), func(key string) bool { return record.CaseNames(record.Quarantined+key, e.user) }), nil
}
