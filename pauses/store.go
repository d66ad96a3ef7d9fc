// Package pauses keeps in Redis what providers asked of the workers about their
// routes, so that it outlives who was asked, and all of the fleet hears it.
package pauses

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// Store is the pauses of a fleet: one sorted set, of "<reason> <route>" by the
// end of the pause in Unix ms. The time is Redis's own, so the workers' clocks
// do not matter. It is safe for concurrent use, and a gates.PauseStore.
type Store struct {
	client   shards.Client
	options  Options
	key      string
	evidence string // the key of evidence
	stopped  string // the key of quarantines

	mu     sync.Mutex
	logged time.Time // when garbage was last told; guarded by mu
}

var _ gates.FleetStore = (*Store)(nil)

// Options are the settings of a Store.
type Options struct {
	// Fleet is who shares them; of two fleets with one Redis each has its own.
	Fleet string
	// Longest is the longest pause that is believed, at least a second: what
	// ends later was not written by a worker.
	Longest time.Duration
	Log     *slog.Logger

	// The rest is for workers that judge routes together (Consult).
	// Member is this worker's name, without blanks; no other one may have it.
	Member string
	// Probes is how many probes a round has, of all workers; what is not answered
	// within ProbeTimeout of its grant lapses.
	Probes       int
	ProbeTimeout time.Duration
	// After a round that went badly the next one begins after FirstPause, after the
	// next bad one after twice that, up to LongestPause.
	FirstPause, LongestPause time.Duration
}

// logEvery is how often garbage is told of.
const logEvery = time.Minute

// Both scripts begin with Redis's time in ms. Whatever stands under the key and
// is no sorted set, and what no worker can have meant, makes way.
var (
	tellScript = redis.NewScript(`local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local kind = redis.call('TYPE', KEYS[1])
if (kind.ok or kind) ~= 'zset' then redis.call('DEL', KEYS[1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now + ARGV[1]), '+inf')
for i = 2, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], 'GT', string.format('%.0f', now + ARGV[i]), ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1`)

	toldScript = redis.NewScript(`local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local told = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES')
table.insert(told, string.format('%.0f', now))
return told`)
)

// New makes a Store. The client stays the caller's.
func New(client shards.Client, o Options) (*Store, error) {
	if o.Fleet == "" || o.Longest < time.Second || o.Log == nil {
		return nil, errors.New("pauses: a fleet's name and a log are needed, and the longest pause must be at least a second")
	}
	return &Store{client: client, options: o, key: shards.PausesKey(o.Fleet), evidence: shards.EvidenceKey(o.Fleet), stopped: shards.QuarantineKey(o.Fleet)}, nil
}

// Tell implements gates.PauseStore. What is longer than Longest is cut.
func (s *Store) Tell(ctx context.Context, ps []gates.Pause) error {
	if len(ps) == 0 {
		return nil
	}
	args := []any{s.options.Longest.Milliseconds()}
	for _, p := range ps {
		args = append(args, min(p.Left, s.options.Longest).Milliseconds(), string(p.Reason)+" "+p.Route.String())
	}
	return s.write(ctx, s.key, args)
}

// write runs tellScript on a key.
func (s *Store) write(ctx context.Context, key string, args []any) error {
	if err := tellScript.Run(ctx, s.client, []string{key}, args...).Err(); err != nil {
		return fmt.Errorf("writing %s: %w", key, err)
	}
	return nil
}

// Told implements gates.PauseStore. What it cannot read is left out, and told
// to the log now and then.
func (s *Store) Told(ctx context.Context) ([]gates.Pause, error) {
	answer, err := s.ask(ctx, s.key)
	if len(answer) == 0 || err != nil {
		return nil, err
	}
	return s.pauses(answer)
}

// pauses reads an answer.
func (s *Store) pauses(answer []string) (ps []gates.Pause, err error) {
	err = s.members(s.key, answer, func(member, score string, now float64) bool {
		p, ok := s.read(member, score, now)
		if ok {
			ps = append(ps, p)
		}
		return ok
	})
	return ps, err
}

// ask runs toldScript on a key. What is no sorted set has no answer.
func (s *Store) ask(ctx context.Context, key string) ([]string, error) {
	answer, err := toldScript.Run(ctx, s.client, []string{key}).StringSlice()
	switch {
	case err != nil && shards.Answered(err) && strings.Contains(err.Error(), "WRONGTYPE"):
		s.garbage(key, "no sorted set")
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", key, err)
	case len(answer) == 0:
		return nil, fmt.Errorf("reading %s: an answer of no entries", key)
	}
	return answer, nil
}

// members reads an answer: members with their scores, and the time.
func (s *Store) members(key string, answer []string, read func(member, score string, now float64) bool) error {
	if len(answer)%2 == 0 {
		return fmt.Errorf("reading %s: an answer of %d entries", key, len(answer))
	}
	now, err := strconv.ParseFloat(answer[len(answer)-1], 64)
	if err != nil {
		return fmt.Errorf("reading %s: the time: %w", key, err)
	}
	for i := 0; i+1 < len(answer); i += 2 {
		if !read(answer[i], answer[i+1], now) {
			s.garbage(key, answer[i])
		}
	}
	return nil
}

// left is how long after now a score is; ok is false where it is not, or longer than
// longest.
func left(score string, now float64, longest time.Duration) (d time.Duration, ok bool) {
	until, err := strconv.ParseFloat(score, 64)
	ms := until - now
	if err != nil || !(ms > 0) || ms > float64(longest.Milliseconds()) {
		return 0, false
	}
	return time.Duration(ms * float64(time.Millisecond)), true
}

// read makes a pause of one member and its score.
func (s *Store) read(member, score string, now float64) (p gates.Pause, ok bool) {
	reason, route, _ := strings.Cut(member, " ")
	p.Reason = gates.PauseReason(reason)
	if p.Reason != gates.PauseAsked && p.Reason != gates.PauseHalted {
		return p, false
	}
	if p.Route, ok = push.ParseRoute(route); !ok {
		return p, false
	}
	p.Left, ok = left(score, now, s.options.Longest)
	return p, ok
}

func (s *Store) garbage(key, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.logged) >= logEvery {
		s.logged = now
		s.options.Log.Warn("ignoring an invalid route pause", "key", key, "member", fmt.Sprintf("%.64q", what))
	}
}
