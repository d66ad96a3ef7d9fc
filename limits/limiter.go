package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// Limiter decides requests by a fixed set of rules over the states in Redis.
// It is safe for concurrent use.
type Limiter struct {
	client  redis.UniversalClient
	rules   []rule
	version byte  // of the states that it begins
	keep    int64 // ms: after it no event of version 1 counts any more
	swap    *shards.Script
	// cluster keeps a call to the keys of one shard. A single server takes any,
	// and a small batch, of some users a shard, is one call instead of hundreds.
	cluster bool
	log     *DeviceLog // where rules of devices count; nil = in the states

	apps, lanes []string // that there are

	batches sync.Pool // of *batch
}

// maxRounds bounds how often users in conflict are decided again. A round is
// lost only when another worker wrote the same user within the round trip, and
// a user has one partition and so one worker at a time.
const maxRounds = 10

// Option changes what New makes.
type Option func(*Limiter)

// WriteVersion2 has states written in version 2, which workers of the previous
// release do not read: they stall. Without it only what is in version 2 already
// stays so, and New refuses rules that version 1 cannot carry.
func WriteVersion2() Option { return func(l *Limiter) { l.version = 2 } }

// New makes a limiter. The client stays the caller's. No rules is an error:
// then there is nothing to ask.
func New(client redis.UniversalClient, rules []Rule, options ...Option) (*Limiter, error) {
	if len(rules) == 0 {
		return nil, errors.New("limits: no rules")
	}
	compiled, err := compile(rules)
	if err != nil {
		return nil, err
	}
	l := &Limiter{client: client, rules: compiled, version: 1, swap: shards.NewScript("writing limiter states", swapSource)}
	l.cluster = shards.IsCluster(client)
	for _, option := range options {
		option(l)
	}
	for i := range rules {
		if err := rules[i].checkApart(l.apps, l.lanes); err != nil {
			return nil, err
		}
		logged := l.log != nil && rules[i].Per == PerDeviceType
		if logged {
			if err := rules[i].checkLogged(); err != nil {
				return nil, err
			}
		}
		if l.version == 1 && !logged && !rules[i].plain() {
			return nil, fmt.Errorf("limits: rule %s needs states of version 2, which are not written yet: version 1 knows rules per %s and %s with a sliding log, by type, that drop", rules[i].Name, PerUser, PerUserType)
		}
		l.keep = max(l.keep, compiled[i].longest())
	}
	l.batches.New = func() any { return &batch{judge: newJudge(compiled)} }
	return l, nil
}

// CountsCritical reports whether a rule counts critical notifications. Otherwise
// there is no need to ask about them: they pass every rule.
func (l *Limiter) CountsCritical() bool {
	return slices.ContainsFunc(l.rules, func(r rule) bool { return r.countCritical })
}

// Decide is DecideWith without limits of senders.
func (l *Limiter) Decide(ctx context.Context, reqs []*Request) error {
	return l.DecideWith(ctx, reqs, nil)
}

// SenderLimits answer requests that have a sender and are not Paid, as
// senders.Limits do. What they let go is Paid then, and the rest names DimensionSender.
type SenderLimits interface {
	Decide(ctx context.Context, reqs []*Request) error
}

// DecideWith answers all requests, those of one owner in the order given, and
// returns when what they spent is stored. Critical notifications are always
// allowed; about them only CountsCritical needs to be asked. senders are asked
// about what the rules of recipients allow, before any of it is spent; nil =
// senders have no limits.
//
// After an error nothing is decided but what senders have answered, and part of it
// may have been stored: asking again counts nothing twice, and takes no second token
// of a sender for what is Paid. A state that is damaged or of an unknown version is
// such an error, a StateError; it stays until somebody removes the state, or a worker
// that knows the version asks.
func (l *Limiter) DecideWith(ctx context.Context, reqs []*Request, senders SenderLimits) error {
	if len(reqs) == 0 {
		return nil
	}
	b := l.batches.Get().(*batch)
	defer func() {
		b.release()
		l.batches.Put(b)
	}()
	b.group(reqs)
	if l.log != nil {
		var err error
		if b.judge.logs, err = l.log.open(ctx, &b.judge, reqs); err != nil {
			return err
		}
	}
	for i := range push.Prefetching(len(b.users), b.lines) {
		if err := l.decide(ctx, b, &b.users[i]); err != nil {
			return err
		}
	}
	for range maxRounds {
		if err := l.askSenders(ctx, b, senders); err != nil {
			return err
		}
		swaps := l.prepare(ctx, b)
		if len(swaps) == 0 {
			if l.log == nil {
				return nil
			}
			return l.log.store(ctx, b.judge.logs, l.rules)
		}
		if err := l.swap.Run(ctx, l.client, swaps); err != nil {
			return err
		}
		if err := l.settle(ctx, b, swaps); err != nil {
			return err
		}
	}
	return errors.New("limits: states kept changing during the decision")
}

// Senders are asked about no request twice, and a few times: after maxTurns also about
// all that is like what they hold of a user, as they will hold most of it; after maxTurns
// more about all that is left of the users concerned, which costs tokens of what the
// rules of recipients refuse.
const maxTurns = 3

// askSenders asks about what the rules of recipients allow. Users with something
// that has to stay behind are decided again without it: that may make room for
// another of their requests, which asks in its turn.
func (l *Limiter) askSenders(ctx context.Context, b *batch, senders SenderLimits) error {
	if senders == nil {
		return nil
	}
	for turn := 0; ; turn++ {
		if b.waiting(turn); len(b.asking) == 0 {
			return nil
		}
		if err := senders.Decide(ctx, b.asking); err != nil {
			return err
		}
		if turn < maxTurns && !slices.ContainsFunc(b.asking, (*Request).held) {
			return nil
		}
		for i := range b.users {
			if u := &b.users[i]; b.held(u) > u.held || u.held > 0 && turn >= maxTurns {
				u.held = b.held(u)
				if err := l.decide(ctx, b, u); err != nil {
					return err
				}
			}
		}
	}
}

