package users_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// The figures of a registry say what it did, and no more.
func TestRegistryIsCounted(t *testing.T) {
	virtual(t, func(w *world) {
		reg := prometheus.NewRegistry()
		w.Metrics = users.NewMetrics(reg)
		var last atomic.Pointer[users.Progress]
		w.Progress = func(p users.Progress) { last.Store(&p) }
		want := map[string]float64{}
		expect := func(after string, changes map[string]float64) {
			t.Helper()
			w.Settle()
			for name, more := range changes {
				want[name] += more
			}
			for _, name := range []string{"applied_total", "broken_total", "shards_ready", "lag_records", "quarantined_parts",
				"repaired_total", "builds_total", "conflicts_total", "settled_total", "errors_total"} {
				if got := w.figure(reg, "push_registry_"+name); got != want[name] {
					t.Errorf("after %s %s is %v, want %v", after, name, got, want[name])
				}
			}
			if p := last.Load(); float64(p.Applied) != want["applied_total"] || p.Ready != shards.Users || p.Lag != 0 || p.Err != nil {
				t.Errorf("after %s progress is %+v", after, *p)
			}
		}
		stop := w.Run(userstest.RegistryOptions())
		expect("a start with nothing", map[string]float64{"shards_ready": shards.Users, "builds_total": shards.Users})
		w.Register("ada", 1, 1)
		w.OptOut("ada", "promo")
		expect("a device and preferences", map[string]float64{"applied_total": 3}) // the device once more for its token
		w.Raw("who", "knows")
		expect("a key that cannot be read", map[string]float64{"broken_total": 1})
		w.Raw(record.PreferencesKey("ada"), broken)
		expect("preferences that cannot be read", map[string]float64{"applied_total": 1, "broken_total": 1, "quarantined_parts": 1})
		w.OptOut("ada")
		expect("preferences that can be read again", map[string]float64{"applied_total": 1, "quarantined_parts": -1})
		w.Raw(record.DeviceKey("cy", laterHash), later(1))
		expect("a device of a platform that is not known", map[string]float64{"applied_total": 2, "broken_total": 1, "quarantined_parts": 1})
		w.Register("bob", 1, 2)
		expect("a token that moved", map[string]float64{"applied_total": 4, "settled_total": 1}) // and its removal from who had it
		w.spoil("bob")
		w.Look("bob") // tells the registry
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		expect("a record that cannot be read", map[string]float64{"repaired_total": 1})
		w.Must(w.Redis.Del(w.Ctx, shards.EpochKey(5)).Err())
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		w.Settle()
		if got := w.figure(reg, "push_registry_builds_total"); got != shards.Users+1 {
			t.Errorf("a shard without its marker: %v builds", got)
		}
		stop()
		if got := w.figure(reg, "push_registry_errors_total"); got != 0 || last.Load().Err != nil {
			t.Errorf("its end is told as a failure: %v errors, %+v", got, *last.Load())
		}
	})
}

// looked counts how often a follower is asked for the topic's ends.
type looked struct {
	users.Follower
	times *atomic.Int64
}

func (f looked) Spans(ctx context.Context) ([]users.Span, error) {
	f.times.Add(1)
	return f.Follower.Spans(ctx)
}

// A registry that has nothing to do looks at its shards now and then, and not for
// each record.
func TestChecksAreNotMadeForEachRecord(t *testing.T) {
	virtual(t, func(w *world) {
		var times atomic.Int64
		w.Wrap = func(topics *users.RegistryTopics) { topics.Follower = looked{topics.Follower, &times} }
		w.Run(userstest.RegistryOptions())
		w.fill()
		w.agree()
		before, began := times.Load(), time.Now()
		for i := range 100 {
			w.OptOut("ada", string(rune('a'+i%20)))
			time.Sleep(10 * time.Millisecond)
		}
		checks := int64(time.Since(began)/userstest.RegistryOptions().CheckInterval) + 1
		if more := times.Load() - before; more > checks {
			t.Errorf("%d looks at the ends in %v, want at most %d", more, time.Since(began), checks)
		}
	})
}
