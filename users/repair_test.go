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
	entry := shards.TokenKey(shards.TokenShard(userstest.Hash(3)), userstest.Hash(3))
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
				w.Run(userstest.RegistryOptions())
				w.agree()
				before := w.Redis.Get(w.Ctx, shards.EpochKey(shards.UserShard("ada"))).Val()
				w.Must(w.Redis.Set(w.Ctx, tt.key, tt.spoil(w.Redis.Get(w.Ctx, tt.key).Val()), 0).Err())
				out := outOf(2)
				w.Must(users.NewReader(w.Redis, false).Fetch(w.Ctx, []string{"ada", "dee"}, out))
				if tt.key == ada && (out[0].Quarantine != push.RecordUnread || len(out[0].Devices) > 0) {
					t.Errorf("ada is %+v, want nothing but the mark", *out[0])
				}
				if len(out[1].Preferences.Types) != 2 {
					t.Errorf("dee is %+v", *out[1])
				}
				if tt.key == entry {
					w.Register("cy", 3, 30) // the token moves, and both claims must be known
				}
				time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
				w.agree()
				if after := w.Redis.Get(w.Ctx, shards.EpochKey(shards.UserShard("ada"))).Val(); after != before {
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
				w.Wrap = func(topics *users.RegistryTopics) { topics.Rescan = held{topics.Rescan, release} }
				stop := w.Run(userstest.RegistryOptions())
				for range tt.others {
					w.Run(userstest.RegistryOptions())
				}
				w.agree()
				w.spoil("ada")
				w.Look("ada")
				time.Sleep(3 * userstest.RegistryOptions().CheckInterval) // the reading has begun
				w.OptOut("ada", "while", "it", "lasts")
				w.Register("ada", 8, 80)
				w.Register("eve", 1, 90) // takes ada's
				w.OptOut("eve", "promo")
				time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
				if got := w.Look("eve").Preferences.Types; len(got) != 1 {
					t.Errorf("eve waits for ada: her opt-outs are %q", got)
				}
				if got := w.Look("ada").Quarantine; got != push.RecordUnread {
					t.Errorf("ada's marks are %b before the reading is through", got)
				}
				if tt.dies {
					stop()
				}
				close(release)
				if tt.dies {
					w.Run(userstest.RegistryOptions())
				}
				time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
				w.agree()
				if got := w.Look("ada"); len(got.Preferences.Types) != 3 || len(got.Devices) != 2 {
					t.Errorf("ada is %+v", got)
				}
			})
		})
	}
}

// A removal that is repeated too late, while the record is rebuilt, does not take what was
// registered before it: what comes meanwhile is judged as in any complete shard.
func TestALateRepeatDuringARebuildTakesNoDevice(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		release := make(chan struct{})
		w.Wrap = func(topics *users.RegistryTopics) { topics.Rescan = held{topics.Rescan, release} }
		w.Run(userstest.RegistryOptions())
		w.agree()
		w.spoil("ada")
		w.Look("ada")
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval) // the reading has begun
		w.Register("ada", 8, 80)
		w.Must(w.Topic.Append(w.Ctx, []users.Record{{Key: record.DeviceKey("ada", userstest.Hash(8)), Repeats: true}}))
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		close(release)
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		if got := w.owners(8); !slices.Equal(got, []string{"ada"}) {
			t.Errorf("owners %q, want ada", got)
		}
	})
}

