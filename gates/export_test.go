package gates

import "time"

// NewBudget makes a full Budget.
var NewBudget = newBudget

// Paused says since when the route has not been open, probing included, and
// why. ok is false while it is open.
func (g *Gate) Paused() (since time.Time, reason PauseReason, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.past.since, g.reason, g.state != gateOpen
}

// Hear applies what another worker was told.
func (g *Gate) Hear(now time.Time, p Pause) { g.hear(now, p) }
