package users

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/state"
)

// shardState is what a registry believes about one user shard: what it read or
// wrote last.
type shardState struct {
	state.Shard
	known bool // false = not read yet, or to be rebuilt

	target []int64   // while not ready: the offsets that must be applied first
	beat   time.Time // when this registry last wrote its offsets without need
}

// check looks at all shards and at the topic's ends, and does what is due:
// begins new builds of wiped shards, completes what has been built, writes
// offsets of shards without news, settles open cases.
func (r *Registry) check(ctx context.Context) error {
	now := time.Now()
	// The state first: it must not be ahead of the ends that are read after it.
	partitions := len(r.pos)
	if partitions == 0 {
		spans, err := r.topics.Follower.Spans(ctx)
		if err != nil {
			return fmt.Errorf("asking for the ends of push.users: %w", err)
		}
		if partitions = len(spans); partitions == 0 {
			return fmt.Errorf("%w: it has none", errPartitions)
		}
		if r.had == 0 {
			r.had = partitions // also what a Redis that was wiped cannot say
		}
		r.pos = make([]int64, partitions)
		for p := range r.pos {
			r.pos[p] = math.MaxInt64
		}
	}
	all := make([]int, shards.Users)
	for s := range all {
		all[s] = s
	}
	states, err := state.Load(ctx, r.client, all)
	if err != nil {
		return err
	}
	if err := r.partitionsAsBefore(states, partitions); err != nil {
		return err
	}
	if r.spans, err = r.topics.Follower.Spans(ctx); err != nil {
		return fmt.Errorf("asking for the ends of push.users: %w", err)
	}
	if len(r.spans) != partitions {
		return fmt.Errorf("%w (it had %d, now %d)", errPartitions, partitions, len(r.spans))
	}

	var begin []*shardWrite
	for s := range states {
		if anew, _ := r.adopt(s, states[s]); anew {
			begin = append(begin, r.beginning(s, now))
		}
	}
	if err := r.rewound(); err != nil {
		return err
	}
	r.recheck = false
	if err := r.begin(ctx, begin); err != nil {
		return err
	}
	r.options.Rebuild = false // only the first look
	if err := r.complete(ctx); err != nil {
		return err
	}
	if err := r.beat(ctx, now); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	r.checked = time.Now()
	r.report()
	return nil
}

// partitionsAsBefore returns an error when the topic has another number of
// partitions than a shard was filled from, or than it had before. An operator
// who asks for a rebuild thereby says that it is another topic.
func (r *Registry) partitionsAsBefore(states []state.Shard, partitions int) error {
	if partitions != r.had {
		return fmt.Errorf("%w (it had %d, now %d)", errPartitions, r.had, partitions)
	}
	for s := range states {
		st := &states[s]
		if st.Version == (state.Version{}) || len(st.Applied) == partitions {
			continue
		}
		if !r.options.Rebuild {
			return fmt.Errorf("%w (shard %d was filled from %d, now it has %d)", errPartitions, s, len(st.Applied), partitions)
		}
		*st = state.Shard{Version: st.Version, Applied: make([]int64, partitions)}
	}
	return nil
}

// adopt takes over what was read of a shard. When it has applied less than was
// believed, the follower is set back. anew reports that the shard must be rebuilt:
// until that has begun, it is not known.
func (r *Registry) adopt(s int, read state.Shard) (anew, back bool) {
	old, got := &r.shards[s], shardState{Shard: read}
	same := old.known && got.Version.Build == old.Version.Build
	behind := !same
	for p := range got.Applied {
		behind = behind || got.Applied[p] < old.Applied[p]
	}
	switch {
	case got.Version == state.Version{}: // wiped
		anew = true
	case got.Marker != "" && !got.Ready: // a marker that is not of this build
		anew = true
	case same && old.Ready && !got.Ready: // its marker was removed: other values may be, too
		anew = true
	case behind && time.Since(got.At) > r.options.MaxStale:
		anew = true
	case !old.known && r.options.Rebuild:
		anew = true
	}
	got.known = !anew
	if same {
		got.target, got.beat = old.target, old.beat
	}
	if !got.Ready && got.target == nil {
		got.target = r.ends()
	}
	*old = got
	if back = behind && !anew; back {
		r.setBack(got.Applied)
	}
	return anew, back
}

// setBack makes the follower read again from these offsets, of every
// partition: what was polled just now may not have reached the shard either.
func (r *Registry) setBack(offsets []int64) {
	for p, offset := range offsets {
		if offset < r.pos[p] {
			r.pos[p], r.seek = offset, true
		}
	}
}

// ends are the ends of the topic as asked last.
func (r *Registry) ends() []int64 {
	ends := make([]int64, len(r.spans))
	for p := range ends {
		ends[p] = r.spans[p].End
	}
	return ends
}

