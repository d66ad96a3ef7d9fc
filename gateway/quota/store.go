package quota

import (
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/shards"
)

// script does all that is done to a sender's windows. KEYS are two of each: the window with an
// even number and the one with an odd number. Each is a hash: n, its number; u, what all
// gateways have, used and held; b, which part of that is of gateways that have not told of it
// since Redis was wiped; and of each gateway (m and its name) what it has, and its last ask. What
// no gateway can have written is as absent, and overwritten: a hash without n, u and b is as wiped.
//
// ARGV is the gateway, the number of its ask, the part of what is left that one may hold
// ahead (one in so many), and of each window its length in us, the limit, what is wanted now,
// ahead, and of the next window, and then twice what the gateway knows: the number of a
// window, its own count, and that of the others. What it tells replaces what it told before.
const script = `local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function whole(x) return string.format('%.0f', x) end
local function count_of(x) -- nil if it is none that a gateway wrote: 0 to ten billion
  if x and #x <= 10 and string.match(x, '^%d+$') then return tonumber(x) end
end
local me, seq, divisor = 'm' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local answer = {whole(now)}
local function lease(i, number, want, ahead)
  local at = 4 + (i - 1) * 11
  local key, length, limit = KEYS[2 * i - 1 + number % 2], tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local count, others
  for k = at + 5, at + 8, 3 do
    if tonumber(ARGV[k]) == number then count, others = tonumber(ARGV[k + 1]), tonumber(ARGV[k + 2]) end
  end
  local kind = redis.call('TYPE', key)
  kind = kind.ok or kind
  if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', key) end
  local h = redis.call('HMGET', key, 'n', 'u', 'b', me)
  local all, base = count_of(h[2]), count_of(h[3])
  local fresh = h[1] ~= whole(number) or not (all and base)
  if fresh then
    if not count and want + ahead == 0 then return {'0', '0', '-1'} end
    redis.call('DEL', key)
    h, all, base = {}, 0, 0
  end
  local own, last = string.match(h[4] or '', '^(%d+) (%d+)$')
  own, last = count_of(own), count_of(last)
  if not (own and last) then own, last = nil, nil end
  if last and last >= seq then return {'0', '0', '-1'} end
  if not own then
    own = 0
    if others and others >= 0 then -- Redis was wiped
      if fresh then
        all, base = others, others
      else
        own = math.min(count, base)
        base = base - own
      end
    end
  end
  count = count or own
  all = math.max(all - own, 0) + count
  local left = math.max(limit - all, 0)
  local given = math.min(want, left)
  given = given + math.min(ahead, math.floor((left - given) / divisor))
  all, count = all + given, count + given
  redis.call('HSET', key, 'n', whole(number), 'u', whole(all), 'b', whole(base), me, whole(count) .. ' ' .. whole(seq))
  redis.call('PEXPIRE', key, whole(length / 500 + 60000))
  return {whole(given), whole(all), whole(count)}
end
for i = 1, #KEYS / 2 do
  local at = 4 + (i - 1) * 11
  local number = math.floor(now / tonumber(ARGV[at]))
  local present = lease(i, number, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
  local coming = lease(i, number + 1, 0, tonumber(ARGV[at + 4]))
  for k = 1, 3 do answer[#answer + 1] = present[k] end
  for k = 1, 3 do answer[#answer + 1] = coming[k] end
end
return answer`

// heldPart is the part of what is left that a gateway may hold ahead: one in so many, of the
// gateways' number each.
const heldPart = 4

// store is what gateways share, in Redis.
type store struct {
	client shards.Client
	member string // this gateway
	lease  *shards.Script
}

func newStore(client shards.Client, member string) *store {
	return &store{client, member, shards.NewScript("leasing limits of senders", script)}
}

// call is the ask of a sender.
func (s *store) call(ctx context.Context, keys []string, a *ask, gateways int64) shards.Call {
	args := make([]any, 0, 6+len(keys)+11*len(keys)/2)
	args = append(args, nil, nil, len(keys)) // the first two are the script's
	for _, k := range keys {
		args = append(args, k)
	}
	args = append(args, s.member, a.seq, heldPart*gateways)
	for i := range a.needs[:len(keys)/2] {
		n := &a.needs[i]
		args = append(args, n.length, n.limit, n.now, n.ahead, n.next)
		for _, k := range n.parts {
			args = append(args, k.number, k.count, k.others)
		}
	}
	return s.lease.Call(ctx, args)
}

// run makes all calls, in one round trip. Whatever it returns, each may have its own answer.
func (s *store) run(ctx context.Context, calls []shards.Call) error {
	return s.lease.Run(ctx, s.client, calls)
}

// readLeases reads the answer to an ask of so many windows.
func readLeases(values []int64, a *ask, windows int) (l leases, err error) {
	if len(values) != 1+6*windows {
		return l, fmt.Errorf("an answer of %d values", len(values))
	}
	const most = int64(1e13)
	if l.time = values[0]; l.time <= 0 || l.time > time.Unix(1<<33, 0).UnixMicro() {
		return l, fmt.Errorf("the time is %d", l.time)
	}
	for i := range windows {
		n := &a.needs[i]
		for k, wanted := range [...]int64{n.now + n.ahead, n.next} {
			v := values[1+6*i+3*k:]
			p := lease{v[0], v[1], v[2]}
			if p.given < 0 || p.given > wanted || p.all < 0 || p.all > most || p.own < -1 || p.own > most {
				return l, fmt.Errorf("%d of %d were given, %d of %d are its own", p.given, wanted, p.own, p.all)
			}
			l.parts[i][k] = p
		}
	}
	return l, nil
}
