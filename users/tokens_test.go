package users_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
	"pgregory.net/rapid"
)

// owners are the users who have token tok by Redis.
func (w *world) owners(tok int) []string {
	w.T.Helper()
	var names []string
	for name, u := range w.Fetch(everybody...) {
		for _, d := range u.Devices {
			if d.Hash == userstest.Hash(tok) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Each case has a token of its own in one world, as building all shards is
// what costs.
func TestTokenMoves(t *testing.T) {
	cases := []struct {
		name string
		do   func(w *world, tok int)
		want []string
	}{
		{"the later registration owns it", func(w *world, tok int) {
			w.Register("ada", tok, 10)
			w.Settle()
			w.Register("bob/with/slash", tok, 20)
		}, []string{"bob/with/slash"}},
		{"also when the later one is read first", func(w *world, tok int) {
			w.Register("bob/with/slash", tok, 20)
			w.Settle()
			w.Register("ada", tok, 10)
		}, []string{"bob/with/slash"}},
		{"there and back again", func(w *world, tok int) {
			w.Register("ada", tok, 10)
			w.Register("bob/with/slash", tok, 20)
			w.Settle()
			w.Register("ada", tok, 30)
		}, []string{"ada"}},
		{"of three the latest", func(w *world, tok int) {
			w.Register("ada", tok, 10)
			w.Register("cy", tok, 30)
			w.Register("eve", tok, 20)
		}, []string{"cy"}},
		{"of the same time exactly one", func(w *world, tok int) {
			w.Register("ada", tok, 10)
			w.Register("eve", tok, 10)
		}, []string{"eve"}},
		{"after its owner gave it up, an older registration counts again", func(w *world, tok int) {
			w.Register("ada", tok, 20)
			w.Must(w.Client.RemoveDevice(w.Ctx, "ada", userstest.Hash(tok)))
			w.Settle()
			w.Register("eve", tok, 10)
		}, []string{"eve"}},
		{"a repeated import of older registrations changes nothing", func(w *world, tok int) {
			w.Register("bob/with/slash", tok, 10)
			w.Register("ada", tok, 20)
			w.Settle()
			w.Register("ada", tok, 5)
			w.Register("bob/with/slash", tok, 10)
		}, []string{"ada"}},
		{"the former owner is removed, and stays so", func(w *world, tok int) {
			w.Register("ada", tok, 10)
			w.Register("eve", tok, 20)
			w.Settle()
			w.Must(w.Client.RemoveDevice(w.Ctx, "eve", userstest.Hash(tok)))
		}, nil},
	}
	eachRedis(t, func(w *world) {
		w.Run(userstest.RegistryOptions())
		owned := func(when string) {
			t.Helper()
			w.agree()
			for i, tt := range cases {
				if got := w.owners(i); !slices.Equal(got, tt.want) {
					t.Errorf("%s%s: owners %q, want %q", tt.name, when, got, tt.want)
				}
			}
		}
		for i, tt := range cases {
			tt.do(w, i)
		}
		owned("")
		w.Topic.Compact()
		w.Must(w.Redis.FlushAll(w.Ctx).Err())
		time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
		owned(", after a rebuild")
	})
}

// The first token shard is one like the others: a token moves in it, and its entry is
// rebuilt.
func TestTokensOfTheFirstShard(t *testing.T) {
	tok := 0
	for shards.TokenShard(userstest.Hash(tok)) != 0 {
		tok++
	}
	entry := shards.TokenKey(0, userstest.Hash(tok))
	virtual(t, func(w *world) {
		w.Run(userstest.RegistryOptions())
		w.Register("ada", tok, 10)
		w.Settle()
		w.Must(w.Redis.Set(w.Ctx, entry, "garbage", 0).Err())
		w.Register("bob/with/slash", tok, 20) // finds the garbage
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		if got := w.owners(tok); !slices.Equal(got, []string{"bob/with/slash"}) {
			t.Errorf("owners %q after the entry was rebuilt, want bob", got)
		}
		w.Register("eve", tok, 30)
		w.agree()
		if got := w.owners(tok); !slices.Equal(got, []string{"eve"}) {
			t.Errorf("owners %q, want eve, who came last", got)
		}
	})
}

// A removal that was decided before a newer registration got into the topic
// must not take it away: not now, and not after compaction either.
func TestRemovalDoesNotReachANewerRegistration(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.Run(userstest.RegistryOptions())
		w.Register("ada", 1, 30)
		w.Must(w.Topic.Append(w.Ctx, []users.Record{{Key: record.DeviceKey("ada", userstest.Hash(1)), IfNotAfter: userstest.Epoch.Add(20 * time.Second)}}))
		w.agree()
		if got := w.owners(1); !slices.Equal(got, []string{"ada"}) {
			t.Errorf("owners %q", got)
		}
		w.Topic.Compact()
		w.Must(w.Redis.FlushAll(w.Ctx).Err())
		time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		if got := w.owners(1); !slices.Equal(got, []string{"ada"}) {
			t.Errorf("owners after a rebuild %q", got)
		}
	})
}

// What was repeated when it did no longer hold counts in a shard that is built
// then, but claims no token in one that is complete. In the end the token is one
// user's all the same.
func TestARepeatTooLateGivesATokenToNobody(t *testing.T) {
	virtual(t, func(w *world) {
		w.Register("cy", 3, 10)
		stop := w.Run(userstest.RegistryOptions())
		w.agree()
		w.Register("dee", 3, 20) // takes it away from cy
		w.agree()
		stop()
		var repeated users.Record
		for _, r := range w.Topic.Records() {
			if r.Key == record.DeviceKey("cy", userstest.Hash(3)) && r.Value != nil {
				repeated = r
			}
		}
		repeated.Repeats = true // a registry has looked at cy before dee came
		w.Must(w.Topic.Append(w.Ctx, []users.Record{repeated}))
		s := shards.UserShard("cy")
		w.Must(w.Redis.Del(w.Ctx, shards.OffsetsKey(s), shards.EpochKey(s)).Err())
		w.Run(userstest.RegistryOptions())
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		if got := w.owners(3); !slices.Equal(got, []string{"dee"}) {
			t.Errorf("owners %q, want dee alone", got)
		}
		w.agree()
	})
}

// The mirror: the shard of the token is just being built, and counts a repeat that
// came too late; the one of its user is complete, and does not. The claim without a
// device takes the token from nobody.
func TestAClaimWithoutADeviceTakesNoToken(t *testing.T) {
	const tok = 3
	home := shards.TokenShard(userstest.Hash(tok)) * (shards.Users / shards.Filters)
	if home == shards.UserShard("cy") || home == shards.UserShard("dee") {
		t.Fatal("the token lies in the shard of a user")
	}
	for _, tt := range []struct {
		why  string
		do   func(w *world)
		want []string
	}{
		{"an older registration keeps it", func(w *world) { w.Register("dee", tok, 10) }, []string{"dee"}},
		{"the later of two older ones keeps it", func(w *world) {
			w.Register("dee", tok, 10)
			w.Register("eve", tok, 11)
		}, []string{"eve"}},
		{"a later one takes it", func(w *world) { w.Register("dee", tok, 30) }, []string{"dee"}},
		{"who claims it registers again", func(w *world) {
			w.Register("dee", tok, 10)
			w.Register("cy", tok, 20)
		}, []string{"cy"}},
		{"who claims it registers again, earlier", func(w *world) {
			w.Register("dee", tok, 10)
			w.Register("cy", tok, 15)
		}, []string{"cy"}},
		{"nobody else comes", func(*world) {}, nil},
	} {
		virtual(t, func(w *world) {
			w.Register("cy", tok, 20)
			stop := w.Run(userstest.RegistryOptions())
			w.agree()
			w.Must(w.Client.RemoveDevice(w.Ctx, "cy", userstest.Hash(tok)))
			w.agree()
			stop()
			w.Must(w.Topic.Append(w.Ctx, []users.Record{w.repeated("cy", tok, 20)}))
			w.Must(w.Redis.Del(w.Ctx, shards.OffsetsKey(home), shards.EpochKey(home)).Err())
			w.Run(userstest.RegistryOptions())
			w.agree()
			tt.do(w)
			w.agree()
			if got := w.owners(tok); !slices.Equal(got, tt.want) {
				t.Errorf("%s: owners %q, want %q", tt.why, got, tt.want)
			}
		})
	}
}

// A repeat came too late, and its user registers again as of the same time (an
// import is played once more) or earlier before that is settled.
func TestALateRepeatTakesNoNewRegistration(t *testing.T) {
	for _, again := range []int{10, 9} {
		virtual(t, func(w *world) {
			w.Register("cy", 3, 10)
			stop := w.Run(userstest.RegistryOptions())
			w.agree()
			stop()
			w.Must(w.Client.RemoveDevice(w.Ctx, "cy", userstest.Hash(3)))
			w.Must(w.Topic.Append(w.Ctx, []users.Record{w.repeated("cy", 3, 10)}))
			w.Register("cy", 3, again)
			w.Run(userstest.RegistryOptions())
			time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
			w.Settle()
			if got := w.owners(3); !slices.Equal(got, []string{"cy"}) {
				t.Errorf("again as of %d: owners %q, want cy", again, got)
			}
		})
	}
}

// repeated is what a registry repeats of a registration.
func (w *world) repeated(user string, tok, at int) users.Record {
	return users.Record{Key: record.DeviceKey(user, userstest.Hash(tok)), Repeats: true, Value: []byte(fmt.Sprintf(
		`{"v":1,"platform":"fcm","app":"shop","token":%q,"registered_at":%q}`, userstest.Token(tok), userstest.Epoch.Add(time.Duration(at)*time.Second).Format(time.RFC3339)))}
}

// A registry dies before each of its steps in turn; the next one finds
// whatever was left, and comes to the same end. That is also each step's
// "done, but nobody was told": the dead tell nobody.
func TestCrashAtEveryStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := 0
		for reached := true; reached; steps++ {
			inMemory(t, func(w *world) { reached = crashAt(w, steps) })
			if steps > 100 {
				t.Fatal("a registry that has nothing to do does not come to rest")
			}
		}
		if steps < 10 {
			t.Errorf("only %d steps: the registry cannot have done its work", steps)
		}
		t.Logf("%d steps", steps)
	})
}

