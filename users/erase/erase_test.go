package erase_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/erase"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// world is one of userstest, in which users are erased.
type world struct{ *userstest.World }

func in(test func(w *world)) func(w *userstest.World) {
	return func(w *userstest.World) { test(&world{w}) }
}

// laterHash names a device of a platform that only a later version knows.
var laterHash = push.DeviceHash(push.NoPlatform, "h-1")

// keys are all keys in Redis, sorted.
func (w *world) keys() []string {
	w.T.Helper()
	keys, err := w.Redis.Keys(w.Ctx, "*").Result()
	w.Must(err)
	slices.Sort(keys)
	return keys
}

// namesUser says which key or value in Redis has this text in it; empty = none.
func (w *world) namesUser(text string) string {
	w.T.Helper()
	for _, key := range w.keys() {
		value := ""
		switch kind, err := w.Redis.Type(w.Ctx, key).Result(); {
		case err != nil:
			w.T.Fatal(err)
		case kind == "string":
			value = w.Redis.Get(w.Ctx, key).Val()
		case kind == "set":
			value = strings.Join(w.Redis.SMembers(w.Ctx, key).Val(), "\n")
		}
		if strings.Contains(key, text) || strings.Contains(value, text) {
			return key
		}
	}
	return ""
}

// topicNames reports which key of the topic, as compaction leaves it, is the user's.
func (w *world) topicNames(user string) string {
	for _, r := range w.Topic.Latest() {
		if string(users.PartitionKey([]byte(r.Key))) == user {
			return r.Key
		}
	}
	return ""
}

func (w *world) erasure(user string, history erase.History) *erase.Erasure {
	w.T.Helper()
	e, err := erase.New(w.Topic, history, w.Redis, user)
	w.Must(err)
	return e
}

// erase erases as pushctl does, and returns what was found.
func (w *world) erase(user string) (found erase.Remains, tombstones int) {
	w.T.Helper()
	e := w.erasure(user, w.Topic)
	found, err := e.Look(w.Ctx)
	w.Must(err)
	tombstones, err = e.Append(w.Ctx)
	w.Must(err)
	ctx, cancel := context.WithTimeout(w.Ctx, userstest.Patience)
	defer cancel()
	w.Must(e.Await(ctx))
	left, err := e.Look(w.Ctx)
	w.Must(err)
	if left.Any() {
		w.T.Errorf("left of %q: %+v", user, left)
	}
	return found, tombstones
}

