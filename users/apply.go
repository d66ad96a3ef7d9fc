package users

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// change is one record of the topic, with the shards that it changes.
type change struct {
	record.Change
	home      int  // shard of the user
	tokenHome int  // shard of the token index entry; -1 if the change is not about a device
	late      bool // of a repair: not from the topic's beginning, where records may be missing
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
		if st := &r.shards[s]; !st.Ready || st.Open {
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
				r.logger.Warn("registry: a record of push.users cannot be read", "partition", c.Partition, "offset", c.Offset, "error", err)
			}
			if c.Foreign() {
				r.metrics.broken.Inc()
				r.logger.Warn("registry: a device of a platform that this version does not know is kept as it is", "partition", c.Partition, "offset", c.Offset)
			}
			if c.User != "" {
				changes = append(changes, c)
			}
		}
	}
	return changes
}

// readChange decodes a record. After an error the part is in quarantine; one
// whose key cannot be read is nobody's, and has no user.
func readChange(partition int32, rec *FetchedRecord, now time.Time) (c change, err error) {
	c.Change = record.Change{Partition: int(partition), Offset: rec.Offset, IfNotAfter: rec.IfNotAfter, Repeats: rec.Repeats}
	err = c.Read(rec.Key, rec.Value, now)
	c.home, c.tokenHome = shards.UserShard(c.User), -1
	if hash := c.Hash(); hash != "" {
		c.tokenHome = state.TokenHome(hash)
	}
	return c, err
}
