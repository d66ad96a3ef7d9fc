package users_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// What cannot be read in Redis is rebuilt from the topic, however little of it
// is left, and nobody else waits for it.
func TestStoredRecordsAreRebuilt(t *testing.T) {
	ada := shards.UserKey(shards.UserShard("ada"), "ada")
	entry := shards.TokenKey(shards.TokenShard(hash(3)), hash(3))
	for _, tt := range []struct {
		name, key string
		spoil     func(record string) string
	}{
		{"of a version that nobody has", ada, func(r string) string { return "\x02" + r[1:] }},
		{"empty", ada, func(string) string { return "" }},
		{"cut in its head", ada, func(r string) string { return r[:4] }},
		{"cut", ada, func(r string) string { return r[:len(r)-1] }},
		{"a section that nobody knows", ada, func(r string) string { return r + "\x7f\x00" }},
		{"the owner of a token", entry, func(string) string { return "garbage" }},
		{"the owner of a token, cut", entry, func(r string) string { return r[:len(r)-1] }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				w.fill()
				w.run(options())
				w.agree()
				before := w.redis.Get(w.ctx, shards.EpochKey(shards.UserShard("ada"))).Val()
				w.must(w.redis.Set(w.ctx, tt.key, tt.spoil(w.redis.Get(w.ctx, tt.key).Val()), 0).Err())
				out := outOf(2)
				w.must(users.NewReader(w.redis, false).Fetch(w.ctx, []string{"ada", "dee"}, out))
				if tt.key == ada && (out[0].Quarantine != push.RecordUnread || len(out[0].Devices) > 0) {
					t.Errorf("ada is %+v, want nothing but the mark", *out[0])
				}
				if len(out[1].Preferences.Types) != 2 {
					t.Errorf("dee is %+v", *out[1])
				}
				if tt.key == entry {
					w.register("cy", 3, 30) // the token moves, and both claims must be known
				}
				time.Sleep(3 * options().CheckInterval)
				w.agree()
				if after := w.redis.Get(w.ctx, shards.EpochKey(shards.UserShard("ada"))).Val(); after != before {
					t.Error("the whole shard was built anew")
				}
			})
		})
	}
}

// held stops the reading of the topic from its start until it is released.
type held struct {
	users.Follower
	release chan struct{}
}

func (h held) Poll(ctx context.Context) ([]users.Fetched, error) {
	select {
	case <-h.release:
		return h.Follower.Poll(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// What comes for a user whose record is being rebuilt is in the rebuilt one,
// also when another registry reads it, and when the one that rebuilds dies.
func TestChangesDuringARebuild(t *testing.T) {
	for _, tt := range []struct {
		name   string
		others int  // registries beside
		dies   bool // the one that was first
	}{{"alone", 0, false}, {"beside another", 1, false}, {"it dies", 0, true}, {"it dies beside another", 1, true}} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				w.fill()
				release := make(chan struct{})
				w.wrap = func(topics *users.RegistryTopics) { topics.Rescan = held{topics.Rescan, release} }
				stop := w.run(options())
				for range tt.others {
					w.run(options())
				}
				w.agree()
				w.spoil("ada")
				w.look("ada")
				time.Sleep(3 * options().CheckInterval) // the reading has begun
				w.optOut("ada", "while", "it", "lasts")
				w.register("ada", 8, 80)
				w.register("eve", 1, 90) // takes ada's
				w.optOut("eve", "promo")
				time.Sleep(3 * options().CheckInterval)
				if got := w.look("eve").Preferences.Types; len(got) != 1 {
					t.Errorf("eve waits for ada: her opt-outs are %q", got)
				}
				if got := w.look("ada").Quarantine; got != push.RecordUnread {
					t.Errorf("ada's marks are %b before the reading is through", got)
				}
				if tt.dies {
					stop()
				}
				close(release)
				if tt.dies {
					w.run(options())
				}
				time.Sleep(3 * options().CheckInterval)
				w.agree()
				if got := w.look("ada"); len(got.Preferences.Types) != 3 || len(got.Devices) != 2 {
					t.Errorf("ada is %+v", got)
				}
			})
		})
	}
}

