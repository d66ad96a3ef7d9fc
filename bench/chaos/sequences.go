package chaos

import (
	"math/rand/v2"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// sequences are the scenarios of one chain of events each, in which something
// that is harmless alone meets something else.
func sequences() []*Scenario {
	return []*Scenario{
		{Name: "stops", About: "SIGTERM with a backlog while the providers take 1 to 6 s to answer: 20 stops in full, 6 in short", Full: 20 * stopEvery, Short: 6 * stopEvery,
			Workers: stopWorkers, Rate: 300, Spread: sim.Distribution{Shape: sim.Uniform, A: time.Second, B: 6 * time.Second}, Session: 6 * time.Second, plan: stops,
			// A partition that comes to a worker waits behind all that this one has
			// open, which is to be some 2,000 pushes at 100 a second: with windows of
			// 2,000 records it stood still for 50 s.
			configure: func(c *configs.Config) { c.Batch.Records = 100 }},
		{Name: "rewind", About: "offsets set back by more than W by hand, with Redis wiped now and then: 5 times in full, 2 in short", Full: 5 * rewindEvery, Short: 2 * rewindEvery,
			Workers: 2, Rate: 140, Latency: 50 * time.Millisecond, Session: 3 * time.Second, plan: rewinds, strange: 0.3,
			configure: func(c *configs.Config) { c.Batch.Records = 50 }}, // W = 200
		{Name: "slow-stores", About: "Cassandra, Redis and Kafka answer 20 and 200 ms late, by turns and all at once", Full: 8 * lagFor, Short: 2 * lagFor,
			Workers: 2, Rate: 100, Latency: 50 * time.Millisecond, Session: 6 * time.Second, plan: slowStores, strange: 0.1},
		{Name: "lost-answers", About: "ways to the providers are cut, reset, half-open, black holes; in at_most_once", Full: 2 * time.Minute, Short: 30 * time.Second,
			Workers: 2, Rate: 150, Latency: 200 * time.Millisecond, Session: 6 * time.Second, plan: lostAnswers, mode: configs.AtMostOnce},
		{Name: "strange", About: "nothing but records of the whole input space, with stops, kills and a wiped Redis", Full: 2 * time.Minute, Short: 24 * time.Second,
			Workers: 2, Rate: 60, Latency: 50 * time.Millisecond, Session: 3 * time.Second, plan: strange, strange: 1, bombs: true,
			// Each of two readers unpacks a bomb as far as it is allowed to, with a
			// buffer that grows, and holds what it has polled (configs.MemoryBound); an
			// idle process gives that back in minutes. What it takes at most is held
			// against what it printed all the same.
			limits: func(l *invariants.Limits) { l.Bytes = 2 * (64 + 192 + 64) << 20 }},
		{Name: "revokes", About: "members join and leave with a backlog while one provider is slow and the other is not", Full: 2 * time.Minute, Short: 30 * time.Second,
			Workers: 2, Rate: 150, Latency: 50 * time.Millisecond, Session: 6 * time.Second, plan: churn,
			late: sim.Distribution{Shape: sim.Uniform, A: 3 * time.Second, B: 6 * time.Second}},
		{Name: "transactions", About: "half of the records in transactions, of which a third is aborted, with kills and stops; in at_most_once", Full: 2 * time.Minute, Short: 30 * time.Second,
			Workers: 2, Rate: 120, Latency: 100 * time.Millisecond, Session: 3 * time.Second, plan: gaps, strange: 0.5, transactions: true, mode: configs.AtMostOnce, once: 100},
		{Name: "rights", About: "the right to read the lane, to write its retries, or to be in the group is taken away for seconds", Full: 3 * time.Minute, Short: 36 * time.Second,
			Workers: 2, Rate: 120, Latency: 50 * time.Millisecond, Session: 3 * time.Second, plan: forbidden, authorized: true,
			limits: func(l *invariants.Limits) { l.Back = 15 * time.Second }},
		{Name: "apps", About: "of two apps, one by turns has its credentials refused: the other goes on, and what is held is sent when it is back", Full: 150 * time.Second, Short: 22 * time.Second,
			Workers: 2, Rate: 200, Latency: 50 * time.Millisecond, Session: 6 * time.Second, plan: oneApp, others: []string{news},
			// Five seconds of records: who does not hold the stopped app's has no room
			// for the other's then.
			configure: func(c *configs.Config) { c.Batch.Records, c.Batch.OpenRecords = 100, 500 }},
		{Name: "rotate", About: "the app's keys are exchanged at both providers every 3 s, each former one is revoked 2 s later, with broken files in between: nobody notices", Full: time.Minute, Short: 24 * time.Second,
			Workers: 2, Rate: 200, Latency: 50 * time.Millisecond, Session: 6 * time.Second, plan: rotations,
			configure: func(c *configs.Config) { c.Send.ReloadKeys = reloadEvery }},
		{Name: "quota", About: "FCM takes in a minute a quarter of what the fleet thinks it does, and more waits: the fleet finds out, keeps to it and uses it evenly", Full: 6 * time.Minute, Short: 160 * time.Second,
			Workers: quotaWorkers, Rate: 90, Latency: 50 * time.Millisecond, Session: 6 * time.Second, plan: oneQuota, configure: limited},
		{Name: "slow-recovery", About: "FCM is down, comes back with a tenth of its room, and falls over when asked for twice of it: what waited does not push it over", Full: 4*comebackEvery + 2*settle, Short: comebackEvery + 2*settle,
			Workers: quotaWorkers, Rate: 350, Latency: 50 * time.Millisecond, Session: 6 * time.Second, plan: comebacks, configure: toItsRate},
		{Name: "wide", About: "a user with 20,000 devices among others, with kills, stops and 503s in the middle of them", Full: 2 * time.Minute, Short: 30 * time.Second,
			Workers: 2, Rate: 60, Latency: 50 * time.Millisecond, Session: 3 * time.Second, plan: wide, wide: 20_000, configure: holdLittle},
	}
}

// usual is what the providers do when nothing is done to them.
func (s *Scenario) usual() sim.RouteSet {
	apns := sim.Faults{Latency: s.Latency, Spread: s.Spread}
	fcm := apns
	if s.late != (sim.Distribution{}) {
		fcm = sim.Faults{Spread: s.late}
	}
	return sim.RouteSet{APNS: apns, FCM: fcm}
}

const (
	stopWorkers = 3
	// stopEvery is less than a stop takes with such providers: while one drains,
	// another may be told as well.
	stopEvery = 5 * time.Second
)

// stops tells the workers to end by turns, and now and then two at once.
func stops(r *rand.Rand, length time.Duration) (plan []Action) {
	at, who := settle, r.IntN(stopWorkers)
	for range int(length / stopEvery) {
		plan = append(plan, Action{At: at, Fault: Stop, Target: worker(who)})
		who = (who + 1 + r.IntN(stopWorkers-1)) % stopWorkers
		at += exponential(r, stopEvery)
	}
	return plan
}

// rewindEvery is time for W records of each partition and more, and for all
// workers to end and start.
const rewindEvery = 30 * time.Second

func rewinds(r *rand.Rand, length time.Duration) (plan []Action) {
	form := r.IntN(3)
	for at := rewindEvery - 6*time.Second; at < length; at += rewindEvery {
		plan = append(plan, Action{At: at, Fault: Rewind, Target: Workers, Form: form})
		form = (form + 1) % 3
	}
	return plan
}

const lagFor = 18 * time.Second

func slowStores(_ *rand.Rand, length time.Duration) (plan []Action) {
	stores := []string{Cassandra, Redis, Kafka}
	for i := range int(length / lagFor) {
		delay := []time.Duration{200 * time.Millisecond, 20 * time.Millisecond}[i/4%2]
		at := settle + time.Duration(i)*lagFor
		for j, s := range stores {
			if i%4 == 0 || j == i%4-1 { // all at once first, then one by one
				plan = append(plan, Action{At: at, Fault: Lag, Target: s, For: lagFor - 4*time.Second, Delay: delay})
			}
		}
	}
	return plan
}

// lostAnswers does to the ways of both workers what makes it unknown what
// became of a send.
func lostAnswers(r *rand.Rand, length time.Duration) (plan []Action) {
	for at := settle; at < length; at += millis(r, time.Second, 3*time.Second) {
		a := Action{At: at, Fault: []Fault{Reset, Cut, HalfOpen, BlackHole}[r.IntN(4)], Target: paths(r.IntN(2))}
		if a.Fault == HalfOpen || a.Fault == BlackHole {
			a.For = millis(r, 500*time.Millisecond, 4*time.Second)
		}
		plan = append(plan, a)
	}
	return plan
}

func strange(r *rand.Rand, length time.Duration) (plan []Action) {
	for at := settle; at < length-2*time.Second; at += millis(r, 4*time.Second, 7*time.Second) {
		switch r.IntN(3) {
		case 0:
			plan = append(plan, Action{At: at, Fault: Stop, Target: worker(r.IntN(2))})
		case 1:
			plan = append(plan, Action{At: at, Fault: Kill, Target: worker(r.IntN(2))})
		case 2:
			plan = append(plan, Action{At: at, Fault: Wipe, Target: Redis})
		}
	}
	return plan
}

// gaps ends workers in both ways while there are offsets that no record has.
func gaps(r *rand.Rand, length time.Duration) (plan []Action) {
	for at := settle; at < length-2*time.Second; at += millis(r, 3*time.Second, 6*time.Second) {
		plan = append(plan, Action{At: at, Fault: []Fault{Kill, Kill, Stop}[r.IntN(3)], Target: worker(r.IntN(2))})
	}
	return plan
}

// forbidden takes each right away by turns. Meanwhile some is refused by the
// providers, so that there is something to be handed over.
func forbidden(r *rand.Rand, length time.Duration) (plan []Action) {
	const each = 12 * time.Second
	first := r.IntN(rights)
	for i := range int(length / each) {
		at := settle + time.Duration(i)*each
		a := Action{At: at, Fault: Forbid, Target: Kafka, For: millis(r, 2*time.Second, 6*time.Second), Form: (first + i) % rights}
		plan = append(plan, a, Action{At: at, Fault: Errors, Target: []string{APNS, FCM}[r.IntN(2)], For: a.For})
	}
	return plan
}

// news is the second app of the scenario that has two.
const news = "news"

// oneApp stops one app in the short form. In full it stops the one, and when that
// is back the other for longer than the first pause: its probe is refused too.
// Each comes after as much time without, which the rate is compared with.
func oneApp(r *rand.Rand, length time.Duration) []Action {
	names := []string{fleet.App, news}
	first := r.IntN(len(names))
	if length < time.Minute {
		return []Action{{At: length * 9 / 20, Fault: Refused, Target: app(names[first]), For: length * 9 / 20}}
	}
	return []Action{
		{At: length / 5, Fault: Refused, Target: app(names[first]), For: length / 6},
		{At: length / 2, Fault: Refused, Target: app(names[1-first]), For: length / 4},
	}
}

const (
	// rotateEvery makes it 20 changes in a minute.
	rotateEvery = 3 * time.Second
	// reloadEvery is how often the workers of rotations look at their files: four times
	// while old and new keys overlap.
	reloadEvery = 500 * time.Millisecond
)

// rotations exchange the keys, of which every third is preceded by broken files, and
// have Apple say goodbye to all connections now and then.
func rotations(r *rand.Rand, length time.Duration) (plan []Action) {
	for i := range int((length - settle) / rotateEvery) {
		at := settle + time.Duration(i)*rotateEvery
		a := Action{At: at, Fault: Rotate, Target: app(fleet.App), For: 4 * reloadEvery}
		if i%3 == 1 {
			a.Form, a.For = 1, 3*reloadEvery
		}
		plan = append(plan, a)
		if i%4 == 2 {
			plan = append(plan, Action{At: at + millis(r, 0, 2*time.Second), Fault: GoAway, Target: APNS})
		}
	}
	return plan
}

// wideEvery is time to send to the devices of a wide user, and again what
// became of a third of them.
const wideEvery = 10 * time.Second

// everyWide is how many records there are between two that go to the wide user.
func (s *Scenario) everyWide() int { return s.Rate * int(wideEvery/time.Second) }

// wide does something while a notification goes to the wide user, who gets one
// in the middle of each wideEvery: kills one worker after the other, of which one
// has it, stops them, or has a part of the devices refused.
func wide(r *rand.Rand, length time.Duration) (plan []Action) {
	turn := r.IntN(3)
	for from := wideEvery / 2; from+wideEvery/2 <= length; from += wideEvery {
		first, next := from+millis(r, 500*time.Millisecond, 2*time.Second), millis(r, 2*time.Second, 3*time.Second)
		who, lasts := r.IntN(2), millis(r, 2*time.Second, 4*time.Second)
		switch fault := []Fault{Kill, Stop, Errors}[turn%3]; fault {
		case Errors:
			plan = append(plan, Action{At: first, Fault: fault, Target: APNS, For: lasts}, Action{At: first, Fault: fault, Target: FCM, For: lasts})
		default:
			plan = append(plan, Action{At: first, Fault: fault, Target: worker(who)}, Action{At: first + next, Fault: fault, Target: worker(1 - who)})
		}
		turn++
	}
	return plan
}
