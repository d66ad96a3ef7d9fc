//go:build unix

package endtoend

import (
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

// kill -9 in the middle loses nothing, and repeats no more than was in flight
// or answered and not yet durable.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	const records, kills = 20_000, 3
	people := newCrowd(t, records)
	w := newWorld(t, setup{faults: slow(), configure: func(c *configs.Config) {
		narrow(c)
		caps(c, people.Cap)
		// Until the group notices a death; long enough that a busy machine does
		// not make it believe in one that was not.
		c.Kafka.SessionTimeout = 6 * time.Second
	}})
	w.populate(people)
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))
	worker := w.worker()
	metrics, err := worker.Metrics(waiting(t))
	check(t, err)
	const bound = routes * (inFlight + unacknowledged)
	if got := metrics.Sum("push_duplicate_bound", `lane="main"`); got != bound {
		t.Errorf("the worker's metric says that a kill can repeat %v pushes, its configuration %d", got, bound)
	}
	accepted, before := uint64(0), uint64(0)
	for range kills {
		accepted += 7000
		check(t, w.AwaitAccepted(waiting(t), accepted))
		// What the kill before made repeat was repeated first.
		if n := w.Resent() - before; n > bound {
			t.Errorf("a kill repeated %d pushes, more than %d", n, bound)
		}
		before = w.Resent()
		check(t, worker.Kill())
		worker = w.worker()
	}
	r := w.clean(fleet.AccountOptions{Cap: people.Cap})
	if n := uint64(r.Resent) - before; n > bound {
		t.Errorf("the last kill repeated %d pushes, more than %d", n, bound)
	}
	if r.Resent == 0 {
		t.Error("no push was repeated: no kill hit anything in flight, so nothing was tested")
	}
}

// Two workers share the partitions, one joins in the middle of the work and
// the other leaves: nothing is lost and nothing repeated.
func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
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
