package users

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
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

	device      *pipeline.Device      // nil = removed
	preferences *pipeline.Preferences // nil = removed
	ifNotAfter  time.Time             // of a removal
}

// removes reports whether a removal takes away a registration of this time.
func (c *change) removes(registered time.Time) bool {
	return c.ifNotAfter.IsZero() || registered.UnixMilli() <= c.ifNotAfter.UnixMilli()
}

// apply brings what was polled into Redis: per shard one read and one fenced
// write, all shards together. A shard that somebody else has written is read
// and tried again, without what is applied there by now.
func (r *Registry) apply(ctx context.Context, fetched []Fetched) error {
	changes, err := r.understand(fetched)
	if err != nil {
		return err
	}
	for i := range fetched {
		p := fetched[i].Partition
		r.pos[p] = max(r.pos[p], fetched[i].Next)
	}
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

// unfinished reports whether a check would have something to do.
func (r *Registry) unfinished() bool {
	for s := range r.shards {
		if st := &r.shards[s]; !st.ready || st.open {
			return true
		}
	}
	return false
}

// understand decodes what was polled. A broken record counts as a removal of
// its part, one with a broken key as nothing; an unknown version is an error.
func (r *Registry) understand(fetched []Fetched) ([]change, error) {
	var changes []change
	for i := range fetched {
		for j := range fetched[i].Records {
			rec := &fetched[i].Records[j]
			c := change{partition: int(fetched[i].Partition), offset: rec.Offset, ifNotAfter: rec.IfNotAfter, tokenHome: -1}
			var err error
			if c.user, c.hash, err = splitKey(rec.Key); err == nil {
				err = c.read(rec.Value)
			}
			if errors.Is(err, ErrVersion) {
				return nil, fmt.Errorf("push.users, partition %d, offset %d: %w", c.partition, c.offset, err)
			}
			if err != nil {
				r.metrics.broken.Inc()
				r.logger.Warn("registry: a record of push.users is broken", "partition", c.partition, "offset", c.offset, "error", err)
			}
			if c.user != "" {
				c.home = shards.UserShard(c.user)
				if c.hash != "" {
					c.tokenHome = tokenHome(c.hash)
				}
				changes = append(changes, c)
			}
		}
	}
	return changes, nil
}

// read decodes the value. After an error the change is an unconditional
// removal.
func (c *change) read(value []byte) error {
	if value == nil {
		return nil
	}
	c.ifNotAfter = time.Time{}
	if c.hash == "" {
		p, err := parsePreferences(value)
		if err == nil {
			c.preferences = &p
		}
		return err
	}
	d, err := parseDevice(value, c.hash)
	if err == nil {
		c.device = &d
	}
	return err
}
