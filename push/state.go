package push

import (
	"strconv"
	"time"
)

// State is a row's state in the status table. The numbers are stored.
type State int8

// The states (contract, "States"). A row is only ever inserted: step and state
// are part of its key, so a skewed clock cannot bury DELIVERED.
const (
	StatePending      State = 1
	StateSending      State = 2
	StateRetrying     State = 3
	StateHeld         State = 4
	StateDelivered    State = 10
	StateFailed       State = 11
	StateSuppressed   State = 12
	StateExpired      State = 13
	StateShed         State = 14
	StateDeadLettered State = 15
	StateUnknown      State = 16
	StateInbox        State = 17 // kept for a user who looks for it
)

var stateNames = map[State]string{
	StatePending: "PENDING", StateSending: "SENDING", StateRetrying: "RETRYING", StateHeld: "HELD",
	StateDelivered: "DELIVERED", StateFailed: "FAILED", StateSuppressed: "SUPPRESSED",
	StateExpired: "EXPIRED", StateShed: "SHED", StateDeadLettered: "DEAD_LETTERED", StateUnknown: "UNKNOWN", StateInbox: "INBOX",
}

func (s State) String() string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return "state(" + strconv.Itoa(int(s)) + ")"
}

// Final reports whether nothing more happens to a device in this state.
func (s State) Final() bool { return s >= StateDelivered && s <= StateInbox }

// HandedOver reports whether a newer record owns the device from here.
func (s State) HandedOver() bool { return s == StateRetrying || s == StateHeld }

// Row is one insert into the status table. The same Row written twice is the
// same row.
type Row struct {
	ID         string // the notification id, or "kafka:…" for a record without a usable one
	Device     string // DeviceHash; empty for a verdict before the device look-up
	Step       int16  // attempts + hops of the record that wrote it
	State      State
	At         time.Time
	Platform   Platform
	ProviderID string
	Reason     string
	UserHash   uint64 // xxhash64 of the user id
	Place      uint64 // of the record that wrote it: Partition.Place; 0 = not known
}
