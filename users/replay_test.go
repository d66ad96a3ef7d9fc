package users_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// A record that an earlier build left behind is nobody's.
func TestRecordsOfAnotherBuildAreAbsent(t *testing.T) {
	virtual(t, func(w *world) {
		const build = 7
		s := shards.UserShard("ada")
		ada := &push.User{Preferences: push.Preferences{OptOutAll: true}, Devices: []push.Device{
			{Platform: push.FCM, App: "shop", Token: userstest.Token(1), Hash: userstest.Hash(1), RegisteredAt: userstest.Epoch}}}
		w.Must(w.Redis.Set(w.Ctx, shards.EpochKey(s), fmt.Sprintf("%016x", build), 0).Err())
		for _, tt := range []struct {
			build   uint64
			devices int
		}{{build, 1}, {build - 1, 0}, {build + 1, 0}} {
			w.Must(w.Redis.Set(w.Ctx, shards.UserKey(s, "ada"), record.Encode(nil, ada, tt.build), 0).Err())
			if u := w.Look("ada"); len(u.Devices) != tt.devices || u.Preferences.OptOutAll != (tt.devices > 0) || u.Quarantine != 0 {
				t.Errorf("a record of build %d, read in build %d: %+v", tt.build, build, *u)
			}
			p, err := users.NewReader(w.Redis, false).Stored(w.Ctx, "ada")
			if err != nil || len(p.Devices) != tt.devices {
				t.Errorf("a profile of build %d, read in build %d: %+v, %v", tt.build, build, p, err)
			}
		}
	})
}

// A token was called dead, and before its removal is written the user registers
// it anew, which Redis does not know yet: the removal does not reach that.
func TestFeedbackDoesNotReachWhatIsOnItsWay(t *testing.T) {
	virtual(t, func(w *world) {
		w.Register("ada", 1, 100)
		w.Register("ada", 2, 100)
		stop := w.Run(userstest.RegistryOptions())
		w.agree()
		stop()
		w.Register("ada", 1, 200)
		w.feed(users.DefaultFeedbackOptions(), feedback("ada", 1, 110, 120), feedback("ada", 2, 0, 120))
		w.Run(userstest.RegistryOptions())
		w.agree()
		if got := w.owners(1); len(got) != 1 {
			t.Error("the registration that was on its way is gone")
		}
		if got := w.owners(2); len(got) != 0 {
			t.Error("the dead token is there still")
		}
	})
}

// What a shard has applied is not applied to it again when another one has to
// read from the start: it would go back to what it was.
func TestAppliedRecordsAreNotAppliedAgain(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		for i := range 20 {
			w.OptOut("ada", fmt.Sprint(i))
		}
		var applied atomic.Uint64
		s := shards.UserShard("dee")
		expected := uint64(0)
		for _, r := range w.Topic.Records() {
			user, part, _ := record.PartOf(r.Key)
			hash := part.Hash()
			if shards.UserShard(user) == s {
				expected++
			}
			if hash != "" && shards.TokenShard(hash)*(shards.Users/shards.Filters) == s {
				expected++
			}
		}
		if expected == 0 {
			t.Fatal("nothing is in the shard")
		}
		w.Progress = func(p users.Progress) { applied.Store(p.Applied) }
		w.Run(userstest.RegistryOptions())
		w.agree()
		before := applied.Load()
		w.Must(w.Redis.Del(w.Ctx, shards.OffsetsKey(s)).Err())
		time.Sleep(5 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		if got := applied.Load() - before; got != expected {
			t.Errorf("%d changes were applied while one shard was built anew, which has %d", got, expected)
		}
	})
}

// An entry of the token index that cannot be read costs its report the owners
// that only it knows, until it is rebuilt, and stops no other report.
func TestFeedbackPassesWhatCannotBeRead(t *testing.T) {
	virtual(t, func(w *world) {
		for i := range 3 {
			w.Register("ada", i, 100)
		}
		w.Run(userstest.RegistryOptions())
		w.agree()
		entry := shards.TokenKey(shards.TokenShard(userstest.Hash(1)), userstest.Hash(1))
		w.Must(w.Redis.Set(w.Ctx, entry, "garbage", 0).Err())
		w.feed(users.DefaultFeedbackOptions(), feedback("ada", 1, 110, 120), feedback("ada", 2, 110, 120))
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		if got := w.Look("ada").Devices; len(got) != 1 {
			t.Errorf("ada has %d devices, want the one that is not dead", len(got))
		}
		if got := w.Redis.Get(w.Ctx, entry).Val(); got == "garbage" {
			t.Error("the entry was not rebuilt")
		}
	})
}

// What is written of one partition moves no other's offset: a registry that
// starts later would read all of it again.
func TestOffsetsNeverGoBack(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		for i := range 30 {
			w.OptOut(fmt.Sprint("user-", i))
		}
		o := userstest.RegistryOptions()
		o.BeatInterval = o.CheckInterval
		stop := w.Run(o)
		w.agree()
		time.Sleep(10 * o.CheckInterval)
		stop()
		if why := w.Behind(); why != "" {
			t.Fatal(why)
		}
		before := w.Topic.Ends()
		o.BeatInterval = time.Hour
		w.Run(o)
		w.Register("ada", 9, 9)
		w.OptOut("dee", "one")
		w.agree()
		for s := range shards.Users {
			offsets, err := w.Redis.HGetAll(w.Ctx, shards.OffsetsKey(s)).Result()
			w.Must(err)
			for p, least := range before {
				if got, err := strconv.ParseInt(offsets[fmt.Sprint(p)], 10, 64); err != nil || got < least || least == 0 {
					t.Errorf("shard %d says that it has applied partition %d up to %d, and it was %d", s, p, got, least)
				}
			}
		}
	})
}
