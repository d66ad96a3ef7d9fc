package dedupe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Add remembers ids in the current window, in one pipelined round trip of up
// to 64 commands and within the AddTimeout. Ids that were minted in the next window, after
// its first 15 minutes, by a clock that is ahead, are added to that one as well, in
// another round trip: by the time a copy is believed to be new, this window is not asked
// about them.
//
// It returns nil when each id is in its filter, or that filter is marked in
// Redis as one that is full: then every worker, also one that takes over
// tomorrow, answers "maybe" for its shard until the window is gone. After an
// error neither is certain, so the caller must not commit the offsets of the
// ids before an Add of all of them has returned nil. Adding an id again does no
// harm.
//
// That order is why no filter that missed an add is ever trusted. What a worker
// had not added when it died is not committed, and the next owner confirms it
// whatever the filter says. What was committed is in the filter or covered by
// its mark. What Redis loses later, it loses together with the sentinel. (Redis
// that fails over to a replica which lags loses the latest adds and keeps the
// sentinel, and nothing can tell: a second copy produced of those ids, and of
// none else, is sent again. TestFailOverForgetsTheLastAddsOnly.)
func (f *Filter) Add(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.AddTimeout)
	defer cancel()
	n := f.number(f.now())
	if err := f.addTo(ctx, f.window(n), ids); err != nil {
		return err
	}
	next := f.window(n + 1)
	if early := next.mintedOf(ids); len(early) > 0 {
		return f.addTo(ctx, next, early)
	}
	return nil
}

// addTo adds ids to the filters of a window.
func (f *Filter) addTo(ctx context.Context, w *window, ids []string) error {
	s := f.scratch()
	defer f.done(s)
	s.arrange(ids)
	f.inserts(ctx, s, w, ids)
	all := make([]*ask, len(s.asks))
	for i := range s.asks {
		all[i] = &s.asks[i]
	}
	f.send(ctx, all)

	lost, full := failedWith(all, errNoFilter), failedWith(all, errFull)
	// A filter that does not exist was wiped or never made: create it, with its
	// time of birth, and add again.
	if len(lost) > 0 {
		if err := f.create(ctx, w, shardsOf(lost), f.now()); err != nil {
			return err
		}
		for _, a := range lost {
			a.cmd = redis.NewCmd(ctx, a.cmd.Args()...)
		}
		f.send(ctx, lost)
		full = append(full, failedWith(lost, errFull)...)
	}
	if err := f.mark(ctx, w, full); err != nil {
		return err
	}
	for _, a := range all {
		if a.failed != nil && !errors.Is(a.failed, errFull) {
			return a.failed
		}
	}
	return nil
}

// inserts makes the commands, one per shard. A filter known to be full is not
// asked again; its mark is put again instead, in case Redis was wiped since.
func (f *Filter) inserts(ctx context.Context, s *scratch, w *window, ids []string) {
	s.asks = s.asks[:0]
	s.room(len(ids) + 5*shards.Filters)
	for k, of := range s.groups.All() {
		start := len(s.args)
		a := ask{w: w, k: k}
		if w.full[k].Load() {
			s.args = append(s.args, f.markArgs(w, k)...)
		} else {
			a.ids = of
			s.args = append(s.args, "BF.INSERT", &w.keys[k], "NOCREATE", "ITEMS")
			for _, i := range of {
				s.args = append(s.args, &ids[i])
			}
		}
		a.cmd = redis.NewCmd(ctx, s.args[start:len(s.args):len(s.args)]...)
		s.asks = append(s.asks, a)
	}
}

// mark puts the marks of filters that have just refused ids.
func (f *Filter) mark(ctx context.Context, w *window, full []*ask) error {
	if len(full) == 0 {
		return nil
	}
	pipe := f.client.Pipeline()
	for _, a := range full {
		pipe.Do(ctx, f.markArgs(w, a.k)...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("marking Bloom filters as full: %w", err)
	}
	for _, a := range full {
		w.full[a.k].Store(true)
	}
	return nil
}

func (f *Filter) markArgs(w *window, k int) []any {
	return []any{"SET", w.fulls[k], "1", "PXAT", f.expiry(w).UnixMilli()}
}

// send runs the commands and notes in each whether it failed.
func (f *Filter) send(ctx context.Context, asks []*ask) {
	pipe := f.client.Pipeline()
	var err error
	for _, a := range asks {
		if err = pipe.Process(ctx, a.cmd); err != nil {
			break
		}
	}
	if err == nil {
		_, err = pipe.Exec(ctx)
	}
	for _, a := range asks {
		switch {
		case err != nil && !shards.Answered(err) && a.cmd.Err() == nil:
			a.failed = fmt.Errorf("adding to the Bloom filters: %w", err)
		default:
			a.failed = a.result()
		}
	}
}

var (
	errNoFilter = errors.New("the filter does not exist")
	errFull     = errors.New("the filter is full")
)

// result reads the answer to one add, or to a mark in its place.
func (a *ask) result() error {
	if a.ids == nil {
		if err := a.cmd.Err(); err != nil {
			return fmt.Errorf("marking the Bloom filter %s as full: %w", a.w.keys[a.k], err)
		}
		return nil
	}
	reply, err := a.cmd.Slice()
	for _, v := range reply {
		if e, ok := v.(error); ok {
			err = e
		}
	}
	switch {
	case err == nil && len(reply) == len(a.ids):
		return nil
	case err == nil:
		return fmt.Errorf("adding to the Bloom filter %s: %d answers to %d ids", a.w.keys[a.k], len(reply), len(a.ids))
	case says(err, "filter is full"):
		return fmt.Errorf("adding to %s: %w", a.w.keys[a.k], errFull)
	case says(err, "not found"):
		return fmt.Errorf("adding to %s: %w", a.w.keys[a.k], errNoFilter)
	}
	return fmt.Errorf("adding to the Bloom filter %s: %w", a.w.keys[a.k], err)
}

func failedWith(asks []*ask, kind error) (of []*ask) {
	for _, a := range asks {
		if errors.Is(a.failed, kind) {
			of = append(of, a)
		}
	}
	return of
}

func shardsOf(asks []*ask) []int {
	ks := make([]int, len(asks))
	for i, a := range asks {
		ks[i] = a.k
	}
	return ks
}

// says looks for a phrase in a server's error; servers differ in case.
func says(err error, phrase string) bool {
	return shards.Answered(err) && strings.Contains(strings.ToLower(err.Error()), phrase)
}
