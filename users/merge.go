package users

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/shards"
)

// shardBatch is what a poll brings for one shard, and what it applies to.
type shardBatch struct {
	shard   int
	users   []*change // changes of users' records
	tokens  []*change // changes of token index entries
	keys    []string  // to read and write back: records, then entries
	records map[string]*pipeline.User
	entries map[string]claims
	values  *redis.SliceCmd
}

// gather sorts into shards what they have not applied yet; only says which
// shards, nil = all. The changes are in offset order within each partition,
// and so they stay.
func (r *Registry) gather(changes []change, only []int) []*shardBatch {
	var by [shards.Users]*shardBatch
	var batches []*shardBatch
	batch := func(c *change, s int) *shardBatch {
		st := &r.shards[s]
		if !st.known || c.offset < st.applied[c.partition] || only != nil && !slices.Contains(only, s) {
			return nil
		}
		if by[s] == nil {
			by[s] = &shardBatch{shard: s, records: map[string]*pipeline.User{}, entries: map[string]claims{}}
			batches = append(batches, by[s])
		}
		return by[s]
	}
	for i := range changes {
		c := &changes[i]
		if b := batch(c, c.home); b != nil {
			b.users = append(b.users, c)
		}
		if c.tokenHome < 0 {
			continue
		}
		if b := batch(c, c.tokenHome); b != nil {
			b.tokens = append(b.tokens, c)
		}
	}
	return batches
}

// readBatches reads what the batches change, in one round trip.
func (r *Registry) readBatches(ctx context.Context, batches []*shardBatch) error {
	pipe := r.client.Pipeline()
	for _, b := range batches {
		for _, c := range b.users {
			if b.records[c.user] == nil {
				b.records[c.user] = new(pipeline.User)
				b.keys = append(b.keys, shards.UserKey(b.shard, c.user))
			}
		}
		for _, c := range b.tokens {
			if _, ok := b.entries[c.hash]; !ok {
				b.entries[c.hash] = nil
				b.keys = append(b.keys, tokenKey(c.hash))
			}
		}
		b.values = pipe.MGet(ctx, b.keys...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, b := range batches {
		if err := r.decodeBatch(b); err != nil {
			return fmt.Errorf("reading shard %d to write it: %w", b.shard, err)
		}
	}
	return nil
}

func (r *Registry) decodeBatch(b *shardBatch) error {
	values, err := b.values.Result()
	if err != nil {
		return err
	}
	if len(values) != len(b.keys) {
		return errReply
	}
	build := r.shards[b.shard].version.build
	for i, key := range b.keys {
		raw := bytesOf(values[i])
		name := key[strings.IndexByte(key, '}')+2:]
		if key[0] == 't' {
			if b.entries[name], err = decodeClaims(raw, build); err != nil {
				return err
			}
			continue
		}
		if raw == nil {
			continue
		}
		u := b.records[name]
		got, skipped, err := decode(raw, u)
		switch {
		case err != nil:
			return err
		case got != build:
			*u = pipeline.User{}
		case skipped:
			// Written by a newer registry: rewriting it would lose what we skip.
			return fmt.Errorf("user record: %w: a section to be kept", ErrVersion)
		}
	}
	return nil
}

// merge applies a batch's changes to what was read, and makes the write.
func (r *Registry) merge(b *shardBatch, fetched []Fetched) *shardWrite {
	st := &r.shards[b.shard]
	w := &shardWrite{shard: b.shard, keys: b.keys, cases: map[string]bool{}, offsets: make([]int64, len(st.applied))}
	for p := range w.offsets {
		w.offsets[p] = -1
	}
	for i := range fetched {
		p := fetched[i].Partition
		w.offsets[p] = max(w.offsets[p], st.applied[p], fetched[i].Next)
	}
	for _, c := range b.users {
		mergeUser(b.records[c.user], c, w.cases, st.open)
	}
	for _, c := range b.tokens {
		b.entries[c.hash] = mergeToken(b.entries[c.hash], c, w.cases)
	}
	for _, key := range b.keys {
		var value []byte
		name := key[strings.IndexByte(key, '}')+2:]
		if key[0] == 't' {
			if cs := b.entries[name]; len(cs) > 0 {
				value = cs.encode(st.version.build)
			}
		} else if u := b.records[name]; len(u.Devices) > 0 || !noPreferences(&u.Preferences) {
			value = Encode(nil, u, st.version.build)
		}
		w.values = append(w.values, value)
	}
	return w
}

// Open cases: what is to be settled in the topic, by the kind of case and the
// device hash or the key of the part.
const (
	contested = "c:" // a token with more than one claim
	overtaken = "o:" // a registration whose latest record is a tombstone that does not remove it
)

// mergeUser applies c to its user. open says that the shard may have cases,
// which any further record of the part closes.
func mergeUser(u *pipeline.User, c *change, cases map[string]bool, open bool) {
	if c.hash == "" {
		u.Preferences = pipeline.Preferences{}
		if c.preferences != nil {
			u.Preferences = *c.preferences
		}
		return
	}
	kase := overtaken + DeviceKey(c.user, c.hash)
	if c.device == nil {
		if d := deviceByHash(u, c.hash); d != nil && !c.removes(d.RegisteredAt) {
			cases[kase] = true
			return
		}
	}
	applyDevice(u, c.hash, c.device)
	if _, ours := cases[kase]; ours || open {
		cases[kase] = false
	}
}

// mergeToken applies c to the claims of its token.
func mergeToken(cs claims, c *change, cases map[string]bool) claims {
	before := len(cs)
	switch {
	case c.device != nil:
		cs = cs.with(claim{user: c.user, at: c.device.RegisteredAt.UnixMilli()})
	case slices.ContainsFunc(cs, func(x claim) bool { return x.user == c.user && c.removes(time.UnixMilli(x.at)) }):
		cs = cs.without(c.user)
	}
	switch after := len(cs); {
	case after > 1 && before <= 1:
		cases[contested+c.hash] = true
	case after <= 1 && before > 1:
		cases[contested+c.hash] = false
	}
	return cs
}

// count takes what was written into the figures.
func (r *Registry) count(batches []*shardBatch, fenced []int) {
	for _, b := range batches {
		if !slices.Contains(fenced, b.shard) {
			n := len(b.users) + len(b.tokens)
			r.applied += uint64(n)
			r.metrics.applied.Add(float64(n))
		}
	}
}
