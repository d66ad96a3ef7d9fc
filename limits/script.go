package limits

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
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

// maxBytesPerCall bounds the states of a call likewise: the script reads and
// writes them. Those of hot users are large.
const maxBytesPerCall = 512 << 10

// script is one that Redis may know by its hash.
type script struct {
	doing  string // for errors
	source string
	sha    string
}

func newScript(doing, source string) script {
	sum := sha1.Sum([]byte(source))
	return script{doing, source, hex.EncodeToString(sum[:])}
}

// call is one call of a script: of the writers [from, to), or of one sender.
type call struct {
	cmd      *redis.Cmd
	args     []any
	from, to int
}

// run sends all calls in one pipelined round trip, and a second one for calls
// to a server that does not know the script (restarted, failed over, new in the
// cluster): these carry the source, which loads it. After an error other calls may
// have their answers.
func (s *script) run(ctx context.Context, client redis.UniversalClient, calls []call) error {
	if err := s.exec(ctx, client, calls); err != nil {
		return err
	}
	var unknown []call
	for i := range calls {
		switch err := calls[i].cmd.Err(); {
		case err == nil:
		case strings.HasPrefix(err.Error(), "NOSCRIPT"):
			calls[i].args[0], calls[i].args[1] = "EVAL", s.source
			calls[i].cmd = redis.NewCmd(ctx, calls[i].args...)
			unknown = append(unknown, calls[i])
		default:
			return fmt.Errorf("%s: %w", s.doing, err)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	if err := s.exec(ctx, client, unknown); err != nil {
		return err
	}
	for i := range unknown {
		if err := unknown[i].cmd.Err(); err != nil {
			return fmt.Errorf("%s: %w", s.doing, err)
		}
	}
	return nil
}

// exec returns an error only when there were no answers; each command has its
// own.
func (s *script) exec(ctx context.Context, client redis.UniversalClient, calls []call) error {
	pipe := client.Pipeline()
	for i := range calls {
		if err := pipe.Process(ctx, calls[i].cmd); err != nil {
			return fmt.Errorf("%s: %w", s.doing, err)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !shards.Answered(err) {
		return fmt.Errorf("%s: %w", s.doing, err)
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
