package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Fault is something that can be done to a fleet.
type Fault string

// Everything that can be done. What has a length is undone after it.
const (
	Kill    Fault = "kill"    // SIGKILL; a worker is started again at once, a server when the length is over
	Pause   Fault = "pause"   // SIGSTOP, and SIGCONT after the length
	Stop    Fault = "stop"    // SIGTERM; started again as after Kill
	KillAll Fault = "killall" // SIGKILL to all workers at once
	Join    Fault = "join"    // one worker more
	Leave   Fault = "leave"   // SIGTERM to the newest that joined

	// KillUnheard is Kill of a gateway at a moment when Kafka has taken what it was sent,
	// and nobody was told.
	KillUnheard Fault = "kill before the answer"
	// Visit is a process of fan-outs more, which leaves when the length is over.
	Visit Fault = "visit"
	// Grow gives the lane's topic more partitions.
	Grow Fault = "grown"

	Wipe Fault = "wipe" // FLUSHALL

	// Rewind ends all workers in order, sets the offsets of the lane's group back
	// by more than W, or to the start where Form is 1, and starts them again.
	// With Form 2 Redis is wiped meanwhile.
	Rewind Fault = "rewind"

	// Lag is Slow by a latency of Delay, without an excuse: everything goes on.
	Lag Fault = "late"

	// Forbid takes one of the fleet's rights in Kafka away: the one of its Form.
	Forbid Fault = "forbidden"

	// Refused are the credentials of one app, at both providers.
	Refused Fault = "credentials refused"

	// Rotate exchanges the keys of an app at both providers, and revokes the former
	// ones after the length. With Form 1 its files are broken before that.
	Rotate Fault = "keys exchanged"

	// Full is a disk that takes no more writes, of Kafka or Cassandra: Redis
	// keeps nothing on it. When the length is over there is space again, and an
	// operator starts what does not answer. What the servers do, as seen:
	//
	//   - Kafka 4.3, whose one log directory has failed, ends with status 1 at
	//     the next append of anybody, its own metadata included: at once.
	//   - Cassandra 5.0 with both failure policies at stop, as shipped, lets the
	//     write that failed time out, closes its port for clients and goes on
	//     living without, also when there is space again. SIGTERM does not end
	//     it, for its last flush waits for the commit log that has stopped: it
	//     takes kill -9.
	Full Fault = "disk full"

	// Of the connections to a server, or of a worker's to the providers.
	Slow      Fault = "slow"
	BlackHole Fault = "black hole"
	HalfOpen  Fault = "half-open"
	Reset     Fault = "reset"
	Cut       Fault = "cut" // in the middle of a message
	Refuse    Fault = "refuse"

	// Of a provider.
	Storm    Fault = "429 storm"     // to everything, with Retry-After in one of its forms
	Errors   Fault = "503s"          // to a third of everything, or to most of it
	Down     Fault = "down"          // connections are reset and refused
	Quota    Fault = "quota"         // a quarter of what the fleet takes it for
	Comeback Fault = "comeback"      // 503s to everything, then with little room that grows; too much pushes it over again
	GoAway   Fault = "goaway"        // graceful, to all connections
	Abandon  Fault = "goaway, close" // without the answers
)

// The targets beside workers.
const (
	Kafka     = "kafka"
	Redis     = "redis"
	Cassandra = "cassandra"
	APNS      = "apns"
	FCM       = "fcm"
	Workers   = "workers" // all of them
	Fanouts   = "fan-outs"
)

// worker names the target of slot i, from 0.
func worker(i int) string { return fmt.Sprintf("worker %d", i+1) }

// gateway and fanoutProcess name the targets of their slots, from 0.
func gateway(i int) string       { return fmt.Sprintf("%s%d", gatewayTarget, i+1) }
func fanoutProcess(i int) string { return fmt.Sprintf("%s%d", fanoutTarget, i+1) }

const (
	gatewayTarget = "gateway "
	fanoutTarget  = "fan-out "
)

// paths names the connections of a worker to the providers.
func paths(i int) string { return fmt.Sprintf("providers of worker %d", i+1) }

// app names the target of an app.
func app(name string) string { return appTarget + name }

const appTarget = "app "

// Action is one fault with its time.
type Action struct {
	At     time.Duration `json:"at"` // from the first record
	Fault  Fault         `json:"fault"`
	Target string        `json:"target"`
	For    time.Duration `json:"for,omitempty"`
	Form   int           `json:"form,omitempty"`  // of Storm: which Retry-After; of Rewind; of Forbid; of Rotate; of Errors: 0 = three tenths, 1 = six
	Delay  time.Duration `json:"delay,omitempty"` // of Lag
}

