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
	return &Store{client: client, options: o, key: shards.PausesKey(o.Fleet), evidence: shards.EvidenceKey(o.Fleet)}, nil
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
	if err := tellScript.Run(ctx, s.client, []string{s.key}, args...).Err(); err != nil {
		return fmt.Errorf("writing %s: %w", s.key, err)
	}
	return nil
}

// Told implements gates.PauseStore. What it cannot read is left out, and told
// to the log now and then.
func (s *Store) Told(ctx context.Context) ([]gates.Pause, error) {
	answer, err := toldScript.Run(ctx, s.client, []string{s.key}).StringSlice()
	switch {
	case err != nil && shards.Answered(err) && strings.Contains(err.Error(), "WRONGTYPE"):
		s.garbage("no sorted set")
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", s.key, err)
	}
	return s.pauses(answer)
}

// pauses reads an answer: members with their scores, and the time.
func (s *Store) pauses(answer []string) ([]gates.Pause, error) {
	if len(answer)%2 == 0 {
		return nil, fmt.Errorf("reading %s: an answer of %d entries", s.key, len(answer))
	}
	now, err := strconv.ParseFloat(answer[len(answer)-1], 64)
	if err != nil {
		return nil, fmt.Errorf("reading %s: the time: %w", s.key, err)
	}
	var ps []gates.Pause
	for i := 0; i+1 < len(answer); i += 2 {
		if p, ok := s.read(answer[i], answer[i+1], now); ok {
			ps = append(ps, p)
		} else {
			s.garbage(answer[i])
		}
	}
	return ps, nil
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
	until, err := strconv.ParseFloat(score, 64)
	if left := until - now; err != nil || !(left > 0) || left > float64(s.options.Longest.Milliseconds()) {
		return p, false
	}
	p.Left = time.Duration((until - now) * float64(time.Millisecond))
	return p, true
}

func (s *Store) garbage(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.logged) >= logEvery {
		s.logged = now
		s.options.Log.Warn("ignoring an invalid route pause", "key", s.key, "member", fmt.Sprintf("%.64q", what))
	}
}