// beginning starts a new build of a shard, with offsets at the topic's start.
func (r *Registry) beginning(s int, now time.Time) *shardWrite {
	w := &shardWrite{shard: s, reset: true, next: state.Begin(), at: now, offsets: make([]int64, len(r.spans))}
	for p := range w.offsets {
		w.offsets[p] = r.spans[p].Start
	}
	return w
}

// begin begins builds. Where another registry was faster, its build is taken
// over.
func (r *Registry) begin(ctx context.Context, writes []*shardWrite) error {
	fenced, err := r.write(ctx, writes)
	if err != nil {
		return fmt.Errorf("beginning to build: %w", err)
	}
	lost := make(map[int]bool, len(fenced))
	for _, s := range fenced {
		lost[s] = true
	}
	for _, w := range writes {
		if lost[w.shard] {
			continue
		}
		st := &r.shards[w.shard]
		st.known, st.target, st.beat = true, r.ends(), w.at
		r.setBack(st.Applied)
		r.metrics.builds.Inc()
	}
	if n := len(writes) - len(fenced); n > 0 {
		r.logger.Warn("registry: building user shards from the start of push.users", "shards", n)
	}
	_, err = r.reload(ctx, fenced)
	return err
}

// reload adopts these shards as they are now, and returns those that are only
// further than believed. One that must be built anew is left to the next
// check, which comes at once.
func (r *Registry) reload(ctx context.Context, list []int) (further []int, err error) {
	states, err := state.Load(ctx, r.client, list)
	if err != nil {
		return nil, err
	}
	if err := r.partitionsAsBefore(states, len(r.pos)); err != nil {
		return nil, err
	}
	r.metrics.conflicts.Add(float64(len(list)))
	for i, s := range list {
		anew, back := r.adopt(s, states[i])
		if !anew && !back {
			further = append(further, s)
		}
		r.recheck = r.recheck || anew
	}
	return further, nil
}

// rewound refuses to go on when a shard has applied what the topic does not
// have. It is not put right by itself: a leader that just took over may say a
// smaller end for a moment.
func (r *Registry) rewound() error {
	for s := range r.shards {
		st := &r.shards[s]
		for p := range st.Applied {
			if st.known && st.Applied[p] > r.spans[p].End {
				return fmt.Errorf("%w: partition %d ends at %d, shard %d has applied up to %d", errRewound, p, r.spans[p].End, s, st.Applied[p])
			}
		}
	}
	return nil
}

// complete sets the epoch marker of every shard that has been built.
func (r *Registry) complete(ctx context.Context) error {
	var writes []*shardWrite
	for s := range r.shards {
		st := &r.shards[s]
		if !st.known || st.Ready {
			continue
		}
		done := true
		for p, end := range st.target {
			done = done && r.reached(st, p) >= end
		}
		if done {
			w := r.offsetsOf(s)
			w.mark = true
			writes = append(writes, w)
		}
	}
	fenced, err := r.write(ctx, writes)
	if err != nil {
		return fmt.Errorf("completing: %w", err)
	}
	_, err = r.reload(ctx, fenced)
	return err
}

// offsetsOf writes up to where a shard really is.
func (r *Registry) offsetsOf(s int) *shardWrite {
	st := &r.shards[s]
	w := &shardWrite{shard: s, offsets: make([]int64, len(st.Applied))}
	for p := range w.offsets {
		w.offsets[p] = r.reached(st, p)
	}
	return w
}

// beat writes the offsets of shards that had none written for a while, and
// that they are current if they are.
func (r *Registry) beat(ctx context.Context, now time.Time) error {
	caughtUp := r.caughtUp()
	var writes []*shardWrite
	for s := range r.shards {
		st := &r.shards[s]
		if !st.known || now.Sub(st.beat) < r.options.BeatInterval {
			continue
		}
		st.beat = now
		w := r.offsetsOf(s)
		if caughtUp {
			w.at = now
		}
		writes = append(writes, w)
	}
	fenced, err := r.write(ctx, writes)
	if err != nil {
		return fmt.Errorf("writing offsets: %w", err)
	}
	_, err = r.reload(ctx, fenced)
	return err
}

// fail reports that nothing is being followed. How much there is to read is
// unknown meanwhile, so the lag is +Inf.
func (r *Registry) fail(err error) {
	r.metrics.errors.Inc()
	r.metrics.lag.Set(math.Inf(1))
	if r.options.Progress != nil {
		r.options.Progress(Progress{Applied: r.applied, Err: err})
	}
}

func (r *Registry) report() {
	p := Progress{Applied: r.applied}
	for s := range r.shards {
		if r.shards[s].Ready {
			p.Ready++
		}
	}
	for i := range r.spans {
		p.Lag += max(0, r.spans[i].End-max(r.pos[i], r.spans[i].Start))
	}
	var unread int64
	for s := range r.shards {
		unread += r.shards[s].Unread
	}
	r.metrics.ready.Set(float64(p.Ready))
	r.metrics.quarantined.Set(float64(unread))
	r.metrics.lag.Set(float64(p.Lag))
	if r.options.Progress != nil {
		r.options.Progress(p)
	}
}
