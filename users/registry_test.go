package users_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/userstest"
)

const partitions = 3

// patience ends a wait that hangs. It is no expectation: the machine may be
// busy with something else.
const patience = time.Minute

// world is a Redis, a topic, and the registries between them.
type world struct {
	t      *testing.T
	ctx    context.Context
	open   func() redis.UniversalClient
	redis  redis.UniversalClient
	topic  *userstest.Topic
	client *users.Client
	stops  []func()

	quarantine *userstest.Topic
	wrap       func(*users.RegistryTopics) // what a test puts in between; nil = nothing
	progress   func(users.Progress)        // what a test listens with; nil = not
	metrics    *users.Metrics              // of all registries; nil = nowhere

	mu    sync.Mutex
	calm  bool // a registry has said twice in a row that it has nothing to do
	looks int  // times since calm was reset that one has looked
}

// eachRedis runs the test in virtual time on an in-process Redis, and on the
// real one if there is one, which is flushed.
func eachRedis(t *testing.T, test func(w *world)) {
	t.Run("embedded", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { inMemory(t, test) }) })
	if realRedis == "" {
		return
	}
	t.Run("real", func(t *testing.T) {
		inWorld(t, test, opener(t, realRedis))
	})
}

func inMemory(t *testing.T, test func(w *world)) {
	server, err := embedded.StartPipeRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	inWorld(t, test, func() redis.UniversalClient {
		o := shards.DefaultOptions()
		o.Addrs = []string{"pipe:1"}
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := server.Dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return newBufferedConn(conn), nil
		}
		client, err := shards.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return client
	})
}

func inWorld(t *testing.T, test func(w *world), open func() redis.UniversalClient) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &world{t: t, ctx: ctx, open: open, redis: open(), topic: userstest.NewTopic(partitions), quarantine: userstest.NewTopic(1)}
	w.client = users.NewClient(w.topic)
	defer func() {
		for _, stop := range w.stops {
			stop()
		}
		if err := w.redis.Close(); err != nil {
			t.Error(err)
		}
	}()
	w.must(w.redis.FlushAll(ctx).Err())
	test(w)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func options() users.RegistryOptions {
	o := users.DefaultRegistryOptions()
	o.CheckInterval = 200 * time.Millisecond
	o.RetryDelay, o.MaxRetryDelay = 10*time.Millisecond, 100*time.Millisecond
	return o
}

var quiet = slog.New(slog.DiscardHandler)

// run starts a registry; the answer stops it and waits for it.
func (w *world) run(o users.RegistryOptions) (stop func()) {
	return w.process(userstest.NewCrash(-1, false, nil), w.ctx, func() {}, o)
}

// process starts a registry whose every step goes through crash.
func (w *world) process(crash *userstest.Crash, ctx context.Context, end context.CancelFunc, o users.RegistryOptions) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	client := w.open()
	client.AddHook(crash)
	o.Progress = w.watch()
	r, err := users.NewRegistry(client, w.topics(crash), o, w.metrics, quiet)
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			w.t.Errorf("Run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		end()
		<-done
		if err := client.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.stops = append(w.stops, stop)
	return stop
}

// topics are those of a process, every step of which goes through crash.
func (w *world) topics(crash *userstest.Crash) users.RegistryTopics {
	follower, rescan := userstest.NewFollower(w.topic), userstest.NewFollower(w.topic)
	follower.Most, rescan.Most = 3, 3
	topics := users.RegistryTopics{Follower: crash.Follower(follower), Rescan: crash.Follower(rescan),
		Log: crash.Log(w.topic), Quarantine: crash.Log(w.quarantine)}
	if w.wrap != nil {
		w.wrap(&topics)
	}
	return topics
}

// watch is the Progress of one registry. When it is through with the topic at
// two looks in a row, and the topic has not grown between them, then what it
// was through with is the whole of it, and it had nothing to add.
func (w *world) watch() func(users.Progress) {
	var before []int64
	return func(p users.Progress) {
		if w.progress != nil {
			w.progress(p)
		}
		ends := w.topic.Ends()
		w.mu.Lock()
		defer w.mu.Unlock()
		through := p.Ready == shards.Users && p.Lag == 0
		if w.looks++; w.looks == 1 {
			before = nil // what was said before the reset does not count
		}
		w.calm = w.calm || through && slices.Equal(ends, before)
		if before = nil; through {
			before = ends
		}
	}
}

