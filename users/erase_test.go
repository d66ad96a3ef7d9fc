package users_test

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
)

// keys are all keys in Redis, sorted.
func (w *world) keys() []string {
	w.t.Helper()
	keys, err := w.redis.Keys(w.ctx, "*").Result()
	w.must(err)
	slices.Sort(keys)
	return keys
}

// namesUser says which key or value in Redis has this text in it; empty = none.
func (w *world) namesUser(text string) string {
	w.t.Helper()
	for _, key := range w.keys() {
		value := ""
		switch kind, err := w.redis.Type(w.ctx, key).Result(); {
		case err != nil:
			w.t.Fatal(err)
		case kind == "string":
			value = w.redis.Get(w.ctx, key).Val()
		case kind == "set":
			value = strings.Join(w.redis.SMembers(w.ctx, key).Val(), "\n")
		}
		if strings.Contains(key, text) || strings.Contains(value, text) {
			return key
		}
	}
	return ""
}

// topicNames reports which key of the topic, as compaction leaves it, is the user's.
func (w *world) topicNames(user string) string {
	for _, r := range w.topic.Latest() {
		if string(users.PartitionKey([]byte(r.Key))) == user {
			return r.Key
		}
	}
	return ""
}

func (w *world) erasure(user string, history erase.History) *erase.Erasure {
	w.t.Helper()
	e, err := erase.New(w.topic, history, w.redis, user)
	w.must(err)
	return e
}

// erase erases as pushctl does, and returns what was found.
func (w *world) erase(user string) (found erase.Remains, tombstones int) {
	w.t.Helper()
	e := w.erasure(user, w.topic)
	found, err := e.Look(w.ctx)
	w.must(err)
	tombstones, err = e.Append(w.ctx)
	w.must(err)
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	w.must(e.Await(ctx))
	left, err := e.Look(w.ctx)
	w.must(err)
	if left.Any() {
		w.t.Errorf("left of %q: %+v", user, left)
	}
	return found, tombstones
}

// Whatever can be there of a user goes, and nothing of the neighbours.
func TestErase(t *testing.T) {
	for _, user := range []string{"uma", "u/m/a", "uma/prefs", "\x00\xff{uma}\n*", strings.Repeat("ä", 62)} {
		t.Run(fmt.Sprintf("%q", user), func(t *testing.T) {
			eachRedis(t, func(w *world) {
				o := options()
				o.Devices.App = 3
				w.run(o)
				w.register("neighbour", 100, 1)
				w.raw(record.DeviceKey(user+"/x", hash(101)), w.deviceValue(101, 1))
				w.register("neighbour", 7, 1) // a token that goes to the user
				w.settle()
				w.raw(record.DeviceKey(user, hash(7)), w.deviceValue(7, 2))
				w.settle()
				before := w.keys()
				w.raw(record.PreferencesKey(user), `{"opt_out_types":["promo"]}`)
				w.raw(record.PreferencesKey(user), `{"v":99}`) // in quarantine
				w.raw(record.ProfileKey(user), `{"user_number":7,"time_zone":"Europe/Paris"}`)
				w.raw(record.LimitsKey(user), `{"limits":{"promo":2}}`)
				for i := range 6 { // three too many
					w.raw(record.DeviceKey(user, hash(i)), w.deviceValue(i, 10+i))
				}
				w.raw(record.DeviceKey(user, hash(9)), `{"v":99}`)
				w.raw(record.DeviceKey(user, laterHash), later(5))
				w.raw(user+"/inbox", `{"of":"a later version"}`)
				w.raw(user+"/device:short", `{}`)
				w.settle()

				found, tombstones := w.erase(user)
				if !found.Preferences || !found.Profile || !found.Limits || !found.Record || found.Others != 2 || found.Number != 7 || !found.HasNumber ||
					found.Devices != len(found.Hashes) || found.Devices < 5 || found.Tokens < 4 || tombstones != found.Devices+3+2 {
					t.Errorf("found %+v, %d tombstones", found, tombstones)
				}
				if key := w.topicNames(user); key != "" {
					t.Errorf("push.users keeps %q", key)
				}
				w.settle()
				after := w.keys()
				before = slices.DeleteFunc(before, func(key string) bool { // what the user had before the snapshot
					return key == shards.UserKey(shards.UserShard(user), user) || key == shards.TokenKey(shards.TokenShard(hash(7)), hash(7))
				})
				if !slices.Equal(before, after) {
					t.Errorf("keys in Redis: %q, want %q", after, before)
				}
				if got := w.fetch("neighbour", user+"/x"); len(got["neighbour"].Devices) != 1 || len(got[user+"/x"].Devices) != 1 {
					t.Errorf("the neighbours have %s", show(got))
				}
				for key, q := range w.told() {
					if q.User == user {
						t.Errorf("the topic of the quarantine keeps %q", key)
					}
				}

				// Once more there is nothing, and a later registration is one as any.
				if found, tombstones := w.erase(user); found.Any() || tombstones != 0 {
					t.Errorf("the second time: found %+v, %d tombstones", found, tombstones)
				}
				w.raw(record.DeviceKey(user, hash(1)), w.deviceValue(1, 1)) // of an earlier time even
				w.settle()
				if got := w.fetch(user)[user]; got == nil || len(got.Devices) != 1 {
					t.Errorf("a later registration: %+v", got)
				}
			})
		})
	}
}

