package crowd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

// Targets are one user's devices, by what the provider says of their tokens.
// They are what a notification's result is checked against: it is not enough that
// it reached some device of its user.
type Targets struct {
	Live []string // hashes of the devices that accept whatever is sent to them
	Dead []string // hashes of those whose tokens are dead
}

// Targets are those of user i, 0 to Users-1; the same each time.
func (c *Crowd) Targets(i int) (t Targets) {
	for _, d := range c.User(i).Devices {
		t.Add(d)
	}
	return t
}

// Add adds one device, by what its token looks like.
func (t *Targets) Add(d push.Device) {
	if strings.HasPrefix(d.Token, DeadPrefix) {
		t.Dead = append(t.Dead, d.Hash)
	} else {
		t.Live = append(t.Live, d.Hash)
	}
}

// Find is the number of the user with this id; ok is false when none of the
// crowd has it.
func (c *Crowd) Find(id string) (i int, ok bool) {
	digits, ok := strings.CutPrefix(id, "u")
	i, err := strconv.Atoi(digits)
	return i, ok && err == nil && i >= 0 && i < c.Users && strconv.Itoa(i) == digits
}

// Push is what a provider has of one notification on one device.
type Push struct {
	Device            string // its hash
	Accepted, Refused int    // how often
}

// Ended is all that is known of one notification that has its final outcome.
type Ended struct {
	Rows   []push.Row
	Pushes []Push // one for each device that the provider was asked about
	// May are the outcomes that were meant for the notification; none = any. A
	// living device may end with one of them too, but with no SUPPRESSED, which
	// is for the whole.
	May []push.Outcome
	// Removed reports whether a dead token may be gone from its user's record,
	// so that a notification has nothing to do with it: because its provider has
	// said before that it is dead.
	Removed func(device string) bool
}

// Missed is how many pushes of those that should have been there are not: the
// living devices of a notification that was DELIVERED, without those that are
// explained.
func (t *Targets) Missed(e *Ended) (devices []string) {
	h := push.History{Rows: e.Rows}
	if h.Outcome() != push.OutcomeDelivered {
		return nil
	}
	for _, d := range t.Live {
		if e.accepted(d) == 0 && !e.explained(&h, d) {
			devices = append(devices, d)
		}
	}
	return devices
}

// Wrong says in words what else the provider's ledger and the rows tell that
// does not go with these devices: who was pushed to and is none of them, a dead
// token that accepted something, or of which nobody says why it got nothing.
func (t *Targets) Wrong(e *Ended) (wrong []string) {
	for _, p := range e.Pushes {
		switch dead := slices.Contains(t.Dead, p.Device); {
		case dead && p.Accepted > 0:
			wrong = append(wrong, fmt.Sprintf("was accepted for device %s, whose token is dead", p.Device))
		case !dead && !slices.Contains(t.Live, p.Device):
			wrong = append(wrong, fmt.Sprintf("was pushed to device %s, which is none of its user's", p.Device))
		}
	}
	h := push.History{Rows: e.Rows}
	if h.Outcome() != push.OutcomeDelivered {
		return wrong
	}
	for _, d := range t.Dead {
		_, known := h.DeviceState(d)
		if !known && (e.Removed == nil || !e.Removed(d)) {
			wrong = append(wrong, fmt.Sprintf("has nothing about device %s, whose token was not known to be dead", d))
		}
	}
	return wrong
}

func (e *Ended) accepted(device string) int {
	for _, p := range e.Pushes {
		if p.Device == device {
			return p.Accepted
		}
	}
	return 0
}

// explained reports whether a row says why a living device got nothing, and
// that was meant to be possible.
func (e *Ended) explained(h *push.History, device string) bool {
	s, known := h.DeviceState(device)
	switch {
	case !known:
		// Not even in a lane that sends at most once, whatever the other devices
		// ended as: there the intents of all are durable before the first is sent
		// to. A worker that dies between two intents leaves none DELIVERED.
		return false
	case !s.Final() || s == push.StateDelivered:
		return false
	case s == push.StateSuppressed: // a limit is for the whole; an opt-out may come on the way
		return slices.Contains(e.May, push.OutcomeSuppressed) && slices.ContainsFunc(h.Rows, func(r push.Row) bool {
			return r.Device == device && strings.HasPrefix(r.Reason, "opted_out")
		})
	}
	return len(e.May) == 0 || slices.ContainsFunc(e.May, func(o push.Outcome) bool { return o.String() == s.String() })
}
