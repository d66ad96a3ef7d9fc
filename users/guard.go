package users

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// pruneGuard counts the fleet's removals in windows of a minute, in Redis. A
// window begins with its first removal.
type pruneGuard struct {
	client    redis.UniversalClient
	perMinute int
}

// pruneKey holds how many devices were removed in the window; it expires with the
// window.
const pruneKey = "feedback:removed"

// pruneScript takes up to ARGV[1] of the ARGV[2] a window, which lasts ARGV[3]
// ms. It returns how many it took, and the ms until the window ends. A value that
// is not a count is overwritten.
var pruneScript = redis.NewScript(`local kind = redis.call('TYPE', KEYS[1])
if (kind.ok or kind) ~= 'string' or not string.match(redis.call('GET', KEYS[1]), '^%d+$') then
  redis.call('DEL', KEYS[1])
end
local used = tonumber(redis.call('GET', KEYS[1]) or '0')
local n = math.max(0, math.min(tonumber(ARGV[1]), tonumber(ARGV[2]) - used))
if n > 0 then redis.call('INCRBY', KEYS[1], n) end
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {n, redis.call('PTTL', KEYS[1])}`)

func newPruneGuard(client redis.UniversalClient, perMinute int) *pruneGuard {
	return &pruneGuard{client, perMinute}
}

// take grants up to n removals. When it grants none, it returns how long to
// wait for more.
func (g *pruneGuard) take(ctx context.Context, n int) (granted int, wait time.Duration, err error) {
	answer, err := pruneScript.Run(ctx, g.client, []string{pruneKey}, n, g.perMinute, time.Minute.Milliseconds()).Int64Slice()
	if err == nil && len(answer) != 2 {
		err = errReply
	}
	if err != nil {
		return 0, 0, fmt.Errorf("counting removals: %w", err)
	}
	return int(answer[0]), max(time.Duration(answer[1])*time.Millisecond, time.Millisecond), nil
}
