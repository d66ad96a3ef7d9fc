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

// slowComeback is how FCM comes back: with a tenth of its room, a tenth more each second,
// and it falls over when it is asked for twice of that. Whole, it takes what the fleet
// has as its rate.
var slowComeback = sim.Recovery{Provider: sim.FCM, Full: 500, Start: 0.1, Growth: 0.1, Falls: 2}

// downFor is how long it is down before: pauses of 1, 2, 4 and 8 s end after 15 s, so
// the fleet comes back when there is little room, and with what waits it could use all
// of its rate for seconds.
const downFor = 13 * time.Second

// comebackEvery is the time for one outage, and for what waits behind it.
const comebackEvery = 50 * time.Second

// toItsRate gives the fleet the rate that FCM has when it is whole.
func toItsRate(c *configs.Config) {
	for i := range c.Apps {
		c.Apps[i].FCM.Rate = slowComeback.Full
	}
}

func comebacks(r *rand.Rand, length time.Duration) (plan []Action) {
	for at := settle; at+comebackEvery <= length; at += comebackEvery {
		plan = append(plan, Action{At: at, Fault: Comeback, Target: FCM, For: comebackEvery - 10*time.Second})
	}
	if len(plan) > 1 { // in full
		plan = append(plan, Action{At: plan[1].At + downFor + time.Duration(r.IntN(5))*time.Second, Fault: Kill, Target: worker(r.IntN(quotaWorkers))})
	}
	return plan
}

// comeback has FCM down, and lets it come back slowly.
func (n *nemesis) comeback(ctx context.Context, a Action) error {
	down := min(downFor, a.For/2)
	return n.underRules(ctx, a,
		func(r *sim.Rules) {
			r.Recovery = slowComeback
			r.Recovery.Down = down
		},
		func(e *invariants.Event) {
			e.Recovery = &invariants.Recovery{Provider: FCM, Down: down, Falls: n.world.fleet.Sim.Falls()}
		})
}
