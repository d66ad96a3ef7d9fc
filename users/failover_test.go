package users_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
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
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = patience, patience, patience
		client, err := shards.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	inWorld(t, func(w *world) {
		w.fill()
		w.run(options())
		w.agree()
		w.must(pair.Part(w.ctx))
		w.optOut("ada", "everything", "changed")
		w.register("cy", 90, 1000)
		w.register("dee", 91, 1000)
		w.must(w.client.RemoveDevice(w.ctx, "dee", hash(91)))
		w.agree()
		w.must(pair.FailOver())
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			if u := w.fetch("ada")["ada"]; u != nil && slices.Contains(u.Preferences.Types, "changed") {
				break
			}
			if time.Since(began) > patience {
				t.Fatal("ada's opt-out is lost")
			}
		}
		w.agree()
	}, open)
}
