package collapse_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/pushfleet/pushfleet/collapse"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// sent is an item of user ada that was first seen at a time and, unless class
// says otherwise, delivered.
func sent(id, key string, firstSeen time.Time, edit ...func(*pipeline.Item)) *pipeline.Item {
	it := &pipeline.Item{FirstSeen: push.At(firstSeen)}
	it.ID, it.App, it.UserID, it.CollapseKey = id, "shop", "ada", key
	it.Deliveries = []pipeline.Delivery{{Result: push.Result{Class: push.Delivered}}}
	for _, e := range edit {
		e(it)
	}
	return it
}

func TestLatestIsTheNewestAccepted(t *testing.T) { eachRedis(t, theNewestAccepted) }

func theNewestAccepted(t *testing.T, w *world) {
	base := time.Now()
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	result := func(c push.Class) func(*pipeline.Item) {
		return func(it *pipeline.Item) { it.Deliveries[0].Result.Class = c }
	}
	retried := func() *pipeline.Item { return sent("n", "k", at(1000)) }
	for _, tt := range []struct {
		why      string
		accepted []*pipeline.Item
		want     bool // a retry of n, first seen at 1000, is superseded
	}{
		{"nothing is known", nil, false},
		{"a newer one was accepted", []*pipeline.Item{sent("m", "k", at(1001))}, true},
		{"an older one was accepted", []*pipeline.Item{sent("m", "k", at(999))}, false},
		{"one of the same time: who can say", []*pipeline.Item{sent("m", "k", at(1000))}, false},
		{"its own other device was accepted", []*pipeline.Item{sent("n", "k", at(1000))}, false},
		{"a later copy of itself was accepted", []*pipeline.Item{sent("n", "k", at(2000))}, false},
		{"the newer one was refused", []*pipeline.Item{sent("m", "k", at(1001), result(push.Refused))}, false},
		{"the newer one is to be tried again", []*pipeline.Item{sent("m", "k", at(1001), result(push.Again))}, false},
		{"one of the newer one's devices was accepted", []*pipeline.Item{sent("m", "k", at(1001), result(push.Again), func(it *pipeline.Item) {
			it.Deliveries = append(it.Deliveries, pipeline.Delivery{Result: push.Result{Class: push.Delivered}})
		})}, true},
		{"another key", []*pipeline.Item{sent("m", "other", at(1001))}, false},
		{"another app", []*pipeline.Item{sent("m", "k", at(1001), func(it *pipeline.Item) { it.App = "bank" })}, false},
		{"another user", []*pipeline.Item{sent("m", "k", at(1001), func(it *pipeline.Item) { it.UserID = "bob" })}, false},
		{"an older one after a newer one", []*pipeline.Item{sent("m", "k", at(1001)), sent("o", "k", at(5))}, true},
		{"app and key do not run into each other", []*pipeline.Item{sent("m", "pk", at(1001), func(it *pipeline.Item) { it.App = "sho" })}, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			w.must(w.redis.FlushAll(w.ctx).Err())
			w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{retried()}))
			w.must(w.latest.Accepted(w.ctx, tt.accepted))
			if got := w.superseded(retried()); got != tt.want {
				t.Errorf("superseded: %v, want %v", got, tt.want)
			}
			w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{retried(), retried()})) // once more: another attempt failed
			if got := w.superseded(retried()); got != tt.want {
				t.Errorf("after another attempt superseded: %v, want %v", got, tt.want)
			}
		})
	}
}