// decide answers the requests of one user from its state but those that its sender
// holds, and leaves what is to be stored in the batch.
func (l *Limiter) decide(ctx context.Context, b *batch, u *user) error {
	j := &b.judge
	at := b.reqs[u.first].At.UnixMilli()
	err := j.load(u.state, l.keep, at)
	if err != nil && !u.fresh { // a batch that is repeated brings what was read at first
		if err = l.readAgain(ctx, b); err != nil {
			return err
		}
		err = j.load(u.state, l.keep, at)
	}
	if err != nil {
		return &StateError{shards.LimiterKey(u.shard, u.owner), err}
	}
	if j.logs != nil {
		b.resetLogs(u)
	}
	for i := u.first; i >= 0; i = b.next[i] {
		if r := b.reqs[i]; u.held == 0 || !r.held() {
			j.answer(r)
		}
	}
	if u.write = j.changed; u.write {
		b.text = append(b.text, stamp(u.state)...)
		u.from = len(b.text)
		b.text = j.state.encode(b.text, l.version)
		u.to = len(b.text)
		u.ttl = max(int64(j.state.until())*1000-b.reqs[u.last].At.UnixMilli(), 1)
	}
	return nil
}

// readAgain reads, in one round trip, the states of a batch's users that are of no use as
// they were read with the user records: they may have been reset since, or written by a
// newer worker. Afterwards the judge has loaded any of them, or none.
func (l *Limiter) readAgain(ctx context.Context, b *batch) error {
	pipe := l.client.Pipeline()
	var again []*user
	var states []*redis.StringCmd
	for i := range b.users {
		u := &b.users[i]
		if u.fresh || b.judge.load(u.state, l.keep, b.reqs[u.first].At.UnixMilli()) == nil {
			continue
		}
		again, states = append(again, u), append(states, pipe.Get(ctx, shards.LimiterKey(u.shard, u.owner)))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, u := range again {
		found, err := states[i].Bytes()
		// A key of another type is no state, as when it is read with the user record.
		if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return fmt.Errorf("reading a limiter state again: %w", err)
		}
		u.state, u.fresh = found, true
	}
	return nil
}

// prepare makes the script calls for all users that have something to store.
func (l *Limiter) prepare(ctx context.Context, b *batch) []shards.Call {
	b.names.Reset()
	b.values = b.values[:0]
	for i := range b.users {
		if u := &b.users[i]; u.write {
			b.names.Limiter(u.shard, u.owner)
			b.values = append(b.values, b.text[u.from-len(stamp(u.state)):u.from], b.text[u.from:u.to])
		}
	}
	keys := b.names.List()
	b.args = b.args[:0]
	b.swaps, b.ends = b.swaps[:0], b.ends[:0]
	// Room for all first: the calls point into one slice.
	if need := 4*len(keys) + 4*len(b.users); cap(b.args) < need {
		b.args = make([]any, 0, need)
	}
	b.writers = b.writers[:0]
	for i := range b.users {
		if b.users[i].write {
			b.writers = append(b.writers, int32(i))
		}
	}
	for from := 0; from < len(b.writers); {
		to := l.fill(b, from)
		start := len(b.args)
		b.args = append(b.args, nil, nil, to-from) // the first two are the script's
		for i := from; i < to; i++ {
			b.args = append(b.args, &keys[i])
		}
		for i := from; i < to; i++ {
			b.args = append(b.args, &b.values[2*i], &b.values[2*i+1], &b.users[b.writers[i]].ttl)
		}
		args := b.args[start:len(b.args):len(b.args)]
		b.swaps = append(b.swaps, l.swap.Call(ctx, args))
		b.ends = append(b.ends, to)
		from = to
	}
	return b.swaps
}

// fill returns the end of the call that begins with a writer.
func (l *Limiter) fill(b *batch, from int) (to int) {
	shard, bytes := b.users[b.writers[from]].shard, 0
	for to = from; to < len(b.writers) && to-from < maxUsersPerCall; to++ {
		if l.cluster && b.users[b.writers[to]].shard != shard {
			break
		}
		if bytes += len(b.values[2*to+1]); bytes > maxBytesPerCall && to > from {
			break
		}
	}
	return to
}

// settle reads the answers: users that were stored are done, users in conflict
// are decided again from the state found.
func (l *Limiter) settle(ctx context.Context, b *batch, swaps []shards.Call) error {
	for i := range b.writers {
		b.users[b.writers[i]].write = false
	}
	b.text = b.text[:0]
	from := 0
	for i, to := range b.ends {
		reply, err := swaps[i].Cmd.Slice()
		if err != nil {
			return fmt.Errorf("writing limiter states: %w", err)
		}
		if len(reply)%2 != 0 {
			return fmt.Errorf("writing limiter states: answer with %d entries", len(reply))
		}
		for j := 0; j < len(reply); j += 2 {
			n, state, err := conflict(reply, j)
			if err != nil {
				return err
			}
			if n >= to-from {
				return fmt.Errorf("writing limiter states: answer about key %d of %d", n+1, to-from)
			}
			u := &b.users[b.writers[from+n]]
			u.state, u.fresh = state, true
			if err := l.decide(ctx, b, u); err != nil {
				return err
			}
		}
		from = to
	}
	return nil
}
