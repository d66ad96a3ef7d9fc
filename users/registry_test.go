package users_test

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// world is one of userstest, with what only the tests of this package do in it.
type world struct{ *userstest.World }

func in(test func(w *world)) func(w *userstest.World) {
	return func(w *userstest.World) { test(&world{w}) }
}

func eachRedis(t *testing.T, test func(w *world)) {
	t.Helper()
	userstest.EachRedis(t, realRedis, in(test))
}

func virtual(t *testing.T, test func(w *world)) {
	t.Helper()
	userstest.Virtual(t, in(test))
}

func inMemory(t *testing.T, test func(w *world)) {
	t.Helper()
	userstest.InMemory(t, in(test))
}

var quiet = slog.New(slog.DiscardHandler)

var everybody = []string{"ada", "bob/with/slash", "cy", "dee", "eve"}

// agree checks that Redis is what the topic says, and that no token has two
// users.
func (w *world) agree() {
	w.T.Helper()
	w.Settle()
	want, got := w.Topic.Merge(), w.Fetch(everybody...)
	for _, u := range got {
		u.Quarantine = 0 // of it the topic says more than it means
	}
	if !reflect.DeepEqual(got, want) {
		w.T.Errorf("Redis has %s\nthe topic says %s", userstest.Show(got), userstest.Show(want))
	}
	owner := map[string]string{}
	for name, u := range want {
		for _, d := range u.Devices {
			if other, twice := owner[d.Hash]; twice {
				w.T.Errorf("a token belongs to %s and %s", name, other)
			}
			owner[d.Hash] = name
		}
	}
}

// know sets what is known of a user, or what is not if zone is empty.
func (w *world) know(user, zone string, most int) {
	w.T.Helper()
	var limits []push.PersonalLimit
	p := push.Profile{Zone: zone}
	if zone != "" {
		limits = []push.PersonalLimit{{Name: "user-an-hour", Max: 7}, {Name: "promo", Max: most}}
		p.Number, p.HasNumber = uint32(most), true
	}
	w.Must(w.Client.SetProfile(w.Ctx, user, p))
	w.Must(w.Client.SetLimits(w.Ctx, user, limits))
}

func (w *world) block(user string) {
	w.T.Helper()
	w.Must(w.Client.SetPreferences(w.Ctx, user, push.Preferences{Blocked: true, OptIns: []string{"promo"}, Senders: []string{"shop"},
		Quiet: []push.QuietHours{{From: 22 * 60, To: 7 * 60, Days: 3, Types: []string{"promo"}}}}))
}

func (w *world) fill() {
	w.T.Helper()
	w.Register("ada", 1, 1)
	w.Register("ada", 2, 2)
	w.Register("bob/with/slash", 3, 3)
	w.Register("cy", 4, 4)
	w.OptOut("ada", "promo")
	w.OptOut("dee", "promo", "news")
	w.Must(w.Client.RemoveDevice(w.Ctx, "cy", userstest.Hash(4)))
	w.Register("eve", 5, 5)
	w.know("eve", "Europe/Berlin", 1)
	w.know("bob/with/slash", "Asia/Kathmandu", 2)
	w.block("cy")
}

func TestBuildFromNothingAndFollow(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.fill()
		o := userstest.RegistryOptions()
		o.BeatInterval = time.Second
		w.Run(o)
		w.agree()
		w.Register("cy", 6, 6)
		w.OptOut("dee")
		w.agree()
		// Shards without news say how far they are too, at every beat.
		for began := time.Now(); w.Behind() != ""; time.Sleep(o.CheckInterval) {
			if time.Since(began) > userstest.Patience {
				t.Fatal(w.Behind())
			}
		}
		if got := w.Fetch("ada")["ada"]; len(got.Devices) != 2 || len(got.Preferences.Types) != 1 {
			t.Errorf("ada is %+v", got)
		}
	})
}

func TestAnEmptyTopicIsComplete(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.Run(userstest.RegistryOptions())
		w.agree()
	})
}

