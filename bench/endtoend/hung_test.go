//go:build unix

package endtoend

import (
	"syscall"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
)

// A worker that hangs for longer than its session loses its partitions to
// another. When it wakes up it cannot move their offsets, its late answers do
// no harm, and it takes its share again. What it had under way is repeated by
// its heir.
func TestHungWorkerLosesNothing(t *testing.T) {
	const records = 30_000
	people := newCrowd(t, records)
	w := newWorld(t, setup{faults: slow(), configure: func(c *configs.Config) {
		narrow(c)
		caps(c, people.Cap)
		c.Kafka.SessionTimeout = 3 * time.Second
	}})
	w.populate(people)
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))
	hangs := w.worker()
	check(t, w.AwaitAccepted(waiting(t), 6000))
	check(t, hangs.Signal(syscall.SIGSTOP))
	heir := w.worker()
	all := float64(w.Config.Kafka.Topics.Partitions)
	check(t, heir.AwaitMetric(waiting(t), func(n float64) bool { return n == all },
		"push_consumer_assigned_partitions", `topic="`+fleet.Topic+`"`))
	check(t, w.AwaitAccepted(waiting(t), 18_000))
	check(t, hangs.Signal(syscall.SIGCONT))
	r := w.clean(fleet.AccountOptions{Cap: people.Cap})
	if r.Resent == 0 {
		t.Error("no push was repeated: nothing was under way, so nothing was tested")
	}
	if most := routes * (inFlight + unacknowledged); r.Resent > most {
		t.Errorf("%d pushes were repeated, more than the %d that one worker can have under way", r.Resent, most)
	}
	for _, p := range []*fleet.Process{hangs, heir} {
		check(t, p.AwaitMetric(waiting(t), func(n float64) bool { return n == all/2 },
			"push_consumer_assigned_partitions", `topic="`+fleet.Topic+`"`))
		m, err := p.Metrics(waiting(t))
		check(t, err)
		if n := m.Sum("push_offset_commit_rewinds_total"); n != 0 {
			t.Errorf("%s would have moved an offset back %v times", p.Name, n)
		}
	}
}
