//go:build unix

package mutants

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// scenario is what happens to a world while its worker works.
type scenario struct {
	name    string
	records int
	apns    sim.Faults
	fcm     sim.Faults
	crowd   func(*crowd.Options)
	config  func(*configs.Config)
	change  func(*world) // of what is produced; may be nil
	whole   bool         // each record is appended in a transaction, but for the last ones
	kept    bool         // run produces the records
	// run starts workers with these variables, and does what is to happen. The
	// records are in the topic already, unless they are kept.
	run func(ctx context.Context, w *world, planted []string) error
}

// scenarios by name; each is clean with a worker that has no bug.
var scenarios = map[string]*scenario{
	// Nothing happens but what is in every crowd: opted out, limited, expired,
	// broken, copied; and an Apple that is not always there.
	"steady": {records: 600, apns: sim.Faults{Unavailable: 0.15, Latency: 10 * time.Millisecond},
		crowd: capped, run: oneWorker},
	// Requests that are never answered.
	"silence": {records: 300, apns: sim.Faults{Latency: 5 * time.Millisecond, Chances: []sim.Chance{{Probability: 0.05, Act: sim.Act{Do: sim.DoHang}}}},
		config: func(c *configs.Config) { c.Send.Deadline = time.Second }, run: oneWorker},
	// Connections that are ended with requests that were accepted, whose answers
	// nobody hears, in lanes that send nothing again which may have arrived.
	"lost-answers": {records: 600, apns: slow(40), fcm: slow(40), config: ambiguousUnknown, run: lostAnswers},
	// The same in a lane that sends at most once.
	"lost-answers-once": {records: 600, apns: slow(40), fcm: slow(40),
		config: func(c *configs.Config) { ambiguousUnknown(c); atMostOnceLane(c) }, run: lostAnswers},
	// An Apple that often says "later", and a Google that says when.
	"later": {records: 300, apns: sim.Faults{Unavailable: 0.3, Latency: 10 * time.Millisecond},
		fcm: sim.Faults{RetryAfter: 2 * time.Second, Latency: 10 * time.Millisecond}, config: laterOptions, run: later},
	// Connections that are ended politely, with requests in flight.
	"goaway": {records: 600, apns: goAways(), fcm: goAways(), run: oneWorker},
	// kill -9 twice, in the middle.
	"kill": {records: 700, apns: sim.Faults{Unavailable: 0.1, Latency: 40 * time.Millisecond}, fcm: sim.Faults{Latency: 40 * time.Millisecond}, run: killTwice},
	// The same in a lane that sends at most once.
	"kill-once": {records: 1000, apns: sim.Faults{Unavailable: 0.1, Latency: 100 * time.Millisecond}, fcm: slow(100), config: atMostOnceLane, run: killTwice},
	// SIGSTOP until another worker owns the partitions, with much to send.
	"pause": {records: 1500, apns: slow(150), fcm: slow(150), config: pauseOptions, run: pause},
	// The same in a lane that sends at most once.
	"pause-once": {records: 1500, apns: slow(150), fcm: slow(150),
		config: func(c *configs.Config) { pauseOptions(c); atMostOnceLane(c) }, run: pause},
	// Redis away for 2.5 seconds, three times.
	"redis-away": {records: 6000, kept: true, apns: slow(40), fcm: slow(40), run: redisAway},
	// Redis has forgotten everything.
	"redis-wiped": {records: 1500, apns: slow(40), fcm: slow(40), run: redisWiped},
	// The status store takes requests and does not answer, for longer than a
	// write may take.
	"status-hung": {records: 600, apns: slow(40), fcm: slow(40), run: statusHung},
	// Kafka refuses what is produced to the retry topic and the DLQ.
	"produce-refused": {records: 300, apns: sim.Faults{Unavailable: 0.1}, run: produceRefused},
	// A second worker joins and takes half of the partitions.
	"join": {records: 2000, apns: slow(150), fcm: slow(150), run: join},
	// Workers are told to end, twice, in the middle.
	"stop": {records: 1500, apns: slow(300), fcm: slow(300), run: stopTwice},
	// Users opt out while much of theirs waits to be sent.
	"opted-out-later": {records: 1200, apns: slow(1000), fcm: slow(1000), config: recheckSoon, change: leavers, run: optOutLater},
	// kill -9 twice in a lane that sends at most once, and every other offset is
	// the mark of a transaction.
	"gaps-once": {records: 600, apns: slow(100), fcm: slow(100), config: atMostOnceLane, whole: true, run: killTwice},
	// Ids that were minted yesterday come again, and the filters have forgotten
	// them.
	"aged": {records: 1200, apns: slow(10), fcm: slow(10), change: mintedYesterday, run: comesAgain},
	// Google takes nothing for three seconds, and says so.
	"held": {records: 300, apns: slow(10), fcm: slow(10), config: holdSoon, run: held},
	// Much of what Apple gets is to be tried later, and expires meanwhile.
	"soon": {records: 600, apns: sim.Faults{Unavailable: 0.4, Latency: 10 * time.Millisecond}, crowd: expiresSoon, config: laterForLong, run: oneWorker},
	// A worker dies between its limits and its sends.
	"kill-limited": {records: 600, apns: slow(20), fcm: slow(20), crowd: capped, run: killLimited},
}

