// Package collapse knows, per user, app and collapse key, the newest notification
// that a provider accepted: of two with one collapse key the newer replaces the
// older on the screen, and a retry of the older one must not undo that.
package collapse

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// Latest remembers, per user, app and collapse key, the newest notification
// that a provider accepted for any of the user's devices.
//
// It is best effort. What is forgotten (an Accepted that failed, a Redis that
// was wiped) lets a retry through, nothing worse. It is safe for concurrent
// use.
type Latest struct {
	client  redis.UniversalClient
	options Options
	sha     string
	scratch sync.Pool // of *scratch
}

// Options are the settings of a Latest.
type Options struct {
	// Horizon is for how long after its first record a notification may still
	// be sent: the longest greatest age of all lanes. What is older supersedes
	// nothing any more, and is forgotten. At least a second.
	Horizon time.Duration
	// Timeout bounds one Accepted; above zero.
	Timeout time.Duration
}

// DefaultOptions: the greatest age of the default lanes; and a second,
// because a batch waits for it at its end and loses little by going on without
// it.
func DefaultOptions() Options {
	return Options{Horizon: 24 * time.Hour, Timeout: time.Second}
}

const (
	// slack is how far the clocks of workers may differ.
	slack = 5 * time.Minute
	// maxKeys bounds the collapse keys remembered of a user, 20 KiB; beyond
	// it the oldest are forgotten.
	maxKeys = 256
	// maxPerCall keeps a script short: Redis serves nobody else meanwhile.
	maxPerCall = 500
)

// source adds to sorted sets, one member per key and the same key as
// often as it likes. A member moves to a later score only. A set that grew
// loses what is too old and what is too much.
const source = `for i = 1, #KEYS do
  if redis.call('ZADD', KEYS[i], 'GT', ARGV[2 + 2 * i], ARGV[3 + 2 * i]) > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', ARGV[1])
    redis.call('ZREMRANGEBYRANK', KEYS[i], 0, ARGV[3])
  end
  redis.call('PEXPIRE', KEYS[i], ARGV[2])
end
return #KEYS`

// New makes a Latest. The client stays the caller's. It returns an error
// when an option cannot work.
func New(client redis.UniversalClient, o Options) (*Latest, error) {
	if o.Horizon < time.Second || o.Timeout <= 0 {
		return nil, fmt.Errorf("latest: horizon %v and time-out %v, want at least a second and above 0", o.Horizon, o.Timeout)
	}
	sum := sha1.Sum([]byte(source))
	l := &Latest{client: client, options: o, sha: hex.EncodeToString(sum[:])}
	l.scratch.New = func() any { return new(scratch) }
	return l, nil
}

// scratch is the working memory of one call.
type scratch struct {
	items  []*pipeline.Item // those that are asked or told about
	asked  []int32          // their indexes in the caller's slice
	groups shards.Groups
	names  shards.Names
	text   []byte // of all values
	ends   []int
	values []string // score and member of each item
	args   []any
	cmds   []*redis.Cmd
	bounds [3]string // lowest score kept, time to live, rank of the last one dropped
}

func (l *Latest) begin() *scratch { return l.scratch.Get().(*scratch) }

// end drops all references to what belongs to the caller.
func (l *Latest) end(sc *scratch) {
	clear(sc.items)
	clear(sc.args)
	clear(sc.values)
	clear(sc.cmds)
	sc.items, sc.asked, sc.args, sc.values, sc.cmds = sc.items[:0], sc.asked[:0], sc.args[:0], sc.values[:0], sc.cmds[:0]
	l.scratch.Put(sc)
}

// Accepted notes the items that have a collapse key and a delivery that its
// provider accepted. It ignores the others, and does not call Redis if there is
// none. One script call per user shard, all in one round trip, within the
// Timeout. Nothing of items is kept.
//
// After an error some may not be noted; nothing has to be done about it.
func (l *Latest) Accepted(ctx context.Context, items []*pipeline.Item) error {
	sc := l.begin()
	defer l.end(sc)
	for _, it := range items {
		if it.CollapseKey != "" && accepted(it) {
			sc.items = append(sc.items, it)
		}
	}
	if len(sc.items) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	l.calls(ctx, sc, time.Now())
	if err := l.run(ctx, sc.cmds); err != nil {
		return fmt.Errorf("noting the newest notification per collapse key: %w", err)
	}
	return nil
}

// accepted reports whether a provider has taken the item for any device.
func accepted(it *pipeline.Item) bool {
	for i := range it.Deliveries {
		if it.Deliveries[i].Result.Class == push.Delivered {
			return true
		}
	}
	return false
}