func crashAt(w *world, at int) (reached bool) {
	w.T.Helper()
	w.fill()
	w.Raw(record.PreferencesKey("ada"), broken)
	w.Register("eve", 1, 40) // moves from ada
	w.Register("ada", 5, 1)  // too late: stays with eve
	w.Register("cy", 4, 100) // again, and overtaken by:
	w.Must(w.Topic.Append(w.Ctx, []users.Record{{Key: record.DeviceKey("cy", userstest.Hash(4)), IfNotAfter: userstest.Epoch}}))

	ctx, cancel := context.WithCancel(w.Ctx)
	crash := userstest.NewCrash(at, false, cancel)
	stop := w.Process(crash, ctx, cancel, userstest.RegistryOptions())
	select {
	case <-ctx.Done():
	case <-time.After(userstest.RegistryOptions().CheckInterval): // the work is done by then
	}
	stop()
	w.Run(userstest.RegistryOptions())
	w.agree()
	if got := w.owners(1); !slices.Equal(got, []string{"eve"}) {
		w.T.Errorf("crash at step %d: owners of token 1: %q", at, got)
	}
	if got := w.owners(5); !slices.Equal(got, []string{"eve"}) {
		w.T.Errorf("crash at step %d: owners of token 5: %q", at, got)
	}
	if got := w.owners(4); !slices.Equal(got, []string{"cy"}) {
		w.T.Errorf("crash at step %d: owners of token 4: %q", at, got)
	}
	if got := w.Told(); len(got) != 1 || !got["ada/prefs"].Stands {
		w.T.Errorf("crash at step %d: in quarantine: %+v", at, got)
	}
	return crash.Happened()
}

