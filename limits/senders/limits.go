package senders

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/shards"
)

// bucketSource takes tokens of one sender, from all its buckets together. KEYS are
// the buckets, each of which holds the time (Unix us) at which it will be full.
// ARGV is the time now, per bucket the us for one token, for all of them, and
// for the longest wait, and then runs of requests: how many, and how long each
// of them can wait at most. The answer is per run how many got a token, and how
// far each bucket was from full before.
//
// A time too far ahead is one of a broken clock: nobody can owe more than a day,
// nor have a bucket that takes more than one. A key that is no time, as somebody else
// may have written it, is a full bucket, and is replaced.
const bucketSource = `local now, n = tonumber(ARGV[1]), #KEYS
local found = redis.call('MGET', unpack(KEYS))
local every, full, most, ends = {}, {}, {}, {}
for i = 1, n do
  every[i], full[i], most[i] = tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
  local at = tonumber(found[i] or '0') or 0
  ends[i] = math.max(now, math.min(at, now + 172860000000))
end
local answer = {}
for r = 3 * n + 2, #ARGV, 2 do
  local granted, bound = tonumber(ARGV[r]), tonumber(ARGV[r + 1])
  for i = 1, n do
    granted = math.min(granted, math.floor((now + math.min(most[i], bound) + full[i] - ends[i]) / every[i]))
  end
  granted = math.max(granted, 0)
  answer[#answer + 1] = granted
  for i = 1, n do
    answer[#answer + 1] = ends[i] - now
    ends[i] = ends[i] + granted * every[i]
  end
end
for i = 1, n do
  if ends[i] > now then
    redis.call('SET', KEYS[i], string.format('%.0f', ends[i]), 'PX', string.format('%.0f', math.ceil((ends[i] - now) / 1000)))
  end
end
return answer`

// mostOwed is how far a bucket can be from full, in us: the script believes no later
// time. What is taken of it then is less than a day, and a full bucket is a day more.
const mostOwed = 172_860_000_000

// maxRuns keeps a call of the script short.
const maxRuns = 1000

// Limits decide requests by rules of their senders, over buckets in Redis. They
// are safe for concurrent use.
type Limits struct {
	client  shards.Client
	buckets []bucket
	take    *shards.Script
	fullest *Fullest // nil = nobody asks
}

// New makes limits of 1 to 64 rules. The client stays the caller's. No rules is an
// error: then there is nothing to ask. fullest, if it is not nil, is told what Decide
// learns of the buckets; several Limits may tell the same one.
func New(client shards.Client, rules []Rule, fullest *Fullest) (*Limits, error) {
	buckets, err := compile(rules)
	if err != nil {
		return nil, err
	}
	return &Limits{client, buckets, shards.NewScript("taking tokens of senders", bucketSource), fullest}, nil
}

// order is what one call asks: requests of a sender under the same rules.
type order struct {
	now   time.Time
	reqs  []*limits.Request // highest priority first
	rules []int
	runs  []run
}

// run is a stretch of requests that can wait equally long.
type run struct {
	n     int
	bound int64 // us
}

// Decide answers the requests that have a sender and are not Paid; the others
// are allowed. The caller leaves out what the rules of recipients do not allow.
// What is allowed is Paid then. One that is deferred with Paid has its token too and
// is not asked for again; one that is deferred without asks anew after RetryAfter.
// The requests of a sender in one call count as asked at the time of the first, the
// more urgent before the others.
//
// It counts attempts. After an error what it has answered stands, and tokens may have
// been taken for requests that are not Paid.
func (l *Limits) Decide(ctx context.Context, reqs []*limits.Request) error {
	orders := l.orders(reqs)
	if len(orders) == 0 {
		return nil
	}
	calls := make([]shards.Call, len(orders))
	for i := range orders {
		calls[i] = l.call(ctx, &orders[i])
	}
	err := l.take.Run(ctx, l.client, calls)
	// Where one bucket fails, or one server of a cluster, the others have taken their
	// tokens: without their answers each repetition would take them again.
	for i := range orders {
		err = cmp.Or(err, l.answer(&orders[i], calls[i].Cmd))
	}
	return err
}

func (l *Limits) orders(reqs []*limits.Request) (orders []order) {
	type key struct {
		sender string
		rules  uint64
	}
	places := map[key]int{}
	for _, r := range reqs {
		r.Decision = limits.Decision{Allowed: true}
		if r.Sender == "" || r.Paid {
			continue
		}
		k := key{sender: r.Sender}
		for i := range l.buckets {
			if l.buckets[i].about(r) {
				k.rules |= 1 << i
			}
		}
		if k.rules == 0 {
			r.Paid = true // it costs nothing
			continue
		}
		at, ok := places[k]
		if !ok {
			at = len(orders)
			places[k] = at
			orders = append(orders, order{})
			for i := range l.buckets {
				if k.rules&(1<<i) != 0 {
					orders[at].rules = append(orders[at].rules, i)
				}
			}
		}
		orders[at].reqs = append(orders[at].reqs, r)
	}
	return l.cut(orders)
}