// A part that became readable while its user's record could not be read is out of
// quarantine with the rebuilt one, also where compaction has left no trace of
// what could not be read, and that is told; those of others stay.
func TestRebuildEndsAQuarantine(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		virtual(t, func(w *world) {
			w.fill()
			for _, user := range []string{"ada", "dee", "eve"} {
				w.Raw(record.PreferencesKey(user), broken)
			}
			w.Raw(record.DeviceKey("ada", userstest.Hash(2)), "not json")
			w.Run(userstest.RegistryOptions())
			w.agree()
			w.spoil("ada")
			w.OptOut("ada", "news")
			if compacted {
				w.Topic.Compact()
			}
			time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
			w.Settle()
			want := []string{record.DeviceKey("ada", userstest.Hash(2)), record.PreferencesKey("dee"), record.PreferencesKey("eve")}
			slices.Sort(want)
			now, err := users.InQuarantine(w.Ctx, w.Redis)
			if err != nil || !slices.Equal(slices.Sorted(maps.Keys(now)), want) {
				t.Errorf("compacted %v, in quarantine: %v, %v; want %q", compacted, now, err, want)
			}
			if told := slices.Sorted(maps.Keys(w.Told())); !slices.Equal(told, want) {
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
		stop := w.Run(userstest.RegistryOptions())
		w.agree()
		stop()
		steps := 0
		for reached := true; reached; steps++ {
			w.Topic.Compact()
			w.spoil("ada")
			w.Look("ada")
			w.OptOut("ada", "one", "two", fmt.Sprint(steps))
			ctx, cancel := context.WithCancel(w.Ctx)
			crash := userstest.NewCrash(steps, steps%2 == 0, cancel)
			stop = w.Process(crash, ctx, cancel, userstest.RegistryOptions())
			select {
			case <-ctx.Done():
			case <-time.After(2 * userstest.RegistryOptions().CheckInterval):
			}
			stop()
			reached = crash.Happened()
			stop = w.Run(userstest.RegistryOptions())
			time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
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
		stop := w.Run(userstest.RegistryOptions())
		w.agree()
		stop()
		w.spoil("ada")
		w.spoil("nobody")
		w.Must(w.Redis.Set(w.Ctx, shards.TokenKey(shards.TokenShard(userstest.Hash(1)), userstest.Hash(1)), "garbage", 0).Err())
		o := userstest.RegistryOptions()
		o.Rebuild = true
		var reread atomic.Int64
		w.Wrap = func(topics *users.RegistryTopics) { topics.Rescan = counted{topics.Rescan, &reread} }
		w.Run(o)
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		if got := w.Look("ada"); len(got.Devices) != 2 || reread.Load() != 1 {
			t.Errorf("ada is %+v; the topic was read %d times more, want once", got, reread.Load())
		}
		w.Look("nobody") // tells the registry
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		if got := w.Look("nobody").Quarantine; got != 0 {
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
		w.Wrap = func(topics *users.RegistryTopics) { topics.Rescan = unread{topics.Rescan} }
		var failed atomic.Int64
		w.Progress = func(p users.Progress) {
			if p.Err != nil {
				failed.Add(1)
			}
		}
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		w.spoil("ada")
		w.Look("ada")
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		for i := range 5 {
			w.OptOut("eve", fmt.Sprint(i))
			time.Sleep(10 * time.Millisecond)
			if got := w.Look("eve").Preferences.Types; !slices.Equal(got, []string{fmt.Sprint(i)}) {
				t.Errorf("eve's opt-outs are %q after %q was set", got, fmt.Sprint(i))
			}
			time.Sleep(userstest.RegistryOptions().CheckInterval)
		}
		if n := failed.Load(); n > 0 {
			t.Errorf("following failed %d times", n)
		}
		if got := w.Look("ada").Quarantine; got != push.RecordUnread {
			t.Errorf("ada's marks are %b", got)
		}
	})
}

// lingering is a follower that needs a while to end.
type lingering struct {
	users.Follower
	reading, ended *atomic.Bool
}

func (l lingering) Poll(ctx context.Context) ([]users.Fetched, error) {
	l.reading.Store(true)
	<-ctx.Done()
	time.Sleep(time.Second)
	l.ended.Store(true)
	return nil, ctx.Err()
}

// Who has stopped a registry may close its followers: none is read any more.
func TestARegistryEndsWithItsReading(t *testing.T) {
	virtual(t, func(w *world) {
		var reading, ended atomic.Bool
		w.Wrap = func(topics *users.RegistryTopics) {
			topics.Rescan = lingering{topics.Rescan, &reading, &ended}
		}
		w.fill()
		stop := w.Run(userstest.RegistryOptions())
		w.agree()
		w.spoil("ada")
		w.Look("ada")
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		stop()
		if !reading.Load() || !ended.Load() {
			t.Errorf("there was a reading: %v, and it is over: %v", reading.Load(), ended.Load())
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
		w.Wrap = func(topics *users.RegistryTopics) {
			topics.Follower, topics.Rescan = pausable{topics.Follower, &paused}, held{topics.Rescan, release}
		}
		slow := w.Run(userstest.RegistryOptions())
		w.agree()
		w.spoil("ada")
		w.Look("ada")
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval) // it reads from the start
		paused.Store(true)
		w.Wrap = nil
		other := w.Run(userstest.RegistryOptions())
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		w.OptOut("ada", "one", "two", "three")
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		if got := w.Look("ada").Preferences.Types; len(got) != 3 {
			t.Fatalf("the other registry has not applied it: %q", got)
		}
		close(release)
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		if got := w.Look("ada").Preferences.Types; len(got) != 3 {
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
		l := &logOut{Log: w.Topic, key: record.DeviceKey("ada", userstest.Hash(1))}
		w.Wrap = func(topics *users.RegistryTopics) { topics.Log = l }
		w.Run(userstest.RegistryOptions())
		w.Register("ada", 1, 30)
		w.Must(w.Topic.Append(w.Ctx, []users.Record{{Key: l.key, IfNotAfter: userstest.Epoch.Add(20 * time.Second)}}))
		w.Settle()
		if !l.done.Load() {
			t.Fatal("nothing was appended once more")
		}
		for range 2 {
			if got := w.owners(1); len(got) != 0 {
				t.Errorf("owners %q, want nobody", got)
			}
			w.Topic.Compact()
			w.Must(w.Redis.FlushAll(w.Ctx).Err())
			time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
			w.agree()
		}
		w.Register("ada", 1, 25) // in again, with the clock of her own
		w.agree()
		if got := w.owners(1); !slices.Equal(got, []string{"ada"}) {
			t.Errorf("owners %q, want ada", got)
		}
	})
}
