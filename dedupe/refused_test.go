package dedupe

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
)

// No refusal by Redis, of a query or of creating a filter, counts as an answer.
func TestWhatRedisRefusesIsAnError(t *testing.T) {
	check := func(f *Filter) error { return f.Check(context.Background(), names(10, "id"), make([]bool, 10)) }
	prepare := func(f *Filter) error { return f.Prepare(context.Background()) }
	declare := func(f *Filter) error { return f.DeclareNew(context.Background()) }
	insert := func(f *Filter) error { return f.Add(context.Background(), names(10, "id")) }
	for _, row := range []struct {
		why, command string
		wiped        bool
		do           func(*Filter) error
	}{
		{"a question", "BF.MEXISTS", false, check},
		{"the question whether a filter is full", "EXISTS", false, check},
		{"how filters are", "BF.MEXISTS", false, prepare},
		{"how filters are", "BF.MEXISTS", false, declare},
		{"the births of filters", "GET", false, prepare},
		{"to make filters", "BF.INSERT", true, prepare},
		{"to make filters that are new", "BF.INSERT", true, declare},
		{"to write the birth of a filter", "SET", true, prepare},
		{"to write the birth of a filter that an add has missed", "SET", true, insert},
	} {
		t.Run(row.why, func(t *testing.T) {
			bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
				must(t, f.DeclareNew(t.Context()))
				if row.wiped {
					r.Wipe()
				}
				f.client.AddHook(refusing{row.command})
				if err := row.do(f); err == nil || !strings.Contains(err.Error(), "OOM") {
					t.Errorf("error %v, want the server's", err)
				}
			})
		})
	}
}

// counting counts the commands with one name.
type counting struct {
	refusing
	n *atomic.Int64
}

func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if strings.EqualFold(cmd.Name(), c.command) {
				c.n.Add(1)
			}
		}
		return next(ctx, cmds)
	}
}

// A worker that knows a filter as full sends it neither more ids nor queries,
// because it could only refuse them again.
func TestFullFiltersAreLeftAlone(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		ids := names(40_000, "id") // four times the capacity, so that every shard is full
		add(t, f, ids...)
		var inserts, questions atomic.Int64
		f.client.AddHook(counting{refusing{"BF.INSERT"}, &inserts})
		f.client.AddHook(counting{refusing{"BF.MEXISTS"}, &questions})
		add(t, f, ids...)
		if n := check(t, f, ids...); n != len(ids) {
			t.Errorf("%d of %d added ids are maybe", n, len(ids))
		}
		if i, q := inserts.Load(), questions.Load(); i != 0 || q != 0 {
			t.Errorf("full filters were given %d more adds and %d queries by a worker that knows them", i, q)
		}
		// A worker that does not know them queries all of them, and learns it.
		heir := another(t, f)
		add(t, heir, ids...)
		if i := inserts.Swap(0); i != shards.Filters {
			t.Errorf("an heir tried %d filters, want all", i)
		}
		add(t, heir, ids...)
		if i := inserts.Load(); i != 0 {
			t.Errorf("and %d again", i)
		}
	})
}

// short answers one query too few.
type short struct{ refusing }

func (h short) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if c, is := cmd.(*redis.Cmd); is && strings.EqualFold(cmd.Name(), h.command) {
				reply, _ := c.Slice()
				c.SetVal(reply[:len(reply)-1])
			}
		}
		return err
	}
}

// Without one answer per query, it is unknown which answer belongs to which
// query.
func TestAnswersAreCounted(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		f.client.AddHook(short{refusing{"BF.MEXISTS"}})
		f.client.AddHook(short{refusing{"BF.INSERT"}})
		for what, err := range map[string]error{
			"2 answers to 3 queries": f.Check(t.Context(), names(1, "id"), make([]bool, 1)),
			"0 answers to 1 ids":     f.Add(t.Context(), names(1, "id")),
			"1 answers to 2 queries": f.Prepare(t.Context()),
		} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("error %v, want one about %s", err, what)
			}
		}
	})
}