// cut sorts each order and finds its runs; one with too many becomes several.
func (l *Limits) cut(orders []order) (out []order) {
	for _, o := range orders {
		o.now = o.reqs[0].At
		slices.SortStableFunc(o.reqs, func(a, b *limits.Request) int { return int(b.Priority) - int(a.Priority) })
		part := order{now: o.now, rules: o.rules}
		for _, r := range o.reqs {
			bound := maxWindow.Microseconds()
			if !r.Expires.IsZero() {
				bound = min(bound, max(r.Expires.Sub(o.now), 0).Microseconds())
			}
			bound = l.within(o.rules, bound)
			if last := len(part.runs) - 1; last >= 0 && part.runs[last].bound == bound {
				part.runs[last].n++
			} else {
				if len(part.runs) == maxRuns {
					out = append(out, part)
					part = order{now: o.now, rules: o.rules}
				}
				part.runs = append(part.runs, run{1, bound})
			}
			part.reqs = append(part.reqs, r)
		}
		out = append(out, part)
	}
	return out
}

// within makes all that can wait longer than the rules let them one run.
func (l *Limits) within(rules []int, bound int64) int64 {
	longest := int64(0)
	for _, i := range rules {
		longest = max(longest, l.buckets[i].wait)
	}
	return min(bound, longest)
}

func (l *Limits) call(ctx context.Context, o *order) shards.Call {
	first := o.reqs[0]
	shard := shards.UserShard(first.Sender)
	args := []any{nil, nil, len(o.rules)} // the first two are the script's
	for _, i := range o.rules {
		args = append(args, shards.BucketKey(shard, l.buckets[i].hash, first.Sender))
	}
	args = append(args, o.now.UnixMicro())
	for _, i := range o.rules {
		b := &l.buckets[i]
		args = append(args, b.every, b.full, b.wait)
	}
	for _, r := range o.runs {
		args = append(args, r.n, r.bound)
	}
	return l.take.Call(ctx, args)
}

// answer gives every request of an order its token, or the time at which to ask
// again.
func (l *Limits) answer(o *order, cmd *redis.Cmd) error {
	reply, err := cmd.Int64Slice()
	if err != nil {
		return fmt.Errorf("taking tokens of senders: %w", err)
	}
	if len(reply) != len(o.runs)*(1+len(o.rules)) {
		return fmt.Errorf("taking tokens of senders: answer with %d numbers to %d runs under %d rules", len(reply), len(o.runs), len(o.rules))
	}
	var lacks, limited [maxRules]int64 // by bucket
	rest := o.reqs
	for _, r := range o.runs {
		granted, behind := int(reply[0]), reply[1:1+len(o.rules)]
		if granted < 0 || granted > r.n {
			return fmt.Errorf("taking tokens of senders: %d tokens for %d", granted, r.n)
		}
		for j, lacks := range behind {
			if lacks < 0 || lacks > mostOwed {
				first := o.reqs[0]
				return fmt.Errorf("taking tokens of senders: key %s: %d us from full", shards.BucketKey(shards.UserShard(first.Sender), l.buckets[o.rules[j]].hash, first.Sender), lacks)
			}
		}
		for k, q := range rest[:r.n] {
			token := int64(min(k, granted) + 1)
			if by := l.decide(q, o.rules, behind, token, k < granted, o.now); by >= 0 {
				limited[by]++
			}
		}
		for j, i := range o.rules {
			lacks[j] = behind[j] + int64(granted)*l.buckets[i].every
		}
		rest, reply = rest[r.n:], reply[1+len(o.rules):]
	}
	for j, i := range o.rules {
		l.fullest.note(&l.buckets[i], o.reqs[0].Sender, lacks[j], limited[j], o.now)
	}
	return nil
}

// decide answers one request, whose token is the given one after those that are
// missing in the buckets. It returns which of the rules puts it off, -1 = none does.
func (l *Limits) decide(r *limits.Request, rules []int, behind []int64, token int64, granted bool, now time.Time) (by int) {
	wait, slowest := int64(0), 0
	for j, i := range rules {
		b := &l.buckets[i]
		if w := behind[j] + token*b.every - b.full; w > wait {
			wait, slowest = w, j
		}
	}
	if r.Paid = granted; granted && wait == 0 {
		return -1
	}
	b := &l.buckets[rules[slowest]]
	missing, after := behind[slowest]+(token-1)*b.every, time.Duration(wait)*time.Microsecond
	r.Decision = limits.Decision{
		Deferred: true, Dimension: limits.DimensionSender, Rule: b.Name,
		Current: int((missing + b.every - 1) / b.every), Limit: int(b.full / b.every),
		RetryAfter: after + r.Spread(after), ResetAt: now.Add(time.Duration(missing) * time.Microsecond).UTC(),
	}
	if !granted && !r.Expires.IsZero() && now.Add(r.RetryAfter).After(r.Expires) {
		r.Deferred = false
	}
	return slowest
}
