package dedupe

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Filter is the windows of one installation. It is safe for concurrent use.
type Filter struct {
	Options
	client redis.UniversalClient
	now    func() time.Time // the worker's clock

	mu      sync.Mutex
	windows map[int64]*window

	scratches sync.Pool // of *scratch
}

// Items that describe the filter that they are in. No id contains a zero byte.
var (
	sentinel     = "\x00whole"
	birthPrefix  = "\x00born:"
	unknownBirth = birthPrefix + "?" // asked for while the birth is unknown; never added
)

// slack covers how far the clocks of producers that mint ids may be ahead, and
// how long a command may be in flight.
const slack = 5 * time.Minute

// apart is how far the clocks of two workers may differ, ten minutes either
// way: one is already in the next window when the other is not.
const apart = 20 * time.Minute

// youngBy is how much later than a filter's birth an id must be, so that the
// filter certainly existed when the id was minted: the clock of the worker that
// created the filter may be behind by half of apart.
const youngBy = slack + apart/2

// New makes a filter; it talks to Redis on first use. The client stays the
// caller's.
func New(client redis.UniversalClient, o Options) (*Filter, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	f := &Filter{Options: o, client: client, now: time.Now, windows: map[int64]*window{}}
	f.scratches.New = func() any { return &scratch{} }
	return f, nil
}

// number is the window that a time falls into.
func (f *Filter) number(at time.Time) int64 { return at.UnixNano() / int64(f.Window) }

// Horizon is the time since which a Check that began up to now remembers what
// was added: the start of the previous window plus a margin for clocks that
// differ. For an id that may be older a "no" says nothing.
func (f *Filter) Horizon(now time.Time) time.Time {
	return time.Unix(0, (f.number(now)-1)*int64(f.Window)).Add(apart)
}

// window returns a window, and drops those that are no longer asked.
func (f *Filter) window(number int64) *window {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.windows[number]
	if w == nil {
		w = newWindow(number, f.Window)
		f.windows[number] = w
		oldest := f.number(f.now()) - 1
		for n := range f.windows {
			if n < oldest {
				delete(f.windows, n)
			}
		}
	}
	return w
}

// scratch is the working memory of one call.
type scratch struct {
	groups shards.Groups
	asks   []ask
	args   []any
	births []string
}

// ask is one command about the ids of one shard.
type ask struct {
	w      *window
	k      int
	ids    []int32 // indexes
	birth  int64
	cmd    *redis.Cmd
	marks  *redis.Cmd // for a question: how many marks of full filters there are
	failed error      // for an add
	early  bool       // for a question: the window has not begun by our clock
}

func (f *Filter) scratch() *scratch { return f.scratches.Get().(*scratch) }

func (f *Filter) done(s *scratch) {
	clear(s.asks)
	clear(s.args)
	f.scratches.Put(s)
}