// DeclareNew may be repeated. It says nothing about filters that have been
// wiped since and have a birth, because they are not complete.
func TestDeclareNewLeavesWhatExists(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		ids := names(1000, "id")
		add(t, f, ids...)
		r.Wipe()
		must(t, f.Prepare(t.Context())) // gives them a birth
		heir := another(t, f)
		must(t, heir.DeclareNew(t.Context()))
		// A worker that knows their birth does not need the key that stores it.
		w := f.window(f.number(time.Now()))
		must(t, f.client.Del(t.Context(), w.births[:]...).Err())
		must(t, f.DeclareNew(t.Context()))
		for who, f := range map[string]*Filter{"the worker": f, "its heir": heir} {
			if n := check(t, f, ids...); n != len(ids) {
				t.Errorf("to %s %d of %d ids that were added before the wipe are maybe", who, n, len(ids))
			}
		}
	})
}

// A full shard costs a status read for its own ids only.
func TestFullFiltersAreTheirShards(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		var first, others []string
		for _, id := range names(40_000, "id") {
			if shards.FilterShard(id) == 0 {
				first = append(first, id)
			} else if len(others) < 1000 {
				others = append(others, id)
			}
		}
		add(t, f, first...)
		for who, f := range map[string]*Filter{"the worker": f, "its heir": another(t, f)} {
			if n := check(t, f, first...); n != len(first) {
				t.Errorf("to %s %d of %d added ids are maybe", who, n, len(first))
			}
			if n := check(t, f, others...); n > 20 {
				t.Errorf("to %s %d of %d ids of other shards are maybe", who, n, len(others))
			}
		}
	})
}

// Every limit of the options is exact.
func TestLimitsOfOptions(t *testing.T) {
	for _, row := range []struct {
		change func(*Options)
		good   bool
	}{
		{func(o *Options) { o.Window = time.Hour }, true},
		{func(o *Options) { o.Window = time.Hour - 1 }, false},
		{func(o *Options) { o.Capacity = 10_000 }, true},
		{func(o *Options) { o.Capacity = 9_999 }, false},
		{func(o *Options) { o.ErrorRate = 0 }, false},
		{func(o *Options) { o.ErrorRate = 0.4999 }, true},
		{func(o *Options) { o.ErrorRate = 0.5 }, false},
		{func(o *Options) { o.AddTimeout = 1 }, true},
	} {
		o := DefaultOptions()
		row.change(&o)
		if _, err := New(nil, o); (err == nil) != row.good {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Everything but a clear no is a yes: servers answer with numbers or booleans.
func TestClearNo(t *testing.T) {
	for _, row := range []struct {
		answer any
		want   bool
	}{{int64(0), false}, {int64(1), true}, {false, false}, {true, true}, {nil, true}, {"0", true}, {proto("no"), true}} {
		if got := yes(row.answer); got != row.want {
			t.Errorf("%v (%T) is %v", row.answer, row.answer, got)
		}
	}
}

func TestCheckWantsAnAnswerForEach(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		if err := f.Check(t.Context(), names(2, "id"), make([]bool, 1)); err == nil {
			t.Error("two ids with room for one answer")
		}
	})
}

// A worker that finds a filter with another worker's birth takes that over
// instead of writing a later one. Otherwise each worker that starts would make
// fewer ids exempt, for all workers.
func TestBirthsAreLearnt(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		r.Wipe()
		must(t, f.Prepare(t.Context()))
		w := f.window(f.number(time.Now()))
		born := w.born[0].Load()
		time.Sleep(time.Hour)
		heir := another(t, f)
		must(t, heir.Prepare(t.Context()))
		must(t, heir.Prepare(t.Context()))
		if got := heir.window(w.number).born[0].Load(); got != born || born == 0 {
			t.Errorf("an heir knows birth %d, want %d", got, born)
		}
		if got, err := f.client.Get(t.Context(), w.births[0]).Int64(); err != nil || got != born {
			t.Errorf("the birth is %d by now, %v; want %d", got, err, born)
		}
	})
}
