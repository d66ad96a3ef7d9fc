package limits

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Forget removes what is known of owners' notifications, and what waits for a place:
// every limit begins anew. It returns of how many there was anything. What comes back
// for its place is judged as new.
func Forget(ctx context.Context, client redis.UniversalClient, owners ...string) (int, error) {
	n, err := shards.Delete(ctx, client, shards.Keys(owners, shards.LimiterKey))
	if err != nil {
		return n, fmt.Errorf("forgetting limiter states: %w", err)
	}
	return n, nil
}
