package users

import (
	"context"
	"errors"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// change is one record of the topic, understood.
type change struct {
	partition int
	offset    int64
	user      string
	hash      string // empty: preferences
	home      int    // shard of the user
	tokenHome int    // shard of the token index entry; -1 for preferences

	device      *push.Device      // nil = removed, or foreign
	foreign     *foreign          // set: the device is of an unknown platform
	preferences *push.Preferences // nil = removed
	unread      *unreadPart       // set: the value cannot be read
	ifNotAfter  time.Time         // of a removal
	repeats     bool              // only repeats what was there
	late        bool              // of a repair: not from the topic's beginning, where records may be missing
}

// registration is when the device was registered; ok is false for a removal.
func (c *change) registration() (at time.Time, ok bool) {
	switch {
	case c.device != nil:
		return c.device.RegisteredAt, true
	case c.foreign != nil:
		return c.foreign.at, true
	}
	return time.Time{}, false
}

// key is that of the record in the topic.
func (c *change) key() string {
	if c.hash == "" {
		return PreferencesKey(c.user)
	}
	return DeviceKey(c.user, c.hash)
}

// removes reports whether a removal takes away a registration of this time.
func (c *change) removes(registered time.Time) bool {
	return c.ifNotAfter.IsZero() || registered.UnixMilli() <= c.ifNotAfter.UnixMilli()
}

// apply brings what was polled into Redis: per shard one read and one fenced
// write, all shards together. A shard that another registry has written is read
// again, and the rest is retried without what is already applied.
func (r *Registry) apply(ctx context.Context, fetched []Fetched) error {
	changes := r.understand(fetched)
	for i := range fetched {
		p := fetched[i].Partition
		r.pos[p] = max(r.pos[p], fetched[i].Next)
	}
	r.repair.hold(changes, r.pos)
	for batches := r.gather(changes, nil); len(batches) > 0; {
		if err := r.readBatches(ctx, batches); err != nil {
			return err
		}
		writes := make([]*shardWrite, len(batches))
		for i, b := range batches {
			writes[i] = r.merge(b, fetched)
		}
		fenced, err := r.write(ctx, writes)
		if err != nil {
			return err
		}
		r.count(batches, fenced)
		// Only a shard that is further than believed goes on here. One that was
		// wiped or lost writes has set the follower back, and what was polled
		// comes again when it is its turn.
		if fenced, err = r.reload(ctx, fenced); err != nil {
			return err
		}
		batches = batches[:0]
		if len(fenced) > 0 {
			batches = r.gather(changes, fenced)
		}
	}
	if r.caughtUp() && r.unfinished() {
		r.recheck = true
	}
	return nil
}

// unfinished reports whether a check would have work to do.
func (r *Registry) unfinished() bool {
	for s := range r.shards {
		if st := &r.shards[s]; !st.ready || st.open {
			return true
		}
	}
	return false
}

// understand decodes what was polled.
func (r *Registry) understand(fetched []Fetched) []change {
	var changes []change
	now := time.Now()
	for i := range fetched {
		for j := range fetched[i].Records {
			c, err := readChange(fetched[i].Partition, &fetched[i].Records[j], now)
			if err != nil {
				r.metrics.broken.Inc()
				r.logger.Warn("registry: a record of push.users cannot be read", "partition", c.partition, "offset", c.offset, "error", err)
			}
			if c.foreign != nil {
				r.metrics.broken.Inc()
				r.logger.Warn("registry: a device of a platform that this version does not know is kept as it is", "partition", c.partition, "offset", c.offset)
			}
			if c.user != "" {
				changes = append(changes, c)
			}
		}
	}
	return changes
}

// readChange decodes a record. After an error the part is in quarantine; one
// whose key cannot be read is nobody's, and has no user.
func readChange(partition int32, rec *FetchedRecord, now time.Time) (c change, err error) {
	c = change{partition: int(partition), offset: rec.Offset, ifNotAfter: rec.IfNotAfter, repeats: rec.Repeats, tokenHome: -1}
	if c.user, c.hash, err = splitKey(rec.Key); err != nil {
		return c, err
	}
	c.home = shards.UserShard(c.user)
	if c.hash != "" {
		c.tokenHome = tokenHome(c.hash)
	}
	if err = c.read(rec.Value, now); err != nil {
		c.unread = &unreadPart{hash: c.hash, version: errors.Is(err, ErrVersion), partition: c.partition, offset: c.offset}
	}
	return c, err
}

// read decodes the value; nil = a removal.
func (c *change) read(value []byte, now time.Time) error {
	if value == nil {
		return nil
	}
	if c.hash == "" {
		p, err := parsePreferences(value)
		if err == nil {
			c.preferences = &p
		}
		return err
	}
	d, err := parseDevice(value, c.hash, now)
	switch {
	case err == nil:
		c.device = &d
	case errors.Is(err, errForeign):
		if err = ofItsToken(value, c.hash); err != nil {
			return err
		}
		if c.foreign, err = parseForeign(value, c.hash, now); err == nil {
			c.foreign.partition, c.foreign.offset = c.partition, c.offset
		}
	}
	return err
}
