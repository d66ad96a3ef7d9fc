package gateway

import (
	"time"

	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/push"
)

// The statuses of receipts, which are for programs: the raw state stands beside them.
const (
	statusPending   = "PENDING"   // in Kafka, and no worker has finished with it
	statusSending   = "SENDING"   // a worker has begun, and at least one device is open
	statusDelivered = "DELIVERED" // accepted by Apple or Google for a device at least
	statusInbox     = "INBOX"     // kept where its user looks for it
	statusFailed    = "FAILED"    // it ended otherwise; state and reason say how
	statusUnknown   = "UNKNOWN"   // nobody can tell
)

// Reasons of statusUnknown.
const (
	noTrace      = "no_trace"      // workers have passed it, and there is no row
	placeUnknown = "place_unknown" // there is no row, and nothing to compare with
)

// Report is what became of a notification.
type Report struct {
	Receipt     string    `json:"receipt"`
	ID          string    `json:"id"`
	Status      string    `json:"status"`
	State       string    `json:"state"` // the outcome as push has it, such as SUPPRESSED
	Reason      string    `json:"reason,omitempty"`
	Meaning     string    `json:"meaning"`
	Final       bool      `json:"final"` // nothing more happens
	Mode        Mode      `json:"mode,omitempty"`
	ServiceType string    `json:"service_type,omitempty"`
	Lane        string    `json:"lane,omitempty"`
	App         string    `json:"app,omitempty"`
	Receiver    *Receiver `json:"receiver,omitempty"`
	AcceptedAt  time.Time `json:"accepted_at,omitzero"`
	UpdatedAt   time.Time `json:"updated_at,omitzero"` // of the newest state
	Devices     []Device  `json:"devices"`
	// Events are what apps have reported: beside the status, and never in place of it.
	Events []reported `json:"events,omitempty"`
	// Of a message for many receivers:
	Topic   string        `json:"topic,omitempty"`
	Segment string        `json:"segment,omitempty"`
	Fanout  *FanoutReport `json:"fanout,omitempty"`

	next int // seconds after which it may be asked for again; 0 = it is final
}

// Receiver is whom a notification is for.
type Receiver struct {
	UserID string `json:"user_id,omitempty"`
	Device string `json:"device,omitempty"` // hash of the token
}

// Device is what became of one device.
type Device struct {
	Device     string    `json:"device"`
	Provider   string    `json:"provider,omitempty"`
	Status     string    `json:"status"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`      // ours, or the provider's own word
	ProviderID string    `json:"provider_id,omitempty"` // as the provider names the push
	At         time.Time `json:"at"`
	Meaning    string    `json:"meaning"`
}

// judge makes the report of one.
func (g *Gateway) judge(a *asked, now time.Time) found {
	if len(a.rows) == 0 {
		return g.judgeNothing(a, now)
	}
	times := explain.Times{Kept: g.o.Times.Kept, Delay: g.o.Times.Delay}
	n := explain.Of(a.id, a.rows, times, now)
	r := reportOf(a)
	outcome := (&push.History{Rows: a.rows}).Outcome()
	r.State, r.Meaning, r.Final = n.Outcome, n.Meaning, true
	switch outcome {
	case push.OutcomeDelivered:
		r.Status = statusDelivered
	case push.OutcomeInbox:
		r.Status = statusInbox
	case push.OutcomeOpen:
		r.Status = statusSending
	default:
		r.Status = statusFailed
	}
	for _, s := range n.States {
		r.UpdatedAt = latest(r.UpdatedAt, s.At)
	}
	for _, d := range n.Devices {
		device := deviceOf(d, n.States)
		r.Final = r.Final && device.Status != statusSending
		if r.Reason == "" && (device.State == r.State || outcome == push.OutcomeOpen && device.Status == statusSending) {
			r.Reason = device.Reason
		}
		if d.Device != "" {
			r.Devices = append(r.Devices, device)
		}
	}
	if outcome == push.OutcomeOpen && len(n.Devices) > 0 {
		r.State = openState(n.Devices)
	}
	if !r.Final {
		r.next = pollAfter(now.Sub(r.UpdatedAt))
	}
	g.o.Metrics.receipt(r.Status)
	return found{report: r}
}

