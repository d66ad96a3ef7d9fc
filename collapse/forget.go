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
	n, err := shards.Delete(ctx, client, shards.Keys(owners, shards.CollapseKey))
	if err != nil {
		return n, fmt.Errorf("forgetting collapse keys: %w", err)
	}
	return n, nil
}
