package dedupe

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// Filter is the windows of one installation. It is safe for concurrent use.
type Filter struct {
	Options
	client  redis.UniversalClient
	cluster bool             // each command has keys of one shard only
	now     func() time.Time // the worker's clock

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
	f := &Filter{Options: o, client: client, cluster: shards.IsCluster(client), now: time.Now, windows: map[int64]*window{}}
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
	asks   []ask // those of a shard one after the other
	marks  []marks
	full   [shards.Filters]bool // a window that is asked is marked as full
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
	failed error // for an add
	early  bool  // for a question: the window has not begun by our clock
}

func (f *Filter) scratch() *scratch { return f.scratches.Get().(*scratch) }

// arrange groups ids by their shards.
func (s *scratch) arrange(ids []string) {
	s.groups.Arrange(len(ids), shards.Filters, func(i int) int {
		push.Prefetch(i, len(ids), func(i int) byte { return push.Ends(ids[i]) })
		return shards.FilterShard(ids[i])
	})
}

func (f *Filter) done(s *scratch) {
	clear(s.asks)
	clear(s.marks)
	clear(s.args)
	f.scratches.Put(s)
}

// Check sets maybe[i] when ids[i] may have been added in the current or the
// previous window, and clears it when it certainly was not. Both slices have
// the same length. It is one pipelined round trip of up to 64 commands where all
// ids were minted in the current window, after its first 15 minutes, 128 where none
// was, and 64 more in the last 20 minutes of a window; and one more about the marks, in a
// cluster 64. Where that one finds a mark, a second round trip asks all again, shard by shard.
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
	s.arrange(ids)
	f.questions(ctx, s, ids, maybe)
	if len(s.asks) == 0 {
		return nil
	}
	s.askMarks(ctx, f.cluster)
	whose, err := f.ask(ctx, s)
	if err == nil && !whose {
		s.askAnew(ctx)
		_, err = f.ask(ctx, s)
	}
	if err != nil {
		return err
	}
	for i := range s.asks {
		a := &s.asks[i]
		if err := a.read(ids, maybe, s.full[a.k]); err != nil {
			return err
		}
	}
	return nil
}

// ask sends the questions in one pipeline, and reads those about marks: whose is as of
// readMarks. Each question has its own answer, or its server's error. Those about marks go
// first: what a filter refused before it was asked has a mark that is found.
func (f *Filter) ask(ctx context.Context, s *scratch) (whose bool, err error) {
	pipe := f.client.Pipeline()
	for i := range s.marks {
		_ = pipe.Process(ctx, s.marks[i].cmd) // a pipeline only notes it
	}
	for i := range s.asks {
		_ = pipe.Process(ctx, s.asks[i].cmd)
	}
	if _, err := pipe.Exec(ctx); err != nil && !shards.Answered(err) {
		return false, fmt.Errorf("asking the Bloom filters: %w", err)
	}
	return s.readMarks()
}

// questions makes the commands, and answers for the shards that need not be
// asked because a filter is known to be full.
//
// Of each shard it asks the current window, the next one when that has begun for
// workers whose clocks are ahead, and the previous one about the ids that may be in it:
// not those that were minted in the current one, after its first 15 minutes. Where one of
// them was added before all the same, because its producer's clock is ahead, Add has put
// it in both.
func (f *Filter) questions(ctx context.Context, s *scratch, ids []string, maybe []bool) {
	now := f.now()
	n := f.number(now)
	current, previous, next := f.window(n), f.window(n-1), (*window)(nil)
	if w := f.window(n + 1); !now.Before(w.start.Add(-apart)) {
		next = w
	}
	s.asks, s.births, s.full = s.asks[:0], s.births[:0], [shards.Filters]bool{}
	s.room(3*(len(ids)+5*shards.Filters) + shards.Filters)
	for k, of := range s.groups.All() {
		push.PrefetchAll(len(of), func(j int) byte { return push.Ends(ids[of[j]]) })
		older := partition(of, func(i int32) bool { return !current.minted(ids[i]) })
		from := len(s.asks)
		for _, q := range [...]ask{{w: current, ids: of}, {w: previous, ids: of[:older]}, {w: next, ids: of, early: true}} {
			if q.w != nil && len(q.ids) > 0 {
				q.k = k
				s.asks = append(s.asks, q)
			}
		}
		if slices.ContainsFunc(s.asks[from:], func(a ask) bool { return a.w.full[k].Load() }) {
			s.asks = s.asks[:from]
			for _, i := range of {
				maybe[i] = true
			}
		}
	}
	for i := range s.asks {
		a := &s.asks[i]
		a.birth = a.w.born[a.k].Load()
		s.births = append(s.births, birthItem(a.birth))
		start := len(s.args)
		s.args = append(s.args, "BF.MEXISTS", &a.w.keys[a.k], &sentinel, &s.births[len(s.births)-1])
		for _, i := range a.ids {
			s.args = append(s.args, &ids[i])
		}
		a.cmd = redis.NewCmd(ctx, s.args[start:len(s.args):len(s.args)]...)
	}
}

// room empties args and makes room for so many, in one step: growing step by step
// takes several times the memory.
func (s *scratch) room(args int) {
	if s.args = s.args[:0]; cap(s.args) < args {
		s.args = make([]any, 0, args)
	}
}

// partition moves the indexes of which first is true to the front, and returns how many
// they are.
func partition(of []int32, first func(int32) bool) int {
	n := 0
	for j, i := range of {
		if first(i) {
			of[n], of[j] = i, of[n]
			n++
		}
	}
	return n
}

// read takes the answer of one filter; full says that one of its shard's is marked.
func (a *ask) read(ids []string, maybe []bool, full bool) error {
	reply, err := a.cmd.Slice()
	if err != nil {
		return fmt.Errorf("querying the Bloom filter %s: %w", a.w.keys[a.k], err)
	}
	if len(reply) != len(a.ids)+2 {
		return fmt.Errorf("querying the Bloom filter %s: %d answers to %d queries", a.w.keys[a.k], len(reply), len(a.ids)+2)
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
			if minted, ok := push.MintedMillis(ids[i]); !ok || minted <= exempt {
				maybe[i] = true
			}
		}
	}
	return nil
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
