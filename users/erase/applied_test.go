package erase_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// Waited for are the shards that a record of the user is about, each until it has
// applied the last such record and nothing is open in it; and no others.
func TestEraseWaitsForTheShardsConcerned(t *testing.T) {
	const user = "uma"
	home, device := shards.UserShard(user), 0
	for state.TokenHome(userstest.Hash(device)) == home {
		device++
	}
	token := state.TokenHome(userstest.Hash(device))
	key := record.DeviceKey(user, userstest.Hash(device))
	for _, tt := range []struct {
		why         string
		home, token int    // offsets that the shards have applied, of 2
		at          int    // the shard that has this
		open        string // case, if any
		unread      string // part in quarantine, if any
		done        bool
	}{
		{"both are through", 2, 2, home, "", "", true},
		{"the user's is not", 1, 2, home, "", "", false},
		{"the token's is not", 2, 1, home, "", "", false},
		{"the user has an open case", 2, 2, home, record.Overtaken + key, "", false},
		{"the user has an open case where the token is", 2, 2, token, record.Stray + "1:" + key, "", false},
		{"another user has an open case", 2, 2, home, record.Overtaken + "x" + key, "", true},
		{"a part of the user is in quarantine", 2, 2, home, "", record.PreferencesKey(user), false},
		{"a part of another user is", 2, 2, home, "", record.PreferencesKey("x" + user), true},
	} {
		t.Run(tt.why, func(t *testing.T) {
			userstest.Virtual(t, in(func(w *world) {
				w.OptOut(user, "promo")
				w.Register(user, device, 1)
				w.Raw(user+"/device:short", "{}") // about which no registry does anything
				partition := -1
				for p, end := range w.Topic.Ends() {
					if end > 0 {
						partition = p
					}
				}
				for s, applied := range map[int]int{home: tt.home, token: tt.token} {
					fields := map[string]any{"v": state.Version{Build: 7, Write: 1}.String()}
					for p := range userstest.Partitions {
						fields[fmt.Sprint(p)] = 0
					}
					fields[fmt.Sprint(partition)] = applied
					w.Must(w.Redis.HSet(w.Ctx, shards.OffsetsKey(s), fields).Err())
				}
				if tt.open != "" {
					w.Must(w.Redis.SAdd(w.Ctx, state.OpenKey(tt.at), tt.open).Err())
				}
				if tt.unread != "" {
					w.Must(w.Redis.SAdd(w.Ctx, state.UnreadKey(tt.at), tt.unread).Err())
				}
				e := w.erasure(user, w.Topic)
				_, err := e.Look(w.Ctx)
				w.Must(err)
				ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Second)
				defer cancel()
				if err := e.Await(ctx); (err == nil) != tt.done || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("waiting ends with %v, want its end %v", err, tt.done)
				}
			}))
		})
	}
}
