package rates

import (
	"fmt"
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

// A quota of a minute is found by the second minute at the latest, whatever the rate was
// to begin with, and used evenly from then on.
func TestAQuotaOfAMinuteIsFoundAtOnce(t *testing.T) {
	const (
		quota = 1500 // 25 a second, as the scenario quota of bench/chaos has
		long  = 6 * time.Minute
	)
	for _, tt := range []struct {
		ratio float64       // of the base to the quota
		phase time.Duration // of the quota's minute when the fleet begins
		from  int           // the minute of the provider's from which it is settled
		used  float64       // of the quota, at least, in the settled minutes
		steps int
	}{
		{1, 20 * time.Second, 1, 0.99, 1},
		{1.3, 0, 2, 0.97, 3},
		{2, 40 * time.Second, 3, 0.97, 3},
		{4, 10 * time.Second, 1, 0.97, 2},
		{8, 35 * time.Second, 1, 0.97, 2},
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