// Whatever can be there of a user goes, and nothing of the neighbours.
func TestErase(t *testing.T) {
	for _, user := range []string{"uma", "u/m/a", "uma/prefs", "\x00\xff{uma}\n*", strings.Repeat("ä", 62)} {
		t.Run(fmt.Sprintf("%q", user), func(t *testing.T) {
			userstest.EachRedis(t, realRedis, in(func(w *world) {
				o := userstest.RegistryOptions()
				o.Devices.App = 3
				w.Run(o)
				w.Register("neighbour", 100, 1)
				w.Raw(record.DeviceKey(user+"/x", userstest.Hash(101)), w.deviceValue(101, 1))
				w.Register("neighbour", 7, 1) // a token that goes to the user
				w.Settle()
				w.Raw(record.DeviceKey(user, userstest.Hash(7)), w.deviceValue(7, 2))
				w.Settle()
				before := w.keys()
				w.Raw(record.PreferencesKey(user), `{"opt_out_types":["promo"]}`)
				w.Raw(record.PreferencesKey(user), `{"v":99}`) // in quarantine
				w.Raw(record.ProfileKey(user), `{"user_number":7,"time_zone":"Europe/Paris"}`)
				w.Raw(record.Key(user, record.LimitsPart), `{"limits":{"promo":2}}`)
				for i := range 6 { // three too many
					w.Raw(record.DeviceKey(user, userstest.Hash(i)), w.deviceValue(i, 10+i))
				}
				w.Raw(record.DeviceKey(user, userstest.Hash(9)), `{"v":99}`)
				w.Raw(record.DeviceKey(user, laterHash), `{"platform":"hologram","app":"shop","token":"h-1","registered_at":"1999-11-01T00:00:00Z"}`)
				w.Raw(user+"/inbox", `{"of":"a later version"}`)
				w.Raw(user+"/device:short", `{}`)
				w.Settle()

				found, tombstones := w.erase(user)
				if !found.Preferences || !found.Profile || !found.Limits || !found.Record || found.Others != 2 || found.Number != 7 || !found.HasNumber ||
					found.Devices != len(found.Hashes) || found.Devices < 5 || found.Tokens < 4 || tombstones != found.Devices+3+2 {
					t.Errorf("found %+v, %d tombstones", found, tombstones)
				}
				if key := w.topicNames(user); key != "" {
					t.Errorf("push.users keeps %q", key)
				}
				w.Settle()
				after := w.keys()
				before = slices.DeleteFunc(before, func(key string) bool { // what the user had before the snapshot
					return key == shards.UserKey(shards.UserShard(user), user) || key == shards.TokenKey(shards.TokenShard(userstest.Hash(7)), userstest.Hash(7))
				})
				if !slices.Equal(before, after) {
					t.Errorf("keys in Redis: %q, want %q", after, before)
				}
				if got := w.Fetch("neighbour", user+"/x"); len(got["neighbour"].Devices) != 1 || len(got[user+"/x"].Devices) != 1 {
					t.Errorf("the neighbours have %s", userstest.Show(got))
				}
				for key, q := range w.Told() {
					if q.User == user {
						t.Errorf("the topic of the quarantine keeps %q", key)
					}
				}

				// Once more there is nothing, and a later registration is one as any.
				if found, tombstones := w.erase(user); found.Any() || tombstones != 0 {
					t.Errorf("the second time: found %+v, %d tombstones", found, tombstones)
				}
				w.Raw(record.DeviceKey(user, userstest.Hash(1)), w.deviceValue(1, 1)) // of an earlier time even
				w.Settle()
				if got := w.Fetch(user)[user]; got == nil || len(got.Devices) != 1 {
					t.Errorf("a later registration: %+v", got)
				}
			}))
		})
	}
}

// deviceValue is the value of a record that registers a token.
func (w *world) deviceValue(tok, at int) string {
	w.T.Helper()
	value, err := record.DeviceValue(&push.Device{Platform: push.FCM, App: "shop", Token: userstest.Token(tok), RegisteredAt: userstest.Epoch.Add(time.Duration(at) * time.Second)})
	w.Must(err)
	return string(value)
}

// What an earlier build of the shard left in Redis counts for nobody, but is there.
func TestEraseFindsWhatAnEarlierBuildLeft(t *testing.T) {
	userstest.Virtual(t, in(func(w *world) {
		stop := w.Run(userstest.RegistryOptions())
		w.Register("uma", 1, 1)
		w.OptOut("uma", "promo")
		w.Must(w.Client.SetProfile(w.Ctx, "uma", push.Profile{Country: "NL"}))
		w.Must(w.Client.SetLimits(w.Ctx, "uma", []push.PersonalLimit{{Name: "promo", Max: 2}}))
		w.Settle()
		stop()
		w.Must(w.Client.SetProfile(w.Ctx, "uma", push.Profile{}))
		w.Must(w.Client.SetLimits(w.Ctx, "uma", nil))
		w.Must(w.Client.RemoveDevice(w.Ctx, "uma", userstest.Hash(1)))
		w.Must(w.Client.SetPreferences(w.Ctx, "uma", push.Preferences{}))
		w.Topic.Compact() // and nothing of the topic tells
		o := userstest.RegistryOptions()
		o.Rebuild = true
		w.Run(o)
		w.Settle()
		if got := w.Fetch("uma"); len(got) > 0 || w.namesUser("uma") == "" {
			t.Fatalf("the test shows nothing: %s, %q", userstest.Show(got), w.namesUser("uma"))
		}
		if found, _ := w.erase("uma"); !found.Record || found.Devices != 1 || found.Tokens != 1 || !found.Preferences || !found.Profile || !found.Limits {
			t.Errorf("found %+v", found)
		}
		if key := w.namesUser("uma"); key != "" {
			t.Errorf("%q names the user", key)
		}
	}))
}

