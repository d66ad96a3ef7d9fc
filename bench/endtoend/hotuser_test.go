//go:build unix

package endtoend

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/wiring"
)

// Half of all traffic goes to one user, who gets exactly the cap and nothing of
// the rest. The neighbours get everything, once and at the first attempt, and
// what Redis keeps of the user does not grow with what was refused. How long
// the neighbours wait is logged, with and without the hot user: a shared
// machine does not allow a limit.
func TestHotUserIsCapped(t *testing.T) {
	const each = 3000 // records of the hot user, and of all neighbours together
	people := newCrowd(t, 2*each)
	var waits latencies
	w := newWorld(t, setup{watch: waits.watch, configure: func(c *configs.Config) {
		c.Limits.Rules = []configs.Rule{{Name: "type-per-day", Per: "user_type", Max: people.Cap, Window: 24 * time.Hour}}
	}})
	w.populate(people)
	worker := w.worker()
	neighbours := plainUsers(people)
	hot, neighbours := neighbours[0], neighbours[1:]

	produce := func(n int, withHot bool) {
		const group = 50
		for from := 0; from < n; from += group {
			var records []fleet.Record
			for i := from; i < from+group; i++ {
				user := neighbours[i%len(neighbours)]
				records = append(records, fleet.Record{Key: []byte(user), Value: message(user, nil), Want: fleet.WantOf(crowd.Reaches)})
				if withHot {
					want := fleet.WantOf(crowd.MayBeLimited)
					want.Reason, want.Detail = push.Limited, "type-per-day"
					records = append(records, fleet.Record{Key: []byte(hot), Value: message(hot, fields{"title": "hot"}), Want: want})
				}
			}
			check(t, w.Produce(waiting(t), records))
		}
	}
	produce(each/10, false) // connections are opened, scripts loaded
	check(t, w.AwaitDone(waiting(t)))
	waits.take()
	produce(each, false)
	check(t, w.AwaitDone(waiting(t)))
	alone := waits.take()
	produce(each, true)
	r := w.clean(fleet.AccountOptions{Cap: people.Cap})
	beside := waits.take()
	t.Logf("neighbours waited %v (median) and %v (p99) alone, %v and %v beside the hot user",
		percentile(alone, 50), percentile(alone, 99), percentile(beside, 50), percentile(beside, 99))

	if got, want := r.Outcomes[push.OutcomeSuppressed], each-people.Cap; got != want {
		t.Errorf("%d notifications were suppressed, want %d", got, want)
	}
	if r.Resent > 0 {
		t.Errorf("%d pushes were accepted twice", r.Resent)
	}
	metrics, err := worker.Metrics(waiting(t))
	check(t, err)
	if all, done := metrics.Sum("push_deliveries_total"), metrics.Sum("push_deliveries_total", `result="delivered"`); done == 0 || all != done {
		t.Errorf("%v of %v deliveries were delivered at the first attempt: somebody was put off", done, all)
	}
	options, err := wiring.Redis(w.Config)
	check(t, err)
	client, err := shards.Open(options)
	check(t, err)
	defer client.Close()
	size, err := client.StrLen(waiting(t), shards.LimiterKey(shards.UserShard(hot), hot)).Result()
	check(t, err)
	if most := int64(people.Cap * 64); size == 0 || size > most {
		t.Errorf("Redis keeps %d bytes of what the hot user got, want at most %d for %d allowed ids", size, most, people.Cap)
	}
}

// plainUsers are the users who get everything on all their devices.
func plainUsers(people *crowd.Crowd) (ids []string) {
	for i := range people.Users {
		if u := people.User(i); u.Kind == crowd.Plain {
			ids = append(ids, u.ID)
		}
	}
	return ids
}

// latencies are how long pushes took from the making of their id to their
// acceptance.
type latencies struct {
	mu    sync.Mutex
	taken []time.Duration // guarded by mu
}

func (l *latencies) watch(a *sim.Arrival) {
	id, err := uuid.ParseBytes(a.ID)
	if err != nil || a.What != sim.Decided {
		return
	}
	sec, nsec := id.Time().UnixTime()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = append(l.taken, a.At.Sub(time.Unix(sec, nsec)))
}

// take returns what was seen since the last call, in order of length.
func (l *latencies) take() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.taken
	l.taken = nil
	slices.Sort(list)
	return list
}

func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*p/100].Round(time.Millisecond)
}
