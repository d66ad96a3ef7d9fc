//go:build unix

package fleet

import (
	"slices"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// targetsOf are the devices that a message is for: the one that it names, or
// all that its user has in the crowd; nil when the crowd knows neither.
func (f *Fleet) targetsOf(m *push.Message) *crowd.Targets {
	if f.people == nil || m.App != f.people.App && !slices.Contains(f.people.Others, m.App) {
		return nil
	}
	if m.Device.Token != "" {
		t := new(crowd.Targets)
		t.Add(push.Device{Token: m.Device.Token, Hash: push.DeviceHash(m.Device.Platform, m.Device.Token)})
		return t
	}
	i, ok := f.people.Find(m.UserID)
	if !ok || m.App != f.people.AppOf(i) {
		return nil
	}
	t := f.people.Targets(i)
	return &t
}

// livingOutcome is what became of a notification on the devices that live, where
// it has some: a token that is dead decides about a notification only if nothing
// is known of the others, as when they ended UNKNOWN.
func (n *placed) livingOutcome(rows []push.Row, whole push.Outcome) push.Outcome {
	if n.targets == nil || len(n.targets.Live) == 0 || len(n.targets.Dead) == 0 {
		return whole
	}
	living := slices.DeleteFunc(slices.Clone(rows), func(r push.Row) bool { return slices.Contains(n.targets.Dead, r.Device) })
	if len(living) == 0 {
		return whole
	}
	return (&push.History{Rows: living}).Outcome()
}

// checkDevices: a notification that was delivered has reached every device of
// its user that lives, and no other.
func (r *Report) checkDevices(n *placed, rows []push.Row, pushes []sim.Entry, refused map[string]bool) {
	if n.targets == nil {
		return
	}
	e := crowd.Ended{Rows: rows, May: n.Want.Outcomes, Removed: func(d string) bool { return refused[d] }}
	for _, p := range pushes {
		e.Pushes = append(e.Pushes, crowd.Push{Device: p.Device, Accepted: p.Accepted, Refused: p.Refused})
	}
	for _, d := range n.targets.Missed(&e) {
		r.Missed++
		r.differ("%s (%s) did not reach device %s, one of its user's %d: %s%s", n.id, n.origin, d, len(n.targets.Live), describe(rows), describePushes(pushes))
	}
	for _, why := range n.targets.Wrong(&e) {
		r.differ("%s (%s) %s: %s%s", n.id, n.origin, why, describe(rows), describePushes(pushes))
	}
}

// spent is what a user over its limit got.
type spent struct {
	wanted, delivered int
	unknown           int // ended UNKNOWN: it may have been delivered, or not
}

func (s *spent) add(o push.Outcome) {
	s.wanted++
	switch o {
	case push.OutcomeDelivered:
		s.delivered++
	case push.OutcomeUnknown:
		s.unknown++
	}
}

// checkCap: users over their limit get exactly as much as they may. What ended
// UNKNOWN has spent of its own user's budget whether or not it was delivered,
// and excuses nothing of anybody else.
func (r *Report) checkCap(cap int, limited map[string]*spent) {
	for user, s := range limited {
		if want := min(s.wanted, cap); s.delivered > want || s.delivered+s.unknown < want {
			r.differ("user %s, who may get %d of %d, got %d, and of %d nobody knows", user, want, s.wanted, s.delivered, s.unknown)
		}
	}
}