// lastRead does something once, behind a read of the topic.
type lastRead struct {
	erase.History
	reads int // until then
	do    func()
}

func (m *lastRead) Read(ctx context.Context, user string, from int64, each func(users.FetchedRecord) error) (int32, int64, error) {
	p, next, err := m.History.Read(ctx, user, from, each)
	if m.reads--; m.reads == 0 {
		m.do()
	}
	return p, next, err
}

// What is registered before the last tombstone goes with the rest; what is
// registered behind it stays, and is waited for.
func TestEraseWhileDevicesAreRegistered(t *testing.T) {
	for _, tt := range []struct {
		why   string
		reads int
		stays bool
	}{
		{"between the look and the tombstones", 1, false},
		{"behind the tombstones", 2, true},
		{"while the registry is waited for", 3, true},
	} {
		t.Run(tt.why, func(t *testing.T) {
			userstest.Virtual(t, in(func(w *world) {
				w.Run(userstest.RegistryOptions())
				w.Register("uma", 1, 1)
				w.Settle()
				e := w.erasure("uma", &lastRead{w.Topic, tt.reads, func() {
					w.Register("uma", 1, 50)
					w.Register("uma", 2, 50)
				}})
				_, err := e.Look(w.Ctx)
				w.Must(err)
				_, err = e.Append(w.Ctx)
				w.Must(err)
				w.Must(e.Await(w.Ctx))
				w.Settle()
				left, err := e.Look(w.Ctx)
				w.Must(err)
				if got := w.Look("uma"); left.Any() != tt.stays || left.Devices != len(got.Devices) || tt.stays != (len(got.Devices) == 2) {
					t.Errorf("left %+v, Redis has %+v", left, got)
				}
			}))
		})
	}
}

// appended does something once, behind an append.
type appended struct {
	users.Log
	do func()
}

func (a *appended) Append(ctx context.Context, records []users.Record) error {
	err := a.Log.Append(ctx, records)
	if do := a.do; do != nil {
		a.do = nil
		do()
	}
	return err
}

// What came between the look and the tombstones goes also when all that got a
// tombstone is registered again before the topic is read.
func TestEraseWhileTheOnlyDeviceIsRegisteredAgain(t *testing.T) {
	userstest.Virtual(t, in(func(w *world) {
		w.Run(userstest.RegistryOptions())
		w.Register("uma", 1, 1)
		w.Settle()
		log := &appended{w.Topic, func() { w.Register("uma", 1, 60) }}
		e, err := erase.New(log, w.Topic, w.Redis, "uma")
		w.Must(err)
		_, err = e.Look(w.Ctx)
		w.Must(err)
		w.Register("uma", 2, 50)
		_, err = e.Append(w.Ctx)
		w.Must(err)
		w.Must(e.Await(w.Ctx))
		w.Settle()
		if got := w.Look("uma"); len(got.Devices) != 1 || got.Devices[0].Hash != userstest.Hash(1) {
			t.Errorf("Redis has %+v, want only the device that was registered behind its tombstone", got)
		}
	}))
}

