package push

import (
	"strconv"
	"time"
)

// Class is what a send means for the message and its device.
type Class uint8

// The classes. Delivered, Again, Gone and Refused are answers of a provider; the
// others are ours, of what was not sent.
const (
	Unsent    Class = iota // not yet, or given back because its lease had lapsed
	Delivered              // the provider accepted it
	Again                  // not now: try later
	Gone                   // this token is dead
	Refused                // this message will never be accepted for this device
	Held                   // not sent: its route is stopped for long, tokens do not come, or the worker stops; ours, never a provider's
	Claimed                // not sent: another record has the device by now; ours too
)

var classNames = [...]string{"none", "delivered", "again", "gone", "refused", "held", "claimed"}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "class(" + strconv.Itoa(int(c)) + ")"
}

// Scope says what an Again is about: this device, the whole route, or only
// the connection it went over.
type Scope uint8

// The scopes of Again.
const (
	ScopeDevice Scope = iota
	ScopeRoute
	ScopeConnection
)

// Certainty says how sure we are that the provider has, or has not, taken it.
type Certainty uint8

// The certainties (reference: reliability 4.1). Only Ambiguous can duplicate.
const (
	NotAccepted Certainty = iota
	Accepted
	Ambiguous // written, no answer, or HTTP 500
)

// Pressure says what an answer means for how fast a provider may be sent to.
type Pressure uint8

// The pressures.
const (
	NoPressure Pressure = iota
	OverQuota           // more came than the provider lets us send: HTTP 429 about all that it counts
	Failing             // the provider does not keep up: HTTP 500, 502 or 503
)

// PressureOf is that of an answer with this HTTP status about all that a provider
// counts, not about one device.
func PressureOf(status int) Pressure {
	switch status {
	case 429:
		return OverQuota
	case 500, 502, 503:
		return Failing
	}
	return NoPressure
}

// Result is what became of one send. Every submitted Delivery gets exactly one.
type Result struct {
	Class      Class
	Scope      Scope
	Certainty  Certainty
	Pressure   Pressure      // with Again: what the answer says of how much the provider takes
	Halt       bool          // with Again: the route's credentials or set-up are at fault
	Expired    bool          // with Refused: given back unsent because Expires had passed
	Local      bool          // with Refused: our own code refused it, so it says nothing about the route
	Pause      bool          // with Again(route): After is for all of the route, because the provider said so
	Ended      bool          // with Again(connection): that connection ended, and with it all that was on it
	Conn       uint32        // which of its route's connections it went over, also one that could not be made; 0 = unknown
	After      time.Duration // with Again: not sooner than this
	Reason     string        // the provider's own word, or ours; never text from the message
	ProviderID string        // apns-id, or the FCM message name
	Until      Instant       // with Held or Halt: the end of its route's pause, set by the route's gate; zero = not known
	DeadSince  Instant       // with Gone: when the provider saw the token dead; zero = it did not say
	Panic      *PanicError   // the provider's own code panicked: Refused = on this message, before anything was written
	Culprit    *Culprit      // with Again(device) and Halt: what is to be stopped in place of the route; with Delivered: what that has proven at fault
}

// Reached reports whether anything of it may have reached the provider. If not, it
// is no answer of the provider's.
func (r *Result) Reached() bool { return r.Class != Unsent && !r.Expired && !r.Local }

// BlamesRoute reports whether the answer says that the route does not work. What it
// says about one message or device does not count; that our own code panicked
// on one does, because a provider whose code is broken must not empty a topic
// into the DLQ.
func (r *Result) BlamesRoute() bool {
	return r.Panic != nil || r.Certainty == Ambiguous || r.Class == Again && r.Scope != ScopeDevice
}