// settle waits until Redis has everything that the topic has, and nothing is
// left open.
func (w *world) settle() {
	w.t.Helper()
	if why := w.unsettled(patience); why != "" {
		w.t.Fatalf("not settled after %v: %s", patience, why)
	}
}

// unsettled is empty as soon as Redis has everything; otherwise it says, after
// this time, what is missing.
func (w *world) unsettled(within time.Duration) (why string) {
	w.t.Helper()
	w.mu.Lock()
	w.calm, w.looks = false, 0
	w.mu.Unlock()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		w.mu.Lock()
		why = "no registry is through with the topic"
		calm := w.calm
		w.mu.Unlock()
		if calm {
			if why = w.incomplete(); why == "" {
				return ""
			}
		}
		if time.Since(began) > within {
			return why
		}
	}
}

// incomplete says which shard has no marker or open cases.
func (w *world) incomplete() string {
	pipe := w.redis.Pipeline()
	var markers [shards.Users]*redis.IntCmd
	var open [shards.Users]*redis.StringSliceCmd
	for s := range shards.Users {
		markers[s] = pipe.Exists(w.ctx, shards.EpochKey(s))
		open[s] = pipe.SMembers(w.ctx, "t:{"+shards.UserTag(s)+"}:open")
	}
	_, err := pipe.Exec(w.ctx)
	w.must(err)
	for s := range shards.Users {
		if markers[s].Val() != 1 {
			return fmt.Sprintf("shard %d has no marker", s)
		}
		if cases := open[s].Val(); len(cases) > 0 {
			return fmt.Sprintf("shard %d has open cases: %q", s, cases)
		}
	}
	return ""
}

// behind says which shard has not written that it has applied all.
func (w *world) behind() string {
	ends := w.topic.Ends()
	for s := range shards.Users {
		offsets, err := w.redis.HGetAll(w.ctx, shards.OffsetsKey(s)).Result()
		w.must(err)
		for p, end := range ends {
			if got := offsets[fmt.Sprint(p)]; got != fmt.Sprint(end) {
				return fmt.Sprintf("shard %d, partition %d: %q of %d", s, p, got, end)
			}
		}
	}
	return ""
}

var everybody = []string{"ada", "bob/with/slash", "cy", "dee", "eve"}

// fetch reads these users and returns those that are not empty.
func (w *world) fetch(names ...string) map[string]*push.User {
	w.t.Helper()
	out := make([]*push.User, len(names))
	for i := range out {
		out[i] = new(push.User)
	}
	w.must(users.NewReader(w.redis, false).Fetch(w.ctx, names, out))
	got := map[string]*push.User{}
	for i, u := range out {
		if len(u.Devices) == 0 {
			u.Devices = nil
		}
		without := *u
		without.Quarantine = 0
		if !reflect.DeepEqual(without, push.User{}) {
			got[names[i]] = u
		}
	}
	return got
}

// agree checks that Redis is what the topic says, and that no token has two
// users.
func (w *world) agree() {
	w.t.Helper()
	w.settle()
	want, got := w.topic.Merge(), w.fetch(everybody...)
	for _, u := range got {
		u.Quarantine = 0 // of it the topic says more than it means
	}
	if !reflect.DeepEqual(got, want) {
		w.t.Errorf("Redis has %s\nthe topic says %s", show(got), show(want))
	}
	owner := map[string]string{}
	for name, u := range want {
		for _, d := range u.Devices {
			if other, twice := owner[d.Hash]; twice {
				w.t.Errorf("a token belongs to %s and %s", name, other)
			}
			owner[d.Hash] = name
		}
	}
}

func show(m map[string]*push.User) string {
	var b strings.Builder
	for name, u := range m {
		fmt.Fprintf(&b, "\n  %s: %+v", name, *u)
	}
	return b.String()
}

func token(i int) string { return fmt.Sprintf("fcm-token-%d", i) }

