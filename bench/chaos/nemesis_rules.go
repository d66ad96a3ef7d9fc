//go:build unix

package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// underRules has FCM, the only provider that the simulator has rules for, follow other
// ones until a is over. seen adds to the event what is known of it by then, while they
// still hold.
func (n *nemesis) underRules(ctx context.Context, a Action, change func(*sim.Rules), seen func(*invariants.Event)) error {
	if a.Target != FCM {
		return errors.New("only FCM has rules")
	}
	n.world.serving[a.Target].Lock()
	defer n.world.serving[a.Target].Unlock()
	server := n.world.fleet.Sim
	usual := server.Rules()
	rules := usual
	change(&rules)
	e := invariants.Event{Kind: string(a.Fault), Target: a.Target, Start: time.Now()}
	if err := server.SetRules(rules); err != nil {
		return err
	}
	hold(ctx, a.For)
	seen(&e)
	err := server.SetRules(usual)
	n.note(e)
	return err
}
