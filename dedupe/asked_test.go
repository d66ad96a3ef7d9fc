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

// Which windows are asked goes by what an id tells of its minting. Check costs a command
// for each shard and window, and one for all marks.
func TestOnlyWindowsThatMayKnowAnIDAreAsked(t *testing.T) {
	for _, row := range []struct {
		why    string
		at     time.Duration // since the window began
		minted time.Duration // the same; 0 = the ids tell no time
		want   int64         // windows
	}{
		{"it was minted in the current window", time.Hour, time.Hour - time.Second, 1},
		{"the last millisecond of the window", 3 * time.Hour, 6*time.Hour - time.Millisecond, 1},
		{"later than the window: its time says nothing", time.Hour, 6 * time.Hour, 2},
		{"after the window's first minutes", time.Hour, youngBy, 1},
		{"in them, where clocks that differ count", time.Hour, youngBy - time.Millisecond, 2},
		{"in the previous window", time.Hour, -time.Second, 2},
		{"nobody knows when", time.Hour, 0, 2},
		{"now, and the next window has begun for others", 6*time.Hour - apart, 5 * time.Hour, 2},
		{"nobody knows when, and the next window has begun for others", 6*time.Hour - apart, 0, 3},
	} {
		t.Run(row.why, func(t *testing.T) {
			bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
				must(t, f.DeclareNew(t.Context()))
				began := f.window(f.number(time.Now())).start
				time.Sleep(time.Until(began.Add(row.at)))
				ids := names(1000, "id")
				if row.minted != 0 {
					ids = uuids(began.Add(row.minted), 1000, "id")
				}
				touched := map[int]bool{}
				for _, id := range ids {
					touched[shards.FilterShard(id)] = true
				}
				var questions, marks atomic.Int64
				f.client.AddHook(counting{refusing{"BF.MEXISTS"}, &questions})
				f.client.AddHook(counting{refusing{"EXISTS"}, &marks})
				if n := check(t, f, ids...); n > 20 {
					t.Errorf("%d of %d new ids are maybe", n, len(ids))
				}
				if q, m := questions.Load(), marks.Load(); q != row.want*int64(len(touched)) || m != 1 {
					t.Errorf("%d filters of %d shards were asked, want those of %d windows; %d commands about marks, want 1", q, len(touched), row.want, m)
				}
			})
		})
	}
}

// A producer's clock is hours ahead: an id is added long before the window begins in which
// it was minted. By the time a copy is believed to be new, only that one is asked.
func TestIDsMintedAheadAreRememberedWhereTheyAreAsked(t *testing.T) {
	for _, row := range []struct {
		why  string
		wipe bool          // the filters, before the add: it makes them
		add  time.Duration // after the window before began
		at   time.Duration // minted so long after its own began
	}{
		{"hours before the window", false, time.Hour, time.Hour},
		{"hours before, and no filter is there", true, time.Hour, time.Hour},
		{"minutes before the window", false, 6*time.Hour - time.Minute, time.Hour},
		{"minutes before, and no filter is there", true, 6*time.Hour - time.Minute, time.Hour},
		{"minted when the window has just become the only one that is asked", false, time.Hour, youngBy},
		{"minted soon afterwards", false, time.Hour, youngBy + time.Minute},
		{"minted late in the window", false, 6*time.Hour - time.Minute, 5*time.Hour + 59*time.Minute},
		{"minted in its last ms", false, 6*time.Hour - time.Minute, 6*time.Hour - time.Millisecond},
	} {
		t.Run(row.why, func(t *testing.T) {
			bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
				must(t, f.DeclareNew(t.Context()))
				next := f.window(f.number(time.Now()) + 1)
				time.Sleep(time.Until(next.start.Add(row.add - f.Window)))
				if row.wipe {
					r.Wipe()
				}
				ids := uuids(next.start.Add(row.at), 500, "ahead")
				add(t, f, ids...)
				must(t, f.Prepare(t.Context()))
				time.Sleep(time.Until(next.start.Add(row.at)))
				must(t, f.Prepare(t.Context()))
				for who, f := range map[string]*Filter{"the worker": f, "its heir": another(t, f)} {
					if n := check(t, f, ids...); n != len(ids) {
						t.Errorf("to %s %d of %d finished ids are maybe, want all", who, n, len(ids))
					}
				}
			})
		})
	}
}

// What the next window refuses is an error of the add, as anything else is: a commit would
// come too early.
func TestAnAddToTheNextWindowMayFail(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		next := f.window(f.number(time.Now()) + 1)
		ids := uuids(next.start.Add(time.Hour), 1, "ahead")
		k := shards.FilterShard(ids[0])
		must(t, f.client.Del(t.Context(), next.keys[k]).Err())
		must(t, f.client.Set(t.Context(), next.keys[k], "no filter", 0).Err())
		if err := f.Add(t.Context(), ids); err == nil {
			t.Error("no error, although the window that will be asked does not have the id")
		}
	})
}