// A part that became readable while its user's record could not be read is out of
// quarantine with the rebuilt one, also where compaction has left no trace of
// what could not be read, and that is told; those of others stay.
func TestRebuildEndsAQuarantine(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		virtual(t, func(w *world) {
			w.fill()
			for _, user := range []string{"ada", "dee", "eve"} {
				w.raw(record.PreferencesKey(user), broken)
			}
			w.raw(record.DeviceKey("ada", hash(2)), "not json")
			w.run(options())
			w.agree()
			w.spoil("ada")
			w.optOut("ada", "news")
			if compacted {
				w.topic.Compact()
			}
			time.Sleep(3 * options().CheckInterval)
			w.settle()
			want := []string{record.DeviceKey("ada", hash(2)), record.PreferencesKey("dee"), record.PreferencesKey("eve")}
			slices.Sort(want)
			now, err := users.InQuarantine(w.ctx, w.redis)
			if err != nil || !slices.Equal(slices.Sorted(maps.Keys(now)), want) {
				t.Errorf("compacted %v, in quarantine: %v, %v; want %q", compacted, now, err, want)
			}
			if told := slices.Sorted(maps.Keys(w.told())); !slices.Equal(told, want) {
				t.Errorf("compacted %v, told: %q, want %q", compacted, told, want)
			}
		})
	}
}

// A registry dies at each of its steps while it rebuilds a record. All deaths are in
// one world, as building all shards is what costs: the next registry leaves it whole.
func TestCrashAtEveryStepOfARebuild(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		stop := w.run(options())
		w.agree()
		stop()
		steps := 0
		for reached := true; reached; steps++ {
			w.topic.Compact()
			w.spoil("ada")
			w.look("ada")
			w.optOut("ada", "one", "two", fmt.Sprint(steps))
			ctx, cancel := context.WithCancel(w.ctx)
			crash := userstest.NewCrash(steps, steps%2 == 0, cancel)
			stop = w.process(crash, ctx, cancel, options())
			select {
			case <-ctx.Done():
			case <-time.After(2 * options().CheckInterval):
			}
			stop()
			reached = crash.Happened()
			stop = w.run(options())
			time.Sleep(2 * options().CheckInterval)
			w.agree()
			stop()
			if steps > 100 {
				t.Fatal("it does not come to rest")
			}
		}
		if steps < 8 {
			t.Errorf("only %d steps", steps)
		}
		t.Logf("%d steps", steps)
	})
}

// While a shard is built anew, nobody knows whether what cannot be read in it is
// of an earlier build or of this one. It stops nothing, and all that records
// tell of it is rebuilt in one reading.
func TestRebuildOverRecordsThatCannotBeRead(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		stop := w.run(options())
		w.agree()
		stop()
		w.spoil("ada")
		w.spoil("nobody")
		w.must(w.redis.Set(w.ctx, shards.TokenKey(shards.TokenShard(hash(1)), hash(1)), "garbage", 0).Err())
		o := options()
		o.Rebuild = true
		var reread atomic.Int64
		w.wrap = func(topics *users.RegistryTopics) { topics.Rescan = counted{topics.Rescan, &reread} }
		w.run(o)
		time.Sleep(3 * options().CheckInterval)
		w.agree()
		if got := w.look("ada"); len(got.Devices) != 2 || reread.Load() != 1 {
			t.Errorf("ada is %+v; the topic was read %d times more, want once", got, reread.Load())
		}
		w.look("nobody") // tells the registry
		time.Sleep(3 * options().CheckInterval)
		if got := w.look("nobody").Quarantine; got != 0 {
			t.Errorf("who is in no topic has the marks %b", got)
		}
	})
}

// counted counts how often it is set to a place.
type counted struct {
	users.Follower
	seeks *atomic.Int64
}

func (c counted) Seek(ctx context.Context, offsets []int64) error {
	c.seeks.Add(1)
	return c.Follower.Seek(ctx, offsets)
}

// unread is a follower that cannot read.
type unread struct{ users.Follower }

func (unread) Poll(context.Context) ([]users.Fetched, error) {
	return nil, errors.New("the first batch cannot be decompressed")
}

