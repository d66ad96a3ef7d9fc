package collapse

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Forget removes what is known of owners: a retry of a notification that a newer one
// has replaced goes through once more. It returns of how many there was anything.
func Forget(ctx context.Context, client redis.UniversalClient, owners ...string) (int, error) {
	keys := make([]string, len(owners))
	for i, owner := range owners {
		keys[i] = shards.CollapseKey(shards.UserShard(owner), owner)
	}
	n, err := shards.Delete(ctx, client, keys)
	if err != nil {
		return n, fmt.Errorf("forgetting collapse keys: %w", err)
	}
	return n, nil
}
