package rates

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// minutes is a provider whose quota is of so much in each minute, as Google's: what is
// beyond it is refused until the next one begins, which is not with the clock's minute nor
// with the first send.
type minutes struct {
	quota int
	phase time.Duration // from the start of a minute to the first send
	start time.Time
	count map[int]int // by minute
}

func (m *minutes) number(now time.Time) int { return int((now.Sub(m.start) + m.phase) / time.Minute) }

func (m *minutes) answer(now time.Time) int {
	if m.count[m.number(now)] >= m.quota {
		return 429
	}
	m.count[m.number(now)]++
	return 200
}

// retryAfter is when the minute ends, in whole seconds.
func (m *minutes) retryAfter(now time.Time) time.Duration {
	left := time.Minute - (now.Sub(m.start)+m.phase)%time.Minute
	return (left + time.Second - 1) / time.Second * time.Second
}

// gated is how a fleet's gates stop for a 429: each worker at its own, for as long as the
// provider asks, at least 10 s, and up to a tenth more; the others hear of it within a second.
type gated struct {
	fleet   *fleet
	asks    func(now time.Time) time.Duration
	until   []time.Time // by worker; guarded by fleet.mu, as the next two
	told    time.Time   // when all know
	toldFor time.Time   // of a stop until then
}

// refused is what follows from a 429 of a worker.
func (g *gated) refused(worker int, now time.Time) {
	asked := max(g.asks(now), 10*time.Second)
	g.until[worker] = now.Add(asked + rand.N(asked/10))
	if end := now.Add(asked); end.After(g.toldFor) {
		g.told, g.toldFor = now.Add(time.Second), end
	}
}

// closed is until when a worker sends nothing; zero = it may send.
func (g *gated) closed(worker int, now time.Time) time.Time {
	until := g.until[worker]
	if !now.Before(g.told) && g.toldFor.After(until) {
		until = g.toldFor
	}
	if !now.Before(until) {
		return time.Time{}
	}
	return until
}

// A quota of a minute is found in the first one that is used up, and used evenly from then
// on. What becomes of it later, and of other rates to begin with, is the model's:
// TestAQuotaIsFoundFromAnywhere.
func TestAQuotaOfAMinuteIsFoundAtOnce(t *testing.T) {
	const (
		quota = 1500 // 25 a second, as the scenario quota of bench/chaos has
		long  = 4 * time.Minute
	)
	for _, tt := range []struct {
		ratio float64       // of the base to the quota
		phase time.Duration // of the quota's minute when the fleet begins
		from  int           // the minute of the provider's from which it is settled
		used  float64       // of the quota, at least, in the settled minutes
		steps int
	}{
		{1, 20 * time.Second, 1, 0.99, 1},
		{4, 10 * time.Second, 1, 0.97, 2},
	} {
		t.Run(fmt.Sprint(tt.ratio), func(t *testing.T) {
			inFleet(t, tt.ratio*quota/60, 0, func(f *fleet) {
				f.window = time.Minute
				f.join()
				f.join()
				p := &minutes{quota: quota, phase: tt.phase, start: time.Now(), count: make(map[int]int)}
				g := &gated{fleet: f, asks: p.retryAfter, until: make([]time.Time, len(f.workers))}
				f.answer, f.gate = p.answer, g
				for _, w := range f.workers {
					w.send(false, tt.ratio*quota/60)
				}
				time.Sleep(long)
				f.mu.Lock()
				defer f.mu.Unlock()
				sends, over, tenths := 0, 0, make(map[int]int)
				last := p.number(time.Now()) // not over
				for _, s := range f.sends {
					if n := p.number(s.at); n >= tt.from && n < last {
						sends++
						if s.status == 429 {
							over++
						} else {
							tenths[int((s.at.Sub(p.start)+p.phase)/(10*time.Second))]++
						}
					}
				}
				most := 0
				for _, n := range tenths {
					most = max(most, n)
				}
				t.Logf("by minute %v; settled %d of %d refused, at most %d in 10 s; %v", p.count, over, sends, most, f.changes)
				used := float64(sends-over) / float64(quota*(last-tt.from))
				if used < tt.used {
					t.Errorf("from minute %d on %.3f of the quota are used, want %v", tt.from, used, tt.used)
				}
				if 100*over >= sends {
					t.Errorf("from minute %d on %d of %d sends were refused, want under 1 %%", tt.from, over, sends)
				}
				if most > quota/4 {
					t.Errorf("%d sends within 10 s of a quota of %d a minute, want them even", most, quota)
				}
				if len(f.changes) > tt.steps {
					t.Errorf("%d changes of the rate, want at most %d", len(f.changes), tt.steps)
				}
			})
		})
	}
}