// Without a registry the topic has its tombstones, and nothing is claimed.
func TestEraseWithoutARegistry(t *testing.T) {
	for _, tt := range []struct {
		why     string
		set     func(w *world, first bool)
		devices int
	}{
		{"devices: their tokens' shards have to follow too", func(w *world, first bool) {
			if first {
				w.Register("uma", 1, 1)
			} else {
				w.Register("uma", 2, 2)
			}
		}, 2},
		{"preferences: only the user's own shard has to follow", func(w *world, first bool) {
			w.OptOut("uma", fmt.Sprint("first ", first))
		}, 0},
	} {
		t.Run(tt.why, func(t *testing.T) {
			userstest.Virtual(t, in(func(w *world) {
				stop := w.Run(userstest.RegistryOptions())
				tt.set(w, true)
				w.Settle()
				stop()
				tt.set(w, false) // Redis does not know it
				e := w.erasure("uma", w.Topic)
				found, err := e.Look(w.Ctx)
				w.Must(err)
				if found.Devices != tt.devices {
					t.Errorf("found %+v", found)
				}
				_, err = e.Append(w.Ctx)
				w.Must(err)
				ctx, cancel := context.WithTimeout(w.Ctx, 30*time.Second)
				defer cancel()
				if err := e.Await(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("waiting for nobody ends with %v", err)
				}
				if left, err := e.Look(w.Ctx); err != nil || !left.Record || left.Devices != min(tt.devices, 1) {
					t.Errorf("left %+v, %v", left, err)
				}
				w.Run(userstest.RegistryOptions())
				w.Must(e.Await(w.Ctx))
				if key := w.namesUser("uma"); key != "" {
					t.Errorf("%q names the user", key)
				}
			}))
		})
	}
}

// Shards that nobody has built have applied nothing, of whatever partition.
func TestEraseBeforeAnyShardIsBuilt(t *testing.T) {
	userstest.Virtual(t, in(func(w *world) {
		waited := map[int32]bool{}
		for i := 0; len(waited) < userstest.Partitions; i++ {
			user := fmt.Sprint("user-", i)
			partition, _, err := w.Topic.Read(w.Ctx, user, 0, func(users.FetchedRecord) error { return nil })
			w.Must(err)
			waited[partition] = true
			w.Register(user, i, 1)
			e := w.erasure(user, w.Topic)
			_, err = e.Look(w.Ctx)
			w.Must(err)
			_, err = e.Append(w.Ctx)
			w.Must(err)
			ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Second)
			if err := e.Await(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("partition %d: waiting for nobody ends with %v", partition, err)
			}
			cancel()
		}
	}))
}

// More tokens and tombstones than go in one round trip and in one append.
func TestEraseManyDevices(t *testing.T) {
	const devices = 2003
	userstest.Virtual(t, in(func(w *world) {
		hashes := make([]string, devices)
		for i := range hashes {
			hashes[i] = userstest.Hash(i)
			w.Raw(record.DeviceKey("uma", hashes[i]), "{}")
		}
		slices.Sort(hashes)
		for _, hash := range []string{hashes[0], hashes[1000], hashes[devices-1]} {
			w.Must(w.Redis.Set(w.Ctx, state.TokenKey(hash), record.Claims{{User: "uma", At: 1}}.Encode(7), 0).Err())
		}
		f := &fault{topic: w.Topic}
		e, err := erase.New(f, f, w.Redis, "uma")
		w.Must(err)
		found, err := e.Look(w.Ctx)
		w.Must(err)
		if !slices.Equal(found.Hashes, hashes) || found.Devices != devices || found.Tokens != 3 {
			t.Errorf("found %d devices, %d tokens; the hashes are sorted: %v", found.Devices, found.Tokens, slices.IsSorted(found.Hashes))
		}
		f.at = f.steps + 3
		if n, err := e.Append(w.Ctx); n != 2000 || !errors.Is(err, errFault) {
			t.Errorf("%d tombstones before the error %v, want 2000", n, err)
		}
		f.at = f.steps + 4
		if n, err := e.Append(w.Ctx); n != devices || !errors.Is(err, errFault) {
			t.Errorf("%d tombstones before the error %v of the reading behind them", n, err)
		}
		if n, err := e.Append(w.Ctx); n != devices || err != nil {
			t.Errorf("%d tombstones, %v; want one for each of what was found", n, err)
		}
		if key := w.topicNames("uma"); key != "" {
			t.Errorf("push.users keeps %q", key)
		}
	}))
}

