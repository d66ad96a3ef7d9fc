package limits

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// swapSource writes the new states of many users, each only if the
// stored state is still the one it was decided from. ARGV is per key the stamp of
// the expected state (empty = none), the new state and its time to live in ms.
// The answer lists the conflicts alone: number of the key from 1,
// and the state found there.
const swapSource = `local found = redis.call('MGET', unpack(KEYS))
local conflicts = {}
for i = 1, #KEYS do
  local state = found[i] or ''
  if string.sub(state, 1, 9) == ARGV[3 * i - 2] then
    redis.call('SET', KEYS[i], ARGV[3 * i - 1], 'PX', ARGV[3 * i])
  else
    conflicts[#conflicts + 1] = i
    conflicts[#conflicts + 1] = state
  end
end
return conflicts`

// maxUsersPerCall keeps a script short, as Redis serves nobody else meanwhile: at
// 3 to 8 us a user it takes 1 to 2 ms. Larger calls cost no less a user.
const maxUsersPerCall = 250

// swap is one call of the script: the writers [from, to).
type swap struct {
	cmd      *redis.Cmd
	args     []any
	from, to int
}

// run sends all calls in one pipelined round trip, and a second one for calls
// to a server that does not know the script (restarted, failed over, new in the
// cluster): these carry the source, which loads it.
func (l *Limiter) run(ctx context.Context, swaps []swap) error {
	if err := l.exec(ctx, swaps); err != nil {
		return err
	}
	var unknown []swap
	for i := range swaps {
		switch err := swaps[i].cmd.Err(); {
		case err == nil:
		case strings.HasPrefix(err.Error(), "NOSCRIPT"):
			swaps[i].args[0], swaps[i].args[1] = "EVAL", swapSource
			swaps[i].cmd = redis.NewCmd(ctx, swaps[i].args...)
			unknown = append(unknown, swaps[i])
		default:
			return fmt.Errorf("writing limiter states: %w", err)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	if err := l.exec(ctx, unknown); err != nil {
		return err
	}
	for i := range unknown {
		if err := unknown[i].cmd.Err(); err != nil {
			return fmt.Errorf("writing limiter states: %w", err)
		}
	}
	return nil
}

// exec returns an error only when there were no answers; each command has its
// own.
func (l *Limiter) exec(ctx context.Context, swaps []swap) error {
	pipe := l.client.Pipeline()
	for i := range swaps {
		if err := pipe.Process(ctx, swaps[i].cmd); err != nil {
			return fmt.Errorf("writing limiter states: %w", err)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !shards.Answered(err) {
		return fmt.Errorf("writing limiter states: %w", err)
	}
	return nil
}

// conflict reads entry j of a script's answer.
func conflict(reply []any, j int) (user int, state []byte, err error) {
	i, okIndex := reply[j].(int64)
	s, okState := reply[j+1].(string)
	if !okIndex || !okState || i < 1 {
		return 0, nil, fmt.Errorf("writing limiter states: unexpected answer of the script: %T, %T", reply[j], reply[j+1])
	}
	return int(i - 1), []byte(s), nil
}
