package dedupe

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small has filters of about 300 ids.
func small() Options {
	o := DefaultOptions()
	o.Capacity = 10_000
	return o
}

// bubble runs a test with a Redis of its own, in virtual time that starts an
// hour into a window.
func bubble(t *testing.T, o Options, run func(t *testing.T, f *Filter, r *embedded.Redis)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := embedded.StartPipeRedis()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		so := shards.DefaultOptions()
		so.Addrs, so.Dialer = []string{r.Addr()}, r.Dial
		client, err := shards.Open(so)
		if err != nil {
			t.Fatal(err)
		}
		defer settle(client)
		f, err := New(client, o)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(time.Now().Truncate(o.Window).Add(o.Window + time.Hour)))
		run(t, f, r)
	})
}

// settle closes a client and gives its pool, which dials every second after an
// outage, the time to notice: time stops at the end of a bubble.
func settle(client redis.UniversalClient) {
	_ = client.Close()
	time.Sleep(10 * time.Second)
}

// check queries ids and counts those that are maybe.
func check(t *testing.T, f *Filter, ids ...string) int {
	t.Helper()
	maybe := make([]bool, len(ids))
	for i := range maybe {
		maybe[i] = i%2 == 0 // earlier values do not matter
	}
	if err := f.Check(context.Background(), ids, maybe); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range maybe {
		if m {
			n++
		}
	}
	return n
}

func add(t *testing.T, f *Filter, ids ...string) {
	t.Helper()
	if err := f.Add(context.Background(), ids); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// uuids are n UUIDv7 minted at a time.
func uuids(at time.Time, n int, name string) []string {
	ids := make([]string, n)
	for i := range ids {
		ms := at.UnixMilli()
		ids[i] = fmt.Sprintf("%08x-%04x-7%03x-8%03x-%012x", ms>>16, ms&0xFFFF, len(name), i, shards.OwnerHash(name)>>16)
	}
	return ids
}

// names are n ids without a time in them.
func names(n int, name string) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return ids
}

func TestAddedIDsAreMaybeForTwoWindows(t *testing.T) {
	bubble(t, DefaultOptions(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		ids, others := names(3000, "id"), names(3000, "other")
		add(t, f, ids...)
		for range 2 {
			if n := check(t, f, ids...); n != len(ids) {
				t.Errorf("%d of %d added ids are maybe", n, len(ids))
			}
			if n := check(t, f, others...); n > 20 {
				t.Errorf("%d of %d new ids are maybe", n, len(others))
			}
			must(t, f.Prepare(t.Context()))
			time.Sleep(f.Window)
		}
		must(t, f.Prepare(t.Context()))
		if n := check(t, f, ids...); n > 20 {
			t.Errorf("%d ids are still maybe after two windows", n)
		}
	})
}

// TestHorizon: every id that was added at the horizon or later is maybe, even
// if the clock is some minutes fast. And the horizon is at most that long after
// what is forgotten.
func TestHorizon(t *testing.T) {
	const ahead = 4 * time.Minute
	for _, into := range []time.Duration{0, time.Second, 3 * time.Hour, 6*time.Hour - time.Second} {
		bubble(t, DefaultOptions(), func(t *testing.T, f *Filter, r *embedded.Redis) {
			must(t, f.DeclareNew(t.Context()))
			type added struct {
				at time.Time
				id string
			}
			var all []added
			const near = 2 * time.Minute
			time.Sleep(f.Window - time.Hour - near)
			for i := range 12 { // shortly before each window, and shortly after its start
				id := fmt.Sprint("id-", i)
				add(t, f, id)
				all = append(all, added{time.Now(), id})
				time.Sleep([]time.Duration{2 * near, f.Window - 2*near}[i%2])
				must(t, f.Prepare(t.Context()))
			}
			time.Sleep(time.Until(time.Now().Truncate(f.Window).Add(f.Window + into)))
			must(t, f.Prepare(t.Context()))
			now := time.Now()
			horizon, forgotten := f.Horizon(now), 0
			for _, a := range all {
				if check(t, f, a.id) == 1 {
					continue
				}
				forgotten++
				if !a.at.Add(ahead).Before(horizon) {
					t.Errorf("%v into a window: what was added %v ago is forgotten, the horizon is %v ago", into, now.Sub(a.at), now.Sub(horizon))
				}
			}
			if want := f.Window + into; forgotten == 0 || now.Sub(horizon) < want-apart || now.Sub(horizon) > want {
				t.Errorf("%v into a window: %d forgotten, the horizon is %v ago, want about %v", into, forgotten, now.Sub(horizon), want)
			}
		})
	}
}

