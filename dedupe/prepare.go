package dedupe

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Prepare makes the filters that are missing: those of the next window ahead
// of it, whole, and those of the current and previous one that were wiped,
// with their birth. It also learns births from other workers. Call it at start
// and then every half minute or so; every worker may.
func (f *Filter) Prepare(ctx context.Context) error {
	now := f.now()
	n := f.number(now)
	previous, current, next := f.window(n-1), f.window(n), f.window(n+1)
	var errs []error
	for _, w := range []*window{previous, current} {
		errs = append(errs, f.mend(ctx, w, now))
	}
	// Nothing is added to a window before it starts but ids of producers whose clocks are
	// ahead, so a filter that exists by then is whole. Clocks differ, so the last minutes
	// do not count.
	if now.Before(next.start.Add(-apart)) {
		errs = append(errs, f.insert(ctx, next, allShards(), sentinel))
	}
	return errors.Join(errs...)
}

// DeclareNew makes the filters that do not exist as whole ones. It is the
// operator's word that this installation has sent nothing in the last two
// windows: without it a new installation reads the status store for every id
// that is no UUIDv7 until two windows have passed, and for all ids in the
// first 5 minutes. It comes before the first Prepare or Add, which give the
// filters a birth. Said of a Redis that lost its memory it causes repeats; it
// is safe to say again while the filters exist.
func (f *Filter) DeclareNew(ctx context.Context) error {
	n := f.number(f.now())
	for _, w := range []*window{f.window(n - 1), f.window(n), f.window(n + 1)} {
		found, err := f.look(ctx, w)
		if err != nil {
			return err
		}
		var missing []int
		for k := range found {
			if !found[k].whole && !found[k].born && found[k].birth == 0 {
				missing = append(missing, k)
			}
		}
		if err := f.insert(ctx, w, missing, sentinel); err != nil {
			return err
		}
	}
	return nil
}

// Run prepares at once and then every interval until ctx ends. report gets
// what went wrong; the next round tries again.
func (f *Filter) Run(ctx context.Context, interval time.Duration, report func(error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := f.Prepare(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// found is what a filter says of itself.
type found struct {
	whole bool  // it holds the sentinel
	born  bool  // it holds the birth that this worker knows
	birth int64 // that its birth key tells; 0 = none
}

// mend learns the births of the filters that are not whole, and makes those
// that are not there.
func (f *Filter) mend(ctx context.Context, w *window, now time.Time) error {
	all, err := f.look(ctx, w)
	if err != nil {
		return err
	}
	var missing []int
	for k := range all {
		switch v := &all[k]; {
		case v.whole || v.born:
		case v.birth > 0 && v.birth != w.born[k].Load():
			// Another worker's, or of a filter that is gone: the next question
			// asks for it and shows which.
			w.born[k].Store(v.birth)
		default:
			missing = append(missing, k)
		}
	}
	return f.create(ctx, w, missing, now)
}

// look asks all filters of a window about themselves.
func (f *Filter) look(ctx context.Context, w *window) (all [shards.Filters]found, err error) {
	pipe := f.client.Pipeline()
	var items [shards.Filters]*redis.Cmd
	var births [shards.Filters]*redis.StringCmd
	for k := range all {
		items[k] = pipe.Do(ctx, "BF.MEXISTS", w.keys[k], sentinel, birthItem(w.born[k].Load()))
		births[k] = pipe.Get(ctx, w.births[k])
	}
	if _, err := pipe.Exec(ctx); err != nil && !shards.Answered(err) {
		return all, fmt.Errorf("reading the state of the Bloom filters: %w", err)
	}
	for k := range all {
		reply, err := items[k].Slice()
		if err != nil || len(reply) != 2 {
			return all, fmt.Errorf("reading the state of the Bloom filter %s: %d answers to 2 queries: %w", w.keys[k], len(reply), err)
		}
		all[k].whole, all[k].born = yes(reply[0]), yes(reply[1])
		switch birth, err := births[k].Int64(); {
		case err == nil:
			all[k].birth = birth
		case !errors.Is(err, redis.Nil):
			return all, fmt.Errorf("reading the birth of the Bloom filter %s: %w", w.keys[k], err)
		}
	}
	return all, nil
}

// create makes filters in the middle of their window, with a birth. Where one
// exists after all, it gets a second birth, later than its first but for clocks
// that differ, which read allows for: fewer ids are exempt.
func (f *Filter) create(ctx context.Context, w *window, ks []int, now time.Time) error {
	if len(ks) == 0 {
		return nil
	}
	birth := now.UnixMilli()
	if err := f.insert(ctx, w, ks, birthItem(birth)); err != nil {
		return err
	}
	pipe := f.client.Pipeline()
	for _, k := range ks {
		pipe.Do(ctx, "SET", w.births[k], strconv.FormatInt(birth, 10), "PXAT", f.expiry(w).UnixMilli())
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("writing the birth of Bloom filters: %w", err)
	}
	for _, k := range ks {
		w.born[k].Store(birth)
	}
	return nil
}

// insert adds one item to filters, making those that do not exist.
func (f *Filter) insert(ctx context.Context, w *window, ks []int, item string) error {
	if len(ks) == 0 {
		return nil
	}
	pipe := f.client.Pipeline()
	cmds := make([]*redis.Cmd, len(ks))
	for i, k := range ks {
		cmds[i] = pipe.Do(ctx, "BF.INSERT", w.keys[k], "CAPACITY", shardCapacity(f.Capacity), "ERROR", f.ErrorRate,
			"NONSCALING", "ITEMS", item)
		pipe.Do(ctx, "PEXPIREAT", w.keys[k], f.expiry(w).UnixMilli())
	}
	if _, err := pipe.Exec(ctx); err != nil && !shards.Answered(err) {
		return fmt.Errorf("creating Bloom filters: %w", err)
	}
	var failed error
	for i, k := range ks {
		a := ask{w: w, k: k, cmd: cmds[i], ids: []int32{0}}
		switch err := a.result(); {
		case errors.Is(err, errFull):
			w.full[k].Store(true)
		case err != nil:
			failed = err
		}
	}
	return failed
}

// expiry is when a window is not asked any more, by clocks that are up to slack behind. One
// that is further behind asks for filters that are gone, and hears maybe of all ids.
func (f *Filter) expiry(w *window) time.Time { return w.end.Add(f.Window + slack) }

func allShards() []int {
	ks := make([]int, shards.Filters)
	for k := range ks {
		ks[k] = k
	}
	return ks
}
