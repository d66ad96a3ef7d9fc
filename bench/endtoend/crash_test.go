//go:build unix

package endtoend

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// slow answers make sure that pushes are in flight whenever something happens.
func slow() sim.RouteSet {
	f := sim.Faults{Latency: 50 * time.Millisecond}
	return sim.RouteSet{APNS: f, FCM: f}
}

// The windows of these tests: small, so that a bound that does not hold shows.
const (
	inFlight       = 200
	unacknowledged = 100
	routes         = 2 // apns/shop/production, fcm/shop
)

func narrow(c *configs.Config) {
	c.Batch.Records = 500
	c.Send.InFlight = inFlight
	c.Status.Rows, c.Status.Unacknowledged = 50, unacknowledged
}

// acceptances are when each notification was accepted for each device. The
// simulator writes it, and the test reads it when all is done.
type acceptances struct {
	mu sync.Mutex
	at map[[2]string][]time.Time // guarded by mu
}

func (a *acceptances) watch(push *sim.Arrival) {
	if push.What != sim.Decided || !push.Reply.Accepted() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	pair := [2]string{string(push.ID), string(push.Device)}
	a.at[pair] = append(a.at[pair], push.At)
}

// repeats counts the pushes that each kill made be accepted again: it is the
// first one after the acceptance before; or, where the simulator read late what
// the dead worker had sent, the last one before that. When a push is repeated
// says nothing, since a partition may be served late.
func (a *acceptances) repeats(kills []time.Time) []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := make([]int, len(kills))
	for _, times := range a.at {
		for i := 1; i < len(times); i++ {
			cause := 0
			for cause < len(kills)-1 && kills[cause].Before(times[i-1]) && kills[cause+1].Before(times[i]) {
				cause++
			}
			counts[cause]++
		}
	}
	return counts
}

// kill -9 in the middle loses nothing, and repeats no more than was in flight
// or answered and not yet durable. Each notification is found by its user.
func TestKillLosesNothing(t *testing.T) {
	const records, kills = 20_000, 3
	people := newCrowd(t, records)
	accepted := acceptances{at: make(map[[2]string][]time.Time)}
	w := newWorld(t, setup{faults: slow(), watch: accepted.watch, configure: func(c *configs.Config) {
		narrow(c)
		caps(c, people.Cap)
		// Until the group notices a death; long enough that a busy machine does
		// not make it believe in one that was not.
		c.Kafka.SessionTimeout = 6 * time.Second
		c.Lanes[0].Journal = 48 * time.Hour
	}})
	w.populate(people)
	sent := fleet.FromCrowd(people.Records(), records)
	check(t, w.Produce(waiting(t), sent))
	worker := w.worker()
	metrics, err := worker.Metrics(waiting(t))
	check(t, err)
	const bound = routes * (inFlight + unacknowledged)
	if got := metrics.Sum("push_duplicate_bound", `lane="main"`); got != bound {
		t.Errorf("the worker's metric says that a kill can repeat %v pushes, its configuration %d", got, bound)
	}
	var killed []time.Time
	for n := range kills {
		check(t, w.AwaitAccepted(waiting(t), 7000*uint64(n+1)))
		check(t, worker.Kill())
		killed = append(killed, time.Now())
		worker = w.worker()
	}
	r := w.clean(fleet.AccountOptions{Cap: people.Cap})
	w.noted(sent)
	for n, repeated := range accepted.repeats(killed) {
		t.Logf("kill %d repeated %d pushes", n+1, repeated)
		if repeated > bound {
			t.Errorf("kill %d repeated %d pushes, more than %d", n+1, repeated, bound)
		}
	}
	if r.Resent == 0 {
		t.Error("no push was repeated: no kill hit anything in flight, so nothing was tested")
	}
}

// Two workers share the partitions, one joins in the middle of the work and
// the other leaves: nothing is lost and nothing repeated.
func TestJoinAndLeave(t *testing.T) {
	const records = 30_000
	people := newCrowd(t, records)
	w := newWorld(t, setup{faults: slow(), configure: func(c *configs.Config) {
		narrow(c)
		caps(c, people.Cap)
	}})
	w.populate(people)
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))
	first := w.worker()
	check(t, w.AwaitAccepted(waiting(t), 5000))
	second := w.worker()
	all := float64(w.Config.Kafka.Topics.Partitions)
	assigned := func(p *fleet.Process, n float64) {
		check(t, p.AwaitMetric(waiting(t), func(got float64) bool { return got == n },
			"push_consumer_assigned_partitions", `topic="`+fleet.Topic+`"`))
	}
	assigned(first, all/2)
	assigned(second, all/2)
	check(t, w.AwaitAccepted(waiting(t), w.Sim.Ledger().Totals().Accepted+5000))
	if done, err := w.Committed(waiting(t)); err != nil || done > records*3/4 {
		t.Fatalf("%d of %d records are committed (%v): too late to leave in the middle", done, records, err)
	}
	status, err := first.Term(waiting(t))
	check(t, err)
	if status != 0 {
		t.Errorf("the worker that was asked to leave ended with %d%s", status, first.Tail())
	}
	assigned(second, all)
	r := w.clean(fleet.AccountOptions{Cap: people.Cap})
	if r.Resent > 0 {
		t.Errorf("%d pushes were accepted twice, and nobody was killed", r.Resent)
	}
}

// The bound is held against what each kill caused, not against what was
// repeated between two of them.
func TestRepeatsAreChargedToTheirKill(t *testing.T) {
	start := time.Now()
	at := func(seconds ...int) (times []time.Time) {
		for _, s := range seconds {
			times = append(times, start.Add(time.Duration(s)*time.Second))
		}
		return times
	}
	kills := at(10, 20)
	for _, tt := range []struct {
		why      string
		accepted []time.Time
		want     []int
	}{
		{"accepted once", at(5), []int{0, 0}},
		{"repeated by the heir of the first", at(5, 12), []int{1, 0}},
		{"repeated late, by the heir of the second", at(5, 25), []int{1, 0}},
		{"sent by the first heir, repeated by the second", at(15, 25), []int{0, 1}},
		{"exposed by both", at(5, 12, 25), []int{1, 1}},
		{"the dead one's push was read late, after its heir's", at(11, 12), []int{1, 0}},
		{"the same after the second kill", at(21, 22), []int{0, 1}},
	} {
		a := acceptances{at: map[[2]string][]time.Time{{"n", "device"}: tt.accepted}}
		if got := a.repeats(kills); !slices.Equal(got, tt.want) {
			t.Errorf("%s: charged %v, want %v", tt.why, got, tt.want)
		}
	}
}
