package dedupe

import (
	"context"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Fill is how full the current window is.
type Fill struct {
	IDs      int64   // in all its filters
	Capacity int64   // of all its filters
	Ratio    float64 // of the fullest filter: items / capacity; alert at 0.8
	// Needed is the capacity that would leave the window at 60 % when it ends,
	// at the rate seen since it started; 0 in its first tenth, when that says
	// little.
	Needed int64
	// Maybe is how many of the 64 shards answer "maybe" to everything because
	// their filter was full.
	Maybe int
}

// Fill asks the filters of the current window (128 commands, one round trip).
// Capacity is that of the configuration, which a filter made before a change
// does not have.
func (f *Filter) Fill(ctx context.Context) (Fill, error) {
	now := f.now()
	w := f.window(f.number(now))
	pipe := f.client.Pipeline()
	var cards, marks [shards.Filters]*redis.IntCmd
	for k := range cards {
		cards[k] = pipe.BFCard(ctx, w.keys[k])
		marks[k] = pipe.Exists(ctx, w.fulls[k])
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return Fill{}, fmt.Errorf("reading the fill of the Bloom filters: %w", err)
	}
	capacity := shardCapacity(f.Capacity)
	fill := Fill{Capacity: capacity * shards.Filters}
	for k := range cards {
		n := cards[k].Val()
		fill.IDs += n
		fill.Ratio = max(fill.Ratio, float64(n)/float64(capacity))
		fill.Maybe += int(marks[k].Val())
	}
	if passed := float64(now.Sub(w.start)) / float64(f.Window); passed >= 0.1 {
		fill.Needed = int64(math.Ceil(float64(fill.IDs) / passed / 0.6))
	}
	return fill, nil
}
