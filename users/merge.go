package users

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// shardBatch is what a poll brings for one shard, and what it applies to.
type shardBatch struct {
	shard   int
	users   []*change // changes of users' records
	tokens  []*change // changes of token index entries
	keys    []string  // to read and write back: records, then entries
	records map[string]*record.User
	entries map[string]record.Claims
	lost    map[string]bool // keys whose value cannot be read: see repair
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
		if !st.known || c.Offset < st.Applied[c.Partition] || only != nil && !slices.Contains(only, s) {
			return nil
		}
		if by[s] == nil {
			by[s] = &shardBatch{shard: s, records: map[string]*record.User{}, entries: map[string]record.Claims{}}
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
			if b.records[c.User] == nil {
				b.records[c.User] = new(record.User)
				b.keys = append(b.keys, shards.UserKey(b.shard, c.User))
			}
		}
		for _, c := range b.tokens {
			hash := c.Hash()
			if _, ok := b.entries[hash]; !ok {
				b.entries[hash] = nil
				b.keys = append(b.keys, state.TokenKey(hash))
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

// decodeBatch decodes what was read. A value that cannot be read stops nothing
// but itself. Also while the shard is built it is rebuilt, not begun anew:
// nobody knows whether it was of an earlier build, or of this one.
func (r *Registry) decodeBatch(b *shardBatch) error {
	values, err := b.values.Result()
	if err != nil {
		return err
	}
	if len(values) != len(b.keys) {
		return errReply
	}
	st := &r.shards[b.shard]
	for i, key := range b.keys {
		raw, name := bytesOf(values[i]), nameIn(key)
		var err error
		if key[0] == 't' {
			b.entries[name], err = record.DecodeClaims(raw, st.Version.Build)
		} else {
			err = b.records[name].Decode(raw, st.Version.Build)
		}
		if err == nil {
			continue
		}
		if b.lost == nil {
			b.lost = make(map[string]bool)
		}
		b.lost[key] = true
		r.logger.Error("registry: a stored record cannot be read and is rebuilt from push.users", "shard", b.shard, "error", err)
	}
	return nil
}

// nameIn is the user or device hash that a key is of.
func nameIn(key string) string { return key[strings.IndexByte(key, '}')+2:] }

// merge applies a batch's changes to what was read, and makes the write. What
// cannot be read is left as it is: the write says that it must be rebuilt.
func (r *Registry) merge(b *shardBatch, fetched []Fetched) *shardWrite {
	st := &r.shards[b.shard]
	w := &shardWrite{shard: b.shard, offsets: make([]int64, len(st.Applied))}
	for p := range w.offsets {
		w.offsets[p] = -1
	}
	for i := range fetched {
		p := fetched[i].Partition
		w.offsets[p] = max(w.offsets[p], st.Applied[p], fetched[i].Next)
	}
	m := record.Merging{Ready: st.Ready, Open: st.Open, Most: r.options.Devices, Cases: map[string]bool{}, Unread: map[string]bool{}}
	for _, c := range b.users {
		if b.lost != nil && b.lost[shards.UserKey(b.shard, c.User)] {
			m.Cases[record.LostUser+c.User] = true
			continue
		}
		m.User(b.records[c.User], &c.Change)
	}
	for _, c := range b.tokens {
		hash := c.Hash()
		if b.lost != nil && b.lost[state.TokenKey(hash)] {
			m.Cases[record.LostToken+hash] = true
			continue
		}
		b.entries[hash] = m.Token(b.entries[hash], &c.Change)
	}
	for _, key := range b.keys {
		if !b.lost[key] {
			w.set(key, b.records[nameIn(key)], b.entries[nameIn(key)], st.Version.Build)
		}
	}
	w.cases, w.unread = m.Cases, m.Unread
	return w
}

// set writes the value of one key: of a token index entry the claims, else the
// record. What is empty is deleted.
func (w *shardWrite) set(key string, u *record.User, cs record.Claims, build uint64) {
	var value []byte
	switch {
	case key[0] == 't' && len(cs) > 0:
		value = cs.Encode(build)
	case key[0] != 't' && !u.Empty():
		value = u.Encode(build)
	}
	w.keys, w.values = append(w.keys, key), append(w.values, value)
}

// count adds what was written to the metrics.
func (r *Registry) count(batches []*shardBatch, fenced []int) {
	for _, b := range batches {
		if !slices.Contains(fenced, b.shard) {
			n := len(b.users) + len(b.tokens)
			r.applied += uint64(n)
			r.metrics.applied.Add(float64(n))
		}
	}
}
