package status

import (
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushfleet/pushfleet/push"
)

// Layout is how the ids minted from Since on are spread over partitions: by
// the slice of time they were minted in and by one of Shards hash shards.
//
// Longer slices and fewer shards fill batches better; shorter slices and more
// shards spread the load over more nodes at once (about four shards a node).
type Layout struct {
	Since  time.Time     // zero for the first layout of a table
	Slice  time.Duration // whole seconds, 1 s to 24 h
	Shards int           // 1 to 65,536
}

// Layouts is the history of a table's layouts, oldest first. A layout is added
// at the end with a Since in the future, past every clock error of producers,
// and none is ever changed or removed while the table has rows of its time: a
// bucket is looked up with the layout it was written with.
type Layouts []Layout

// DefaultLayouts is the layout of a new table: slices of 10 s and 16 shards.
// At 200,000 rows/s of fresh ids that is 12,500 rows/s a partition, so 200
// rows, a full batch, are there after 16 ms.
func DefaultLayouts() Layouts {
	return Layouts{{Slice: 10 * time.Second, Shards: 16}}
}

// Validate refuses lists that do not give each id exactly one bucket.
func (ls Layouts) Validate() error {
	if len(ls) == 0 {
		return errors.New("status layout: list is empty")
	}
	for i, l := range ls {
		switch {
		case i == 0 && !l.Since.IsZero():
			return fmt.Errorf("status layout 0: since is %s, but must not be set: older ids would have no layout", l.Since.Format(time.RFC3339))
		case i > 0 && !l.Since.After(ls[i-1].Since):
			return fmt.Errorf("status layout %d: since %s is not after that of the previous layout", i, l.Since.Format(time.RFC3339))
		case i > 0 && l.Since.UnixMilli() <= 0:
			return fmt.Errorf("status layout %d: since %s is before 1970", i, l.Since.Format(time.RFC3339))
		case l.Slice < time.Second || l.Slice > 24*time.Hour || l.Slice%time.Second != 0:
			return fmt.Errorf("status layout %d: slice %s is not a whole number of seconds from 1 s to 24 h", i, l.Slice)
		case l.Shards < 1 || l.Shards > 1<<shardBits:
			return fmt.Errorf("status layout %d: %d shards, want 1 to %d", i, l.Shards, 1<<shardBits)
		}
	}
	return nil
}

const shardBits = 16

// Bucket is the partition of an id's rows: a pure function of the id and the
// list, which never changes as long as the list only grows at its end.
//
// A UUIDv7 has the start of its slice in seconds since 1970 in the upper bits
// and its shard in the lower 16: 0 to 2^54. Any other id gets a partition of
// its own, a negative number: its rows never share a batch, which works, but
// costs an insert each.
func (ls Layouts) Bucket(id string) int64 {
	millis, ok := push.MintedMillis(id)
	hash := xxhash.Sum64String(id)
	if !ok {
		return int64(hash | 1<<63)
	}
	l := &ls[0]
	for i := len(ls) - 1; i > 0; i-- {
		if millis >= ls[i].Since.UnixMilli() {
			l = &ls[i]
			break
		}
	}
	slice := int64(l.Slice / time.Second)
	start := millis / 1000 / slice * slice
	return start<<shardBits | int64(hash%uint64(l.Shards))
}