// Check sets maybe[i] when ids[i] may have been added in the current or the
// previous window, and clears it when it certainly was not. Both slices have
// the same length. It is one pipelined round trip of up to 192 commands, 256 in
// the last 20 minutes of a window.
//
// An error means that Redis could not be asked; then maybe says nothing.
func (f *Filter) Check(ctx context.Context, ids []string, maybe []bool) error {
	if len(ids) != len(maybe) {
		return fmt.Errorf("dedupe: %d ids but %d answers", len(ids), len(maybe))
	}
	clear(maybe)
	if len(ids) == 0 {
		return nil
	}
	s := f.scratch()
	defer f.done(s)
	s.groups.Arrange(len(ids), shards.Filters, func(i int) int { return shards.FilterShard(ids[i]) })
	now := f.now()
	n := f.number(now)
	windows := [3]*window{f.window(n), f.window(n - 1)}
	asked := windows[:2]
	// Workers whose clocks are ahead add to the next window.
	if next := f.window(n + 1); !now.Before(next.start.Add(-apart)) {
		asked = append(asked, next)
	}
	f.questions(ctx, s, ids, maybe, asked)
	if len(s.asks) == 0 {
		return nil
	}
	pipe := f.client.Pipeline()
	for i := range s.asks {
		for _, cmd := range []*redis.Cmd{s.asks[i].marks, s.asks[i].cmd} {
			if cmd == nil {
				continue
			}
			if err := pipe.Process(ctx, cmd); err != nil {
				return fmt.Errorf("asking the Bloom filters: %w", err)
			}
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !shards.Answered(err) {
		return fmt.Errorf("asking the Bloom filters: %w", err)
	}
	for i := range s.asks {
		if err := s.asks[i].read(ids, maybe); err != nil {
			return err
		}
	}
	return nil
}

// questions makes the commands, and answers for the shards that need not be
// asked because a filter is known to be full. A full filter is full for every
// window asked, so its mark is asked for once a shard. The windows are the
// current one, the previous one, and the next one when it has begun for others.
func (f *Filter) questions(ctx context.Context, s *scratch, ids []string, maybe []bool, windows []*window) {
	// All room first: the commands point into these slices.
	s.asks, s.args, s.births = s.asks[:0], s.args[:0], s.births[:0]
	if need := len(windows)*(len(ids)+5*shards.Filters) + shards.Filters; cap(s.args) < need {
		s.args = make([]any, 0, need)
	}
	if cap(s.births) < len(windows)*shards.Filters {
		s.births = make([]string, 0, len(windows)*shards.Filters)
	}
	for k, of := range s.groups.All() {
		if slices.ContainsFunc(windows, func(w *window) bool { return w.full[k].Load() }) {
			for _, i := range of {
				maybe[i] = true
			}
			continue
		}
		start := len(s.args)
		s.args = append(s.args, "EXISTS")
		for _, w := range windows {
			s.args = append(s.args, &w.fulls[k])
		}
		marks := redis.NewCmd(ctx, s.args[start:len(s.args):len(s.args)]...)
		for _, w := range windows {
			birth := w.born[k].Load()
			s.births = append(s.births, birthItem(birth))
			start := len(s.args)
			s.args = append(s.args, "BF.MEXISTS", &w.keys[k], &sentinel, &s.births[len(s.births)-1])
			for _, i := range of {
				s.args = append(s.args, &ids[i])
			}
			s.asks = append(s.asks, ask{w: w, k: k, ids: of, birth: birth, marks: marks, early: w.number > windows[0].number,
				cmd: redis.NewCmd(ctx, s.args[start:len(s.args):len(s.args)]...)})
			marks = nil
		}
	}
}

// read takes the answer of one filter.
func (a *ask) read(ids []string, maybe []bool) error {
	reply, err := a.cmd.Slice()
	if err != nil {
		return fmt.Errorf("querying the Bloom filter %s: %w", a.w.keys[a.k], err)
	}
	if len(reply) != len(a.ids)+2 {
		return fmt.Errorf("querying the Bloom filter %s: %d answers to %d queries", a.w.keys[a.k], len(reply), len(a.ids)+2)
	}
	full, err := a.full()
	if err != nil {
		return err
	}
	// Without the sentinel a "no" is worth nothing, except for ids that are
	// younger than the filter. For a window that has not begun only a "yes"
	// counts: its filter may not exist yet.
	whole := yes(reply[0]) || a.early
	exempt := int64(0)
	if !whole && a.birth > 0 && yes(reply[1]) {
		exempt = a.birth + youngBy.Milliseconds()
	}
	if full {
		whole, exempt = false, 0
	}
	for j, i := range a.ids {
		switch {
		case yes(reply[j+2]):
			maybe[i] = true
		case whole:
		case exempt == 0:
			maybe[i] = true
		default:
			if minted, ok := mintedAt(ids[i]); !ok || minted <= exempt {
				maybe[i] = true
			}
		}
	}
	return nil
}

// full reports whether the filter of one of the windows is marked. The question
// for the first window carries the answer for all.
func (a *ask) full() (bool, error) {
	if a.marks == nil {
		return false, nil
	}
	n, err := a.marks.Int()
	if err != nil {
		return false, fmt.Errorf("reading whether the Bloom filter %s is full: %w", a.w.keys[a.k], err)
	}
	return n > 0, nil
}

// yes reads one answer of BF.MEXISTS. Whatever is not a clear no is a yes.
func yes(v any) bool {
	switch v := v.(type) {
	case int64:
		return v != 0
	case bool:
		return v
	}
	return true
}

func birthItem(ms int64) string {
	if ms == 0 {
		return unknownBirth
	}
	return birthPrefix + strconv.FormatInt(ms, 10)
}
