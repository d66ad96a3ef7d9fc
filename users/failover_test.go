package users_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// TestFailOverToALaggingReplica: Redis fails over to a replica that lacks the
// latest updates. The registry, which believes that they are applied, finds at
// its next look that they are not, and applies them: opt-outs, devices, and
// devices that were removed.
func TestFailOverToALaggingReplica(t *testing.T) {
	pair := localtest.RedisPair(t)
	open := func() redis.UniversalClient {
		o := shards.DefaultOptions()
		o.Addrs, o.Dialer = []string{"pair:6379"}, pair.Dial
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = userstest.Patience, userstest.Patience, userstest.Patience
		client, err := shards.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	userstest.In(t, in(func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		w.Must(pair.Part(w.Ctx))
		w.OptOut("ada", "everything", "changed")
		w.Register("cy", 90, 1000)
		w.Register("dee", 91, 1000)
		w.Must(w.Client.RemoveDevice(w.Ctx, "dee", userstest.Hash(91)))
		w.agree()
		w.Must(pair.FailOver())
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			if u := w.Fetch("ada")["ada"]; u != nil && slices.Contains(u.Preferences.Types, "changed") {
				break
			}
			if time.Since(began) > userstest.Patience {
				t.Fatal("ada's opt-out is lost")
			}
		}
		w.agree()
	}), open)
}