// TestClocksMayDiffer: the clock that mints an id may be some minutes fast. An
// id that was finished before its filter was lost then looks younger than the
// new filter, but is still maybe.
func TestClocksMayDiffer(t *testing.T) {
	bubble(t, DefaultOptions(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		ids := uuids(time.Now().Add(4*time.Minute), 1000, "ahead")
		add(t, f, ids...)
		r.Wipe()
		must(t, f.Prepare(t.Context()))
		if n := check(t, f, ids...); n != len(ids) {
			t.Errorf("%d of %d ids that were finished before the wipe are maybe, want all", n, len(ids))
		}
	})
}

func TestFiltersThatAreNotWhole(t *testing.T) {
	const n = 2000
	for _, c := range []struct {
		name string
		do   func(t *testing.T, f *Filter, r *embedded.Redis)
		// The answer for new ids: maybe or not.
		old, young, nameless bool
	}{
		{"nothing prepared", func(t *testing.T, f *Filter, r *embedded.Redis) {}, true, true, true},
		{"prepared in mid-window", func(t *testing.T, f *Filter, r *embedded.Redis) { must(t, f.Prepare(t.Context())) }, true, false, true},
		{"declared new", func(t *testing.T, f *Filter, r *embedded.Redis) { must(t, f.DeclareNew(t.Context())) }, false, false, false},
		{"declared new again, after it was wiped and born anew", func(t *testing.T, f *Filter, r *embedded.Redis) {
			must(t, f.DeclareNew(t.Context()))
			r.Wipe()
			must(t, f.Prepare(t.Context()))
			must(t, f.DeclareNew(t.Context()))
		}, true, false, true},
		{"wiped", func(t *testing.T, f *Filter, r *embedded.Redis) {
			must(t, f.DeclareNew(t.Context()))
			r.Wipe()
		}, true, true, true},
		{"wiped, then added to", func(t *testing.T, f *Filter, r *embedded.Redis) {
			must(t, f.DeclareNew(t.Context()))
			r.Wipe()
			add(t, f, names(1000, "any")...)
			must(t, f.Prepare(t.Context()))
		}, true, false, true},
		{"wiped twice", func(t *testing.T, f *Filter, r *embedded.Redis) {
			must(t, f.Prepare(t.Context()))
			r.Wipe()
			time.Sleep(20 * time.Minute) // the birth known to this worker is now too early, and must not count
			other, err := New(f.client, f.Options)
			must(t, err)
			must(t, other.Prepare(t.Context()))
		}, true, true, true},
		{"wiped, prepared by another worker", func(t *testing.T, f *Filter, r *embedded.Redis) {
			must(t, f.DeclareNew(t.Context()))
			r.Wipe()
			other, err := New(f.client, f.Options)
			must(t, err)
			must(t, other.Prepare(t.Context()))
			must(t, f.Prepare(t.Context()))
		}, true, false, true},
		{"whole from the next window on", func(t *testing.T, f *Filter, r *embedded.Redis) {
			for range 2 {
				must(t, f.Prepare(t.Context()))
				time.Sleep(f.Window)
			}
		}, false, false, false},
		{"too late to be whole", func(t *testing.T, f *Filter, r *embedded.Redis) {
			must(t, f.DeclareNew(t.Context()))
			next := f.window(f.number(time.Now()) + 1)
			for _, key := range next.keys {
				r.Mini.Del(key)
			}
			time.Sleep(time.Until(next.start.Add(-time.Minute))) // it has begun for a fast clock
			must(t, f.Prepare(t.Context()))
			time.Sleep(2 * time.Minute)
			must(t, f.Prepare(t.Context()))
		}, true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, DefaultOptions(), func(t *testing.T, f *Filter, r *embedded.Redis) {
				begin := time.Now()
				c.do(t, f, r)
				young := time.Now().Add(youngBy + time.Second)
				for _, q := range []struct {
					name string
					ids  []string
					want bool
				}{
					{"old UUIDv7", uuids(begin, n, "old"), c.old},
					{"young UUIDv7", uuids(young, n, "young"), c.young},
					{"other ids", names(n, "other"), c.nameless},
				} {
					got := check(t, f, q.ids...)
					if q.want && got != n || !q.want && got > 20 {
						t.Errorf("%s: %d of %d are maybe, want all: %v", q.name, got, n, q.want)
					}
				}
			})
		})
	}
}