func hash(i int) string { return push.DeviceHash(push.FCM, token(i)) }

// epoch is before the year 2000, when virtual time begins: registrations of the
// future are refused.
var epoch = time.UnixMilli(940_000_000_000).UTC()

func (w *world) register(user string, tok int, at int) {
	w.t.Helper()
	_, err := w.client.RegisterDevice(w.ctx, user, push.Device{
		Platform: push.FCM, App: "shop", Token: token(tok), RegisteredAt: epoch.Add(time.Duration(at) * time.Second),
	})
	w.must(err)
}

func (w *world) optOut(user string, types ...string) {
	w.t.Helper()
	w.must(w.client.SetPreferences(w.ctx, user, push.Preferences{Types: types}))
}

// know sets what is known of a user, or what is not if zone is empty.
func (w *world) know(user, zone string, most int) {
	w.t.Helper()
	var limits []push.PersonalLimit
	p := push.Profile{Zone: zone}
	if zone != "" {
		limits = []push.PersonalLimit{{Name: "user-an-hour", Max: 7}, {Name: "promo", Max: most}}
		p.Number, p.HasNumber = uint32(most), true
	}
	w.must(w.client.SetProfile(w.ctx, user, p))
	w.must(w.client.SetLimits(w.ctx, user, limits))
}

func (w *world) block(user string) {
	w.t.Helper()
	w.must(w.client.SetPreferences(w.ctx, user, push.Preferences{Blocked: true, OptIns: []string{"promo"}, Senders: []string{"shop"},
		Quiet: []push.QuietHours{{From: 22 * 60, To: 7 * 60, Days: 3, Types: []string{"promo"}}}}))
}

func (w *world) fill() {
	w.t.Helper()
	w.register("ada", 1, 1)
	w.register("ada", 2, 2)
	w.register("bob/with/slash", 3, 3)
	w.register("cy", 4, 4)
	w.optOut("ada", "promo")
	w.optOut("dee", "promo", "news")
	w.must(w.client.RemoveDevice(w.ctx, "cy", hash(4)))
	w.register("eve", 5, 5)
	w.know("eve", "Europe/Berlin", 1)
	w.know("bob/with/slash", "Asia/Kathmandu", 2)
	w.block("cy")
}

func TestBuildFromNothingAndFollow(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.fill()
		o := options()
		o.BeatInterval = time.Second
		w.run(o)
		w.agree()
		w.register("cy", 6, 6)
		w.optOut("dee")
		w.agree()
		// Shards without news say how far they are too, at every beat.
		for began := time.Now(); w.behind() != ""; time.Sleep(o.CheckInterval) {
			if time.Since(began) > patience {
				t.Fatal(w.behind())
			}
		}
		if got := w.fetch("ada")["ada"]; len(got.Devices) != 2 || len(got.Preferences.Types) != 1 {
			t.Errorf("ada is %+v", got)
		}
	})
}

func TestAnEmptyTopicIsComplete(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.run(options())
		w.agree()
	})
}

func TestReaderStallsUntilBuilt(t *testing.T) {
	eachRedis(t, func(w *world) {
		reader := users.NewReader(w.redis, true)
		err := reader.Fetch(w.ctx, []string{"ada"}, []*push.User{new(push.User)})
		var unbuilt *users.UnbuiltError
		if !errors.As(err, &unbuilt) || unbuilt.Shard != shards.UserShard("ada") {
			t.Fatalf("error %v, want that shard %d is not built", err, shards.UserShard("ada"))
		}
	})
}

func TestWipes(t *testing.T) {
	for _, tt := range []struct {
		name string
		wipe func(w *world)
	}{
		{"everything", func(w *world) { w.must(w.redis.FlushAll(w.ctx).Err()) }},
		{"the marker alone", func(w *world) { w.must(w.redis.Del(w.ctx, shards.EpochKey(shards.UserShard("ada"))).Err()) }},
		{"the offsets alone, old records stay", func(w *world) {
			w.must(w.redis.Del(w.ctx, shards.OffsetsKey(shards.UserShard("ada"))).Err())
		}},
		{"a shard", func(w *world) {
			s := shards.UserShard("ada")
			w.must(w.redis.Del(w.ctx, shards.OffsetsKey(s), shards.EpochKey(s), shards.UserKey(s, "ada")).Err())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRedis(t, func(w *world) {
				w.fill()
				w.run(options())
				w.agree()
				// Gone from the topic without a trace: a rebuild over the old
				// record must not keep it.
				w.must(w.client.RemoveDevice(w.ctx, "ada", hash(1)))
				w.agree()
				w.topic.Compact()
				tt.wipe(w)
				w.optOut("eve", "promo")
				time.Sleep(2 * options().CheckInterval) // noticed by now
				w.agree()
			})
		})
	}
}

