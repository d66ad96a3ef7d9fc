package push

import (
	"slices"
	"sort"
	"strings"
)

// History is what the status store knows of one notification: the answer of a
// confirm read. Its rules are the contract's ("Steps, hand-overs, confirm
// reads"); all of them are here. Methods may be called concurrently.
type History struct {
	Rows []Row // in any order

	sorted bool // by device
}

// NewHistory makes a history that is asked about many devices: it finds the rows of
// one without looking at those of all. It sorts rows, and they are its own from then on.
func NewHistory(rows []Row) *History {
	slices.SortStableFunc(rows, func(a, b Row) int { return strings.Compare(a.Device, b.Device) })
	return &History{Rows: rows, sorted: true}
}

// of returns rows among which are all of the device: no others if they are sorted.
func (h *History) of(device string) []Row {
	if !h.sorted {
		return h.Rows
	}
	rows := h.Rows[sort.Search(len(h.Rows), func(i int) bool { return h.Rows[i].Device >= device }):]
	for i := range rows {
		if rows[i].Device != device {
			return rows[:i]
		}
	}
	return rows
}

// Outcome is the derived state of a notification.
type Outcome uint8

// The outcomes, in the order of their precedence.
const (
	NoRows Outcome = iota
	OutcomeDelivered
	OutcomeInbox
	OutcomeOpen
	OutcomeFailed
	OutcomeExpired
	OutcomeSuppressed
	OutcomeShed
	OutcomeDeadLettered
	OutcomeUnknown
)

var outcomeNames = [...]string{"NONE", "DELIVERED", "INBOX", "OPEN", "FAILED", "EXPIRED", "SUPPRESSED", "SHED", "DEAD_LETTERED", "UNKNOWN"}

func (o Outcome) String() string { return outcomeNames[o] }

// outcomeOf maps a device's state to the outcome it argues for.
func outcomeOf(s State) Outcome {
	switch s {
	case StateDelivered:
		return OutcomeDelivered
	case StateInbox:
		return OutcomeInbox
	case StateFailed:
		return OutcomeFailed
	case StateExpired:
		return OutcomeExpired
	case StateSuppressed:
		return OutcomeSuppressed
	case StateShed:
		return OutcomeShed
	case StateDeadLettered:
		return OutcomeDeadLettered
	case StateUnknown:
		return OutcomeUnknown
	}
	return OutcomeOpen
}

// DeviceState is the state of one device: DELIVERED beats everything, otherwise
// the latest step decides, and within it a final state beats an open one.
// Between two final states the precedence of outcomes decides, so the order of
// rows never matters. ok is false when the device has no row. The empty device
// is the notification before its device look-up.
func (h *History) DeviceState(device string) (state State, ok bool) {
	var step int16 = -1
	rows := h.of(device)
	for i := range rows {
		r := &rows[i]
		if r.Device != device {
			continue
		}
		ok = true
		switch {
		case r.State == StateDelivered:
			return StateDelivered, true
		case r.Step > step, r.Step == step && outranks(r.State, state):
			step, state = r.Step, r.State
		}
	}
	return state, ok
}

// outranks reports whether a takes precedence over b, both of the same step.
func outranks(a, b State) bool {
	if a.Final() != b.Final() {
		return a.Final()
	}
	if a.Final() {
		return outcomeOf(a) < outcomeOf(b)
	}
	return a > b
}

// HasDevices reports whether any device has a row.
func (h *History) HasDevices() bool {
	for i := range h.Rows {
		if h.Rows[i].Device != "" {
			return true
		}
	}
	return false
}

// Outcome is the state of the whole notification by precedence: DELIVERED if
// any device is; else INBOX; else open if any is; else FAILED, EXPIRED, SUPPRESSED, SHED,
// DEAD_LETTERED, UNKNOWN. Rows without a device count only while no device has
// one.
func (h *History) Outcome() Outcome {
	if len(h.Rows) == 0 {
		return NoRows
	}
	withDevices := h.HasDevices()
	best := Outcome(len(outcomeNames))
	for i := range h.Rows {
		d := h.Rows[i].Device
		if (d == "") == withDevices {
			continue
		}
		if s, ok := h.DeviceState(d); ok {
			best = min(best, outcomeOf(s))
		}
	}
	return best
}

