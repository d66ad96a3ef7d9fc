package limits

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Limiter decides requests by a fixed set of rules over the states in Redis.
// It is safe for concurrent use.
type Limiter struct {
	client redis.UniversalClient
	rules  []rule
	ttl    int64 // ms: after it no event counts any more
	sha    string

	batches sync.Pool // of *batch
}

// maxRounds bounds how often users in conflict are decided again. A round is
// lost only when another worker wrote the same user within the round trip, and
// a user has one partition and so one worker at a time.
const maxRounds = 10

// New makes a limiter. The client stays the caller's. No rules is an error:
// then there is nothing to ask.
func New(client redis.UniversalClient, rules []Rule) (*Limiter, error) {
	if len(rules) == 0 {
		return nil, errors.New("limits: no rules")
	}
	compiled, err := compile(rules)
	if err != nil {
		return nil, err
	}
	longest := int64(0)
	for i := range compiled {
		longest = max(longest, compiled[i].window)
	}
	sum := sha1.Sum([]byte(swapSource))
	l := &Limiter{client: client, rules: compiled, ttl: longest + skew.Milliseconds(), sha: hex.EncodeToString(sum[:])}
	l.batches.New = func() any { return &batch{} }
	return l, nil
}

// Decide answers all requests, those of one owner in the order given, and
// returns when what they spent is stored. The caller leaves out notifications
// that pass every limit (priority critical).
//
// After an error nothing is decided, and part of it may have been stored:
// asking again counts nothing twice. An unknown version of a state is such an
// error; it stays until a worker that knows the version asks.
func (l *Limiter) Decide(ctx context.Context, reqs []*Request) error {
	if len(reqs) == 0 {
		return nil
	}
	b := l.batches.Get().(*batch)
	defer func() {
		b.release()
		l.batches.Put(b)
	}()
	b.group(reqs)
	for i := range b.users {
		if err := l.decide(b, &b.users[i]); err != nil {
			return err
		}
	}
	for range maxRounds {
		swaps := l.prepare(ctx, b)
		if len(swaps) == 0 {
			return nil
		}
		if err := l.run(ctx, swaps); err != nil {
			return err
		}
		if err := l.settle(b, swaps); err != nil {
			return err
		}
	}
	return errors.New("limits: states kept changing during the decision")
}

// decide answers the requests of one user from its state, and leaves what is
// to be stored in the batch.
func (l *Limiter) decide(b *batch, u *user) error {
	events, err := decodeState(b.events[:0], u.state)
	if err != nil {
		return fmt.Errorf("limits: key %s: %w", shards.LimiterKey(u.shard, u.owner), err)
	}
	u.write = false
	for i := u.first; i >= 0; i = b.next[i] {
		if event, spent := l.answer(b.reqs[i], events); spent {
			events = append(events, event)
			u.write = true
		}
	}
	if u.write {
		events = prune(events, l.rules, events[len(events)-1].at)
		b.text = append(b.text, stamp(u.state)...)
		u.from = len(b.text)
		b.text = encodeState(b.text, events)
		u.to = len(b.text)
	}
	b.events = events[:0]
	return nil
}

// answer decides one request; spent is true when it is a new event to keep.
func (l *Limiter) answer(r *Request, events []event) (e event, spent bool) {
	e = event{id: idHash(r.ID), kind: typeHash(r.Type), at: r.At.UnixMilli()}
	r.Allowed, r.Rule = true, ""
	for i := range events {
		if events[i].id == e.id {
			return e, false
		}
	}
	for i := range l.rules {
		rule := &l.rules[i]
		if !rule.about(e.kind) {
			continue
		}
		spent = true
		if rule.spent(events, e.kind, e.at) >= rule.max {
			r.Allowed, r.Rule = false, rule.name
			return e, false
		}
	}
	return e, spent
}

// prepare makes the script calls for all users that have something to store,
// shard by shard.
func (l *Limiter) prepare(ctx context.Context, b *batch) []swap {
	b.names.Reset()
	b.values = b.values[:0]
	text := string(b.text)
	for i := range b.users {
		if u := &b.users[i]; u.write {
			b.names.Limiter(u.shard, u.owner)
			b.values = append(b.values, text[u.from-len(stamp(u.state)):u.from], text[u.from:u.to])
		}
	}
	keys := b.names.List()
	b.args = b.args[:0]
	b.swaps = b.swaps[:0]
	// Room for all first: the calls point into one slice.
	if need := 3*len(keys) + 4*len(b.users); cap(b.args) < need {
		b.args = make([]any, 0, need)
	}
	b.writers = b.writers[:0]
	for i := range b.users {
		if b.users[i].write {
			b.writers = append(b.writers, int32(i))
		}
	}
	for from := 0; from < len(b.writers); {
		shard := b.users[b.writers[from]].shard
		to := from + 1
		for to < len(b.writers) && to-from < maxUsersPerCall && b.users[b.writers[to]].shard == shard {
			to++
		}
		start := len(b.args)
		b.args = append(b.args, "EVALSHA", &l.sha, to-from)
		for i := from; i < to; i++ {
			b.args = append(b.args, &keys[i])
		}
		b.args = append(b.args, &l.ttl)
		for i := from; i < to; i++ {
			b.args = append(b.args, &b.values[2*i], &b.values[2*i+1])
		}
		args := b.args[start:len(b.args):len(b.args)]
		b.swaps = append(b.swaps, swap{cmd: redis.NewCmd(ctx, args...), args: args, from: from, to: to})
		from = to
	}
	return b.swaps
}

// settle reads the answers: users that were stored are done, users in conflict
// are decided again from the state found.
func (l *Limiter) settle(b *batch, swaps []swap) error {
	for i := range b.writers {
		b.users[b.writers[i]].write = false
	}
	b.text = b.text[:0]
	for i := range swaps {
		s := &swaps[i]
		reply, err := s.cmd.Slice()
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
			if n >= s.to-s.from {
				return fmt.Errorf("writing limiter states: answer about key %d of %d", n+1, s.to-s.from)
			}
			u := &b.users[b.writers[s.from+n]]
			u.state = state
			if err := l.decide(b, u); err != nil {
				return err
			}
		}
	}
	return nil
}