// A batch of many users, some of them more than once and one of them more
// often than a call takes, comes out as each by itself.
func TestLatestOfABatch(t *testing.T) {
	eachRedis(t, func(t *testing.T, w *world) {
		now := time.Now()
		var newer, older []*pipeline.Item
		for i := range 3000 {
			user := func(it *pipeline.Item) { it.UserID = fmt.Sprintf("user-%d", i%1000) }
			if i%2 == 0 {
				user = func(it *pipeline.Item) { it.UserID = "busy" }
			}
			key := fmt.Sprintf("key-%d", i%200)
			newer = append(newer, sent(fmt.Sprintf("new-%d", i), key, now, user))
			older = append(older, sent(fmt.Sprintf("old-%d", i), key, now.Add(-time.Second), user))
		}
		w.must(w.latest.HandedOver(w.ctx, older))
		w.must(w.latest.Accepted(w.ctx, newer[:1500]))
		w.must(w.latest.Accepted(w.ctx, newer[:1500])) // once more changes nothing
		out := make([]bool, len(older))
		w.must(w.latest.Superseded(w.ctx, older, out))
		known := map[string]bool{}
		for _, it := range newer[:1500] {
			known[it.UserID+it.CollapseKey] = true
		}
		wrong, missed := 0, 0
		for i, it := range older {
			switch want := known[it.UserID+it.CollapseKey]; {
			case out[i] && !want:
				wrong++
			case !out[i] && want:
				missed++
			}
		}
		// Ids whose few bits agree by chance are let through: one of 2,048.
		if wrong > 0 || missed > 15 {
			t.Errorf("%d superseded by nothing, %d let through", wrong, missed)
		}
	})
}

// looking is an id whose key looks for what is too much: one in eight does.
const looking = "m"

func TestLatestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inMemory(t, func(w *world) {
			o := collapse.DefaultOptions()
			o.Horizon = time.Hour
			w.with(o)
			key := shards.CollapseKey(shards.UserShard("ada"), "ada")
			begin := time.Now()
			w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{sent("n", "k", begin)}))
			time.Sleep(30 * time.Minute)
			w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{sent("m", "k", time.Now())}))
			time.Sleep(30 * time.Minute)
			if !w.superseded(sent("n", "k", begin)) {
				t.Error("forgotten within the horizon")
			}
			if ttl := w.redis.PTTL(w.ctx, key).Val(); ttl != 5*time.Minute {
				t.Errorf("the user's keys live for %v more, want the horizon and 5 minutes from the last one that was opened", ttl)
			}
			time.Sleep(10 * time.Minute)
			if n := w.redis.Exists(w.ctx, key).Val(); n != 0 {
				t.Error("a user of whom nothing is tried again is remembered for ever")
			}
		})
	})
}

// Of one user's collapse keys there are hardly more than 1,024 at any time, whatever the ids:
// what goes first is what nothing was accepted under.
func TestTooMuchIsLookedForNowAndThen(t *testing.T) {
	const together, accepted, calls, bound = 10, 30, 300, 1024
	eachRedis(t, func(t *testing.T, w *world) {
		base, most := time.Now(), int64(0)
		key := shards.CollapseKey(shards.UserShard("ada"), "ada")
		all := func(id string, call int, at time.Time) (items []*pipeline.Item) {
			for i := range together {
				items = append(items, sent(fmt.Sprint(id, call*together+i), fmt.Sprint(call*together+i), at))
			}
			return items
		}
		for call := range calls {
			w.must(w.latest.HandedOver(w.ctx, all("id-", call, base)))
			most = max(most, w.redis.ZCard(w.ctx, key).Val())
			if call < accepted {
				w.must(w.latest.Accepted(w.ctx, all("newer-", call, base.Add(time.Second))))
			}
		}
		if most < bound || most > bound+8*together {
			t.Errorf("up to %d keys of a user are remembered, want %d and some", most, bound)
		}
		missed := 0
		for call := range accepted {
			for _, it := range all("id-", call, base) {
				if !w.superseded(it) {
					missed++
				}
			}
		}
		if missed > 3 { // ids whose bits agree by chance
			t.Errorf("%d of %d keys are forgotten under which something was accepted", missed, accepted*together)
		}
		w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{sent(looking, "last", base)}))
		if n := w.redis.ZCard(w.ctx, key).Val(); n != bound {
			t.Errorf("%d keys are left behind one that looks, want %d", n, bound)
		}
	})
}

