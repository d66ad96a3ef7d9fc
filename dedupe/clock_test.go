package dedupe

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
)

// TestWorkersClocksMayDiffer: workers whose clocks are ten minutes fast and
// slow share a Redis. Around every change of windows, no worker takes an id
// that another one has finished for new, unless the id is older than its own
// horizon; not even if Redis is wiped at that time. And new ids are not maybe
// because of it.
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

// A worker must not declare the filters of a window complete that has already
// begun for others: what those have added may be lost by then. Here the
// worker's clock is ten minutes slow, so that the window seems to begin in some
// minutes, and one filter is lost.
func TestASlowClockDeclaresNoBegunWindowWhole(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		slow := another(t, f)
		slow.now = func() time.Time { return time.Now().Add(-10 * time.Minute) }
		must(t, slow.Prepare(t.Context()))
		time.Sleep(time.Until(time.Now().Truncate(f.Window).Add(f.Window + 3*time.Minute)))
		id := names(1, "finished")
		add(t, f, id...)
		current := f.window(f.number(time.Now()))
		must(t, f.client.Del(t.Context(), current.keys[shards.FilterShard(id[0])]).Err())
		must(t, slow.Prepare(t.Context()))
		if check(t, f, id...) != 1 {
			t.Error("what was added to the filter that is gone is believed to be new")
		}
	})
}

// The filters of a window that has begun for a worker with a fast clock are
// full and marked. The ids that they refused are maybe for a worker for which
// the window has not begun.
func TestAWindowAheadIsFull(t *testing.T) {
	bubble(t, small(), func(t *testing.T, f *Filter, r *embedded.Redis) {
		must(t, f.DeclareNew(t.Context()))
		fast := another(t, f)
		fast.now = func() time.Time { return time.Now().Add(10 * time.Minute) }
		time.Sleep(time.Until(time.Now().Truncate(f.Window).Add(f.Window - 8*time.Minute)))
		ids := names(40_000, "id") // four times the capacity, so that every shard is full
		add(t, fast, ids...)
		if n := check(t, f, ids...); n != len(ids) {
			t.Errorf("%d of %d finished ids are maybe, want all", n, len(ids))
		}
		// A worker whose clock was fast does not query again either, once its
		// clock is right.
		var questions atomic.Int64
		f.client.AddHook(counting{refusing{"BF.MEXISTS"}, &questions})
		fast.now = time.Now
		if n := check(t, fast, ids...); n != len(ids) || questions.Load() != 0 {
			t.Errorf("%d of %d finished ids are maybe, want all; %d filters were asked that are known to be full", n, len(ids), questions.Load())
		}
	})
}