// another is another worker, or the successor of f: it knows only what is in
// Redis.
func another(t *testing.T, f *Filter) *Filter {
	t.Helper()
	other, err := New(f.client, f.Options)
	must(t, err)
	return other
}

func TestFullFilterSaysMaybe(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		ids := names(40_000, "id") // four times the capacity
		add(t, f, ids...)
		heir := another(t, f)
		for who, f := range map[string]*Filter{"the worker": f, "its heir": heir} {
			if n := check(t, f, ids...); n != len(ids) {
				t.Errorf("to %s %d of %d added ids are maybe", who, n, len(ids))
			}
			if n := check(t, f, names(1000, "other")...); n != 1000 {
				t.Errorf("to %s %d of 1000 new ids are maybe, want all", who, n)
			}
			fill, err := f.Fill(t.Context())
			must(t, err)
			if fill.Ratio < 0.99 || fill.Maybe != shards.Filters {
				t.Errorf("fill %+v to %s, want a ratio of 1 and all shards", fill, who)
			}
		}
		add(t, f, ids[:10]...)
		add(t, heir, ids[:10]...)
		for range 2 {
			// The same if the full filters belong to the previous window.
			if n := check(t, another(t, f), names(1000, "other")...); n != 1000 {
				t.Errorf("to a third worker %d of 1000 new ids are maybe, want all", n)
			}
			must(t, f.Prepare(t.Context()))
			time.Sleep(f.Window)
		}
		for who, f := range map[string]*Filter{"the worker": f, "its heir": heir, "a third one": another(t, f)} {
			if n := check(t, f, names(1000, "other")...); n > 20 {
				t.Errorf("two windows later %d of 1000 are maybe to %s", n, who)
			}
		}
	})
}

// Ids that come to filters which nobody has made yet may be more than these take: what
// they refuse is covered by their marks.
func TestAFilterMadeByAnAddMayBeFullAtOnce(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		ids := names(40_000, "id") // four times the capacity
		add(t, f, ids...)
		if n := check(t, another(t, f), ids...); n != len(ids) {
			t.Errorf("to another worker %d of %d added ids are maybe", n, len(ids))
		}
		fill, err := f.Fill(t.Context())
		must(t, err)
		if fill.Maybe != shards.Filters {
			t.Errorf("%d filters are marked as full, want all %d", fill.Maybe, shards.Filters)
		}
	})
}

// A worker that knows a filter as full does not query it again. If Redis was
// wiped since then and the filter was created again, the new one misses the ids
// that come now.
func TestFullFilterThatWasWiped(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		add(t, f, names(40_000, "id")...)
		r.Wipe()
		heir := another(t, f)
		must(t, heir.Prepare(t.Context()))
		time.Sleep(2 * youngBy)
		ids := uuids(time.Now(), 1000, "new") // younger than the new filters
		if n := check(t, heir, ids...); n > 20 {
			t.Fatalf("%d of 1000 new ids are maybe to the heir before they are added", n)
		}
		add(t, f, ids...)
		if n := check(t, heir, ids...); n != len(ids) {
			t.Errorf("%d of %d added ids are maybe to the heir", n, len(ids))
		}
	})
}

// refusing is a Redis that answers reads and refuses some writes: it is out of
// memory, or is a replica that clients take for the master.
type refusing struct{ command string }

func (h refusing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if strings.EqualFold(cmd.Name(), h.command) {
				refused := redis.NewStatusResult("", proto("OOM command not allowed when used memory > 'maxmemory'.")).Err()
				cmd.SetErr(refused)
				err = refused
			}
		}
		return err
	}
}

// proto is an error from the server.
type proto string

func (e proto) Error() string { return string(e) }
func (proto) RedisError()     {}

// Add returns nil only if its ids may be committed: not while a filter neither
// has them nor is marked as full.
func TestAddWithoutItsMarkIsAnError(t *testing.T) {
	for _, tt := range []struct{ why, command string }{
		{"the add is refused", "BF.INSERT"},
		{"the filter is full and the mark is refused", "SET"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
				must(t, f.DeclareNew(t.Context()))
				f.client.AddHook(refusing{tt.command})
				for range 2 {
					err := f.Add(t.Context(), names(40_000, "id"))
					if err == nil || !strings.Contains(err.Error(), "OOM") {
						t.Errorf("error %v, want the server's", err)
					}
				}
			})
		})
	}
}

