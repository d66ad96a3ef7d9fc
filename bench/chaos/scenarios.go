package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// Scenario is a kind of run.
type Scenario struct {
	Name  string
	About string // one line
	// Full is its length as promised, Short the one for tests.
	Full, Short time.Duration
	Workers     int
	Rate        int              // records a second
	Latency     time.Duration    // of the providers' answers
	Spread      sim.Distribution // on top of Latency
	Session     time.Duration    // after which the group gives a silent member's partitions away

	// others are apps beside the first one; users are of one each, by turns.
	others []string
	// late is what FCM's answers take in place of Latency; zero = the same.
	late sim.Distribution
	// strange is the share of the records that package records makes up, from 0
	// to 1; bombs says that some of them unpack to more than a worker takes.
	strange float64
	bombs   bool
	// transactions says that those are appended in transactions.
	transactions bool
	// hollow says that there are transactions without records beside them, whose
	// marks leave holes between the offsets.
	hollow bool
	// authorized says that Kafka asks who may do what.
	authorized bool
	// mode is the lane's delivery mode where the run names none; empty =
	// at_least_once.
	mode string
	// StoreLatency is what the proxy adds to each message to and from Cassandra.
	StoreLatency time.Duration
	// windows of each route; the usual ones when empty.
	windows sizes
	// once is how many records a batch has at most where a lane sends at most
	// once, so that what is committed can be sent in a drain; 0 = as others.
	once int

	// plan is the faults of a run of this length.
	plan func(r *rand.Rand, length time.Duration) []Action
	// configure changes the fleet's configuration; may be nil.
	configure func(*configs.Config)
	// limits changes what the run is held against; may be nil.
	limits func(*invariants.Limits)
	// again is set where messages may run out of attempts: what was to be
	// delivered may end DEAD_LETTERED or EXPIRED.
	again bool
	// wide is how many devices one user has, who gets a notification every
	// wideEvery; 0 = nobody.
	wide int
	// weight is how many bytes are added to each record.
	weight int
	// Broken says why a scenario is not clean today, and is not run unless it is named;
	// empty = it is clean.
	Broken string
	// through is set where records come through gateways, and none of the crowd's own.
	through *through
	// alone is set where no two faults touch: then the provider that has none is
	// held to its rate.
	alone bool
}

const mixedWorkers = 3

// Scenarios are all there are, in the order of the documentation.
func Scenarios() []*Scenario {
	return append([]*Scenario{
		{Name: "mixed", About: "faults of every kind by seed, some at once", Full: 10 * time.Minute, Short: 30 * time.Second,
			Workers: mixedWorkers, Rate: 150, Latency: 50 * time.Millisecond, Session: 3 * time.Second, plan: mixed, strange: 0.1, hollow: true},
		{Name: "kills", About: "SIGKILL of random workers whose windows are full: 300 in full, 10 in short", Full: 300 * killEvery, Short: 10 * killEvery,
			Workers: 4, Rate: 300, Latency: time.Second, StoreLatency: 20 * time.Millisecond, Session: 2 * time.Second, plan: kills, windows: sizes{50, 25}, once: 100,
			configure: func(c *configs.Config) {
				c.Gates.Share, c.Gates.Failures = 0.95, 0 // refusals are for retries, and close nothing
				// What an owner has open is to be sent in less than the 12 s that it lives:
				// with batches of 500 that is 4,000 records, at 150 pushes a second.
				c.Batch.Records = min(c.Batch.Records, 100)
			}},
		{Name: "rolling", About: "SIGTERM and restart of each worker in turn: 10 rounds in full, 2 in short", Full: 10 * rollEvery * 4, Short: 2 * rollEvery * 4,
			Workers: 4, Rate: 300, Latency: 100 * time.Millisecond, Session: 3 * time.Second, plan: rolling},
		{Name: "churn", About: "a member joins or leaves every 0.5 to 3 s", Full: 3 * time.Minute, Short: 20 * time.Second,
			Workers: 2, Rate: 300, Latency: 50 * time.Millisecond, Session: 3 * time.Second, plan: churn},
		{Name: "cassandra", About: "Cassandra is down, and then hangs: 3 minutes each in full, 18 s in short", Full: 8 * time.Minute, Short: 48 * time.Second,
			Workers: 2, Rate: 200, Latency: 50 * time.Millisecond, Session: 6 * time.Second, plan: cassandraAway,
			limits: func(l *invariants.Limits) { l.Back = 15 * time.Second }, weight: ballast, configure: holdLittle},
		{Name: "disk", About: "the disks of Kafka and Cassandra are full by turns, and workers are killed meanwhile", Full: 4 * time.Minute, Short: 26 * time.Second,
			Workers: diskWorkers, Rate: 150, Latency: 50 * time.Millisecond, Session: 3 * time.Second, plan: diskFull},
		{Name: "redis-wipe", About: "Redis loses everything, again and again, and workers are killed just then", Full: 3 * time.Minute, Short: 25 * time.Second,
			Workers: 3, Rate: 200, Latency: 100 * time.Millisecond, Session: 2 * time.Second, plan: redisWipe},
		{Name: "provider", About: "FCM answers 429 to everything, with Retry-After in its forms; then APNs is down: 3 minutes in full", Full: 8 * time.Minute, Short: 60 * time.Second,
			Workers: 2, Rate: 200, Latency: 50 * time.Millisecond, Session: 6 * time.Second, plan: provider, alone: true},
	}, append(sequences(), throughGateways()...)...)
}