// What nobody can ask for any more makes no room scarce for what is opened today: of a user of whom
// 30 notifications a day are tried again, each with a key of its own, there are those of two days,
// and each retry is superseded.
func TestOldKeysGo(t *testing.T) {
	const aDay, every = 30, 21 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		inMemory(t, func(w *world) {
			key := shards.CollapseKey(shards.UserShard("ada"), "ada")
			n, missed := 0, 0
			for day := range 50 {
				for range aDay {
					n++
					k, at := fmt.Sprint("k", n), time.Now()
					older := sent(fmt.Sprint("o", n), k, at)
					w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{older}))
					time.Sleep(every)
					w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{sent(fmt.Sprint("n", n), k, at.Add(time.Second))}))
					if !w.superseded(older) {
						missed++
					}
				}
				if all := w.redis.ZCard(w.ctx, key).Val(); all > 4*aDay {
					t.Fatalf("on day %d %d keys are remembered, want those of two days and some", day, all)
				}
				time.Sleep(24*time.Hour - aDay*every)
			}
			if missed > 5 { // ids whose bits agree by chance
				t.Errorf("%d of %d retries are sent over a newer notification", missed, n)
			}
		})
	})
}

// A key that is opened where an old note stands is open for as long as its own notification may
// be sent, also when the note goes.
func TestAKeyIsOpenedOverAnOldNote(t *testing.T) {
	for _, age := range []time.Duration{time.Hour, 23 * time.Hour, 25 * time.Hour, 47 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			inMemory(t, func(w *world) {
				others := func() { // which keep the user's set, and look for what is old
					w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{sent(looking, fmt.Sprint(time.Now().Unix()), time.Now())}))
				}
				w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{sent("a", "k", time.Now())}))
				w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{sent("b", "k", time.Now().Add(time.Millisecond))}))
				for range int(age / time.Hour) {
					time.Sleep(time.Hour)
					others()
				}
				older := sent("c", "k", time.Now())
				w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{older}))
				for range 23 {
					time.Sleep(time.Hour)
					others()
				}
				w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{sent("d", "k", time.Now())}))
				if !w.superseded(older) {
					t.Errorf("a note of %v before its key was opened keeps a newer one from being noted", age)
				}
			})
		})
	}
}

// A user's keys have an end from the first one on, whatever adds it, and each that is added
// moves it.
func TestEveryKeyHasAnEnd(t *testing.T) {
	eachRedis(t, func(t *testing.T, w *world) {
		const keep = 24*time.Hour + 5*time.Minute
		now := time.Now()
		for name, add := range map[string]func(...*pipeline.Item) error{
			"handed over": func(items ...*pipeline.Item) error { return w.latest.HandedOver(w.ctx, items) },
			"contested": func(items ...*pipeline.Item) error {
				w.contest(items...)
				return w.latest.Accepted(w.ctx, items)
			},
		} {
			w.must(w.redis.FlushAll(w.ctx).Err())
			for range 2 {
				w.must(add(sent("m", "k", now), sent("q", "k", now, func(it *pipeline.Item) { it.UserID = "bob" })))
				for _, user := range []string{"ada", "bob"} {
					key := shards.CollapseKey(shards.UserShard(user), user)
					if ttl := w.redis.PTTL(w.ctx, key).Val(); ttl < keep-time.Hour || ttl > keep {
						t.Errorf("%s: %s's keys live for %v more, want %v", name, user, ttl, keep)
					}
					w.must(w.redis.PExpire(w.ctx, key, time.Minute).Err())
				}
			}
		}
	})
}

func TestLatestWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A server that takes connections and says nothing.
		client := redis.NewClient(&redis.Options{Addr: "mute", MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true, Protocol: 2,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // they look the name up
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				t.Cleanup(func() { _ = theirs.Close() })
				return ours, nil
			}})
		defer func() { _ = client.Close() }()
		l, err := collapse.New(client, collapse.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		items := []*pipeline.Item{sent("m", "k", begin)}
		if err := l.Accepted(t.Context(), items); err == nil {
			t.Error("noted without Redis")
		}
		if took := time.Since(begin); took > collapse.DefaultOptions().Timeout {
			t.Errorf("Accepted took %v, past its time-out", took)
		}
		begin = time.Now()
		if err := l.HandedOver(t.Context(), items); err == nil {
			t.Error("opened without Redis")
		}
		if took := time.Since(begin); took > collapse.DefaultOptions().Timeout {
			t.Errorf("HandedOver took %v, past its time-out", took)
		}
		if err := l.Superseded(t.Context(), items, make([]bool, 1)); err == nil {
			t.Error("asked without Redis")
		}
		if err := l.Superseded(t.Context(), items, make([]bool, 2)); err == nil {
			t.Error("one item has two answers")
		}
		// What has no collapse key needs no Redis.
		plain := []*pipeline.Item{sent("m", "", begin)}
		if err := l.Accepted(t.Context(), plain); err != nil {
			t.Error(err)
		}
		if err := l.HandedOver(t.Context(), plain); err != nil {
			t.Error(err)
		}
		if err := l.Superseded(t.Context(), plain, make([]bool, 1)); err != nil {
			t.Error(err)
		}
		if err := l.Superseded(t.Context(), plain, make([]bool, 2)); err == nil {
			t.Error("one item without a collapse key has two answers")
		}
	})
}

func TestSettingsThatCannotWork(t *testing.T) {
	for o, good := range map[collapse.Options]bool{
		{Horizon: time.Second, Timeout: 1}: true, {Horizon: time.Second - 1, Timeout: 1}: false, {Horizon: time.Second}: false,
	} {
		if l, err := collapse.New(nil, o); (err == nil) != good || (l != nil) != good {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// On a cluster every command stays in its slot.
func TestOnACluster(t *testing.T) {
	w := connect(t, localtest.RedisCluster(t, local.RedisOptions{}).Addrs()...)
	now := time.Now()
	var newer, older, contested, retried []*pipeline.Item
	const users = 200 // some of them in one shard
	for i := range users {
		owner := func(it *pipeline.Item) { it.UserID = fmt.Sprint("user-", i) }
		newer, older = append(newer, sent("new", "k", now, owner)), append(older, sent("old", "k", now.Add(-time.Second), owner))
		switch i % 3 {
		case 0:
			retried = append(retried, older[i])
		case 1:
			contested = append(contested, newer[i])
		}
	}
	w.must(w.latest.HandedOver(w.ctx, retried))
	w.contest(contested...)
	w.must(w.latest.Accepted(w.ctx, newer))
	out := make([]bool, len(older))
	w.must(w.latest.Superseded(w.ctx, older, out))
	for i, superseded := range out {
		if want := i%3 < 2; superseded != want {
			t.Errorf("%s: the older one is superseded: %v, want %v", older[i].UserID, superseded, want)
		}
	}
	forgets(t, w, len(retried)+len(contested))
}

func TestForget(t *testing.T) {
	eachRedis(t, func(t *testing.T, w *world) {
		item := sent("m", "k", time.Now(), func(it *pipeline.Item) { it.UserID = "user-0" })
		all := []*pipeline.Item{item, sent("m", "k", time.Now())}
		w.contest(all...)
		w.must(w.latest.Accepted(w.ctx, all))
		forgets(t, w, 1)
		if !w.superseded(sent("n", "k", time.Now().Add(-time.Minute))) {
			t.Error("another user's is forgotten")
		}
	})
}

// forgets checks that what is known of so many users is forgotten at once, and then
// nothing is known of them, nor of those who follow.
func forgets(t *testing.T, w *world, known int) {
	t.Helper()
	owners := make([]string, 1500) // more than a round trip
	for i := range owners {
		owners[i] = fmt.Sprint("user-", i)
	}
	for _, want := range []int{known, 0} {
		if n, err := collapse.Forget(w.ctx, w.redis, owners...); err != nil || n != want {
			t.Errorf("%d forgotten, want %d: %v", n, want, err)
		}
	}
	if n, err := shards.Count(w.ctx, w.redis, []string{shards.CollapseKey(shards.UserShard("user-0"), "user-0")}); n != 0 || err != nil {
		t.Errorf("%d keys of it, %v", n, err)
	}
}
