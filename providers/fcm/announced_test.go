package fcm_test

import (
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// What the server announces of its quota is heard, in each form that servers have for it.
func TestAnAnnouncedQuotaIsHeard(t *testing.T) {
	const pushes, quota = 50, 1000
	for _, headers := range []sim.QuotaHeaders{sim.RateLimitHeaders, sim.OlderQuotaHeaders, sim.XRateLimitHeaders} {
		t.Run(string(headers), func(t *testing.T) {
			s, client := simulator(t, sim.Options{})
			if err := s.SetRules(sim.Rules{ProjectQuota: sim.Limit{Count: quota, Per: time.Hour / 2}, QuotaHeaders: headers}); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var lefts []int
			client.Announced(func(_ time.Time, left int, ends time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				if ends <= 0 || ends > time.Hour/2+2*time.Second {
					t.Errorf("the window ends in %v", ends)
				}
				lefts = append(lefts, left)
			})
			providertest.Push(t, client.Lane(0), deliveries(0, pushes))
			mu.Lock()
			defer mu.Unlock()
			seen := make(map[int]bool)
			for _, left := range lefts {
				if seen[left] = true; left < quota-pushes || left >= quota {
					t.Errorf("%d are left of %d after at most %d", left, quota, pushes)
				}
			}
			if len(lefts) != pushes || !seen[quota-pushes] {
				t.Errorf("%d answers announce something, want %d, the last of them %d", len(lefts), pushes, quota-pushes)
			}
		})
	}
}
