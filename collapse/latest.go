// Package collapse knows, per user, app and collapse key, the newest notification
// that a provider accepted: of two with one collapse key the newer replaces the
// older on the screen, and a retry of the older one must not undo that.
//
// Nearly every notification is accepted at its first attempt, and nobody ever asks
// what superseded it. So a collapse key is opened when a notification is handed over
// to another record, and only what is accepted under an open key is noted. What is in
// flight in this process may still be handed over: its keys count as open too, as do those
// of what was given back, until nothing of its partition is in flight.
package collapse

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// Latest remembers, per user, app and open collapse key, the newest notification
// that a provider accepted for any of the user's devices.
//
// It is best effort. What is forgotten (an Accepted or a HandedOver that failed, a Redis
// that was wiped) lets a retry through, nothing worse, and so does what was accepted in
// another process than the one that has the older notification's first attempt in flight:
// both are of one user, so that happens only between topics, or partitions after some were
// added. It is safe for concurrent use.
type Latest struct {
	client  redis.UniversalClient
	cluster bool // keys of different shards need commands of their own
	options Options
	flight  flight
	scratch sync.Pool // of *scratch
}

// Options are the settings of a Latest.
type Options struct {
	// Horizon is for how long after its first record a notification may still
	// be sent: the longest greatest age of all lanes. What is older supersedes
	// nothing any more, and is forgotten. At least a second.
	Horizon time.Duration
	// Timeout bounds one Accepted and one HandedOver; above zero.
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
	// maxKeys bounds the collapse keys remembered of a user, some 80 KiB; beyond it some are
	// forgotten: those of notes that nobody can ask for any more, then keys under which
	// nothing was accepted yet. Nobody has so many notifications handed over in two days
	// but by a mistake.
	maxKeys = 1024
	// trimEvery is how many keys that are added share the look for what is too old or too
	// much, so that a user has some more for a while: trimEvery on average. Which one
	// looks depends on the notification's id.
	trimEvery = 8
	// mostAsked is how many keys of users one question has at most: where one of them has
	// an open key, the others of its question are noted for nothing.
	mostAsked = 64
)

// New makes a Latest. The client stays the caller's. It returns an error
// when an option cannot work.
func New(client redis.UniversalClient, o Options) (*Latest, error) {
	if o.Horizon < time.Second || o.Timeout <= 0 {
		return nil, fmt.Errorf("latest: horizon %v and time-out %v, want at least a second and above 0", o.Horizon, o.Timeout)
	}
	l := &Latest{client: client, cluster: shards.IsCluster(client), options: o}
	l.scratch.New = func() any { return new(scratch) }
	return l, nil
}

// Begin counts the items of a batch as in flight, and notes in each its place. It must be
// called before any of them is sent, or any that was read after them.
func (l *Latest) Begin(items []pipeline.Item) { l.flight.begin(items) }

// End says, once for each place above 0, that its item is no longer in flight: it has ended;
// or its partition has left, and nothing of it is in flight any more.
func (l *Latest) End(places []uint32) { l.flight.end(places) }

// HandedOver opens the collapse keys of items that another record carries on, which may ask
// by Superseded. It must have returned before End is called for them: until then they are in
// flight. One round trip, within the Timeout; none when no item has a collapse key. Nothing of
// items is kept.
//
// After an error some may not be open; nothing has to be done about it.
func (l *Latest) HandedOver(ctx context.Context, items []*pipeline.Item) error {
	sc := l.begin()
	defer l.end(sc)
	for _, it := range items {
		if it.CollapseKey != "" {
			sc.items = append(sc.items, it)
		}
	}
	if len(sc.items) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	sc.opens(ctx, time.Now(), l.keep())
	if err := l.exec(ctx, sc); err != nil {
		return fmt.Errorf("opening collapse keys: %w", err)
	}
	return nil
}

// Accepted notes the items that have a collapse key, which is open, and a delivery that its
// provider accepted. It ignores the others, and does not call Redis if there is none with a
// key. It takes one round trip where no user has an open key, otherwise two, within the
// Timeout. Nothing of items is kept.
//
// It looks at what is in flight first and then at Redis. An older notification that is not in
// flight any more then has ended, or has opened its key before: Redis says so.
//
// After an error some may not be noted; nothing has to be done about it.
func (l *Latest) Accepted(ctx context.Context, items []*pipeline.Item) error {
	sc := l.begin()
	defer l.end(sc)
	for _, it := range items {
		switch {
		case it.CollapseKey == "" || !accepted(it):
		case l.flight.isContested(it):
			sc.items = append(sc.items, it)
		default:
			sc.alone = append(sc.alone, it)
		}
	}
	if len(sc.items)+len(sc.alone) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	sc.notes(ctx, time.Now(), l.keep())
	keys := sc.asks(ctx, l.cluster)
	err := l.exec(ctx, sc)
	if sc.updates(ctx, keys) {
		if e := l.exec(ctx, sc); e != nil {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("noting the newest notification per collapse key: %w", err)
	}
	return nil
}

// keep is how long the keys of a user are remembered after the last one that was added.
func (l *Latest) keep() time.Duration { return l.options.Horizon + slack }

// exec runs the commands in one round trip, and returns the error of one of them.
func (l *Latest) exec(ctx context.Context, sc *scratch) error {
	pipe := l.client.Pipeline()
	for i := range sc.cmds {
		_ = pipe.Process(ctx, &sc.cmds[i]) // it is only queued
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range sc.cmds {
		if err := sc.cmds[i].Err(); err != nil {
			return err
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
