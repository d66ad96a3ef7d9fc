package dedupe

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
)

// TestWorkersClocksMayDiffer: workers whose clocks are ten minutes ahead and
// behind share a Redis. What one of them has finished no other believes to be
// new, around every change of windows, unless it is older than the other's
// horizon; also when Redis is wiped then. And ids that are new are not maybe for
// that.
func TestWorkersClocksMayDiffer(t *testing.T) {
	const step = 5 * time.Minute
	for _, wiped := range []time.Duration{time.Hour, -10 * time.Minute, 5 * time.Minute} { // an hour = never
		t.Run(fmt.Sprint("wiped ", wiped, " after the change"), func(t *testing.T) {
			bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
				must(t, f.DeclareNew(t.Context()))
				workers := map[time.Duration]*Filter{}
				for _, skew := range []time.Duration{-10 * time.Minute, 0, 10 * time.Minute} {
					workers[skew] = another(t, f)
					workers[skew].now = func() time.Time { return time.Now().Add(skew) }
				}
				finished := map[string]time.Time{}
				look := func() {
					ids := slices.Collect(maps.Keys(finished))
					maybe := make([]bool, len(ids))
					for skew, w := range workers {
						must(t, w.Check(t.Context(), ids, maybe))
						horizon := w.Horizon(w.now())
						for i, id := range ids {
							if !maybe[i] && !finished[id].Before(horizon) {
								t.Errorf("%v: the worker at %v believes %q to be new", time.Now().Format(time.TimeOnly), skew, id)
							}
						}
					}
				}
				for change := range 2 {
					boundary := time.Now().Truncate(f.Window).Add(f.Window)
					time.Sleep(time.Until(boundary.Add(-6 * step)))
					for range 12 {
						if change == 0 && time.Now().Equal(boundary.Add(wiped)) {
							r.Wipe()
						}
						for skew, w := range workers {
							must(t, w.Prepare(t.Context()))
							id := fmt.Sprintf("by %v at %v", skew, time.Now().Format(time.TimeOnly))
							add(t, w, id)
							finished[id] = time.Now()
						}
						look()
						if fresh := names(500, "fresh"); wiped == time.Hour && check(t, f, fresh...) > 5 {
							t.Error("new ids are maybe although nothing was lost")
						}
						time.Sleep(step)
					}
				}
			})
		})
	}
}