// Whatever is written, in whatever order, however often registries die or
// Redis forgets: in the end Redis is what the topic says.
func TestAnySequenceEndsAsTheTopicSays(t *testing.T) {
	for seed, why := range map[uint64]string{
		61461295890349: "a record gets unreadable while its shard is built, and the next one of its user comes",
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { inMemory(t, func(w *world) { w.anySequence(seed) }) })
		})
	}
	const most = 10          // each builds all shards, some of them several times
	runs, failed := 0, false // a failure is played again, to make it smaller
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > most && !failed {
			return
		}
		seed := rapid.Uint64().Draw(rt, "seed")
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { inMemory(t, func(w *world) { w.anySequence(seed) }) })
		})
		if !ok {
			failed = true
			rt.Fatalf("seed %d", seed)
		}
	})
}

func (w *world) anySequence(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	o := userstest.RegistryOptions()
	o.Devices = record.DeviceLimits{User: 1 + rng.IntN(4), App: 1 + rng.IntN(4)}
	var running []func()
	start := func() {
		ctx, cancel := context.WithCancel(w.Ctx)
		crash := userstest.NewCrash(rng.IntN(60), rng.IntN(2) == 0, cancel)
		running = append(running, w.Process(crash, ctx, cancel, o))
	}
	for range 5 + rng.IntN(25) {
		user, tok := everybody[rng.IntN(len(everybody))], rng.IntN(4)
		switch rng.IntN(17) {
		case 0, 1, 2, 3, 4:
			w.Register(user, tok, rng.IntN(20))
		case 5, 6:
			w.Must(w.Client.RemoveDevice(w.Ctx, user, userstest.Hash(tok)))
		case 7:
			w.OptOut(user, fmt.Sprint(rng.IntN(3)))
			w.know(user, []string{"", "UTC"}[rng.IntN(2)], 1+rng.IntN(9))
		case 8:
			w.OptOut(user)
		case 9:
			r := users.Record{Key: record.DeviceKey(user, userstest.Hash(tok)), IfNotAfter: userstest.Epoch.Add(time.Duration(rng.IntN(20)) * time.Second)}
			w.Must(w.Topic.Append(w.Ctx, []users.Record{r}))
		case 10, 11:
			if len(running) < 4 {
				start()
			}
		case 12:
			w.Must(w.Redis.Del(w.Ctx, shards.OffsetsKey(shards.UserShard(user)), shards.EpochKey(shards.UserShard(user))).Err())
		case 13:
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		case 14:
			w.Raw(record.PreferencesKey(user), broken)
		case 15:
			w.Raw(record.DeviceKey(user, userstest.Hash(tok)), `{"v":2}`)
		case 16:
			w.spoil(user)
		}
	}
	for _, stop := range running {
		stop()
	}
	w.Run(o)
	time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
	w.Settle()
	w.Fetch(everybody...) // of what cannot be read a registry hears from who reads it
	time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
	w.agree()
	for _, name := range everybody {
		if n := len(w.Look(name).Devices); n > min(o.Devices.User, o.Devices.App) {
			w.T.Errorf("%s has %d devices, of %+v", name, n, o.Devices)
		}
	}
}