// openState is the state of an open notification: that of its first open device.
func openState(devices []explain.Device) string {
	for _, d := range devices {
		if statusOf(d.State) == statusSending {
			return d.State
		}
	}
	return push.OutcomeOpen.String()
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func reportOf(a *asked) *Report {
	r := &Report{Receipt: a.text, ID: a.id, Devices: []Device{}}
	if c := a.claim; c != nil {
		r.Mode, r.ServiceType, r.Lane, r.App, r.AcceptedAt = c.mode, c.service, c.lane, c.app, c.at
		r.Receiver = &Receiver{UserID: c.owner.user, Device: c.owner.device}
	}
	return r
}

// deviceOf is a device with the reason of the row that explains it.
func deviceOf(d explain.Device, states []explain.State) Device {
	device := Device{Device: d.Device, Provider: d.Provider, Status: statusOf(d.State), State: d.State, At: d.Since, Meaning: d.Meaning}
	for _, s := range states {
		if s.Device == d.Device && s.State == d.State && s.Step == d.Step {
			device.Reason, device.ProviderID = s.Reason, s.ProviderID
		}
	}
	return device
}

// statusOf is the status of a device in a state.
func statusOf(state string) string {
	switch state {
	case push.StateDelivered.String():
		return statusDelivered
	case push.StateInbox.String():
		return statusInbox
	case push.StatePending.String(), push.StateSending.String(), push.StateRetrying.String(), push.StateHeld.String():
		return statusSending
	}
	return statusFailed
}

// judgeNothing makes the report of one without rows.
func (g *Gateway) judgeNothing(a *asked, now time.Time) found {
	cl := a.claim
	if cl == nil {
		words := explain.Of(a.id, nil, explain.Times{Kept: g.o.Times.Kept, Delay: g.o.Times.Delay}, now).Meaning
		return found{problem: newProblem(codeNoReceipt, "no state of this id: "+words).of(a.id)}
	}
	old := now.Sub(cl.at) > g.o.Times.Kept
	if a.err != nil && !old {
		g.o.Log.Warn("committed offsets are not known", "lane", cl.lane, "error", a.err)
		return found{problem: newProblem(codeStatusAway, "it has no state yet, and Kafka does not say how far the workers are").of(a.id).after(2)}
	}
	if a.stage == waiting {
		r := reportOf(a)
		r.Status, r.State, r.Meaning = statusPending, push.StatePending.String(), "in Kafka, and not finished by a worker: its offset is not committed"
		r.UpdatedAt, r.next = cl.at, pollAfter(now.Sub(cl.at))
		g.o.Metrics.receipt(r.Status)
		return found{report: r}
	}
	if old {
		return found{problem: newProblem(codeGone, "it was accepted longer ago than states are kept: its outcome is no longer known").of(a.id)}
	}
	r := reportOf(a)
	r.Status, r.State, r.UpdatedAt = statusUnknown, push.StateUnknown.String(), cl.at
	r.Reason, r.Meaning, r.next = placeUnknown, "it has no state, and its place in Kafka is not known or no longer comparable", pollAfter(now.Sub(cl.at))
	if a.stage == passed {
		r.Reason, r.Meaning, r.next, r.Final = noTrace, "the workers have passed it and the status store has no state of it: tell the operators", 0, true
		g.o.Metrics.traceless.Inc()
		g.o.Log.Error("a notification was passed without a trace", "id", cl.id, "lane", cl.lane, "partition", cl.place.Partition, "offset", cl.place.Offset)
	}
	g.o.Metrics.receipt(r.Status)
	return found{report: r}
}

// pollAfter is how many seconds to wait before it is asked for again: the longer nothing
// has happened, the less often.
func pollAfter(idle time.Duration) int {
	switch {
	case idle < 10*time.Second:
		return 1
	case idle < time.Minute:
		return 5
	case idle < time.Hour:
		return 30
	}
	return 300
}
