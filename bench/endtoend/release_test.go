//go:build unix

package endtoend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/wiring"
)

// previousRelease is the revision that fleets run before they are updated to this
// one. Whoever makes a release moves it to the commit of the one before, and then looks
// at what this test knows of the difference: limiter states and deferral topics. The
// configuration of the fleet must be one that both accept.
const previousRelease = "369e0303e4a6dc78a0ad727086f9f95fba72cfd0"

// Versions of limiter states that the releases write. Both read both.
const previousStates, newStates = 1, 2

// releaseCap is what a user gets of what is limited, and longestStandstill how long a
// partition with a backlog may commit nothing while workers come and go.
const (
	releaseCap        = 12
	longestStandstill = 30 * time.Second
)

// releases is a fleet of two releases.
type releases struct {
	*world
	previous fleet.Programs
}

// Workers of the previous release are replaced by this one's, one after the other,
// and back, and replaced again, under a steady stream. Both read what the other wrote:
// retries, deferrals, status rows, filters and limiter states. Every record ends as it
// was meant to, each once; nobody gets more than the limits allow, nor less; no
// partition stands still. What this release puts off waits in topics that the previous
// one does not read, and is sent when a worker of this one is back.
func TestRollingUpdateFromThePreviousRelease(t *testing.T) {
	previous, people := previousPrograms(t), newCrowd(t, 10_000)
	w := newWorld(t, setup{
		faults: sim.RouteSet{
			APNS: sim.Faults{Internal: 0.01, Unavailable: 0.01, Latency: 20 * time.Millisecond},
			FCM:  sim.Faults{Internal: 0.01, Unavailable: 0.01, Latency: 20 * time.Millisecond},
		},
		configure: releaseLimits,
	})
	w.populate(people)
	r := &releases{world: w, previous: previous()}

	one, other := r.old(), r.old()
	stop := r.stream(people)
	r.progress()
	r.wrote(people, previousStates)
	one = r.replace(one, r.new)
	other = r.replace(other, r.new)
	r.wrote(people, newStates)
	r.putOff()
	one = r.replace(one, r.old)
	r.replace(other, r.old)
	r.replace(one, r.new)
	stop()
	report := w.clean(fleet.AccountOptions{Cap: releaseCap})
	if report.Resent > 0 {
		t.Errorf("%d pushes were accepted twice, and nobody was killed", report.Resent)
	}
	if len(report.DeadLetters) > 0 {
		t.Errorf("dead letters: %v", report.DeadLetters)
	}
	if report.Outcomes[push.OutcomeSuppressed] == 0 {
		t.Error("no limit was reached: the stream is not what it should be")
	}
}

// previousPrograms begins to build the previous release from the repository's history,
// and returns the function that waits for it.
func previousPrograms(t *testing.T) func() fleet.Programs {
	t.Helper()
	var built fleet.Programs
	var err error
	ctx, source, dir := waiting(t), t.TempDir(), t.TempDir()
	var building sync.WaitGroup
	building.Go(func() { built, err = fleet.BuildRevision(ctx, previousRelease, source, dir, "pushworker") })
	t.Cleanup(building.Wait)
	return func() fleet.Programs {
		t.Helper()
		building.Wait()
		if _, missing := errors.AsType[*fleet.NoRevisionError](err); missing {
			t.Skipf("the previous release cannot be built: %v", err)
		}
		check(t, err)
		return built
	}
}

// releaseLimits are rules of every kind that the previous release's states carry, and
// one of senders, whose notifications wait for their turns.
func releaseLimits(c *configs.Config) {
	narrow(c)
	c.Limits.Rules = []configs.Rule{
		{Name: "news-a-day", Per: "user_type", Max: releaseCap, Window: 24 * time.Hour, Types: []string{"news"}},
		{Name: "offers-a-day", Per: "user", Max: releaseCap, Window: 24 * time.Hour, Types: offers},
		{Name: "all-a-day", Per: "user", Max: 4000, Window: 24 * time.Hour},
	}
	c.Limits.Senders = []configs.SenderRule{{Name: "turns", Algorithm: "token_bucket", Max: 20, Burst: 5, Window: time.Second, Wait: time.Minute, Senders: []string{"campaigns"}}}
}

// offers are types with one limit together.
var offers = []string{"offer-a", "offer-b", "offer-c"}

