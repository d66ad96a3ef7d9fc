// Package collapse knows, per user, app and collapse key, the newest notification
// that a provider accepted: of two with one collapse key the newer replaces the
// older on the screen, and a retry of the older one must not undo that.
package collapse

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// it the oldest are forgotten, at one note in trimEvery.
	maxKeys = 256
	// trimEvery is how many notes share the look for what is too old or too much, so
	// that a user has some more for a while: trimEvery on average above maxKeys, and as
	// many that are too old. Those supersede nothing: whatever may still be sent is
	// newer. Which note looks depends on its id.
	trimEvery = 8
)

// New makes a Latest. The client stays the caller's. It returns an error
// when an option cannot work.
func New(client redis.UniversalClient, o Options) (*Latest, error) {
	if o.Horizon < time.Second || o.Timeout <= 0 {
		return nil, fmt.Errorf("latest: horizon %v and time-out %v, want at least a second and above 0", o.Horizon, o.Timeout)
	}
	l := &Latest{client: client, options: o}
	l.scratch.New = func() any { return new(scratch) }
	return l, nil
}

// scratch is the working memory of one call.
type scratch struct {
	items  []*pipeline.Item // those that are asked or told about
	asked  []int32          // their indexes in the caller's slice
	names  shards.Names
	text   []byte // of all values
	ends   []int
	scores []int64  // of each item
	values []string // score and member of each item
	args   []any
	cmds   []redis.IntCmd
	bounds [3]string // lowest score kept, time to live, rank of the last one dropped
}

func (l *Latest) begin() *scratch { return l.scratch.Get().(*scratch) }

// end drops all references to what belongs to the caller.
func (l *Latest) end(sc *scratch) {
	clear(sc.items)
	clear(sc.args)
	clear(sc.values)
	clear(sc.cmds)
	sc.items, sc.asked, sc.args, sc.scores, sc.values, sc.cmds = sc.items[:0], sc.asked[:0], sc.args[:0], sc.scores[:0], sc.values[:0], sc.cmds[:0]
	l.scratch.Put(sc)
}

// Accepted notes the items that have a collapse key and a delivery that its
// provider accepted. It ignores the others, and does not call Redis if there is
// none. All in one round trip, within the Timeout. Nothing of items is kept.
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
	sc.notes(ctx, boundsAt(time.Now(), l.options.Horizon))
	pipe := l.client.Pipeline()
	for i := range sc.cmds {
		_ = pipe.Process(ctx, &sc.cmds[i]) // it is only queued
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range sc.cmds {
		if err := sc.cmds[i].Err(); err != nil {
			return fmt.Errorf("noting the newest notification per collapse key: %w", err)
		}
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

// notes makes the commands of all items. They are plain ones: a script with the same
// commands costs Redis half as much again or more.
//
// A member moves to a later score only. The set's end comes right behind it: only a
// connection that breaks between the two, and stays away for the client's retries, leaves
// one set without an end, until its user's next note or Forget. At some notes goes what is
// too old, and what is too much.
func (sc *scratch) notes(ctx context.Context, bounds [3]string) {
	sc.bounds = bounds
	sc.names.Reset()
	for _, it := range sc.items {
		owner := it.Owner()
		sc.names.Collapse(shards.UserShard(owner), owner)
	}
	names := sc.names.List()
	sc.places()
	// All room first: the commands point into one slice, and stay where they are.
	sc.args = slices.Grow(sc.args, argsPerNote*len(names))
	sc.cmds = slices.Grow(sc.cmds, cmdsPerNote*len(names))
	for i := range sc.items {
		key := &names[i]
		sc.add(ctx, "ZADD", key, "GT", &sc.values[2*i], &sc.values[2*i+1])
		sc.add(ctx, "PEXPIRE", key, &sc.bounds[1])
		if sc.scores[i]%trimEvery == 0 {
			sc.add(ctx, "ZREMRANGEBYSCORE", key, "-inf", &sc.bounds[0])
			sc.add(ctx, "ZREMRANGEBYRANK", key, "0", &sc.bounds[2])
		}
	}
}

// The most that one note takes of the room.
const (
	cmdsPerNote = 4
	argsPerNote = 5 + 3 + 4 + 4
)

// add makes one command, for which there is room.
func (sc *scratch) add(ctx context.Context, args ...any) {
	from := len(sc.args)
	sc.args = append(sc.args, args...)
	sc.cmds = append(sc.cmds, *redis.NewIntCmd(ctx, sc.args[from:len(sc.args):len(sc.args)]...))
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
