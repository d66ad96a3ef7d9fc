package limits

import "fmt"

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
// 3 to 8 us a user it takes 1 to 2 ms. Larger calls cost no less per user.
const maxUsersPerCall = 250

// maxBytesPerCall bounds the states of a call likewise: the script reads and
// writes them. Those of hot users are large.
const maxBytesPerCall = 512 << 10

// conflict reads entry j of a script's answer.
func conflict(reply []any, j int) (user int, state []byte, err error) {
	i, okIndex := reply[j].(int64)
	s, okState := reply[j+1].(string)
	if !okIndex || !okState || i < 1 {
		return 0, nil, fmt.Errorf("writing limiter states: unexpected answer of the script: %T, %T", reply[j], reply[j+1])
	}
	return int(i - 1), []byte(s), nil
}
