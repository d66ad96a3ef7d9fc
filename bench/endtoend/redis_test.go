//go:build unix

package endtoend

import (
	"testing"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// A filter that answers "maybe" to everything costs reads and drops nothing.
func TestSaturatedFilterDropsNothing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		records  int
		capacity int64
		full     bool
	}{
		{"every id is in it before it comes", 10_000, 1_000_000, false},
		{"it is full and takes no more", 30_000, 10_000, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			people := newCrowd(t, tt.records)
			w := newWorld(t, setup{configure: func(c *configs.Config) { c.Dedupe.Capacity = tt.capacity }})
			w.populate(people)
			list := fleet.FromCrowd(people.Records(), tt.records)
			full, err := w.FillFilter(waiting(t), list)
			check(t, err)
			if full != tt.full {
				t.Fatalf("full: %v", full)
			}
			worker := w.worker()
			check(t, w.Produce(waiting(t), list))
			r := w.clean(fleet.AccountOptions{})
			if r.Resent > 0 {
				t.Errorf("%d pushes were accepted twice", r.Resent)
			}
			metrics, err := worker.Metrics(waiting(t))
			check(t, err)
			if n := metrics.Sum("push_deduped_total"); n != float64(r.Produced-r.Notifications) {
				t.Errorf("%v records ended as copies, %d are", n, r.Produced-r.Notifications)
			}
		})
	}
}

// Redis loses everything, twice, while notifications are on their way: the
// worker waits until the registry has filled it again. Nothing is lost, nobody
// who opted out is pushed, and nobody is pushed twice. Only the limits begin
// anew.
func TestWipedRedisLosesNothing(t *testing.T) {
	const records = 20_000
	people := newCrowd(t, records)
	w := newWorld(t, setup{faults: slow(), configure: func(c *configs.Config) {
		narrow(c)
		caps(c, people.Cap)
	}})
	w.populate(people)
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))
	w.worker()
	check(t, w.AwaitAccepted(waiting(t), 6000))
	check(t, w.redis.Wipe(waiting(t)))
	check(t, w.AwaitAccepted(waiting(t), 16_000))
	check(t, w.redis.Kill())
	check(t, w.redis.Restart(waiting(t)))
	r := w.clean(fleet.AccountOptions{})
	if r.Resent > 0 {
		t.Errorf("%d pushes were accepted twice", r.Resent)
	}
	if n := w.Sim.Ledger().Totals().Providers[sim.APNS.String()].Refused; n == 0 {
		t.Error("no dead token was pushed: the crowd is not what it should be")
	}
}
