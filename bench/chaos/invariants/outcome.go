package invariants

import (
	"slices"
	"strings"
	"time"
)

// State is a row's state, by its number in the table.
type State int8

// The states.
const (
	Pending      State = 1
	Sending      State = 2
	Retrying     State = 3
	Held         State = 4
	Delivered    State = 10
	Failed       State = 11
	Suppressed   State = 12
	Expired      State = 13
	Shed         State = 14
	DeadLettered State = 15
	Unknown      State = 16
)

func (s State) final() bool { return s >= Delivered && s <= Unknown }

// Outcome is what became of a notification: a final State, or one of the two
// that are none.
type Outcome State

// What is no final outcome.
const (
	NoRows Outcome = 0
	Open   Outcome = 1
)

var outcomeNames = map[Outcome]string{
	NoRows: "NONE", Open: "OPEN", Outcome(Delivered): "DELIVERED", Outcome(Failed): "FAILED", Outcome(Suppressed): "SUPPRESSED",
	Outcome(Expired): "EXPIRED", Outcome(Shed): "SHED", Outcome(DeadLettered): "DEAD_LETTERED", Outcome(Unknown): "UNKNOWN",
}

func (o Outcome) String() string { return outcomeNames[o] }

// OutcomeOf is the outcome of this name; Open for all that is none.
func OutcomeOf(name string) Outcome {
	for o, n := range outcomeNames {
		if n == name {
			return o
		}
	}
	return Open
}

// weights say which state decides where several are there: of a notification's
// devices, and of two final rows of one step of a device.
var weights = map[State]int{
	Delivered: 9, Retrying: 8, Held: 8, Sending: 8, Pending: 8, Failed: 7, Expired: 6, Suppressed: 5, Shed: 4, DeadLettered: 3, Unknown: 2,
}

// history is the rows of one notification, by device.
type history map[string][]Row

// deviceState is what a device's rows come to: DELIVERED wherever it stands,
// else the latest step, where what is final counts before what is open.
func deviceState(rows []Row) State {
	best := slices.MaxFunc(rows, func(a, b Row) int { return rank(a) - rank(b) })
	return best.State
}

func rank(r Row) int {
	n := r.Step*100 + weights[r.State]
	switch {
	case r.State == Delivered:
		n += 1 << 40
	case r.State.final():
		n += 50
	}
	return n
}

// outcome is what became of the whole, and the devices that are still open.
func (h history) outcome() (Outcome, []string) {
	if len(h) == 0 {
		return NoRows, nil
	}
	var open []string
	best := State(0)
	for device, rows := range h {
		if device == "" && len(h) > 1 {
			continue // counts only while it is the only one
		}
		s := deviceState(rows)
		if !s.final() {
			open = append(open, device)
		}
		if weights[s] > weights[best] {
			best = s
		}
	}
	if !best.final() {
		return Open, open
	}
	return Outcome(best), open
}

// because reports whether a row of a state has a reason, with or without
// something behind it.
func (h history) because(s State, reason string) bool {
	for _, rows := range h {
		if slices.ContainsFunc(rows, func(r Row) bool {
			return r.State == s && (r.Reason == reason || strings.HasPrefix(r.Reason, reason+":"))
		}) {
			return true
		}
	}
	return false
}

// settled is from when on the record that the rows are of needed no Kafka any
// more: all its devices had a row that ends or hands over. ok is false when
// that never came.
func (h history) settled(devices []string, intents bool) (at time.Time, ok bool) {
	closes := func(s State) bool { return s.final() || s == Retrying || s == Held || intents && s == Sending }
	first := func(rows []Row) (at time.Time, ok bool) {
		for _, r := range rows {
			if closes(r.State) && (!ok || r.At.Before(at)) {
				at, ok = r.At, true
			}
		}
		return at, ok
	}
	whole, all := first(h[""])
	each, every := h.eachDevice(devices, first)
	// A copy whose user has opted out meanwhile says so of the whole, behind the
	// rows of the devices, where those are known to be all.
	if all && (!every || len(devices) == 0 || whole.Before(each)) {
		return whole, true
	}
	return each, every
}

// eachDevice is when the last of the devices was closed, if all of them were.
func (h history) eachDevice(devices []string, closed func([]Row) (time.Time, bool)) (at time.Time, every bool) {
	latest := func(rows []Row) bool {
		t, ok := closed(rows)
		if ok && t.After(at) {
			at = t
		}
		return ok
	}
	for _, d := range devices {
		if !latest(h[d]) {
			return at, false
		}
	}
	any := len(devices) > 0
	for d, rows := range h {
		if d == "" {
			continue
		}
		if any = true; !latest(rows) {
			return at, false
		}
	}
	return at, any
}
