package quota

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/shards"
)

// spendScript counts receivers. The hash KEYS[1] has the day (n), what was counted in it
// (u), and of each part that has not ended what was counted of it. ARGV is the part, what
// whoever asks knows that it has reached, up to how many it wants to reach, and the limit. It answers
// up to how many it may.
// Whatever nobody of ours can have written is as absent, and overwritten.
const spendScript = `local function count_of(x) -- nil if it is none
  if x and #x <= 15 and string.match(x, '^%d+$') then return tonumber(x) end
end
local day = string.format('%.0f', math.floor(redis.call('TIME')[1] / 86400))
local had, wanted, limit = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local kind = redis.call('TYPE', KEYS[1])
kind = kind.ok or kind
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
local h = redis.call('HMGET', KEYS[1], 'n', 'u', ARGV[1])
local used, counted = count_of(h[2]), math.max(count_of(h[3]) or 0, had)
if h[1] ~= day or not used then
  redis.call('DEL', KEYS[1])
  used, counted = 0, had
end
local given = math.max(math.min(wanted - counted, limit - used), 0)
if given > 0 then
  redis.call('HSET', KEYS[1], 'n', day, 'u', string.format('%.0f', used + given), ARGV[1], string.format('%.0f', counted + given))
  redis.call('PEXPIRE', KEYS[1], 2 * 86400000)
end
return string.format('%.0f', math.min(counted + given, wanted))`

// reachedScript answers what was counted in the hash KEYS[1] today, and how many seconds of
// the day are left.
const reachedScript = `local now = tonumber(redis.call('TIME')[1])
local kind = redis.call('TYPE', KEYS[1])
if (kind.ok or kind) == 'hash' then
  local h = redis.call('HMGET', KEYS[1], 'n', 'u')
  if h[1] == string.format('%.0f', math.floor(now / 86400)) and h[2] and #h[2] <= 15 and string.match(h[2], '^%d+$') then
    return {tonumber(h[2]), 86400 - now % 86400}
  end
end
return {0, 86400 - now % 86400}`

// Recipients bounds how many receivers the messages of a sender to topics have in a day of
// UTC, by Redis's clock, in all processes of fan-outs together. Each page of receivers asks
// Redis, and waits while it is away: so no more are reached than the limit, but that a part
// that is done anew on the next day is counted in both. A Redis that was wiped has
// forgotten what was counted. It is safe for concurrent use.
type Recipients struct {
	client   shards.Client
	fleet    string
	standard int
	limits   map[string]int
	spend    *shards.Script
	reached  *shards.Script
}

// NewRecipients makes it: standard is the limit of senders that limits does not name; 0 = none.
// The client stays the caller's.
func NewRecipients(client shards.Client, fleet string, standard int, limits map[string]int) *Recipients {
	return &Recipients{client: client, fleet: fleet, standard: standard, limits: limits, spend: shards.NewScript("counting receivers", spendScript),
		reached: shards.NewScript("receivers of a day", reachedScript)}
}

// limit is that of a sender; 0 = none.
func (r *Recipients) limit(sender string) int {
	if n, own := r.limits[sender]; own {
		return n
	}
	return r.standard
}

// Limits reports whether a sender has a limit, as fanout.Quota says.
func (r *Recipients) Limits(sender string) bool { return r.limit(sender) > 0 }

// Spend is how many receivers a part of a message may have, as fanout.Quota says.
func (r *Recipients) Spend(ctx context.Context, sender string, message [16]byte, part int, had, upTo int64) (int64, error) {
	limit := r.limit(sender)
	if limit == 0 {
		return upTo, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	calls := []shards.Call{r.spend.Call(ctx, []any{nil, nil, 1, shards.RecipientsKey(r.fleet, sender), field(message, part), had, upTo, limit})}
	if err := r.spend.Run(ctx, r.client, calls); err != nil {
		return 0, err
	}
	text, err := calls[0].Cmd.Text()
	if err != nil {
		return 0, err
	}
	may, err := strconv.ParseInt(text, 10, 64)
	if err != nil || may < had || may > upTo {
		return 0, fmt.Errorf("counting receivers: the answer is %.30q, want %d to %d", text, had, upTo)
	}
	return may, nil
}

// PolicyRecipients is the name of the limit in a Standing.
const PolicyRecipients = "recipients"

// Standing is how many receivers the messages of a sender have reached today, as Redis
// knows it; nil = the sender has no such limit.
func (r *Recipients) Standing(ctx context.Context, sender string) (*Standing, error) {
	limit := r.limit(sender)
	if limit == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	calls := []shards.Call{r.reached.Call(ctx, []any{nil, nil, 1, shards.RecipientsKey(r.fleet, sender)})}
	if err := r.reached.Run(ctx, r.client, calls); err != nil {
		return nil, err
	}
	values, err := calls[0].Cmd.Int64Slice()
	if err == nil && (len(values) != 2 || values[0] < 0 || values[1] < 1 || values[1] > 86400) {
		err = fmt.Errorf("the answer is %d", values)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the receivers of a day: %w", err)
	}
	used := int(min(values[0], int64(limit))) // it may have been higher
	return &Standing{Policy: Policy{Name: PolicyRecipients, Limit: limit, Window: 24 * time.Hour}, Used: used, Remaining: limit - used,
		Reset: time.Duration(values[1]) * time.Second}, nil
}

// Settle forgets a part that has ended.
func (r *Recipients) Settle(ctx context.Context, sender string, message [16]byte, part int) error {
	if r.limit(sender) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.client.HDel(ctx, shards.RecipientsKey(r.fleet, sender), field(message, part)).Err()
}

// field is what a part is called in the hash: longer than the names of what else is there.
func field(message [16]byte, part int) string { return string(message[:]) + strconv.Itoa(part) }
