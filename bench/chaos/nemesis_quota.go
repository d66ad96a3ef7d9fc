//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/sim"
)

const (
	// quotaBase is apps[].fcm.rate of the scenario, in sends a second.
	quotaBase = 200
	// quotaLeft of it in each quotaPer is what FCM takes, a quarter. Google counts by the
	// minute.
	quotaPer  = time.Minute
	quotaLeft = quotaBase / 4 * int(quotaPer/time.Second)
	// quotaSettle is how long a fleet may take to find it: the rest of the minute in which
	// it uses it up, of which nobody can make more, and 30 s.
	quotaSettle = quotaPer + 30*time.Second
)

// limited has the whole fleet start from four times the quota.
func limited(c *configs.Config) {
	for i := range c.Apps {
		c.Apps[i].FCM.Rate = quotaBase
	}
	c.Batch.Records = 100
}

// oneQuota lasts for all but the ends of a run. In full, a worker is killed in its
// middle, and one is stopped: their shares go to the others.
func oneQuota(r *rand.Rand, length time.Duration) []Action {
	plan := []Action{{At: settle, Fault: Quota, Target: FCM, For: length - 2*settle}}
	if length >= quotaKills {
		plan = append(plan, Action{At: length * 2 / 5, Fault: Kill, Target: worker(r.IntN(quotaWorkers))},
			Action{At: length * 3 / 5, Fault: Stop, Target: worker(r.IntN(quotaWorkers))})
	}
	return plan
}

const (
	quotaWorkers = 4
	// quotaKills is the least length in which there is time for more than the quota.
	quotaKills = 5 * time.Minute
)

// quota lets FCM take only so much. It says when there is room again, as Google does.
func (n *nemesis) quota(ctx context.Context, a Action) error {
	return n.underRules(ctx, a,
		func(r *sim.Rules) {
			r.ProjectQuota, r.QuotaRetryAfter = sim.Limit{Count: quotaLeft, Per: quotaPer}, true
		},
		func(e *invariants.Event) {
			e.Quota = &invariants.Quota{Provider: FCM, Count: quotaLeft, Per: quotaPer, Settle: quotaSettle}
		})
}
