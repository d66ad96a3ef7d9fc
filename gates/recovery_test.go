package gates_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gates"
)

// recovery is what an outage cost a fleet, on the mean of some of about the same length.
type recovery struct {
	closed time.Duration // from the provider's return until the last worker's route was open
	into   int           // sends into the outage, of all workers
}

// outages lets workers send into outages of about this length and counts. Each has 100
// sends a second, which are answered after 50 ms.
func outages(t *testing.T, o gates.Options, workers int, length time.Duration) (mean recovery) {
	const (
		step, latency = 10 * time.Millisecond, 50 * time.Millisecond
		times         = 2
	)
	random := rand.New(rand.NewPCG(14, uint64(length)))
	o.Jitter = func(d time.Duration) time.Duration { return time.Duration(random.Float64() * float64(d)) }
	for range times {
		type sent struct {
			at time.Time
			ds []*sending
		}
		back := startTime.Add(time.Duration((0.9 + 0.2*random.Float64()) * float64(length)))
		now, fleet, flying := startTime, make([]*gateway, workers), make([][]sent, workers)
		for i := range fleet {
			fleet[i] = newGateway(t, o)
		}
		for open := 0; open < workers || now.Before(back); now = now.Add(step) {
			open = 0
			for i, g := range fleet {
				for len(flying[i]) > 0 && !now.Before(flying[i][0].at.Add(latency)) {
					s := flying[i][0]
					flying[i] = flying[i][1:]
					r := over(uint32(1+i%2), good)
					if s.at.Before(back) {
						r = over(uint32(1+i%2), broken)
					}
					g.now = now
					g.answer(s.ds, r)
				}
				ds := sendings(1)
				if n, _ := admit(g.gate, now, ds); n > 0 {
					flying[i] = append(flying[i], sent{now, ds})
					if now.Before(back) {
						mean.into++
					}
				}
				if _, _, paused := g.gate.Paused(); !paused {
					open++
				}
			}
		}
		mean.closed += now.Sub(back)
	}
	return recovery{mean.closed / times, mean.into / times}
}

// What the pauses are measured by: docs/operations.md has this table. Doubling from one
// second is the best after short outages, a minute after long ones; doubling to a minute
// is nowhere worse than both.
func TestRecoveryAfterOutages(t *testing.T) {
	policies := []struct {
		name           string
		first, longest time.Duration
	}{
		{"1 s doubling to 5 min", time.Second, 5 * time.Minute},
		{"60 s", time.Minute, time.Minute},
		{"1 s doubling to 60 s", time.Second, time.Minute},
	}
	for _, workers := range []int{1, 18} {
		for _, length := range []time.Duration{5 * time.Second, 45 * time.Second, 5 * time.Minute} {
			var got []recovery
			for _, p := range policies {
				o := gates.DefaultOptions()
				o.FirstPause, o.LongestPause = p.first, p.longest
				r := outages(t, o, workers, length)
				t.Logf("%2d workers, back after %4v, %-21s: open %5.1f s later, %4d sends into the outage",
					workers, length, p.name, r.closed.Seconds(), r.into)
				got = append(got, r)
			}
			if long, fixed, kept := got[0].closed, got[1].closed, got[2].closed; kept > long+5*time.Second && kept > fixed+5*time.Second {
				t.Errorf("%d workers, %v: doubling to a minute opens after %v, and the others after %v and %v", workers, length, kept, long, fixed)
			}
		}
	}
	if o := gates.DefaultOptions(); o.FirstPause != policies[2].first || o.LongestPause != policies[2].longest {
		t.Errorf("the default is %v to %v, want what measures best", o.FirstPause, o.LongestPause)
	}
}
