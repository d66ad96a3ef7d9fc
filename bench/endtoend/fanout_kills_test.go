//go:build unix

package endtoend

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pushfleet/pushfleet/bench/fleet"
)

// envSubscribers is how many subscribers the fan-out that is killed has; fanoutSubscribers if
// it is not set. In full they are 1,000,000.
const (
	envSubscribers    = "PUSHFLEET_TEST_SUBSCRIBERS"
	fanoutSubscribers = 20_000
)

func subscribersWanted() (int, error) {
	text := os.Getenv(envSubscribers)
	if text == "" {
		return fanoutSubscribers, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2_000 {
		return 0, fmt.Errorf("%s is %q, want a number from 2000", envSubscribers, text)
	}
	return n, nil
}

// Where a process of fan-outs is killed: before and after each step of its way, as
// fanout.TestKilledAnywhere has them. ack and chunk are what is produced to the lane and to the
// topic of chunks, and commit is that of offsets.
var killedSteps = []string{"begin", "look", "state", "page", stepAck, stepChunk, "note", stepCommit}

const (
	fanoutKills = 20
	killsSeed   = 20261128
)

// plannedKills are where the processes die, one after the other: at each point at least once.
// The first two are at the beginning, which is passed once: when it is noted it is over.
func plannedKills(draw *rand.Rand) []mortal {
	var points []string
	for _, step := range killedSteps[1:] {
		points = append(points, "before "+step, "after "+step)
	}
	for each := slices.Clone(points); len(points) < fanoutKills-2; {
		points = append(points, each[draw.IntN(len(each))])
	}
	draw.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	plan := []mortal{{Point: "before begin", Nth: 1}, {Point: "after begin", Nth: 1}}
	for _, p := range points {
		most := 8 // of chunks, of which there are 256
		if step := strings.Fields(p)[1]; step == "page" || step == "state" || step == stepAck {
			most = 40 // of pages, of which a chunk has four
		}
		plan = append(plan, mortal{Point: p, Nth: 1 + draw.IntN(most)})
	}
	return plan
}

func TestKillsArePlannedAtEachPoint(t *testing.T) {
	met := map[string]int{}
	plan := plannedKills(rand.New(rand.NewPCG(killsSeed, 0)))
	for _, m := range plan {
		met[m.Point]++
	}
	if len(plan) != fanoutKills || len(met) != 2*len(killedSteps) {
		t.Errorf("%d kills at %d points", len(plan), len(met))
	}
}

// What happens beside the kills, by how many there were.
const (
	secondJoins   = 7 // another process of fan-outs
	secondLeaves  = 11
	redisWiped    = 13
	secondReturns = 15 // until all have died
)

// A message to all subscribers of a topic, whose processes of fan-outs are killed 20 times, at
// each point of the way, while subscribers come and go, another process joins, leaves and comes
// back, and Redis loses everything: who had subscribed and stayed is pushed once, who came later
// is not, and the receipt counts right.
func TestKilledFanoutReachesEachSubscriberOnce(t *testing.T) {
	f := newKilledFanout(t)
	f.openTopic()
	plan := plannedKills(rand.New(rand.NewPCG(killsSeed, uint64(f.size))))
	going := f.goAndCome(len(plan))
	worker := f.worker()
	f.accept()
	var second *fleet.Process
	for i, m := range plan {
		switch i {
		case secondJoins, secondReturns:
			second = f.startMortal(mortal{Rate: f.size / 400})
		case secondLeaves:
			check(t, second.AwaitMetric(f.waiting(), func(n float64) bool { return n > 0 }, "push_fanout_records_total"))
			f.endInOrder(second)
		case redisWiped:
			f.wipe()
		}
		f.turn <- struct{}{}
		f.dies(f.startMortal(m), m)
	}
	close(f.turn)
	<-going
	f.endInOrder(second) // it is slow, and what is left need not be
	last := f.startMortal(mortal{})
	a := f.account(worker)
	a.Killed = len(plan)
	f.endInOrder(last)
	f.judge(a)
}

// wipe empties Redis in the middle of the pushes.
func (f *killedFanout) wipe() {
	f.t.Helper()
	check(f.t, f.AwaitAccepted(f.waiting(), 1))
	check(f.t, f.redis.Wipe(f.waiting()))
	pushed := f.Sim.Ledger().Totals().Accepted
	f.t.Logf("Redis is wiped after %d pushes", pushed)
	if pushed >= uint64(f.size)*9/10 {
		f.t.Errorf("%d of %d are pushed: too late to lose everything in the middle", pushed, f.size)
	}
}

// dies waits until a process has killed itself at its point.
func (f *killedFanout) dies(p *fleet.Process, m mortal) {
	f.t.Helper()
	status, err := p.Wait(f.waiting())
	check(f.t, err)
	if note := deathNote(m.Point, m.Nth); status != 128+int(syscall.SIGKILL) || !strings.Contains(p.Log(), note) {
		f.t.Fatalf("%s ended with %d, and did not say %q%s", p.Name, status, note, p.Tail())
	}
	f.t.Logf("%s died %s, time %d; %d pushes so far", p.Name, m.Point, m.Nth, f.Sim.Ledger().Totals().Accepted)
}

// endInOrder ends a process as an operator does.
func (f *killedFanout) endInOrder(p *fleet.Process) {
	f.t.Helper()
	status, err := p.Term(f.waiting())
	check(f.t, err)
	if status != 0 {
		f.t.Errorf("%s was asked to end, and ended with %d%s", p.Name, status, p.Tail())
	}
}