// FindScenario returns the one of that name.
func FindScenario(name string) (*Scenario, error) {
	var names []string
	for _, s := range Scenarios() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("no scenario %q: there are %v", name, names)
}

// killEvery is the mean time between two kills: a worker is up again after
// about one second, and its partitions are given away after the session.
const killEvery = 3 * time.Second

// kills kills workers whose windows are full: providers take so long to answer
// that 4 workers can have no more in flight than is produced. By turns most is
// refused for 4 s, so that what is retried then fills the windows of the retry
// topics too.
func kills(r *rand.Rand, length time.Duration) (plan []Action) {
	at := settle
	for range int(length / killEvery) {
		plan = append(plan, Action{At: at, Fault: Kill, Target: worker(r.IntN(4))})
		at += exponential(r, killEvery)
	}
	const each, every = 4 * time.Second, 10 * time.Second
	for at := settle; at+each < length; at += every {
		plan = append(plan, Action{At: at, Fault: Errors, Target: APNS, For: each, Form: 1}, Action{At: at, Fault: Errors, Target: FCM, For: each, Form: 1})
	}
	return plan
}

// rollEvery is the time for one worker to drain and be back.
const rollEvery = 4 * time.Second

func rolling(_ *rand.Rand, length time.Duration) (plan []Action) {
	for i := range int(length / rollEvery) {
		plan = append(plan, Action{At: settle + time.Duration(i)*rollEvery, Fault: Stop, Target: worker(i % 4)})
	}
	return plan
}

// guests is the most members that churn adds.
const guests = 2

func churn(r *rand.Rand, length time.Duration) (plan []Action) {
	here := 0
	for at := settle; at < length; at += millis(r, 500*time.Millisecond, 3*time.Second) {
		joins := here == 0 || here < guests && r.IntN(2) == 0
		if joins {
			here++
			plan = append(plan, Action{At: at, Fault: Join, Target: Workers})
		} else {
			here--
			plan = append(plan, Action{At: at, Fault: Leave, Target: Workers})
		}
	}
	return plan
}

// cassandraAway takes it away for 3 of 8 parts, gives it one part back, and
// lets it hang for 3 more.
func cassandraAway(_ *rand.Rand, length time.Duration) []Action {
	part := length / 8
	return []Action{
		{At: part / 2, Fault: Kill, Target: Cassandra, For: 3 * part},
		{At: 4*part + part/2, Fault: Pause, Target: Cassandra, For: 3 * part},
	}
}

// ballast makes what comes in three minutes more than twice as much as a worker
// may hold, which holdLittle bounds to less than 200 MiB: so one that reads its
// backlog into memory shows.
const ballast = 32 << 10

func holdLittle(c *configs.Config) { c.Batch.Bytes, c.Batch.OpenRecords = 1<<20, 4000 }

const diskWorkers = 3

// diskFull fills the disks of Kafka and Cassandra by turns. Half of the times a
// worker dies meanwhile, so that its heir has to confirm what it cannot read.
func diskFull(r *rand.Rand, length time.Duration) (plan []Action) {
	servers := []string{Kafka, Cassandra}
	turn := r.IntN(len(servers))
	for at := settle; ; at += millis(r, 12*time.Second, 16*time.Second) {
		full := Action{At: at, Fault: Full, Target: servers[turn%len(servers)], For: millis(r, 3*time.Second, 6*time.Second)}
		dies, who, when := r.IntN(2) == 0, worker(r.IntN(diskWorkers)), millis(r, 0, full.For)
		if at+full.For > length {
			return plan
		}
		plan = append(plan, full)
		if dies {
			plan = append(plan, Action{At: at + when, Fault: Kill, Target: who})
		}
		turn++
	}
}

func redisWipe(r *rand.Rand, length time.Duration) (plan []Action) {
	for at := settle; at < length; at += millis(r, 6*time.Second, 9*time.Second) {
		switch r.IntN(3) {
		case 0: // what is redelivered meets filters and registry that know nothing
			plan = append(plan, Action{At: at, Fault: Kill, Target: worker(r.IntN(3))},
				Action{At: at + millis(r, 0, 1500*time.Millisecond), Fault: Wipe, Target: Redis})
		case 1:
			plan = append(plan, Action{At: at, Fault: Wipe, Target: Redis})
		case 2: // comes back empty
			plan = append(plan, Action{At: at, Fault: Kill, Target: Redis, For: millis(r, 100*time.Millisecond, time.Second)})
		}
	}
	return plan
}

// stormForms are the ways in which Retry-After comes: in seconds, as a date,
// and not at all.
var stormForms = []string{"seconds", "date", "missing"}

func provider(_ *rand.Rand, length time.Duration) (plan []Action) {
	part := length / 16
	for form := range stormForms {
		plan = append(plan, Action{At: part + time.Duration(form)*2*part, Fault: Storm, Target: FCM, For: part, Form: form})
	}
	return append(plan, Action{At: 8 * part, Fault: Down, Target: APNS, For: 6 * part})
}