func TestReaderStallsUntilBuilt(t *testing.T) {
	eachRedis(t, func(w *world) {
		reader := users.NewReader(w.Redis, true)
		err := reader.Fetch(w.Ctx, []string{"ada"}, []*push.User{new(push.User)})
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
		{"everything", func(w *world) { w.Must(w.Redis.FlushAll(w.Ctx).Err()) }},
		{"the marker alone", func(w *world) { w.Must(w.Redis.Del(w.Ctx, shards.EpochKey(shards.UserShard("ada"))).Err()) }},
		{"the offsets alone, old records stay", func(w *world) {
			w.Must(w.Redis.Del(w.Ctx, shards.OffsetsKey(shards.UserShard("ada"))).Err())
		}},
		{"a shard", func(w *world) {
			s := shards.UserShard("ada")
			w.Must(w.Redis.Del(w.Ctx, shards.OffsetsKey(s), shards.EpochKey(s), shards.UserKey(s, "ada")).Err())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRedis(t, func(w *world) {
				w.fill()
				w.Run(userstest.RegistryOptions())
				w.agree()
				// Gone from the topic without a trace: a rebuild over the old
				// record must not keep it.
				w.Must(w.Client.RemoveDevice(w.Ctx, "ada", userstest.Hash(1)))
				w.agree()
				w.Topic.Compact()
				tt.wipe(w)
				w.OptOut("eve", "promo")
				time.Sleep(2 * userstest.RegistryOptions().CheckInterval) // noticed by now
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
		w.Run(userstest.RegistryOptions())
		w.agree()
		s := shards.UserShard("ada")
		record, err := w.Redis.Get(w.Ctx, shards.UserKey(s, "ada")).Result()
		w.Must(err)
		offsets, err := w.Redis.HGetAll(w.Ctx, shards.OffsetsKey(s)).Result()
		w.Must(err)
		w.OptOut("ada", "everything", "changed")
		w.agree()
		w.Must(w.Redis.Set(w.Ctx, shards.UserKey(s, "ada"), record, 0).Err())
		w.Must(w.Redis.HSet(w.Ctx, shards.OffsetsKey(s), offsets).Err())
		time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		if got := w.Fetch("ada")["ada"].Preferences.Types; len(got) != 2 {
			t.Errorf("ada's types are %q", got)
		}
	})
}

func TestTwoRegistries(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.Run(userstest.RegistryOptions())
		for i := range 60 {
			w.Register(everybody[i%len(everybody)], i%7, 10+i)
			if i == 30 {
				w.Must(w.Redis.FlushAll(w.Ctx).Err())
			}
		}
		time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
		w.agree()
	})
}

func TestRebuildOnDemand(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.fill()
		stop := w.Run(userstest.RegistryOptions())
		w.agree()
		stop()
		before := w.Redis.Get(w.Ctx, shards.EpochKey(0)).Val()
		o := userstest.RegistryOptions()
		o.Rebuild = true
		w.Run(o)
		time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		if after := w.Redis.Get(w.Ctx, shards.EpochKey(0)).Val(); after == before {
			t.Error("the shard is of the same build as before")
		}
	})
}

func TestStaleShardIsBuiltAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory(t, func(w *world) {
			w.fill()
			stop := w.Run(userstest.RegistryOptions())
			w.agree()
			stop()
			w.Must(w.Client.RemoveDevice(w.Ctx, "ada", userstest.Hash(1)))
			w.Topic.Compact() // nobody has seen the tombstone
			time.Sleep(userstest.RegistryOptions().MaxStale + time.Minute)
			w.Run(userstest.RegistryOptions())
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
				stop := w.Run(userstest.RegistryOptions())
				w.agree()
				if !tt.running {
					stop()
				}
				w.Topic.Grow(2 * userstest.Partitions)
				time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
				for _, name := range everybody {
					w.OptOut(name, "after")
				}
				if tt.wiped {
					w.Must(w.Redis.FlushAll(w.Ctx).Err())
				}
				if !tt.running {
					stop = w.Run(userstest.RegistryOptions())
				}
				if w.Unsettled(5*time.Second) == "" {
					t.Error("the registry goes on")
				}
				if tt.wiped {
					return
				}
				for _, name := range everybody {
					if types := w.Look(name).Preferences.Types; slices.Contains(types, "after") {
						t.Errorf("%s has what came after: %q", name, types)
					}
				}
				stop()
				o := userstest.RegistryOptions()
				o.Rebuild = true
				w.Run(o)
				w.Settle()
			})
		})
	}
}