// calls makes the script calls, shard by shard.
func (l *Latest) calls(ctx context.Context, sc *scratch, now time.Time) {
	sc.groups.Arrange(len(sc.items), shards.Users, func(i int) int { return shards.UserShard(sc.items[i].Owner()) })
	sc.bounds = boundsAt(now, l.options.Horizon)
	names := sc.keys()
	sc.places()
	// All room first: the commands point into one slice. A shard has at most
	// one call more than its items fill.
	if need := 3*len(sc.items) + 6*(shards.Users+len(sc.items)/maxPerCall); cap(sc.args) < need {
		sc.args = make([]any, 0, need)
	}
	at := 0
	for _, of := range sc.groups.All() {
		for n := 0; len(of) > 0; of = of[n:] {
			n = min(len(of), maxPerCall)
			start := len(sc.args)
			sc.args = append(sc.args, "EVALSHA", &l.sha, n)
			for i := at; i < at+n; i++ {
				sc.args = append(sc.args, &names[i])
			}
			sc.args = append(sc.args, &sc.bounds[0], &sc.bounds[1], &sc.bounds[2])
			for i := at; i < at+n; i++ {
				sc.args = append(sc.args, &sc.values[2*i], &sc.values[2*i+1])
			}
			at += n
			sc.cmds = append(sc.cmds, redis.NewCmd(ctx, sc.args[start:len(sc.args):len(sc.args)]...))
		}
	}
}

// keys are the names of the users' sets, in the order of the groups.
func (sc *scratch) keys() []string {
	sc.names.Reset()
	for s, of := range sc.groups.All() {
		for _, i := range of {
			sc.names.Collapse(s, sc.items[i].Owner())
		}
	}
	return sc.names.List()
}

// run sends the calls in one round trip, and those whose script a server did
// not know in a second one, with its source. It returns the first error of all.
func (l *Latest) run(ctx context.Context, cmds []*redis.Cmd) (failed error) {
	l.exec(ctx, cmds)
	var unknown []*redis.Cmd
	for _, cmd := range cmds {
		switch err := cmd.Err(); {
		case err == nil:
		case strings.HasPrefix(err.Error(), "NOSCRIPT"):
			args := cmd.Args()
			args[0], args[1] = "EVAL", source
			unknown = append(unknown, redis.NewCmd(ctx, args...))
		default:
			failed = cmp.Or(failed, err)
		}
	}
	if len(unknown) > 0 {
		l.exec(ctx, unknown)
		for _, cmd := range unknown {
			failed = cmp.Or(failed, cmd.Err())
		}
	}
	return failed
}

// exec sends the calls in one round trip. Each has its own error then, also when
// there were no answers.
func (l *Latest) exec(ctx context.Context, cmds []*redis.Cmd) {
	pipe := l.client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // it is only queued
	}
	_, _ = pipe.Exec(ctx)
}

// Superseded sets out[i] when a newer notification than items[i], with another
// id and the same user, app and collapse key, was accepted, and clears it
// otherwise. Both slices have the same length. One round trip; none when no
// item has a collapse key.
//
// An error means that Redis could not be asked; then out says nothing.
func (l *Latest) Superseded(ctx context.Context, items []*pipeline.Item, out []bool) error {
	if len(items) != len(out) {
		return fmt.Errorf("latest: %d items but %d answers", len(items), len(out))
	}
	clear(out)
	sc := l.begin()
	defer l.end(sc)
	for i, it := range items {
		if it.CollapseKey != "" {
			sc.items, sc.asked = append(sc.items, it), append(sc.asked, int32(i))
		}
	}
	if len(sc.items) == 0 {
		return nil
	}
	scores, err := l.scores(ctx, sc)
	if err != nil {
		return fmt.Errorf("reading the newest notification per collapse key: %w", err)
	}
	for j, i := range sc.asked {
		out[i] = supersedes(scores[j], sc.items[j])
	}
	return nil
}

// scores reads the score of each item's collapse key; 0 = none that we have written.
func (l *Latest) scores(ctx context.Context, sc *scratch) ([]int64, error) {
	pipe := l.client.Pipeline()
	cmds := make([]*redis.FloatCmd, len(sc.items))
	for j, it := range sc.items {
		owner := it.Owner()
		var member [8]byte
		cmds[j] = pipe.ZScore(ctx, shards.CollapseKey(shards.UserShard(owner), owner), string(appendMember(member[:0], it)))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	scores := make([]int64, len(cmds))
	for j, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		scores[j] = written(cmd.Val())
	}
	return scores, nil
}
