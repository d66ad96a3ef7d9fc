package limits

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Forget removes what is known of an owner's notifications, and what waits for a place:
// every limit begins anew. It reports whether there was anything. What comes back
// for its place is judged as new.
func Forget(ctx context.Context, client redis.UniversalClient, owner string) (bool, error) {
	n, err := client.Del(ctx, shards.LimiterKey(shards.UserShard(owner), owner)).Result()
	if err != nil {
		return false, fmt.Errorf("forgetting a limiter state: %w", err)
	}
	return n > 0, nil
}
