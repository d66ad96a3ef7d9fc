package chaos

import (
	"math/rand/v2"
	"time"
)

// through says how records come through gateways.
type through struct {
	gateways int  // processes of `pushgateway serve`
	calls    bool // messages to single users are sent
	// messages is how many go to all subscribers of a topic, and processes how many of
	// `pushgateway fanout` there are at first. The topic has so many subscribers in full, and
	// fewer in shorter runs.
	messages, processes  int
	subscribers, shorter int
}

// throughGateways are the scenarios of what comes by HTTP.
func throughGateways() []*Scenario {
	return []*Scenario{
		{Name: "gateway", About: "messages by HTTP through two gateways, of which one dies, hangs or stops, also between Kafka's word and its answer; with Kafka, Redis and Cassandra away", Full: 5 * time.Minute, Short: gatewayShort,
			Workers: 2, Rate: 40, Latency: 50 * time.Millisecond, Session: 6 * time.Second, plan: aroundGateways, through: &through{gateways: gateways, calls: true}},
		{Name: "fanout", About: "messages to a topic of 100,000 subscribers in full, of 10,000 in short, who come and go, while processes of fan-outs die, hang, join and leave", Full: 6 * time.Minute, Short: fanoutShort,
			Workers: 2, Rate: 60, Latency: 50 * time.Millisecond, Session: fanoutSession, plan: withinFanouts,
			through: &through{gateways: gateways, messages: 2, processes: fanoutProcesses, subscribers: 100_000, shorter: 10_000}},
	}
}

const (
	gateways        = 2
	fanoutProcesses = 2
	gatewayShort    = 40 * time.Second
	fanoutShort     = 35 * time.Second
	// fanoutSession is so long that a busy machine does not end it: a chunk would be made
	// again for no fault.
	fanoutSession = 12 * time.Second
	// dealt is the usual time between two faults of a deck.
	dealt = 2 * time.Second
)

// deal does one of each kind of fault after the other, in an order of the seed's, again and
// again: so each comes, however short the run is. The next comes when the one before is over.
func deal(r *rand.Rand, length time.Duration, deck ...func() Action) (plan []Action) {
	order := r.Perm(len(deck))
	for at, i := settle, 0; ; i++ {
		if i > 0 && i%len(deck) == 0 {
			order = r.Perm(len(deck))
		}
		a := deck[order[i%len(deck)]]()
		if a.At = at; a.At+a.For > length {
			return plan
		}
		plan = append(plan, a)
		at += a.For + exponential(r, dealt)
	}
}

// aroundGateways does to gateways, and to what they need, what happens to them.
func aroundGateways(r *rand.Rand, length time.Duration) []Action {
	one := func() string { return gateway(r.IntN(gateways)) }
	store := func(target string, least, most time.Duration, faults ...Fault) func() Action {
		return func() Action {
			return Action{Fault: faults[r.IntN(len(faults))], Target: target, For: millis(r, least, most)}
		}
	}
	unheard := func() Action { return Action{Fault: KillUnheard, Target: one()} }
	return deal(r, length, unheard, unheard,
		func() Action { return Action{Fault: Kill, Target: one(), For: millis(r, 0, time.Second)} },
		func() Action { return Action{Fault: Stop, Target: one()} },
		func() Action { return Action{Fault: Pause, Target: one(), For: millis(r, time.Second, 4*time.Second)} },
		// For longer than a message waits for Kafka.
		store(Kafka, 6*time.Second, 7*time.Second, Pause, BlackHole),
		store(Kafka, 200*time.Millisecond, time.Second, Kill, Reset),
		func() Action { return Action{Fault: Wipe, Target: Redis} },
		store(Cassandra, 3*time.Second, 5*time.Second, Pause, BlackHole),
		func() Action { return Action{Fault: Kill, Target: worker(r.IntN(2))} })
}

// withinFanouts does to processes of fan-outs, and to those who work on what they make, what
// happens to them.
func withinFanouts(r *rand.Rand, length time.Duration) []Action {
	one := func() string { return fanoutProcess(r.IntN(fanoutProcesses)) }
	kill := func() Action { return Action{Fault: Kill, Target: one(), For: millis(r, 0, time.Second)} }
	// For longer than the session, where there is time for it, or shorter.
	longest := 4 * time.Second
	if length > time.Minute {
		longest = fanoutSession + 6*time.Second
	}
	plan := deal(r, length, kill, kill,
		func() Action { return Action{Fault: Pause, Target: one(), For: millis(r, time.Second, longest)} },
		func() Action { return Action{Fault: Stop, Target: one()} },
		func() Action { return Action{Fault: Wipe, Target: Redis} },
		func() Action {
			return Action{Fault: Visit, Target: Fanouts, For: millis(r, 3*time.Second, 6*time.Second)}
		},
		func() Action { return Action{Fault: Kill, Target: worker(r.IntN(2))} },
		func() Action {
			return Action{Fault: Kill, Target: gateway(r.IntN(gateways)), For: millis(r, 0, time.Second)}
		})
	// During the first message, and before the second one.
	return append(plan, Action{At: length / 5, Fault: Grow, Target: Kafka})
}
