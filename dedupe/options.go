package dedupe

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pushfleet/pushfleet/shards"
)

// Options size the filters. All workers of an installation need the same
// Window; Capacity and ErrorRate apply to filters not yet made.
type Options struct {
	// Window is how long ids are added to one filter, at least an hour. An id
	// is remembered for one to two windows.
	Window time.Duration
	// Capacity is how many ids one window takes, over all shards; at least
	// 10,000. A full filter costs a read of the status store for every id of
	// its shard until it is gone.
	Capacity int64
	// ErrorRate is the share of new ids that one full window answers "maybe"
	// to, between 0 and 0.5. Two windows are asked, so up to twice that.
	ErrorRate float64
	// AddTimeout bounds one Add.
	AddTimeout time.Duration
}

// DefaultOptions remember 20 million ids a window of 6 h: 925 a second on
// average. A worker at full speed (200,000/s) needs 4.3 thousand million.
func DefaultOptions() Options {
	return Options{Window: 6 * time.Hour, Capacity: 20_000_000, ErrorRate: 0.001, AddTimeout: 2 * time.Second}
}

func (o *Options) check() error {
	switch {
	case o.Window < time.Hour:
		return fmt.Errorf("dedupe: window %v, want at least an hour", o.Window)
	case o.Capacity < 10_000:
		return fmt.Errorf("dedupe: capacity %d, want at least 10,000", o.Capacity)
	case o.ErrorRate <= 0 || o.ErrorRate >= 0.5:
		return fmt.Errorf("dedupe: error rate %v, want between 0 and 0.5", o.ErrorRate)
	case o.AddTimeout <= 0:
		return errors.New("dedupe: the timeout of an add must be above 0")
	}
	return nil
}

// Size is the memory in bytes that one window of this capacity and error rate
// takes in Redis, over all shards:
//
//	bits per id = -ln(rate) / (ln 2)²    14.4 at 0.001, 19.2 at 0.0001
//	bytes       = 64 shards × shard capacity × bits per id / 8
//
// where the shard capacity is capacity/64 and a margin (see shardCapacity), at
// 20 million ids 1 %.
func Size(capacity int64, rate float64) int64 {
	perID := -math.Log(rate) / (math.Ln2 * math.Ln2)
	return int64(math.Ceil(shards.Filters * float64(shardCapacity(capacity)) * perID / 8))
}

// shardCapacity is the capacity of one of the 64 filters of a window. Ids fall
// on shards by hash, so a shard's share of n ids is n/64 with a standard
// deviation of √(n/64): six of them make sure that no shard is full before the
// window is. A few more hold sentinels and births.
func shardCapacity(capacity int64) int64 {
	share := float64(capacity) / shards.Filters
	return int64(math.Ceil(share+6*math.Sqrt(share))) + 64
}
