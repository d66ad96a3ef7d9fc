package users_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// enroll registers a device of an app at a second.
func (w *world) enroll(user, app string, tok, at int) {
	w.T.Helper()
	_, err := w.Client.RegisterDevice(w.Ctx, user, push.Device{
		Platform: push.FCM, App: app, Token: userstest.Token(tok), RegisteredAt: userstest.Epoch.Add(time.Duration(at) * time.Second)})
	w.Must(err)
}

// kept counts a user's devices, in all and by app, and returns the oldest.
func (w *world) kept(user string) (of map[string]int, oldest time.Time) {
	of = map[string]int{}
	for _, d := range w.Look(user).Devices {
		of[""]++
		of[d.App]++
		if oldest.IsZero() || d.RegisteredAt.Before(oldest) {
			oldest = d.RegisteredAt
		}
	}
	return of, oldest
}

// However many devices a user registers, and in whatever order: the latest
// ones are kept, as many as there may be, and the topic forgets the others too.
func TestDevicesOfAUserAreBounded(t *testing.T) {
	for _, order := range []string{"ascending", "descending", "shuffled"} {
		t.Run(order, func(t *testing.T) {
			virtual(t, func(w *world) {
				const many = 300
				at := func(i int) int { return i }
				perm := rand.New(rand.NewPCG(1, 2)).Perm(many)
				switch order {
				case "descending":
					at = func(i int) int { return many - 1 - i }
				case "shuffled":
					at = func(i int) int { return perm[i] }
				}
				for i := range many { // "a" has 150, the five others 30 each
					second := at(i)
					app := "a"
					if second%2 == 1 {
						app = fmt.Sprint("b", second/2%5)
					}
					w.enroll("ada", app, second, second)
				}
				w.Register("bob/with/slash", 1000, 1)
				w.Run(userstest.RegistryOptions())
				w.agree()
				check := func(when string) {
					t.Helper()
					of, oldest := w.kept("ada")
					if of[""] != 100 || of["a"] != 20 {
						t.Errorf("%s: kept %v, want 100 and 20 of a", when, of)
					}
					for app, n := range of {
						if app != "" && n > 20 {
							t.Errorf("%s: %d devices of %s", when, n, app)
						}
					}
					// 20 of "a" and 80 of the others, the latest of each.
					if want := userstest.Epoch.Add((many - 1 - 2*79) * time.Second); !oldest.Equal(want) {
						t.Errorf("%s: the oldest is of %v, want %v", when, oldest, want)
					}
				}
				check("following")
				p, err := users.NewReader(w.Redis, false).Stored(w.Ctx, "ada")
				if err != nil || p.Dropped < many-100 || p.DroppedUpTo.IsZero() || len(p.Devices) != 100 {
					t.Errorf("%d dropped up to %v, %d left, error %v", p.Dropped, p.DroppedUpTo, len(p.Devices), err)
				}
				w.Topic.Compact()
				if n := len(w.Topic.Latest()); n != 101 {
					t.Errorf("the topic has %d devices still", n)
				}
				w.Must(w.Redis.FlushAll(w.Ctx).Err())
				time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
				w.agree()
				check("rebuilt")
				// Nobody else may own what was dropped by an older registration only
				// because a dropped one is remembered.
				w.Register("eve", 0, 0)
				w.agree()
				if got := w.owners(0); len(got) != 1 || got[0] != "eve" {
					t.Errorf("owners %q, want eve", got)
				}
			})
		})
	}
}

// A record that grew before there were limits shrinks with the next device.
func TestTooLargeRecordsShrink(t *testing.T) {
	virtual(t, func(w *world) {
		o := userstest.RegistryOptions()
		o.Devices = record.DeviceLimits{User: 1000, App: 1000}
		for i := range 500 {
			w.Register("ada", i, i)
		}
		stop := w.Run(o)
		w.agree()
		stop()
		w.Register("ada", 500, 500)
		w.Run(userstest.RegistryOptions())
		w.agree()
		if of, _ := w.kept("ada"); of[""] != 20 {
			t.Errorf("kept %v", of)
		}
	})
}
