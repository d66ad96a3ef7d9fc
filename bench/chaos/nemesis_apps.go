//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// What the providers answer to an app whose rights were taken away.
var refusals = map[string]sim.Reply{APNS: sim.APNSTopicDisallowed, FCM: sim.FCMPermissionDenied}

// refuse has both providers refuse one app's credentials, as when its keys were
// revoked: its routes halt, and are probed now and then. That is no excuse for
// anything: its records are held, so partitions move on.
func (n *nemesis) refuse(ctx context.Context, a Action) error {
	app, other, err := n.apps(strings.TrimPrefix(a.Target, appTarget))
	if err != nil {
		return err
	}
	e := invariants.Event{Kind: string(a.Fault), Target: a.Target, UnharmedApp: other, Start: time.Now()}
	for provider, home := range map[string]string{APNS: app.APNS.Topic, FCM: app.FCM.Project} {
		err := n.world.fleet.Sim.Command(sim.Command{Do: "answer", Provider: provider, To: home, Reply: refusals[provider].String(), For: sim.Interval(a.For)})
		if err != nil {
			return err
		}
	}
	hold(ctx, a.For)
	n.note(e)
	for provider, reply := range refusals {
		first := n.arrivals.first(provider, e.Start, reply.String())
		if len(first) == 0 && ctx.Err() == nil {
			return errors.New(provider + " had nothing to refuse")
		}
		for name, at := range first {
			n.note(invariants.Event{Kind: "ban", Target: name, Start: at, End: at.Add(n.world.fleet.Config.Gates.HaltPause),
				Ban: &invariants.Ban{Provider: provider, App: app.Name, Drain: banDrain}})
		}
	}
	return nil
}

// apps finds an app, and the name of another one.
func (n *nemesis) apps(name string) (app *configs.App, other string, err error) {
	for i := range n.world.fleet.Config.Apps {
		if c := &n.world.fleet.Config.Apps[i]; c.Name == name {
			app = c
		} else {
			other = c.Name
		}
	}
	if app == nil || other == "" {
		return nil, "", fmt.Errorf("there is no app %q with another one beside it", name)
	}
	return app, other, nil
}