// A record in Redis that cannot be read goes too.
func TestEraseAnUnreadableRecord(t *testing.T) {
	userstest.Virtual(t, in(func(w *world) {
		w.Run(userstest.RegistryOptions())
		w.Register("uma", 1, 1)
		w.Settle()
		for _, raw := range []string{"\x01garbage of uma", "\x09a later version"} {
			w.Must(w.Redis.Set(w.Ctx, shards.UserKey(shards.UserShard("uma"), "uma"), raw, 0).Err())
			w.erase("uma")
			if key := w.namesUser("uma"); key != "" {
				t.Errorf("%q: %q names the user", raw, key)
			}
		}
	}))
}

// A key of another type in the place of the record, or of a token's entry, cannot be
// read either.
func TestEraseAKeyOfAnotherType(t *testing.T) {
	for _, tt := range []struct{ why, key string }{
		{"record", shards.UserKey(shards.UserShard("uma"), "uma")},
		{"token", shards.TokenKey(shards.TokenShard(userstest.Hash(1)), userstest.Hash(1))},
	} {
		t.Run(tt.why, func(t *testing.T) {
			userstest.EachRedis(t, realRedis, in(func(w *world) {
				w.Run(userstest.RegistryOptions())
				w.Register("uma", 1, 1)
				w.Settle()
				w.Must(w.Redis.Del(w.Ctx, tt.key).Err())
				w.Must(w.Redis.HSet(w.Ctx, tt.key, "uma", "x").Err())
				if found, _ := w.erase("uma"); !found.Record || found.Devices != 1 || found.Tokens != 1 {
					t.Errorf("found %+v", found)
				}
				if n, err := w.Redis.Exists(w.Ctx, tt.key).Result(); err != nil || n != 0 {
					t.Errorf("the key is still there: %v", err)
				}
			}))
		})
	}
}

// An entry of the token index is the user's if it names the user, or if it cannot be
// read: then it may. So is its device, which gets a tombstone, also if the topic has only one.
func TestEraseLooksAtTokens(t *testing.T) {
	userstest.Virtual(t, in(func(w *world) {
		for i, tt := range []struct {
			why, entry string
			tokens     int
		}{
			{"the user's", string(record.Claims{{User: "uma", At: 5}}.Encode(7)), 1},
			{"another one's and the user's", string(record.Claims{{User: "bob", At: 5}, {User: "uma", At: 4}}.Encode(7)), 1},
			{"another one's", string(record.Claims{{User: "bob", At: 5}}.Encode(7)), 0},
			{"of a later version", "\x09 of anybody", 1},
			{"cut short", "\x01", 1},
		} {
			w.Must(w.Redis.Set(w.Ctx, state.TokenKey(userstest.Hash(i)), tt.entry, 0).Err())
			w.Register("uma", i, 1)
			look := func(device string, devices int) (e *erase.Erasure) {
				e = w.erasure("uma", w.Topic)
				if found, err := e.Look(w.Ctx); err != nil || found.Tokens != tt.tokens || found.Devices != devices {
					t.Errorf("%s, the device %s: found %+v, %v; want %d tokens, %d devices", tt.why, device, found, err, tt.tokens, devices)
				}
				return e
			}
			look("registered", 1)
			w.Must(w.Client.RemoveDevice(w.Ctx, "uma", userstest.Hash(i)))
			if n, err := look("removed", tt.tokens).Append(w.Ctx); n != tt.tokens || err != nil {
				t.Errorf("%s: %d tombstones, %v; want %d", tt.why, n, err, tt.tokens)
			}
			w.Must(w.Redis.Del(w.Ctx, state.TokenKey(userstest.Hash(i))).Err())
		}
		w.OptOut("uma", "promo")
		w.Must(w.Redis.Set(w.Ctx, state.TokenKey(""), "\x01", 0).Err())
		if found, err := w.erasure("uma", w.Topic).Look(w.Ctx); err != nil || found.Tokens != 0 || found.Devices != 0 {
			t.Errorf("preferences are taken for a device: found %+v, %v", found, err)
		}
	}))
}

