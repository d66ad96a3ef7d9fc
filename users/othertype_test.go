package users_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// What somebody else has written in the place of a record is no user without devices, and
// the registry builds the record anew.
func TestAKeyOfAnotherTypeInPlaceOfARecord(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		reader := users.NewReader(w.Redis, false)
		names := []string{"nobody", "dee", "ada", "nobody else"}
		look := func(why string, want []int, devices int) {
			t.Helper()
			out := outOf(1)
			w.Must(reader.Fetch(w.Ctx, []string{"ada"}, out))
			if others, err := reader.OtherTypes(w.Ctx, names); err != nil || !slices.Equal(others, want) || len(out[0].Devices) != devices {
				t.Errorf("%s: %v, %v, want %v; ada has %d devices, want %d", why, others, err, want, len(out[0].Devices), devices)
			}
		}
		look("at first", nil, 2)
		key := shards.UserKey(shards.UserShard("ada"), "ada")
		w.Must(w.Redis.Del(w.Ctx, key).Err())
		w.Must(w.Redis.HSet(w.Ctx, key, "no", "record").Err())
		look("a hash", []int{2}, 0)
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		look("built anew", nil, 2)

		w.Must(w.Redis.HSet(w.Ctx, shards.UserKey(shards.UserShard("nobody"), "nobody"), "no", "record").Err())
		look("of one who was never registered", []int{0}, 2)
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		look("removed", nil, 2)

		ended, cancel := context.WithCancel(w.Ctx)
		cancel()
		if _, err := reader.OtherTypes(ended, names); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the error of the read", err)
		}
	})
}

// Of users of one shard only the one with another key in its place is told; who was never
// registered has none.
func TestAnotherTypeBesideNobody(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		names := []string{sameShard("ada"), "ada"}
		key := shards.UserKey(shards.UserShard("ada"), "ada")
		w.Must(w.Redis.Del(w.Ctx, key).Err())
		w.Must(w.Redis.HSet(w.Ctx, key, "no", "record").Err())
		if others, err := users.NewReader(w.Redis, false).OtherTypes(w.Ctx, names); err != nil || !slices.Equal(others, []int{1}) {
			t.Errorf("%v, %v, want ada alone", others, err)
		}
	})
}
