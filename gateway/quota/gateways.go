package quota

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/shards"
)

const (
	// presence is how often a gateway says that it is there, and gone how long after the
	// last time it is believed.
	presence = time.Second
	gone     = 5 * time.Second
)

// presenceSource notes a gateway, or that it leaves, and says how many there are: as a negative
// number if it was not there.
const presenceSource = `local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local kind = redis.call('TYPE', KEYS[1])
kind = kind.ok or kind
if kind ~= 'zset' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
if ARGV[2] == '1' then return redis.call('ZREM', KEYS[1], ARGV[1]) end
local added = redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - tonumber(ARGV[3])))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf') -- no gateway's, or of a clock that went back
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local n = redis.call('ZCARD', KEYS[1])
if added == 1 then return -n end
return n`

// gateways is how many gateways there are, at least 1: as Redis said last, or as configured as
// long as it has said nothing.
func (q *Quotas) gateways() int64 { return q.count.Load() }

// ahead reports whether anything of a limit may be held ahead.
func (q *Quotas) ahead(limit int) bool { return int64(limit) >= heldFrom*q.gateways() }

// heldFrom is the least limit, for each gateway, of which anything is held ahead.
const heldFrom = 100

// beThere says that this gateway is there until ctx ends.
func (q *Quotas) beThere(ctx context.Context) {
	script := shards.NewScript("counting gateways", presenceSource)
	say := func(ctx context.Context, leaves string) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		calls := []shards.Call{script.Call(ctx, []any{nil, nil, 1, shards.GatewaysKey(q.o.Fleet), q.o.Member, leaves, gone.Milliseconds()})}
		if err := script.Run(ctx, q.store.client, calls); err != nil {
			return 0, err
		}
		return calls[0].Cmd.Int64()
	}
	ticker := time.NewTicker(presence)
	defer ticker.Stop()
	var most int64
	var at time.Time // when there were so many
	for {
		if n, err := say(ctx, "0"); err == nil && n != 0 {
			if n < 0 {
				n = -n
				if most > 0 { // it was there, and Redis has lost that
					q.retell()
				}
			}
			// After a wipe the others come back one by one.
			if now := time.Now(); n >= most || now.Sub(at) > gone {
				most, at = n, now
			}
			q.count.Store(most)
		}
		select {
		case <-ctx.Done():
			_, _ = say(context.WithoutCancel(ctx), "1") // it lapses else
			return
		case <-ticker.C:
		}
	}
}

// retell lets senders that have used something ask, and so tell it, also those that send nothing now.
func (q *Quotas) retell() {
	q.mu.Lock()
	senders := q.limited[:len(q.limited):len(q.limited)]
	q.mu.Unlock()
	for _, s := range senders {
		if s.hasUsed() {
			q.rouse(s)
		}
	}
}