// modelled is a fleet that is the model alone, in steps of a tenth of a second: it sends as
// much as the rate lets it, answers come some steps later, and a 429 stops it.
type modelled struct {
	base    float64
	late    int // steps to an answer
	state   State
	changes int
	used    map[int]float64 // by minute: of the quota
	refused map[int]float64
	densest map[int]float64 // by minute: the most within 10 s
}

// run sends for so many minutes. phase is how much of the provider's minute is over at the
// start, in seconds, and others what others have used of it. A 429 stops all for the rest of
// the minute, 10 s at least, and a little more.
func (m *modelled) run(minutes int, quota float64, phase int, others float64) {
	const step, tenths = 0.1, 600
	f := DefaultFactors()
	m.state, m.used, m.refused, m.densest = State{Epoch: 1, Rate: m.base}, map[int]float64{}, map[int]float64{}, map[int]float64{}
	type answers struct {
		good, over float64
		epoch      uint32
	}
	var (
		accepted       = make([]float64, 1, minutes*tenths+1) // up to each step, in all
		under          []answers
		left           = quota - others
		changed, first = 0, -1 // steps: of the epoch, and of its first 429
		stopped, good  = 0, 0.0
	)
	since := func(from, to int) float64 { return accepted[max(to, 0)] - accepted[max(from, 0)] }
	for i := range minutes * tenths {
		at := i + phase*10
		minute := at / tenths
		if at%tenths == 0 {
			left = quota
		}
		n := 0.0
		if i >= stopped {
			n = m.state.Rate * step
		}
		took := min(n, left)
		left -= took
		accepted = append(accepted, accepted[i]+took)
		m.used[minute] += took / quota
		m.refused[minute] += (n - took) / quota
		under = append(under, answers{took, n - took, m.state.Epoch})
		m.densest[minute] = max(m.densest[minute], since(i+1-100, i+1)/quota)
		if i < m.late {
			continue
		}
		a := under[i-m.late]
		age := float64(i-changed) * step
		if a.over > 0 && i >= stopped {
			left := math.Ceil(float64(tenths-(at-m.late)%tenths) * step)
			stopped = i + int(1.05*max(left, 10)/step)
		}
		if a.epoch == m.state.Epoch {
			good += a.good
			if a.over > 0 && age >= settling.Seconds() && first < 0 {
				first = i
			}
		}
		taken := since(i-m.late+1-(parts+1)*10, i-m.late+1)
		known := seen{age: time.Duration(age * float64(time.Second)), good: int(good), recentGood: int(good), taken: int(taken)}
		if first >= 0 {
			known.overQuota, known.refused = 1, time.Duration(float64(i-first)*step*float64(time.Second))
		}
		next, cause := f.next(m.base, time.Minute, m.state, known)
		switch {
		case cause != "":
			m.state, changed, first, good = next, i, -1, 0
			m.changes++
		case known.refused >= settling:
			first = -1
		}
	}
}

// sums are what came of all minutes from one on: of the quota, used and refused a minute, and
// the most within 10 s.
func (m *modelled) sums(from, to int) (used, refused, densest float64) {
	for i := from; i < to; i++ {
		used, refused, densest = used+m.used[i], refused+m.refused[i], max(densest, m.densest[i])
	}
	return used / float64(to-from), refused / float64(to-from), densest
}

// Wherever a fleet begins, and at whatever second of the provider's minute, it comes to use
// a quota and keeps to it, with a look now and then whether there is more.
func TestAQuotaIsFoundFromAnywhere(t *testing.T) {
	const (
		long  = 30 // minutes
		quota = 600_000
	)
	for _, tt := range []struct {
		why    string
		others float64 // what others have used of the first minute
		from   int     // the minute from which it is settled
	}{
		{"nobody else", 0, 3},
		{"others have used half of the first minute", 0.5 * quota, 20},
	} {
		for _, ratio := range []float64{1, 1.02, 1.1, 1.3, 1.7, 2, 3, 4, 6, 8, 9.9} {
			for phase := 0; phase < 60; phase += 14 {
				for _, late := range []int{1, 9} {
					m := &modelled{base: ratio * quota / 60, late: late}
					m.run(long, quota, phase, tt.others)
					used, refused, densest := m.sums(tt.from, long)
					if used < 0.95 || refused > 0.01 || densest > 0.2 || m.changes > 12 {
						t.Errorf("%s, %v times the quota from second %d, answers after %d00 ms: %.4f used, %.4f refused, %.3f of it within 10 s, %d changes",
							tt.why, ratio, phase, late, used, refused, densest, m.changes)
					}
				}
			}
		}
	}
}
