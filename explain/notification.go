// Package explain says in words what became of a notification: what a reason
// means, what each device's state means, and why an id has no state. It is for
// whoever answers people: pushctl, a gateway, a dashboard. It only computes: it
// reads no store, has no goroutine and no clock, and is safe for concurrent use.
package explain

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Notification is what became of one notification. Scripts depend on the JSON
// keys.
type Notification struct {
	ID      string   `json:"id"`
	Outcome string   `json:"outcome"`
	Meaning string   `json:"meaning"` // of the outcome, in words
	Devices []Device `json:"devices"`
	States  []State  `json:"states"` // in the order of time
}

// State is one row of the status table.
type State struct {
	At         time.Time `json:"at"`
	Step       int16     `json:"step"`
	State      string    `json:"state"`
	Device     string    `json:"device"` // hash of the token; empty before the device look-up
	Provider   string    `json:"provider"`
	ProviderID string    `json:"provider_id"`
	Reason     string    `json:"reason"`
	Meaning    string    `json:"meaning"` // of the reason, in words
	UserHash   string    `json:"user_hash"`
}

// Device is what became of one device. An empty name stands for the
// notification as a whole, before its device look-up.
type Device struct {
	Device   string    `json:"device"`
	Provider string    `json:"provider"`
	State    string    `json:"state"`
	Since    time.Time `json:"since"`
	Step     int16     `json:"step"`
	Meaning  string    `json:"meaning"`
}

func (d Device) String() string {
	name := "device " + d.Device
	if d.Device == "" {
		name = "the whole notification"
	}
	if d.Provider != "" {
		name += " (" + d.Provider + ")"
	}
	return name + ": " + d.State + ": " + d.Meaning
}

// Times are the settings that the words depend on.
type Times struct {
	Kept  time.Duration // how long the status store keeps rows
	Delay time.Duration // of the last retry tier: whatever was handed over longer ago should have been read again
}

// Of explains a notification by its rows in the status store, in any order;
// there may be none. It does not change rows.
func Of(id string, rows []push.Row, times Times, now time.Time) Notification {
	history := &push.History{Rows: rows}
	outcome := history.Outcome()
	if byTime := func(x, y push.Row) int { return x.At.Compare(y.At) }; !slices.IsSortedFunc(rows, byTime) {
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, byTime)
	}
	n := Notification{ID: id, Outcome: outcome.String(), Devices: devicesOf(history, rows, times, now), States: make([]State, 0, len(rows))}
	for _, r := range rows {
		n.States = append(n.States, State{At: r.At, Step: r.Step, State: r.State.String(), Device: r.Device, Provider: providerOf(r),
			ProviderID: r.ProviderID, Reason: r.Reason, Meaning: Reason(r.Reason, ""), UserHash: strconv.FormatUint(r.UserHash, 16)})
	}
	if len(rows) == 0 {
		n.Meaning = nothing(id, times.Kept, now)
	} else {
		n.Meaning = meaningOf(id, outcome, n.Devices)
	}
	return n
}

func providerOf(r push.Row) string {
	if r.Platform == push.NoPlatform {
		return ""
	}
	return r.Platform.String()
}

// devicesOf are the devices that count for the outcome, ordered by their first
// row. Rows are in the order of time.
func devicesOf(h *push.History, rows []push.Row, times Times, now time.Time) []Device {
	devices := []Device{}
	for i := range rows {
		name := rows[i].Device
		if (name == "") == h.HasDevices() || slices.ContainsFunc(devices, func(d Device) bool { return d.Device == name }) {
			continue
		}
		state, _ := h.DeviceState(name)
		// The last row with that state is the one that explains it.
		var last *push.Row
		for j := range rows {
			if r := &rows[j]; r.Device == name && r.State == state && (last == nil || r.Step >= last.Step) {
				last = r
			}
		}
		devices = append(devices, Device{Device: name, Provider: providerOf(*last), State: state.String(), Since: last.At, Step: last.Step,
			Meaning: stateOf(last, times, now)})
	}
	return devices
}

// stateOf says what a row means for its device.
func stateOf(r *push.Row, times Times, now time.Time) string {
	why := r.Reason
	if words := Reason(r.Reason, ""); words != "" {
		why += ", " + words
	}
	since := r.At.UTC().Format("2006-01-02 15:04:05")
	late := ""
	if now.Sub(r.At) > times.Delay {
		late = "; that is longer ago than the longest delay: do workers read the retry topics (pushctl lag)?"
	}
	switch r.State {
	case push.StateDelivered:
		switch r.Step {
		case 0:
			return "accepted by the provider at " + since
		case 1:
			return "accepted by the provider at " + since + ", after one hand-over"
		}
		return "accepted by the provider at " + since + ", after " + strconv.Itoa(int(r.Step)) + " hand-overs"
	case push.StateRetrying:
		return "tried at " + since + " (" + why + "); it waits in a retry topic and is tried again after that topic's delay" + late
	case push.StateHeld:
		return "put on hold at " + since + " without an attempt (" + why + "); it waits in a deferral or hold topic" + late
	case push.StateSending:
		return "a worker began to send it at " + since + " and has not recorded a result"
	case push.StatePending:
		return "received at " + since + " and not processed yet"
	case push.StateInbox:
		return "in the user's inbox since " + since + " (" + why + ")"
	case push.StateUnknown:
		return strings.TrimSuffix("it may or may not have been delivered ("+why+")", " ()")
	}
	if why == "" {
		return "at " + since
	}
	return why
}

// meaningOf says what an outcome means.
func meaningOf(id string, o push.Outcome, devices []Device) string {
	delivered := 0
	for _, d := range devices {
		if d.State == push.StateDelivered.String() {
			delivered++
		}
	}
	switch o {
	case push.OutcomeDelivered:
		return "accepted by the provider for " + strconv.Itoa(delivered) + " of " + strconv.Itoa(len(devices)) + " devices"
	case push.OutcomeInbox:
		return "kept in the user's inbox, where it is read when the user looks"
	case push.OutcomeOpen:
		return "not finished: at least one device is still to be tried"
	case push.OutcomeFailed:
		return "it cannot be delivered to any device"
	case push.OutcomeExpired:
		return "it expired before it could be sent"
	case push.OutcomeSuppressed:
		return "it was not meant to be sent"
	case push.OutcomeShed:
		return "dropped because of overload"
	case push.OutcomeDeadLettered:
		return "it is in the DLQ and can be redriven: pushctl dlq show " + id
	}
	return "an attempt has no result, and this lane does not try twice"
}