// A server that is restored from an older state has both its records and its
// offsets of then.
func TestLostUpdatesAreApplied(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.fill()
		w.run(options())
		w.agree()
		s := shards.UserShard("ada")
		record, err := w.redis.Get(w.ctx, shards.UserKey(s, "ada")).Result()
		w.must(err)
		offsets, err := w.redis.HGetAll(w.ctx, shards.OffsetsKey(s)).Result()
		w.must(err)
		w.optOut("ada", "everything", "changed")
		w.agree()
		w.must(w.redis.Set(w.ctx, shards.UserKey(s, "ada"), record, 0).Err())
		w.must(w.redis.HSet(w.ctx, shards.OffsetsKey(s), offsets).Err())
		time.Sleep(2 * options().CheckInterval)
		w.agree()
		if got := w.fetch("ada")["ada"].Preferences.Types; len(got) != 2 {
			t.Errorf("ada's types are %q", got)
		}
	})
}

func TestTwoRegistries(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.fill()
		w.run(options())
		w.run(options())
		for i := range 60 {
			w.register(everybody[i%len(everybody)], i%7, 10+i)
			if i == 30 {
				w.must(w.redis.FlushAll(w.ctx).Err())
			}
		}
		time.Sleep(2 * options().CheckInterval)
		w.agree()
	})
}

func TestRebuildOnDemand(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.fill()
		stop := w.run(options())
		w.agree()
		stop()
		before := w.redis.Get(w.ctx, shards.EpochKey(0)).Val()
		o := options()
		o.Rebuild = true
		w.run(o)
		time.Sleep(2 * options().CheckInterval)
		w.agree()
		if after := w.redis.Get(w.ctx, shards.EpochKey(0)).Val(); after == before {
			t.Error("the shard is of the same build as before")
		}
	})
}

func TestStaleShardIsBuiltAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory(t, func(w *world) {
			w.fill()
			stop := w.run(options())
			w.agree()
			stop()
			w.must(w.client.RemoveDevice(w.ctx, "ada", hash(1)))
			w.topic.Compact() // nobody has seen the tombstone
			time.Sleep(options().MaxStale + time.Minute)
			w.run(options())
			w.agree()
		})
	})
}

// A topic that grew has moved users to other partitions, and their order is
// lost: nothing is applied any more, before and after a wipe, until an operator
// says that the topic is another one.
func TestAGrownTopicStopsTheRegistry(t *testing.T) {
	for _, tt := range []struct {
		name    string
		running bool // the registry that filled Redis still runs
		wiped   bool
	}{{"a registry that starts", false, false}, {"one that runs", true, false}, {"one that runs, and Redis is wiped", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				w.fill()
				stop := w.run(options())
				w.agree()
				if !tt.running {
					stop()
				}
				w.topic.Grow(2 * partitions)
				time.Sleep(2 * options().CheckInterval)
				for _, name := range everybody {
					w.optOut(name, "after")
				}
				if tt.wiped {
					w.must(w.redis.FlushAll(w.ctx).Err())
				}
				if !tt.running {
					stop = w.run(options())
				}
				if w.unsettled(5*time.Second) == "" {
					t.Error("the registry goes on")
				}
				if tt.wiped {
					return
				}
				for _, name := range everybody {
					if types := w.look(name).Preferences.Types; slices.Contains(types, "after") {
						t.Errorf("%s has what came after: %q", name, types)
					}
				}
				stop()
				o := options()
				o.Rebuild = true
				w.run(o)
				w.settle()
			})
		})
	}
}