// Whatever is left is something.
func TestRemainsOfAnyKind(t *testing.T) {
	for _, tt := range []struct {
		why  string
		left erase.Remains
		any  bool
	}{
		{"nothing", erase.Remains{}, false},
		{"a device", erase.Remains{Devices: 1}, true},
		{"a part of a later version", erase.Remains{Others: 1}, true},
		{"preferences", erase.Remains{Preferences: true}, true},
		{"a profile", erase.Remains{Profile: true}, true},
		{"limits", erase.Remains{Limits: true}, true},
		{"a record in Redis", erase.Remains{Record: true}, true},
		{"an entry of the token index", erase.Remains{Tokens: 1}, true},
	} {
		if got := tt.left.Any(); got != tt.any {
			t.Errorf("%s: %v", tt.why, got)
		}
	}
}

func TestEraseRefuses(t *testing.T) {
	for _, user := range []string{"", strings.Repeat("x", 129)} {
		if _, err := erase.New(nil, nil, nil, user); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("a user of %d bytes: %v", len(user), err)
		}
	}
}

// What is kept about a device goes with its user, as long as push.users tells of the device,
// and stays where somebody else has registered it since.
func TestOwned(t *testing.T) {
	const now, former, gone, taken, theirs = 1, 2, 3, 4, 5
	userstest.Virtual(t, in(func(w *world) {
		stop := w.Run(userstest.RegistryOptions())
		for _, tok := range []int{now, former, gone, taken} {
			w.Register("uma", tok, 10)
		}
		w.Register("max", theirs, 10)
		w.Must(w.Client.RemoveDevice(w.Ctx, "uma", userstest.Hash(former)))
		w.Must(w.Client.RemoveDevice(w.Ctx, "uma", userstest.Hash(gone)))
		w.Settle()
		w.Register("max", gone, 20)
		w.Settle()
		stop()
		w.Register("max", taken, 20) // which Redis does not tell of yet
		look := func(why string, hashes ...string) {
			t.Helper()
			found, err := w.erasure("uma", w.Topic).Look(w.Ctx)
			w.Must(err)
			slices.Sort(hashes)
			if !slices.Equal(found.Owned, hashes) {
				t.Errorf("%s: %q, want %q", why, found.Owned, hashes)
			}
			had := []string{userstest.Hash(now), userstest.Hash(former), userstest.Hash(gone), userstest.Hash(taken)}
			if slices.Sort(had); !slices.Equal(found.Had, had) {
				t.Errorf("%s: had %q, want %q", why, found.Had, had)
			}
		}
		look("live and former ones", userstest.Hash(now), userstest.Hash(former), userstest.Hash(taken))
		claim := func(tok int, claims record.Claims) {
			w.Must(w.Redis.Set(w.Ctx, state.TokenKey(userstest.Hash(tok)), claims.Encode(record.BuildOf([]byte(w.Redis.Get(w.Ctx, state.TokenKey(userstest.Hash(tok))).Val()))), 0).Err())
		}
		claim(taken, record.Claims{{User: "max", At: 20}})
		look("somebody else's, by the index", userstest.Hash(now), userstest.Hash(former))
		claim(taken, record.Claims{{User: "max", At: 20}, {User: "uma", At: 10}})
		look("an open case", userstest.Hash(now), userstest.Hash(former))
		claim(taken, record.Claims{{User: "max", At: 20}, {User: "uma", At: 30}})
		look("registered again", userstest.Hash(now), userstest.Hash(former), userstest.Hash(taken))
	}))
}