// deviceValue is the value of a record that registers a token.
func (w *world) deviceValue(tok, at int) string {
	w.t.Helper()
	value, err := record.DeviceValue(&push.Device{Platform: push.FCM, App: "shop", Token: token(tok), RegisteredAt: epoch.Add(time.Duration(at) * time.Second)})
	w.must(err)
	return string(value)
}

// What an earlier build of the shard left in Redis counts for nobody, but is there.
func TestEraseFindsWhatAnEarlierBuildLeft(t *testing.T) {
	virtual(t, func(w *world) {
		stop := w.run(options())
		w.register("uma", 1, 1)
		w.optOut("uma", "promo")
		w.settle()
		stop()
		w.must(w.client.RemoveDevice(w.ctx, "uma", hash(1)))
		w.must(w.client.SetPreferences(w.ctx, "uma", push.Preferences{}))
		w.topic.Compact() // and nothing of the topic tells
		o := options()
		o.Rebuild = true
		w.run(o)
		w.settle()
		if got := w.fetch("uma"); len(got) > 0 || w.namesUser("uma") == "" {
			t.Fatalf("the test shows nothing: %s, %q", show(got), w.namesUser("uma"))
		}
		if found, _ := w.erase("uma"); !found.Record || found.Devices != 1 || found.Tokens != 1 {
			t.Errorf("found %+v", found)
		}
		if key := w.namesUser("uma"); key != "" {
			t.Errorf("%q names the user", key)
		}
	})
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
			virtual(t, func(w *world) {
				w.run(options())
				w.register("uma", 1, 1)
				w.settle()
				e := w.erasure("uma", &lastRead{w.topic, tt.reads, func() {
					w.register("uma", 1, 50)
					w.register("uma", 2, 50)
				}})
				_, err := e.Look(w.ctx)
				w.must(err)
				_, err = e.Append(w.ctx)
				w.must(err)
				w.must(e.Await(w.ctx))
				w.settle()
				left, err := e.Look(w.ctx)
				w.must(err)
				if got := w.look("uma"); left.Any() != tt.stays || left.Devices != len(got.Devices) || tt.stays != (len(got.Devices) == 2) {
					t.Errorf("left %+v, Redis has %+v", left, got)
				}
			})
		})
	}
}

// Without a registry the topic has its tombstones, and nothing is claimed.
func TestEraseWithoutARegistry(t *testing.T) {
	virtual(t, func(w *world) {
		stop := w.run(options())
		w.register("uma", 1, 1)
		w.settle()
		stop()
		w.register("uma", 2, 2) // Redis does not know it
		e := w.erasure("uma", w.topic)
		found, err := e.Look(w.ctx)
		w.must(err)
		if found.Devices != 2 {
			t.Errorf("found %+v", found)
		}
		_, err = e.Append(w.ctx)
		w.must(err)
		ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
		defer cancel()
		if err := e.Await(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for nobody ends with %v", err)
		}
		if left, err := e.Look(w.ctx); err != nil || !left.Record || left.Devices != 1 {
			t.Errorf("left %+v, %v", left, err)
		}
		w.run(options())
		w.must(e.Await(w.ctx))
		if key := w.namesUser("uma"); key != "" {
			t.Errorf("%q names the user", key)
		}
	})
}

// A record in Redis that cannot be read goes too.
func TestEraseAnUnreadableRecord(t *testing.T) {
	virtual(t, func(w *world) {
		w.run(options())
		w.register("uma", 1, 1)
		w.settle()
		for _, raw := range []string{"\x01garbage of uma", "\x09a later version"} {
			w.must(w.redis.Set(w.ctx, shards.UserKey(shards.UserShard("uma"), "uma"), raw, 0).Err())
			w.erase("uma")
			if key := w.namesUser("uma"); key != "" {
				t.Errorf("%q: %q names the user", raw, key)
			}
		}
	})
}

func TestEraseRefuses(t *testing.T) {
	for _, user := range []string{"", strings.Repeat("x", 129)} {
		if _, err := erase.New(nil, nil, nil, user); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("a user of %d bytes: %v", len(user), err)
		}
	}
}