// newKeys are settings that the previous release does not have, and would refuse.
var newKeys = []string{"gateway", "feedback", "rates", "events", "registry.audiences", "retries.defer_tiers", "send.reload_keys", "send.fleet_rate", "lanes.shed", "lanes.inbox", "lanes.inbox_after", "lanes.journal", "inbox", "gates.failures", "gates.first_probes", "gates.together", "cassandra.packed_rows", "apps.apns.rate", "apps.fcm.rate", "traces"}

// withoutNewKeys is a configuration as the previous release's operators have it.
func withoutNewKeys(text []byte) ([]byte, error) {
	var whole map[string]any
	if err := yaml.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	for _, key := range newKeys {
		if !remove(whole, strings.Split(key, ".")) {
			return nil, fmt.Errorf("there is no %s", key)
		}
	}
	return yaml.Marshal(whole)
}

// remove removes a key, of a list from each of its members, and reports whether there was one.
func remove(from any, path []string) (found bool) {
	switch v := from.(type) {
	case []any:
		for _, member := range v {
			found = remove(member, path) || found
		}
	case map[string]any:
		next, there := v[path[0]]
		if len(path) > 1 {
			return there && remove(next, path[1:])
		}
		delete(v, path[0])
		return there
	}
	return found
}

func (r *releases) old() *fleet.Process { return r.start(r.previous, previousStates, withoutNewKeys) }
func (r *releases) new() *fleet.Process {
	return r.start(programs, newStates, func(text []byte) ([]byte, error) { return text, nil })
}

func (r *releases) start(of fleet.Programs, states int, rewrite func([]byte) ([]byte, error)) *fleet.Process {
	r.t.Helper()
	p, err := r.StartWorkerOf(of, func(c *configs.Config) { c.Limits.StateVersion = states }, rewrite)
	check(r.t, err)
	check(r.t, p.AwaitReady(waiting(r.t)))
	return p
}

// replace ends a worker as an update does and starts another in its place. It returns
// when that one has its share of the lane and the fleet has gone on.
func (r *releases) replace(p *fleet.Process, start func() *fleet.Process) *fleet.Process {
	r.t.Helper()
	status, err := p.Term(waiting(r.t))
	check(r.t, err)
	if status != 0 {
		r.t.Errorf("%s ended with status %d%s", p.Name, status, p.Tail())
	}
	next := start()
	check(r.t, next.AwaitMetric(waiting(r.t), func(n float64) bool { return n == float64(r.Config.Kafka.Topics.Partitions)/2 },
		"push_consumer_assigned_partitions", `topic="`+fleet.Topic+`"`))
	r.progress()
	return next
}

// progress waits until the fleet has committed some more of the lane.
func (r *releases) progress() {
	r.t.Helper()
	done, err := r.Committed(waiting(r.t))
	check(r.t, err)
	check(r.t, r.AwaitCommitted(waiting(r.t), done+300))
}

// wrote checks that limiter states of a version are there.
func (r *releases) wrote(people *crowd.Crowd, version byte) {
	r.t.Helper()
	options, err := wiring.Redis(r.Config)
	check(r.t, err)
	client, err := shards.Open(options)
	check(r.t, err)
	defer client.Close()
	for _, user := range plainUsers(people) {
		state, err := client.Get(waiting(r.t), shards.LimiterKey(shards.UserShard(user), user)).Bytes()
		if err == nil && len(state) > 0 && state[0] == version {
			return
		}
	}
	r.t.Errorf("no limiter state is of version %d: the other release does not meet it", version)
}

// putOff waits until this release has put something off.
func (r *releases) putOff() {
	r.t.Helper()
	admin := r.admin()
	defer admin.Close()
	topic := kafka.DeferTopic(fleet.Topic, "1s")
	for ctx := waiting(r.t); ; {
		ends, err := admin.EndOffsets(ctx, topic)
		check(r.t, err)
		for _, end := range ends {
			if end > 0 {
				return
			}
		}
		r.progress()
	}
}

func (r *releases) admin() *kafka.Admin {
	r.t.Helper()
	o, err := wiring.Kafka(r.Config, slog.New(slog.DiscardHandler))
	check(r.t, err)
	admin, err := kafka.NewAdmin(o)
	check(r.t, err)
	return admin
}