// Closed reports whether a record at this step has nothing left to do for the
// device: it is delivered, or has a final state, or was handed over at this
// step or a later one. A redriven record is stopped by earlier rows only where
// they say DELIVERED, INBOX, EXPIRED or SUPPRESSED.
func (h *History) Closed(device string, step int16, redriven bool) bool {
	rows := h.of(device)
	for i := range rows {
		r := &rows[i]
		if r.Device != device {
			continue
		}
		switch {
		case r.State == StateDelivered:
			return true
		case r.State.HandedOver():
			if r.Step >= step {
				return true
			}
		case !r.State.Final():
		case redriven && r.Step < step:
			if r.State == StateInbox || r.State == StateExpired || r.State == StateSuppressed {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// Intents are the devices that have this step's intent and no later row:
// whether the record was sent to them is unknown. Intents of a later step
// belong to that step's record: this one was handed over.
func (h *History) Intents(step int16) (devices []string) {
	var seen map[string]bool
	for i := range h.Rows {
		r := &h.Rows[i]
		if r.State != StateSending || r.Step != step || seen[r.Device] {
			continue
		}
		if seen == nil {
			seen = make(map[string]bool)
		}
		seen[r.Device] = true
		later := slices.ContainsFunc(h.of(r.Device), func(o Row) bool { return o.Device == r.Device && o.Step > step })
		if s, _ := h.DeviceState(r.Device); s == StateSending && !later {
			devices = append(devices, r.Device)
		}
	}
	return devices
}

// HandedOverTo reports whether the record of the step before, or a later one,
// says that it handed the device over.
func (h *History) HandedOverTo(device string, step int16) bool {
	rows := h.of(device)
	for i := range rows {
		if r := &rows[i]; r.Device == device && r.State.HandedOver() && r.Step >= step-1 {
			return true
		}
	}
	return false
}

// HandedElsewhere reports whether the record of the step before handed the
// device over, but not with the state that this record was handed over with.
// Then this record is left over from an attempt whose worker died, and there
// certainly is another record: a row is written only when its record is
// acknowledged. Of two such records at most one gets this answer, whenever they
// ask.
func (h *History) HandedElsewhere(device string, step int16, as State) (elsewhere bool) {
	rows := h.of(device)
	for i := range rows {
		r := &rows[i]
		if r.Device != device || r.Step != step-1 || !r.State.HandedOver() {
			continue
		}
		if r.State == as {
			return false
		}
		elsewhere = as != 0
	}
	return elsewhere
}

// Overtaken is the final state of a device that also has a later hand-over: a
// retry had claimed the device, and the record before it ended all the same.
// That state closes the record at this step, which therefore repeats it at its
// own step: otherwise the device would look open for ever. A record that was
// itself handed over has nothing to repeat.
func (h *History) Overtaken(device string, step int16) (v Verdict, reason Reason, ok bool) {
	if s, known := h.DeviceState(device); !known || s.Final() {
		return Undecided, "", false
	}
	var last *Row
	rows := h.of(device)
	for i := range rows {
		switch r := &rows[i]; {
		case r.Device != device:
		case r.State.HandedOver() && r.Step >= step:
			return Undecided, "", false
		case r.State.Final() && (last == nil || r.Step > last.Step):
			last = r
		}
	}
	if last == nil {
		return Undecided, "", false
	}
	return verdictOf(last.State), Reason(last.Reason), true
}

// ClosedWhole reports whether the notification as a whole is closed for a
// record at this step: it ended before its device look-up, or was handed over
// as a whole at this step or a later one. The record it was handed over to may
// have sent to some devices by now and be sending to others, which have no row
// yet: so their rows must not open it again.
func (h *History) ClosedWhole(step int16, redriven bool) bool {
	rows := h.of("")
	for i := range rows {
		if r := &rows[i]; r.Device == "" && r.State.HandedOver() && r.Step >= step {
			return true
		}
	}
	return !h.HasDevices() && h.Closed("", step, redriven)
}

// OwnRows keeps the rows of this user. The same id may have been used for
// another user too: that user's rows say nothing about this notification.
func OwnRows(rows []Row, user uint64) (own []Row, others bool) {
	own = rows[:0:0]
	for _, r := range rows {
		if r.UserHash == user {
			own = append(own, r)
		} else {
			others = true
		}
	}
	return own, others
}