// Where the topic cannot be read from its start, who waits for that waits, and
// nobody else.
func TestARebuildThatFailsHoldsUpNobody(t *testing.T) {
	virtual(t, func(w *world) {
		w.wrap = func(topics *users.RegistryTopics) { topics.Rescan = unread{topics.Rescan} }
		var failed atomic.Int64
		w.progress = func(p users.Progress) {
			if p.Err != nil {
				failed.Add(1)
			}
		}
		w.fill()
		w.run(options())
		w.agree()
		w.spoil("ada")
		w.look("ada")
		time.Sleep(3 * options().CheckInterval)
		for i := range 5 {
			w.optOut("eve", fmt.Sprint(i))
			time.Sleep(10 * time.Millisecond)
			if got := w.look("eve").Preferences.Types; !slices.Equal(got, []string{fmt.Sprint(i)}) {
				t.Errorf("eve's opt-outs are %q after %q was set", got, fmt.Sprint(i))
			}
			time.Sleep(options().CheckInterval)
		}
		if n := failed.Load(); n > 0 {
			t.Errorf("following failed %d times", n)
		}
		if got := w.look("ada").Quarantine; got != push.RecordUnread {
			t.Errorf("ada's marks are %b", got)
		}
	})
}

// pausable is a follower that has nothing while it is paused.
type pausable struct {
	users.Follower
	paused *atomic.Bool
}

func (p pausable) Poll(ctx context.Context) ([]users.Fetched, error) {
	for p.paused.Load() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return p.Follower.Poll(ctx)
}

// A registry that is behind another one does not write what it rebuilt over
// what the other has applied since.
func TestARebuildBehindAnotherRegistry(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		release := make(chan struct{})
		var paused atomic.Bool
		w.wrap = func(topics *users.RegistryTopics) {
			topics.Follower, topics.Rescan = pausable{topics.Follower, &paused}, held{topics.Rescan, release}
		}
		slow := w.run(options())
		w.agree()
		w.spoil("ada")
		w.look("ada")
		time.Sleep(3 * options().CheckInterval) // it reads from the start
		paused.Store(true)
		w.wrap = nil
		other := w.run(options())
		time.Sleep(3 * options().CheckInterval)
		w.optOut("ada", "one", "two", "three")
		time.Sleep(3 * options().CheckInterval)
		if got := w.look("ada").Preferences.Types; len(got) != 3 {
			t.Fatalf("the other registry has not applied it: %q", got)
		}
		close(release)
		time.Sleep(3 * options().CheckInterval)
		if got := w.look("ada").Preferences.Types; len(got) != 3 {
			t.Errorf("ada's opt-outs went back to %q", got)
		}
		other()
		paused.Store(false)
		w.agree()
		slow()
	})
}

// logOut appends a log-out right before the registry's own word about a device:
// after it has read what it will say.
type logOut struct {
	users.Log
	key  string
	done atomic.Bool
}

func (l *logOut) Append(ctx context.Context, rs []users.Record) error {
	if !l.done.Load() && slices.ContainsFunc(rs, func(r users.Record) bool { return r.Key == l.key && r.Value != nil }) {
		l.done.Store(true)
		if err := l.Log.Append(ctx, []users.Record{{Key: l.key}}); err != nil {
			return err
		}
	}
	return l.Log.Append(ctx, rs)
}

// A registration that is appended once more, because a removal that did not
// reach it came behind it, must not undo a log-out that came in between.
func TestSettlingDoesNotUndoALogOut(t *testing.T) {
	virtual(t, func(w *world) {
		l := &logOut{Log: w.topic, key: record.DeviceKey("ada", hash(1))}
		w.wrap = func(topics *users.RegistryTopics) { topics.Log = l }
		w.run(options())
		w.register("ada", 1, 30)
		w.must(w.topic.Append(w.ctx, []users.Record{{Key: l.key, IfNotAfter: epoch.Add(20 * time.Second)}}))
		w.settle()
		if !l.done.Load() {
			t.Fatal("nothing was appended once more")
		}
		for range 2 {
			if got := w.owners(1); len(got) != 0 {
				t.Errorf("owners %q, want nobody", got)
			}
			w.topic.Compact()
			w.must(w.redis.FlushAll(w.ctx).Err())
			time.Sleep(2 * options().CheckInterval)
			w.agree()
		}
		w.register("ada", 1, 25) // in again, with the clock of her own
		w.agree()
		if got := w.owners(1); !slices.Equal(got, []string{"ada"}) {
			t.Errorf("owners %q, want ada", got)
		}
	})
}