func init() {
	for name, s := range scenarios {
		s.name = name
	}
}

func slow(ms int) sim.Faults { return sim.Faults{Latency: time.Duration(ms) * time.Millisecond} }

func goAways() sim.Faults {
	return sim.Faults{Latency: 20 * time.Millisecond, Chances: []sim.Chance{{Probability: 0.02, Act: sim.Act{Do: sim.DoDrain, Unprocessed: 2}}}}
}

// ambiguousUnknown is a lane that commits last, and ends UNKNOWN what may have
// been accepted.
func ambiguousUnknown(c *configs.Config) {
	lane := c.Lanes[0]
	lane.Ambiguous = configs.AmbiguousUnknown
	c.Lanes = []configs.Lane{lane}
	noOutage(c)
}

// laterOptions have tiers that can be told apart, the first of them shorter than
// what Google asks for.
func laterOptions(c *configs.Config) {
	c.Retries.Tiers = []time.Duration{time.Second, 3 * time.Second}
	noOutage(c)
}

// laterForLong are laterOptions with so many attempts that what does not expire comes
// through: by chance, 13 of them all failed in one run of ten.
func laterForLong(c *configs.Config) {
	laterOptions(c)
	c.Retries.Max = 40
}

// noOutage lets no number of bad answers stop a route, and sends nothing to the
// hold topic that waits for the ten seconds which Google gets at the least: what
// is held waits for longer than a scenario lasts.
func noOutage(c *configs.Config) {
	c.Gates.Answers, c.Gates.Failures, c.Gates.HoldAfter, c.Gates.HoldSpan = 1_000_000, 0, time.Minute, time.Minute
}

// capped is a crowd with users who get more than they may.
func capped(o *crowd.Options) { o.Users, o.Greedy, o.Cap = 90, 0.03, 9 }

func atMostOnceLane(c *configs.Config) { setMode(c, atMostOnce) }

// setMode gives the one lane a delivery mode.
func setMode(c *configs.Config, mode string) {
	lane := c.Lanes[0]
	lane.Mode = mode
	c.Lanes = []configs.Lane{lane}
}

func oneWorker(ctx context.Context, w *world, planted []string) error {
	_, err := w.worker(ctx, planted...)
	return err
}

// lostAnswers ends Apple's connections three times, with all that is in flight
// accepted.
func lostAnswers(ctx context.Context, w *world, planted []string) error {
	if err := oneWorker(ctx, w, planted); err != nil {
		return err
	}
	w.cut = true
	for n := range 3 {
		if err := w.AwaitAccepted(ctx, uint64(150+150*n)); err != nil {
			return err
		}
		lost := invariants.Event{Kind: "lost answers", Target: sim.APNS.String(), Start: time.Now(),
			Unknown: w.Config.Send.InFlight + w.Config.Status.Unacknowledged} // the route's window
		if err := w.Sim.Command(sim.Command{Do: sim.DoAbandon.String(), Provider: sim.APNS.String()}); err != nil {
			return err
		}
		lost.End = time.Now()
		w.events = append(w.events, lost)
	}
	return nil
}

// later lets Google's first answer say when to come again: a second one soon
// after would double the route's pause.
func later(ctx context.Context, w *world, planted []string) error {
	if err := w.Sim.Command(sim.Command{Do: sim.DoAnswer.String(), Provider: sim.FCM.String(), Reply: sim.FCMUnavailable.String(), Times: 1}); err != nil {
		return err
	}
	return oneWorker(ctx, w, planted)
}

// kill ends a worker as kill -9 does.
func (w *world) kill(p *fleet.Process) error {
	if err := p.Kill(); err != nil {
		return err
	}
	w.died()
	return nil
}

func killTwice(ctx context.Context, w *world, planted []string) error {
	for n := range 2 {
		p, err := w.worker(ctx, planted...)
		if err != nil {
			return err
		}
		if err := w.AwaitAccepted(ctx, uint64(250+350*n)); err != nil {
			return err
		}
		if err := w.kill(p); err != nil {
			return err
		}
	}
	return oneWorker(ctx, w, planted)
}

