package dedupe

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
)

// docs/delivery.md: a worker may not "miss what another worker has finished,
// while each clock is within ten minutes of the true time". Redis is wiped, and
// the first worker to create the filters again has a clock that is nine minutes
// slow. Their birth is before ids that were finished in the lost filter.
func TestAFilterMadeAnewByASlowClockForgetsNothing(t *testing.T) {
	for _, behind := range []time.Duration{0, 4 * time.Minute, 9 * time.Minute} {
		t.Run(behind.String(), func(t *testing.T) {
			bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
				must(t, f.DeclareNew(t.Context()))
				boundary := time.Now().Truncate(f.Window).Add(f.Window)
				time.Sleep(time.Until(boundary.Add(f.Window / 2))) // far from every change of windows
				slow := another(t, f)
				slow.now = func() time.Time { return time.Now().Add(-behind) }
				finished := uuids(time.Now(), 100, "finished") // minted by a correct clock
				add(t, f, finished...)
				time.Sleep(time.Minute)
				r.Wipe()
				must(t, slow.Prepare(t.Context()))
				must(t, f.Prepare(t.Context()))
				// With this, stages.Dedupe would believe a no: the filter could
				// remember them.
				if minted, ok := push.MintedAt(finished[0]); !ok || minted.Before(f.Horizon(f.now())) {
					t.Fatal("beyond the horizon: every copy would be confirmed")
				}
				for who, w := range map[string]*Filter{"the slow worker": slow, "a worker with the true time": f} {
					if n := check(t, w, finished...); n != len(finished) {
						t.Errorf("%s believes %d of %d finished ids to be new", who, len(finished)-n, len(finished))
					}
				}
			})
		})
	}
}
