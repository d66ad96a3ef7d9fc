package clicks

import (
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Bounds of what is kept.
const (
	LeastKept = 24 * time.Hour       // for which reports are kept at least
	MostKept  = 365 * 24 * time.Hour // and at most
	MaxDays   = 365                  // of one question
	MostRows  = 20_000               // that one question counts
)

// Event is what is reported. The numbers are stored.
type Event int8

// The events. They are no states: a notification has them beside its state.
const (
	Clicked      Event = 20
	Unsubscribed Event = 21
)

var eventNames = map[Event]string{Clicked: "CLICKED", Unsubscribed: "UNSUBSCRIBED"}

// String is the event's name.
func (e Event) String() string {
	if name, known := eventNames[e]; known {
		return name
	}
	return "event(" + strconv.Itoa(int(e)) + ")"
}

// ParseEvent reads a name.
func ParseEvent(name string) (Event, bool) {
	for e, n := range eventNames {
		if n == name {
			return e, true
		}
	}
	return 0, false
}

// Key names a notification of a user.
type Key struct{ User, App, ID string }

// Report is one thing that an app reports of a notification.
type Report struct {
	Key
	Event  Event
	Type   string
	Sender string
	Sent   time.Time // as SentAt has it, in milliseconds
	At     time.Time // when a gateway took it, in milliseconds
}

// Noted is what is kept of a notification.
type Noted struct {
	Event Event
	At    time.Time // when it was first reported
}

// Count is how many notifications of a type and a day there are reports of.
type Count struct {
	Day                   time.Time // midnight UTC of the day of Sent
	Type                  string
	Clicked, Unsubscribed int
}

// SentAt is the time that a notification counts as sent at: that in its id if it is a
// UUIDv7, which is the same for ever, else when it was accepted, in milliseconds.
func SentAt(id string, accepted time.Time) time.Time {
	if at, ok := push.MintedAt(id); ok {
		return at.UTC()
	}
	return accepted.UTC().Truncate(time.Millisecond)
}

// dayOf is midnight UTC of a time's day.
func dayOf(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// periodDays is for how many days a user's reports are in one partition.
const periodDays = 30

// timeless is the period of ids that have no time: their notifications may be accepted
// twice, at two times, and are in one place all the same.
const timeless = 0

func periodAt(at time.Time) int { return int(at.Unix() / (periodDays * 24 * 60 * 60)) }

// periodOf is the period of an id, and depends on nothing else.
func periodOf(id string) int {
	if at, ok := push.MintedAt(id); ok {
		return periodAt(at)
	}
	return timeless
}

// stamp is the timestamp that a row is written with. It falls while At rises, so that of two
// reports the first stands, whichever is written last: Cassandra keeps the greatest. A
// millisecond of At counts as a microsecond, so that it is never more than some hours before
// Sent, and no row is from the future, where an erasure could not reach it.
func (r *Report) stamp() int64 { return r.Sent.UnixMicro() - r.At.Sub(r.Sent).Milliseconds() }