// redisAway takes Redis away three times: when the windows are full of what has
// passed the stages, an outage meets no stage at all.
// redisAway takes Redis away while the first records come, which are in a stage then, and
// twice in the middle of the work: few are in one just then, and no others come, as what
// is sent waits for the filter.
func redisAway(ctx context.Context, w *world, planted []string) error {
	p, err := w.worker(ctx, planted...)
	if err != nil {
		return err
	}
	all := float64(w.Config.Kafka.Topics.Partitions)
	if err := p.AwaitMetric(ctx, func(n float64) bool { return n == all },
		"push_consumer_assigned_partitions", `topic="`+fleet.Topic+`"`); err != nil {
		return err
	}
	for n := range 3 {
		if err := w.AwaitAccepted(ctx, uint64(700*n)); err != nil {
			return err
		}
		w.redis.Close()
		if n == 0 {
			if err := w.Produce(ctx, w.produce); err != nil {
				return err
			}
		}
		time.Sleep(2500 * time.Millisecond) // how long it is away: its client tries again for a second
		if err := w.redis.Restart(); err != nil {
			return err
		}
	}
	return nil
}

func redisWiped(ctx context.Context, w *world, planted []string) error {
	if _, err := w.worker(ctx, planted...); err != nil {
		return err
	}
	if err := w.AwaitAccepted(ctx, 100); err != nil {
		return err
	}
	w.redis.Wipe()
	return nil
}

func statusHung(ctx context.Context, w *world, planted []string) error {
	if _, err := w.worker(ctx, planted...); err != nil {
		return err
	}
	if err := w.AwaitAccepted(ctx, 100); err != nil {
		return err
	}
	w.store.Hang(true)
	// What may be accepted from here on had its place already.
	hung := invariants.Event{Kind: "hang", Target: "the status store", Start: time.Now(), Stalls: true, Pushes: killBound}
	time.Sleep(2500 * time.Millisecond) // more than two write time-outs
	hung.End = time.Now()
	w.store.Hang(false)
	w.events = append(w.events, hung)
	return nil
}

func produceRefused(ctx context.Context, w *world, planted []string) error {
	var refused []kfake.Fault
	for _, topic := range []string{kafka.DLQTopic(fleet.Topic), kafka.RetryTopic(fleet.Topic, "1s")} {
		refused = append(refused, kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1})
	}
	handle := w.kafka.Cluster.Fault(refused...)
	if _, err := w.worker(ctx, planted...); err != nil {
		return err
	}
	if err := w.AwaitAccepted(ctx, 10); err != nil {
		return err
	}
	time.Sleep(1500 * time.Millisecond) // how long it refuses
	handle.Remove()
	return nil
}

func join(ctx context.Context, w *world, planted []string) error {
	first, err := w.worker(ctx, planted...)
	if err != nil {
		return err
	}
	if err := w.AwaitAccepted(ctx, 300); err != nil {
		return err
	}
	second, err := w.worker(ctx)
	if err != nil {
		return err
	}
	half := float64(w.Config.Kafka.Topics.Partitions) / 2
	for _, p := range []*fleet.Process{first, second} {
		if err := p.AwaitMetric(ctx, func(n float64) bool { return n == half },
			"push_consumer_assigned_partitions", `topic="`+fleet.Topic+`"`); err != nil {
			return err
		}
	}
	return nil
}

func killLimited(ctx context.Context, w *world, planted []string) error {
	for range 2 {
		if err := w.crash(ctx, "limited:4", planted...); err != nil {
			return err
		}
	}
	return oneWorker(ctx, w, planted)
}

// crash starts a worker that kills itself at a point, and waits until it has.
func (w *world) crash(ctx context.Context, spec string, planted ...string) error {
	p, err := w.StartWorker(append(planted, envStatus+"="+w.store.Addr(), envCrash+"="+spec)...)
	if err != nil {
		return err
	}
	return w.awaitDeath(ctx, p, spec)
}

// awaitDeath waits until a worker has killed itself.
func (w *world) awaitDeath(ctx context.Context, p *fleet.Process, spec string) error {
	const killedBySIGKILL = 128 + 9
	status, err := p.Wait(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the death at %s: %w", spec, err)
	}
	if status != killedBySIGKILL {
		return fmt.Errorf("at %s the worker ended with status %d%s", spec, status, p.Tail())
	}
	return w.kill(p) // it is: so that its end counts as meant
}
