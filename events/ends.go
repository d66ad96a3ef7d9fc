package events

import (
	"cmp"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// EndedType is the type of every Ended.
const EndedType = "notification.ended"

// Ended is what a sender is told (docs/webhooks.md) when something of its notification has
// ended: all that is known of the notification by then. It has the form that Standard
// Webhooks ask for. It never carries a token, a user or a message's text.
type Ended struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the newest end: the same ends make the same bytes
	Data      Notified  `json:"data"`
}

// Notified is how a notification stands.
type Notified struct {
	ID      string `json:"id"`
	Lane    string `json:"lane"`
	App     string `json:"app,omitempty"`
	Type    string `json:"type,omitempty"`
	Sender  string `json:"sender"`
	Outcome string `json:"outcome"` // as receipts have it in their state
	Open    int    `json:"open"`    // devices that have not ended; 0 = there is nothing more to come
	Ends    []End  `json:"ends"`    // by device; at least one
}

// End is a final state of one device, or, without a device, of the whole notification.
type End struct {
	Device     string    `json:"device,omitempty"` // DeviceHash; empty = all of it
	Provider   string    `json:"provider,omitempty"`
	ProviderID string    `json:"provider_id,omitempty"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	Step       int16     `json:"step"`
	At         time.Time `json:"at"`
}

// Ends tells senders of a lane about every end of theirs. It implements pipeline.Ends and
// is safe for concurrent use.
type Ends struct {
	lane    string
	senders []string
}

var _ pipeline.Ends = (*Ends)(nil)

// NewEnds tells these senders of what ends in a lane.
func NewEnds(lane string, senders []string) *Ends {
	return &Ends{lane: lane, senders: senders}
}

// Senders implements pipeline.Ends.
func (e *Ends) Senders() []string { return e.senders }

// Record implements pipeline.Ends. The order of rows does not matter.
func (e *Ends) Record(it *pipeline.Item, rows []push.Row) []byte {
	h := push.NewHistory(rows)
	n := Notified{ID: it.RowID(), Lane: e.lane, App: it.App, Type: it.Type, Sender: it.SenderID, Outcome: h.Outcome().String()}
	var newest time.Time
	withDevices := h.HasDevices()
	for i := 0; i < len(h.Rows); {
		of := h.Rows[i:]
		if next := slices.IndexFunc(of, func(r push.Row) bool { return r.Device != of[0].Device }); next > 0 {
			of = of[:next]
		}
		i += len(of)
		if of[0].Device == "" && withDevices {
			continue
		}
		end, final := endOf(h, of)
		if !final {
			n.Open++
			continue
		}
		n.Ends = append(n.Ends, end)
		if end.At.After(newest) {
			newest = end.At
		}
	}
	if len(n.Ends) == 0 {
		return nil
	}
	return encoded(Ended{Type: EndedType, Timestamp: newest, Data: n})
}

// endOf is the state of the device that all rows are of, and whether it is final.
func endOf(h *push.History, rows []push.Row) (End, bool) {
	state, _ := h.DeviceState(rows[0].Device)
	if !state.Final() {
		return End{}, false
	}
	said := slices.DeleteFunc(slices.Clone(rows), func(r push.Row) bool { return r.State != state })
	r := slices.MaxFunc(said, func(a, b push.Row) int { return cmp.Or(cmp.Compare(a.Step, b.Step), a.At.Compare(b.At)) })
	end := End{Device: r.Device, ProviderID: r.ProviderID, State: r.State.String(), Reason: r.Reason, Step: r.Step, At: r.At.UTC().Truncate(time.Millisecond)}
	if r.Platform != push.NoPlatform {
		end.Provider = r.Platform.String()
	}
	return end, true
}