func TestFillNamesTheCapacityNeeded(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		add(t, f, names(6000, "id")...)
		time.Sleep(2 * time.Hour) // half of the window
		fill, err := f.Fill(t.Context())
		must(t, err)
		// 12,000 a window; at 60 % that is 20,000. Each filter also contains a
		// sentinel.
		if fill.IDs < 5900 || fill.IDs > 6070 || fill.Needed < 19_000 || fill.Needed > 20_500 || fill.Maybe != 0 {
			t.Errorf("fill %+v, want 6,000 ids and 20,000 needed", fill)
		}
		// The first tenth of a window tells nothing of the rest.
		time.Sleep(f.Window/2 + f.Window/10 - 1)
		for _, told := range []bool{false, true} {
			fill, err := f.Fill(t.Context())
			must(t, err)
			if told != (fill.Needed > 0) {
				t.Errorf("fill %+v, want that it tells what is needed: %v", fill, told)
			}
			add(t, f, names(100, "id")...)
			time.Sleep(time.Nanosecond)
		}
	})
}

// While Redis is down, Add fails and its caller repeats it. Afterwards the
// filters are as good as before.
func TestAddIsRepeatedUntilRedisIsBack(t *testing.T) {
	bubble(t, DefaultOptions(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		ids := names(2000, "id")
		r.Close()
		for range 3 {
			begin := time.Now()
			if err := f.Add(t.Context(), ids); err == nil {
				t.Fatal("added without Redis")
			}
			if took := time.Since(begin); took > f.AddTimeout {
				t.Errorf("it took %v to say so, past the time-out", took)
			}
		}
		must(t, r.Restart())
		time.Sleep(2 * time.Second) // the client's pool dials again every second
		add(t, f, ids...)
		for who, f := range map[string]*Filter{"the worker": f, "its heir": another(t, f)} {
			if n := check(t, f, ids...); n != len(ids) {
				t.Errorf("to %s %d of %d ids are maybe", who, n, len(ids))
			}
			if n := check(t, f, names(1000, "other")...); n > 20 {
				t.Errorf("to %s %d of 1000 new ids are maybe", who, n)
			}
		}
	})
}

func TestRedisAwayIsAnError(t *testing.T) {
	bubble(t, DefaultOptions(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		r.Close()
		ctx := t.Context()
		if err := f.Check(ctx, []string{"a"}, make([]bool, 1)); err == nil {
			t.Error("checked without Redis")
		}
		if err := f.Prepare(ctx); err == nil {
			t.Error("prepared without Redis")
		}
		if _, err := f.Fill(ctx); err == nil {
			t.Error("filled without Redis")
		}
	})
}

func TestFiltersExpire(t *testing.T) {
	bubble(t, DefaultOptions(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		for range 6 {
			must(t, f.Prepare(t.Context()))
			add(t, f, names(500, "id")...)
			time.Sleep(f.Window)
		}
		must(t, f.Prepare(t.Context()))
		// Previous, current, next; and births for those that were not created
		// ahead.
		if n := len(r.Mini.Keys()); n > 4*shards.Filters {
			t.Errorf("%d keys after six windows", n)
		}
		time.Sleep(3*f.Window + 2*slack)
		if keys := r.Mini.Keys(); len(keys) != 0 {
			t.Errorf("%d keys have no expiry, such as %s", len(keys), keys[0])
		}
	})
}

// TestFiltersOutliveTheFastestClock: a filter exists until the last worker has
// stopped querying it, even a worker whose clock is some minutes behind that of
// Redis.
func TestFiltersOutliveTheFastestClock(t *testing.T) {
	bubble(t, DefaultOptions(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		add(t, f, "id")
		w := f.window(f.number(time.Now()))
		time.Sleep(time.Until(w.end.Add(f.Window + 4*time.Minute)))
		if k := shards.FilterShard("id"); !r.Mini.Exists(w.keys[k]) {
			t.Errorf("%v after its window and the next one the filter is gone", 4*time.Minute)
		}
	})
}

func TestRunPreparesUntilItIsStopped(t *testing.T) {
	bubble(t, DefaultOptions(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		var reports int
		go func() {
			defer close(ended)
			f.Run(ctx, 30*time.Second, func(err error) {
				if reports++; err == nil {
					t.Error("a success was reported")
				}
			})
		}()
		time.Sleep(time.Minute)
		if reports > 0 {
			t.Errorf("%d reports while all was well", reports)
		}
		r.Wipe()
		time.Sleep(time.Minute + youngBy)
		if n := check(t, f, uuids(time.Now(), 500, "young")...); n > 10 {
			t.Errorf("%d of 500 young ids are maybe although the filters were made anew", n)
		}
		r.Close()
		time.Sleep(time.Minute)
		stop()
		<-ended
		if reports == 0 {
			t.Error("an outage was not reported")
		}
	})
}