// stream produces until stop is called, and watches meanwhile how long partitions
// stand still.
func (r *releases) stream(people *crowd.Crowd) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	admin := r.admin()
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.produce(ctx, plainUsers(people)); err != nil {
			r.t.Error(err)
		}
	})
	running.Go(func() {
		defer admin.Close()
		where, longest := r.standstill(ctx, admin)
		r.t.Logf("%s stood still longest, for %v", where, longest)
		if longest > longestStandstill {
			r.t.Errorf("%s stood still for %v with a backlog", where, longest)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	r.t.Cleanup(stop)
	return stop
}

// produce appends some records ten times a second: for calm users, for some who
// get more than a limit allows, from a sender who has to wait, and copies of what
// was produced some seconds before.
func (r *releases) produce(ctx context.Context, users []string) error {
	const (
		greedy = 20 // users with too much of each kind
		calm   = 15 // records each time for users who get everything
		copied = 50 // turns before
	)
	offered, informed, users := users[:greedy], users[greedy:2*greedy], users[2*greedy:]
	random := rand.New(rand.NewPCG(1, 1))
	var past [][]fleet.Record
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for turn := 0; ; turn++ {
		var records []fleet.Record
		add := func(user string, want fleet.Want, changed fields) {
			records = append(records, fleet.Record{Key: []byte(user), Value: message(user, changed), Want: want})
		}
		limited := func(rule string) fleet.Want {
			want := fleet.WantOf(crowd.MayBeLimited)
			want.Reason, want.Detail = push.Limited, rule
			return want
		}
		for i := range calm {
			add(users[(turn*calm+i)%len(users)], fleet.WantOf(crowd.Reaches), nil)
		}
		if turn >= copied {
			for _, first := range past[turn-copied][:2] {
				first.Want = fleet.WantOf(crowd.IsCopy)
				records = append(records, first)
			}
		}
		for i := range 2 {
			// Some reach their limit at once, others only in the end: at every time
			// somebody is about to.
			x := random.Float64()
			who := int(x * x * greedy)
			add(informed[who], limited("news-a-day"), fields{"type": "news"})
			add(offered[who], limited("offers-a-day"), fields{"type": offers[(turn+i)%len(offers)]})
		}
		if turn%10 == 0 {
			for i := range 10 {
				add(users[(turn+i)%len(users)], fleet.WantOf(crowd.Reaches), fields{"id": soonID(), "sender_id": "campaigns", "type": "campaign"})
			}
		}
		past = append(past, records)
		if err := r.Produce(waiting(r.t), records); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// soonID makes an id of a notification that waits for its turn no longer than it must,
// and a second more: what is put off by limits is spread over a minute by its id.
func soonID() string {
	for {
		id := newID()
		if time.Duration(push.UserHash(id))&(1<<62-1)%time.Minute < time.Second {
			return id
		}
	}
}

// standstill looks until ctx ends for how long a partition of the lane or of its
// retries had a backlog and committed nothing, and says which one did longest.
// What this release puts off is not looked at: the previous one leaves it. While the
// broker does not answer, or late, as on a machine with too much to do, no partition
// is blamed: it begins anew then.
func (r *releases) standstill(ctx context.Context, admin *kafka.Admin) (where string, longest time.Duration) {
	const (
		pause = 200 * time.Millisecond
		late  = 2 * time.Second // from one look to the next
	)
	type place struct {
		committed int64
		since     time.Time
	}
	places := map[string]place{}
	look := func(group, topic string) error {
		committed, err := admin.Committed(ctx, group, topic)
		if err != nil {
			return err
		}
		ends, err := admin.EndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		now := time.Now()
		for id, end := range ends {
			name := fmt.Sprintf("%s/%d", topic, id)
			p, seen := places[name]
			if !seen || committed[id] != p.committed || committed[id] >= end {
				places[name] = place{committed[id], now}
			} else if d := now.Sub(p.since); d > longest {
				where, longest = name, d
			}
		}
		return nil
	}
	lane := r.Config.Lanes[0]
	for last := time.Now(); ctx.Err() == nil; {
		if time.Since(last) > late {
			clear(places)
		}
		last = time.Now()
		err := look(r.Config.Kafka.LaneGroup(lane.Name), lane.Topic)
		for _, topic := range wiring.RetryTopics(r.Config, lane) {
			if !strings.Contains(topic.Name, ".defer.") {
				err = errors.Join(err, look(r.Config.Kafka.RetryGroup(lane.Name), topic.Name))
			}
		}
		if err != nil {
			clear(places)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return where, longest
}
