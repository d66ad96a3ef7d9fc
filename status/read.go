package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/pushfleet/pushfleet/push"
)

// readChunk is how many ids a confirm query asks for: the server reads each as
// a slice of the same partition, in one answer of a few tens of KiB.
const readChunk = 100

const selectRows = "SELECT id,device,step,state,at,provider,provider_id,reason,user_hash,place,details" +
	" FROM notification_status WHERE bucket=? AND id IN ?"

// Read returns the rows of each id, aligned with ids, each ordered by device,
// step and state; nil for an id without rows. One query asks for up to 100 ids
// of a bucket.
//
// A confirm read never guesses: after an error, which says how the latest
// attempt failed, nothing is known about any id, and all must be read again. A
// query that fails is retried for as long as the Timeout. So when the store is
// down Read reports it within a few Timeouts, and its caller can tell why it
// waits, or give up.
func (c *Cassandra) Read(ctx context.Context, ids []string) ([][]push.Row, error) {
	r := reading{found: make([][]push.Row, len(ids)), first: make(map[string]int, len(ids))}
	buckets := make(map[int64][]string)
	for i, id := range ids {
		if _, twice := r.first[id]; !twice {
			r.first[id] = i
			b := c.Bucket(id)
			buckets[b] = append(buckets[b], id)
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.opts.Concurrency * fullWeight) // all places, if there is no other reader
	for bucket, inBucket := range buckets {
		for chunk := range slices.Chunk(inBucket, readChunk) {
			group.Go(func() error { return c.readChunk(groupCtx, bucket, chunk, &r) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("reading %d notifications from %s: %w", len(ids), c.opts.place(), err)
	}
	for i, id := range ids {
		if f := r.first[id]; f != i {
			r.found[i] = slices.Clone(r.found[f])
		}
	}
	return r.found, nil
}

// reading is a Read in progress. Each id is in one chunk, so its rows are
// collected by one goroutine; first is only read meanwhile.
type reading struct {
	found [][]push.Row
	first map[string]int // id -> where its rows are collected
}

// readChunk asks until there is an answer or it is too late for another
// attempt. Each attempt takes one of the store's places for queries; a pause
// takes none.
func (c *Cassandra) readChunk(ctx context.Context, bucket int64, ids []string, r *reading) error {
	var until time.Time
	weight := weightOf(len(ids), readChunk)
	for attempt := 1; ; attempt++ {
		if err := c.reads.take(ctx, weight); err != nil {
			return err
		}
		if attempt == 1 {
			until = time.Now().Add(c.opts.Timeout)
		}
		err := c.readOnce(ctx, bucket, ids, r)
		c.reads.leave(weight)
		if err == nil {
			c.metrics.readIDs.Add(float64(len(ids)))
			return nil
		}
		rest := c.merger.opts.backoff.After(attempt)
		if time.Now().Add(rest).After(until) {
			return err
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return fmt.Errorf("%w after: %w", context.Cause(ctx), err)
		case <-c.merger.ctx.Done():
			return ErrClosed
		}
	}
}

// readOnce makes one attempt.
func (c *Cassandra) readOnce(ctx context.Context, bucket int64, ids []string, r *reading) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	start := time.Now()
	l := c.cluster.use()
	defer l.done()
	iter := l.Query(selectRows, bucket, ids).WithContext(ctx).Iter()
	err := survived(func() error { return r.collect(ids, iter.Scan) })
	if failed := iter.Close(); failed != nil {
		err = noAnswer(failed, c.opts.Timeout)
	}
	f := classify(err)
	c.cluster.observe(l, f, err)
	c.metrics.observeRead(f, time.Since(start))
	return err
}

// errNotAsked is an answer that belongs to another question: it says nothing
// about the ids that were asked for, not even that they have no rows.
var errNotAsked = errors.New("the answer has rows of an id that was not asked for")

// collect takes the rows of a chunk's answer, in place of those of an earlier
// attempt. The rows of other chunks belong to other goroutines.
func (r *reading) collect(ids []string, scan func(dest ...any) bool) error {
	for _, id := range ids {
		r.found[r.first[id]] = nil
	}
	var row push.Row
	step, state := number{size: 2}, number{size: 1}
	inColumns, packed := newDetails(), newDetails()
	for scan(&row.ID, &row.Device, &step, &state, &inColumns.at, &inColumns.platform, &inColumns.providerID, &inColumns.reason, &inColumns.user, &inColumns.place, &packed) {
		if !slices.Contains(ids, row.ID) {
			return errNotAsked
		}
		if step.value < 0 || state.value <= 0 {
			return fmt.Errorf("%s has a row of step %d and state %d, which nobody writes", row.ID, step.value, state.value)
		}
		said := latest(&inColumns, &packed)
		if !said.user.there {
			return fmt.Errorf("%s has a row without a user, which nobody writes", row.ID)
		}
		row.Step, row.State = int16(step.value), push.State(state.value)
		said.tell(&row)
		first := r.first[row.ID]
		r.found[first] = append(r.found[first], row)
	}
	return nil
}

// number is a whole number of a row. The driver reads one of another size than its
// column's as 0, and so a null too: as a step, a state or a user that would be a guess.
type number struct {
	size     int  // bytes
	optional bool // it may be null
	value    int64
	there    bool
}

// UnmarshalCQL implements gocql.Unmarshaler.
func (n *number) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	n.value, n.there = 0, len(data) > 0
	if !n.there && n.optional {
		return nil
	}
	if len(data) != n.size {
		return fmt.Errorf("a number of %d bytes, want %d", len(data), n.size)
	}
	for _, b := range data {
		n.value = n.value<<8 | int64(b)
	}
	unused := 64 - 8*n.size
	n.value = n.value << unused >> unused // with its sign
	return nil
}
