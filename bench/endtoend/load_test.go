//go:build unix

package endtoend

import (
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// Two workers under load: each is restarted in its turn, and then FCM has had
// too much. Both are done to one fleet, which costs more to start than to use.
func TestRestartsAndStorms(t *testing.T) {
	const (
		rolling = 3_000 // a worker on a busy machine had nothing left of 1,000 when it had joined
		stormy  = 1_000
		drain   = 25 * time.Second
	)
	people := newCrowd(t, rolling+4*stormy)
	calls := &calls{}
	w := newWorld(t, setup{watch: calls.watch, configure: func(c *configs.Config) {
		narrow(c)
		c.Send.InFlight = 10
		c.Send.Deadline, c.Cassandra.Timeout, c.Send.Drain = 13*time.Second, 5*time.Second, drain
	}})
	w.populate(people)
	g := people.Records()
	workers := w.rollingRestart(g, rolling, drain)
	w.storm(g, stormy, workers, calls)
	if r := w.clean(fleet.AccountOptions{}); r.Resent > 0 {
		t.Errorf("%d pushes were repeated, and no worker ended but in order", r.Resent)
	}
}

// rollingRestart ends one worker of two after the other with a backlog, as an
// upgrade does: with status 0 and within the drain, and nothing is sent twice.
// Providers take a second to answer, so that what was produced lasts: each worker
// has ten pushes of a route in flight.
func (w *world) rollingRestart(g *crowd.Records, records int, drain time.Duration) (workers []*fleet.Process) {
	w.t.Helper()
	workers = []*fleet.Process{w.worker(), w.worker()}
	w.answerAfter(time.Second)
	check(w.t, w.Produce(waiting(w.t), fleet.FromCrowd(g, records)))
	for i, p := range workers {
		// Both are at work: what one of them has in flight is what it may lose.
		for _, p := range []*fleet.Process{p, workers[1-i]} {
			check(w.t, p.AwaitMetric(waiting(w.t), func(n float64) bool { return n > 0 }, "push_provider_inflight"))
		}
		began := time.Now()
		status, err := p.Term(waiting(w.t))
		check(w.t, err)
		if took := time.Since(began); status != 0 || took > drain {
			w.t.Errorf("restart %d: the worker took %v to end, status %d%s", i+1, took, status, p.Tail())
		}
		workers[i] = w.worker()
	}
	w.answerAfter(0)
	check(w.t, w.AwaitDone(waiting(w.t)))
	if n := w.Resent(); n > 0 {
		w.t.Errorf("%d pushes were repeated by a rolling restart", n)
	}
	return workers
}

func (w *world) answerAfter(d time.Duration) {
	w.t.Helper()
	for _, p := range []sim.Provider{sim.APNS, sim.FCM} {
		check(w.t, w.Sim.SetFaults(p, sim.Faults{Latency: d}))
	}
}

// storm has FCM answer 429 to everything, with a time in Retry-After. Once both
// workers have heard it and what was in flight is answered, FCM is not called
// before that is over. The time is doubled until the machine is quick enough for
// that to be seen.
func (w *world) storm(g *crowd.Records, records int, workers []*fleet.Process, calls *calls) {
	w.t.Helper()
	for wait := 4 * time.Second; ; wait *= 2 {
		// All is done: what was called is answered.
		called, answered := calls.count(), w.answeredByFCM(workers)
		check(w.t, w.Sim.SetFaults(sim.FCM, sim.Faults{TooMany: 1, RetryAfter: wait}))
		check(w.t, w.Produce(waiting(w.t), fleet.FromCrowd(g, records)))
		for _, p := range workers {
			check(w.t, p.AwaitMetric(waiting(w.t), func(n float64) bool { return n == 1 }, "push_route_paused", `route="fcm/shop"`))
		}
		check(w.t, workers[0].AwaitMetric(waiting(w.t), func(float64) bool {
			return w.answeredByFCM(workers)-answered == calls.count()-called
		}, "push_deliveries_total"))
		heard := time.Now()
		check(w.t, w.Sim.SetFaults(sim.FCM, sim.Faults{}))
		over := calls.first(called).Add(wait)
		check(w.t, w.AwaitDone(waiting(w.t)))
		// What is on its way to the simulator nobody counts: it has a moment.
		from := heard.Add(wait / 4)
		if n := calls.between(from, over); n > 0 {
			w.t.Errorf("FCM was called %d times in the %v before the end of the %v that it said to wait for", n, over.Sub(from), wait)
		}
		if from.Before(over.Add(-wait / 4)) {
			return
		}
		w.t.Logf("both workers had heard it only %v before the end of %v: again", over.Sub(heard), wait)
	}
}

// answeredByFCM is how many answers of FCM workers have counted.
func (w *world) answeredByFCM(workers []*fleet.Process) (n int) {
	w.t.Helper()
	for _, p := range workers {
		m, err := p.Metrics(waiting(w.t))
		check(w.t, err)
		const name, fcm = "push_deliveries_total", `provider="fcm"`
		n += int(m.Sum(name, fcm) - m.Sum(name, fcm, `result="held"`) - m.Sum(name, fcm, `result="claimed"`))
	}
	return n
}

// calls are when FCM was called.
type calls struct {
	mu sync.Mutex
	at []time.Time // guarded by mu
}

func (c *calls) watch(push *sim.Arrival) {
	if push.What != sim.Decided || push.Provider != sim.FCM {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, push.At)
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.at)
}

// first is when the first of the calls was, from one on.
func (c *calls) first(from int) (first time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.at[from:] {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// between counts the calls from one moment to another.
func (c *calls) between(from, to time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.at {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}
