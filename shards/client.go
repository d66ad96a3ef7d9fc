package shards

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// Client is a connection to Redis as Open makes it, for callers that only pass
// it on.
type Client = redis.UniversalClient

// IsCluster reports whether a client is one of a Redis Cluster, where a command has keys
// of one shard only.
func IsCluster(client Client) bool {
	_, is := client.(*redis.ClusterClient)
	return is
}

// Ping returns nil when Redis answers before ctx ends; of a cluster, when one
// of its nodes does.
func Ping(ctx context.Context, client Client) error {
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("reaching Redis: %w", err)
	}
	return nil
}

// LogTo sends the Redis client's own messages (above all failed dials) to log,
// for all connections of the process; without it they go to standard error. A
// command calls it once, before it opens any.
func LogTo(log *slog.Logger) { redis.SetLogger(clientLog{log}) }

type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(_ context.Context, format string, v ...any) {
	l.log.Warn("redis client: " + fmt.Sprintf(format, v...))
}