func (a Action) String() string {
	s := fmt.Sprintf("%8.1fs  %s of %s", a.At.Seconds(), a.Fault, a.Target)
	if a.For > 0 {
		s += fmt.Sprintf(" for %v", a.For)
	}
	if a.Delay > 0 {
		s += fmt.Sprintf(" by %v", a.Delay)
	}
	return s
}

// Plan is what is done in a run: a pure function of the scenario, the seed and
// the length, in order of time.
func Plan(s *Scenario, seed uint64, length time.Duration) []Action {
	r := rand.New(rand.NewPCG(seed, 0x6368616f73))
	plan := s.plan(r, length)
	slices.SortStableFunc(plan, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
	return plan
}

// millis is a random time from least to most.
func millis(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64((most-least)/time.Millisecond)+1))*time.Millisecond
}

// exponential is a time that is drawn as those between rare events are, but
// neither under a fifth of the mean nor over three times it.
func exponential(r *rand.Rand, mean time.Duration) time.Duration {
	d := time.Duration(r.ExpFloat64() * float64(mean))
	return min(max(d, mean/5), 3*mean).Round(time.Millisecond)
}

// settle is how long the fleet runs before the first fault, so that there is
// something in flight.
const settle = 2 * time.Second

// mixed does a fault of any kind about every four seconds; some overlap.
func mixed(r *rand.Rand, length time.Duration) (plan []Action) {
	for at := settle; at < length; at += exponential(r, 4*time.Second) {
		a := anything(r, mixedWorkers)
		a.At = at
		// What outlasts the run is only undone at its end.
		if a.For = min(a.For, length-at); a.For < 0 {
			break
		}
		plan = append(plan, a)
	}
	return plan
}

// anything draws a fault of any kind. Every draw is made whatever the choice,
// so that a change to one fault leaves the others of a seed as they are.
func anything(r *rand.Rand, workers int) Action {
	w, pick, short, long := r.IntN(workers), r.IntN(100), millis(r, 200*time.Millisecond, 2*time.Second), millis(r, 4*time.Second, 12*time.Second)
	server := []string{Kafka, Redis, Cassandra}[r.IntN(3)]
	provider := []string{APNS, FCM}[r.IntN(2)]
	form := r.IntN(len(stormForms))
	switch {
	case pick < 18:
		return Action{Fault: Kill, Target: worker(w)}
	case pick < 26:
		return Action{Fault: Stop, Target: worker(w)}
	case pick < 31:
		return Action{Fault: Pause, Target: worker(w), For: short}
	case pick < 36:
		return Action{Fault: Pause, Target: worker(w), For: long}
	case pick < 39:
		return Action{Fault: KillAll, Target: Workers}
	case pick < 43:
		return Action{Fault: Kill, Target: server, For: short}
	case pick < 46:
		return Action{Fault: Pause, Target: server, For: long}
	case pick < 49:
		return Action{Fault: Stop, Target: server, For: short}
	case pick < 54:
		return Action{Fault: Wipe, Target: Redis}
	case pick < 58:
		return Action{Fault: BlackHole, Target: server, For: long}
	case pick < 62:
		return Action{Fault: Reset, Target: server}
	case pick < 65:
		return Action{Fault: HalfOpen, Target: server, For: short}
	case pick < 68:
		return Action{Fault: Cut, Target: server}
	case pick < 71:
		return Action{Fault: Slow, Target: server, For: long}
	case pick < 75:
		return Action{Fault: Reset, Target: paths(w)}
	case pick < 78:
		return Action{Fault: BlackHole, Target: paths(w), For: long}
	case pick < 81:
		return Action{Fault: Cut, Target: paths(w)}
	case pick < 84:
		return Action{Fault: Slow, Target: paths(w), For: long}
	case pick < 87:
		return Action{Fault: Refuse, Target: paths(w), For: short}
	case pick < 90:
		return Action{Fault: Storm, Target: FCM, For: long, Form: form}
	case pick < 93:
		return Action{Fault: Errors, Target: provider, For: long}
	case pick < 95:
		return Action{Fault: Down, Target: provider, For: long}
	case pick < 98:
		return Action{Fault: GoAway, Target: provider}
	}
	return Action{Fault: Abandon, Target: provider}
}