func TestSize(t *testing.T) {
	for _, c := range []struct {
		capacity int64
		rate     float64
		mb       float64 // by the formula of the design, without the margin
	}{{20_000_000, 0.001, 35.9}, {100_000_000, 0.001, 179.7}, {100_000_000, 0.0001, 239.6}} {
		got := float64(Size(c.capacity, c.rate)) / 1e6
		if got < c.mb || got > c.mb*1.02 {
			t.Errorf("%d ids at %v: %.1f MB, want %.1f and at most 2 %% more", c.capacity, c.rate, got, c.mb)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"window":     func(o *Options) { o.Window = time.Minute },
		"capacity":   func(o *Options) { o.Capacity = 1 },
		"error rate": func(o *Options) { o.ErrorRate = 1 },
		"timeout":    func(o *Options) { o.AddTimeout = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		if _, err := New(nil, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := New(nil, DefaultOptions()); err != nil {
		t.Error(err)
	}
}

// shared opens the Redis that all tests of a run share.
func shared(t testing.TB) redis.UniversalClient {
	return shardstest.Connect(t, localtest.Require(t).Redis)
}

func TestRealServer(t *testing.T) {
	for kind, open := range map[string]func(t *testing.T) redis.UniversalClient{
		"single": func(t *testing.T) redis.UniversalClient { return shared(t) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			return shardstest.Connect(t, localtest.RedisCluster(t, local.RedisOptions{}).Addrs()...)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			client := open(t)
			ctx := t.Context()
			must(t, shards.CheckServer(ctx, client, true))
			o := small()
			// A unique length separates this test's windows from those of other
			// runs.
			o.Window = 24*time.Hour + time.Duration(time.Now().UnixNano()%1_000_000)*time.Millisecond
			f, err := New(client, o)
			must(t, err)
			n := f.number(time.Now())
			windows := []*window{f.window(n - 1), f.window(n), f.window(n + 1)}
			wipe := func() {
				for _, w := range windows {
					for k := range w.keys {
						must(t, client.Del(context.Background(), w.keys[k], w.births[k], w.fulls[k]).Err())
					}
				}
			}
			defer wipe()

			ids, others := names(5000, "id"), names(1000, "other")
			if got := check(t, f, others...); got != len(others) {
				t.Errorf("no filters: %d of %d are maybe", got, len(others))
			}
			must(t, f.DeclareNew(ctx))
			must(t, f.Prepare(ctx))
			add(t, f, ids...)
			if got := check(t, f, ids...); got != len(ids) {
				t.Errorf("%d of %d added ids are maybe", got, len(ids))
			}
			if got := check(t, f, others...); got > 10 {
				t.Errorf("%d of %d new ids are maybe", got, len(others))
			}
			for _, w := range windows {
				for k := range w.keys {
					if ttl := client.PTTL(ctx, w.keys[k]).Val(); ttl <= 0 {
						t.Fatalf("%s does not expire", w.keys[k])
					}
				}
			}
			wipe()
			if got := check(t, f, ids...); got != len(ids) {
				t.Errorf("wiped: %d of %d ids are maybe", got, len(ids))
			}
			add(t, f, others...)
			if got := check(t, f, ids...); got != len(ids) {
				t.Errorf("wiped and made anew: %d of %d ids are maybe", got, len(ids))
			}
			must(t, f.Prepare(ctx))
			if got := check(t, f, uuids(time.Now().Add(youngBy+time.Minute), 1000, "young")...); got > 10 {
				t.Errorf("wiped and made anew: %d of 1000 young ids are maybe", got)
			}
			add(t, f, names(40_000, "much")...)
			for who, f := range map[string]*Filter{"the worker": f, "its heir": another(t, f)} {
				if got := check(t, f, uuids(time.Now().Add(youngBy+time.Minute), 1000, "new")...); got != 1000 {
					t.Errorf("full: to %s %d of 1000 are maybe, want all", who, got)
				}
			}
			fill, err := f.Fill(ctx)
			must(t, err)
			if fill.Ratio < 0.99 || fill.Maybe != shards.Filters {
				t.Errorf("full: %+v", fill)
			}
		})
	}
}
