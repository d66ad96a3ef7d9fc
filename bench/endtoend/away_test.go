//go:build unix

package endtoend

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/proxy"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
)

// store is one of the three servers that a worker cannot do without. at is
// where workers look for it.
type store struct {
	name string
	*local.Server
	at string
}

// Stores that are away at the start are named, in the log and in /readyz, and
// waited for. Away in the middle they stall the partitions and fail no message;
// no offset passes what is not durable; all goes on by itself when they are
// back.
func TestStoresAway(t *testing.T) {
	localtest.Require(t)
	const records = 12_000
	people := newCrowd(t, records)
	cassandra := localtest.Cassandra(t, local.CassandraOptions{Durable: true})
	// The workers' way to Cassandra: when it is back, the test is the first to
	// look. A row that comes late looks as one that was in time.
	way, err := proxy.Listen(cassandra.Addr(), nil)
	check(t, err)
	t.Cleanup(func() { check(t, way.Close()) })
	w := newWorld(t, setup{faults: slow(),
		servers: fleet.Servers{Cassandra: []string{way.Addr()}},
		configure: func(c *configs.Config) {
			narrow(c)
			// Slow enough that there is a middle for every outage.
			c.Send.InFlight, c.Status.Rows, c.Status.Unacknowledged = 25, 10, 25
			c.Cassandra.Timeout = 2 * time.Second
			// A Kafka that is away for longer takes the partitions away.
			c.Kafka.SessionTimeout = 2 * time.Second
			c.Redis.DialTimeout, c.Redis.ReadTimeout, c.Redis.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond
		}})
	kafka, redis := store{"kafka", w.kafka, w.kafka.Addr()}, store{"redis", w.redis, w.redis.Addr()}
	cass := store{"cassandra", cassandra, way.Addr()}
	w.populate(people)
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))

	for _, s := range []store{cass, redis, kafka} {
		check(t, s.Stop(waiting(t)))
	}
	worker, err := w.StartWorker()
	check(t, err)
	back := []store{redis, kafka, cass}
	for _, s := range back {
		check(t, worker.AwaitLog(waiting(t), "cannot connect", `"to":"`+s.name+`"`, s.at))
		check(t, worker.AwaitUnready(waiting(t), "[-] "+s.name+":"))
	}
	for i, s := range back {
		check(t, s.Restart(waiting(t)))
		if i+1 < len(back) {
			check(t, worker.AwaitUnready(waiting(t), "[+] "+s.name+" ok", "[-] "+back[i+1].name+":"))
		}
	}
	check(t, worker.AwaitReady(waiting(t)))

	stop := func(s store) { check(t, s.Stop(waiting(t))) }
	kill := func(s store) { check(t, s.Kill()) }
	pause := func(s store) { check(t, s.Pause()) }
	restart := func(s store) { check(t, s.Restart(waiting(t))) }
	resume := func(s store) { check(t, s.Resume()) }
	lost := func() float64 {
		m, err := worker.Metrics(waiting(t))
		check(t, err)
		return m.Sum("push_consumer_partition_moves_total", `kind="lost"`)
	}
	const some = 200 // pushes that show that it goes on
	for _, outage := range []struct {
		what       string
		store      store
		away, back func(store)
	}{
		{"Redis is stopped and comes back empty", redis, stop, restart},
		{"Redis hangs", redis, pause, resume},
		{"Cassandra hangs", cass, pause, resume},
		{"Cassandra is killed", cass, kill, restart},
		{"Kafka hangs", kafka, pause, resume},
		{"Kafka is killed", kafka, kill, restart},
	} {
		check(t, w.AwaitAccepted(waiting(t), w.Sim.Ledger().Totals().Accepted+some))
		before, lostBefore := w.Resent(), lost()
		letIn := func() {}
		if outage.store == cass {
			letIn = way.Shut()
		}
		outage.away(outage.store)
		check(t, worker.AwaitUnready(waiting(t), "[-] "+outage.store.name+":"))
		outage.back(outage.store)
		passed, unsettled, err := w.Unsettled(waiting(t), cassandra.Addr())
		check(t, err)
		if len(unsettled) > 0 {
			t.Errorf("%s: %d of %d records are committed, and nothing durable is there of them: %v", outage.what, len(unsettled), passed,
				unsettled[:min(5, len(unsettled))])
		}
		letIn()
		check(t, worker.AwaitReady(waiting(t)))
		check(t, w.AwaitAccepted(waiting(t), w.Sim.Ledger().Totals().Accepted+some))
		// What was under way is repeated if the group may have given the
		// partitions away meanwhile, and not otherwise. On a busy machine it does
		// so with Kafka at hand.
		var repeats uint64
		if outage.store == kafka || lost() > lostBefore {
			repeats = routes * 50
		}
		if n := w.Resent() - before; n > repeats {
			t.Errorf("%s: %d pushes were repeated, more than %d", outage.what, n, repeats)
		}
		done, err := w.Committed(waiting(t))
		check(t, err)
		t.Logf("%s, and is back: %d of %d records are committed", outage.what, done, records)
	}
	w.clean(fleet.AccountOptions{})
	status, err := worker.Term(waiting(t))
	check(t, err)
	if status != 0 {
		t.Errorf("the worker ended with %d%s", status, worker.Tail())
	}
}
