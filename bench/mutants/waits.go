//go:build unix

package mutants

import (
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// checkWaits: no push is tried again sooner than its tier, or than the provider
// asked for.
func (w *world) checkWaits() []Finding {
	var deaths []time.Time
	for _, d := range w.deaths {
		deaths = append(deaths, d.at)
	}
	asked := map[string]time.Duration{sim.APNS.String(): w.faults.APNS.RetryAfter, sim.FCM.String(): w.faults.FCM.RetryAfter}
	return hasty(w.sends.all(), w.Config.Retries.Tiers, asked, deaths)
}

// hasty finds attempts that came too soon. sends are in order of time. asked is
// what a provider's 429s and 503s ask for. What came again because a worker died
// proves nothing, nor how often it had been tried by then; the last pushes of the
// dead are decided up to settle after it.
func hasty(sends []invariants.Send, tiers []time.Duration, asked map[string]time.Duration, deaths []time.Time) (found []Finding) {
	byPair := make(map[invariants.Pair][]invariants.Send)
	for _, s := range sends {
		if !s.Undone {
			byPair[s.Pair] = append(byPair[s.Pair], s)
		}
	}
	for pair, list := range byPair {
		for n := 1; n < len(list); n++ {
			before, now := list[n-1], list[n]
			if !slices.Contains(tryLater, before.Reply) || slices.ContainsFunc(deaths, func(at time.Time) bool { return at.Add(settle).After(list[0].At) && at.Before(now.At) }) {
				continue
			}
			wait := max(tiers[min(n-1, len(tiers)-1)], asked[now.Provider])
			if got := now.At.Sub(before.At); got < wait {
				found = append(found, Finding{Invariant: Hasty, Text: fmt.Sprintf("%s on device %s was answered %s and tried again after %v, attempt %d; at least %v are to pass",
					pair.ID, pair.Device, before.Reply, got.Round(time.Millisecond), n+1, wait)})
			}
		}
	}
	return found
}

// tryLater are the answers that ask for another attempt.
var tryLater = []string{sim.APNSServiceUnavailable.String(), sim.APNSTooManyRequests.String(),
	sim.FCMUnavailable.String(), sim.FCMProjectQuota.String(), sim.FCMDeviceQuota.String()}
