//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// keyDeadline is how long a new key may go unused before that is an error.
const keyDeadline = time.Minute

// rotate has both providers take other keys of the app, puts them into its files, and
// revokes the former after the length: old and new overlap so long. With Form 1 the
// files are broken first, for as long as workers take to see it. It excuses nothing:
// nobody notices a rotation.
func (n *nemesis) rotate(ctx context.Context, a Action) error {
	n.keys.Lock()
	defer n.keys.Unlock()
	if n.unloaded() {
		n.say("keys of %s are left: all records are produced", a.Target)
		return nil
	}
	f := n.world.fleet
	e := invariants.Event{Kind: string(a.Fault), Target: a.Target, Start: time.Now()}
	former := f.Keys(fleet.App)
	if a.Form == 1 {
		if err := f.BreakKeys(fleet.App); err != nil {
			return err
		}
		hold(ctx, 2*reloadEvery)
	}
	next, err := former.Next()
	if err != nil {
		return err
	}
	f.Sim.Trust(next.App())
	if err := f.ReplaceKeys(next); err != nil {
		return err
	}
	hold(ctx, a.For)
	// A machine that stands still for longer than old and new overlap is no fault of a
	// worker's.
	for deadline := time.Now().Add(keyDeadline); f.Sim.KeyPushes(next.KeyID) == 0; hold(ctx, reloadEvery) {
		if ctx.Err() != nil {
			return nil
		}
		if time.Now().After(deadline) {
			if n.unloaded() {
				n.say("the new keys of %s came too late to be seen: all records are produced", a.Target)
				return nil
			}
			return fmt.Errorf("nothing was sent with the new key %s", next.KeyID)
		}
	}
	f.Sim.Revoke(former.App())
	n.note(e)
	hold(ctx, reloadEvery) // for what a worker would still send with the former
	if !n.world.busy && len(n.arrivals.first(APNS, e.Start, "InvalidProviderToken")) > 0 {
		return errors.New("a worker went on with the former key")
	}
	return nil
}

// unloaded reports whether nothing is sent any more: then a new key cannot be seen. So
// it ends for exchanges that a machine which stood still has let come late, one after
// the other.
func (n *nemesis) unloaded() bool {
	select {
	case <-n.loaded:
		return true
	default:
		return false
	}
}