// One window of a shard is marked as full, and only some of its ids are asked there: the
// others are maybe, too, as what it refused may be in no other filter. So it is whatever is
// in the mark's place, and only as long as it is there.
func TestAMarkIsItsShards(t *testing.T) {
	for why, put := range map[string]func(ctx context.Context, f *Filter, key string) error{
		"a mark":                func(ctx context.Context, f *Filter, key string) error { return f.client.Set(ctx, key, "1", 0).Err() },
		"a key of another type": func(ctx context.Context, f *Filter, key string) error { return f.client.RPush(ctx, key, "1").Err() },
	} {
		t.Run(why, func(t *testing.T) {
			bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
				must(t, f.DeclareNew(t.Context()))
				ids := append(uuids(time.Now(), 600, "new"), names(600, "old")...)
				marked := f.window(f.number(time.Now()) - 1).fulls[7]
				must(t, put(t.Context(), f, marked))
				maybe := make([]bool, len(ids))
				must(t, f.Check(t.Context(), ids, maybe))
				others := 0
				for i, id := range ids {
					switch k := shards.FilterShard(id); {
					case k == 7 && !maybe[i]:
						t.Errorf("%s is of the marked shard and believed to be new", id)
					case k != 7 && maybe[i]:
						others++
					}
				}
				if others > 20 {
					t.Errorf("%d ids of other shards are maybe", others)
				}
				must(t, f.client.Del(t.Context(), marked).Err())
				if n := check(t, f, ids...); n > others+5 { // what is in no filter's answer is forgotten
					t.Errorf("%d ids are maybe without the mark, %d of other shards with it", n, others)
				}
			})
		})
	}
}

// between does something before the second pipeline.
type between struct {
	refusing
	pipelines int
	do        func()
}

func (h *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.pipelines++; h.pipelines == 2 {
			h.do()
		}
		return next(ctx, cmds)
	}
}

// A mark that the first question found and the second one does not: what the filters answered
// beside it is not believed.
func TestAMarkThatIsGoneByTheSecondQuestion(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		w := f.window(f.number(time.Now()))
		marked := func(why string, f *Filter, ids []string, gone func()) {
			t.Helper()
			h := &between{do: gone}
			f.client.AddHook(h)
			maybe := make([]bool, len(ids))
			must(t, f.Check(t.Context(), ids, maybe))
			for i, id := range ids {
				if shards.FilterShard(id) == 7 && !maybe[i] {
					t.Fatalf("%s: %s is of the marked shard and believed to be new", why, id)
				}
			}
			if h.pipelines != 2 {
				t.Errorf("%s: %d round trips, want 2", why, h.pipelines)
			}
		}
		must(t, f.mark(t.Context(), w, []*ask{{w: w, k: 7}}))
		slow := another(t, f)
		slow.now = func() time.Time { return time.Now().Add(-9 * time.Minute) }
		time.Sleep(time.Until(f.expiry(w).Add(-time.Second)))
		marked("expired", slow, names(600, "old"), func() { time.Sleep(2 * time.Second) })

		w = f.window(f.number(time.Now()))
		must(t, f.Prepare(t.Context()))
		must(t, f.mark(t.Context(), w, []*ask{{w: w, k: 7}}))
		marked("wiped", another(t, f), names(600, "new"), r.Wipe)
	})
}

// later refuses from the second pipeline on.
type later struct {
	refusing
	before bool // one has come
}

func (h *later) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !h.before {
			h.before = true
			return next(ctx, cmds)
		}
		return h.refusing.ProcessPipelineHook(next)(ctx, cmds)
	}
}

// Where Redis refuses the second question, whose the mark is, nothing is known.
func TestAMarkWhoseShardIsNotKnown(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		must(t, f.client.Set(t.Context(), f.window(f.number(time.Now())).fulls[7], "1", 0).Err())
		f.client.AddHook(&later{refusing: refusing{"EXISTS"}})
		if err := f.Check(t.Context(), names(600, "id"), make([]bool, 600)); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("error %v, want the server's", err)
		}
	})
}

// keysApart counts the commands about marks, and those with keys of several shards.
type keysApart struct {
	refusing
	commands, mixed int
}

func (h *keysApart) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() != "exists" {
				continue
			}
			h.commands++
			tags := map[string]bool{}
			for _, key := range cmd.Args()[1:] {
				tag, _, _ := strings.Cut(*key.(*string), "}")
				tags[tag] = true
			}
			if len(tags) > 1 {
				h.mixed++
			}
		}
		return next(ctx, cmds)
	}
}

// A cluster refuses a command for keys of different slots. TestRealServer asks a real one.
func TestACommandForEachShardOfACluster(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		f.cluster = true
		must(t, f.DeclareNew(t.Context()))
		ids := names(1000, "id")
		must(t, f.client.Set(t.Context(), f.window(f.number(time.Now())).fulls[7], "1", 0).Err())
		var apart keysApart
		f.client.AddHook(&apart)
		if n := check(t, f, ids...); n == 0 || n > 60 {
			t.Errorf("%d ids are maybe, want those of one shard", n)
		}
		if apart.commands < shards.Filters || apart.mixed != 0 {
			t.Errorf("%d commands about marks, %d of them of several shards", apart.commands, apart.mixed)
		}
	})
}
