package pipeline

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Platform is a provider. Its number is stored in the status table.
type Platform uint8

// The platforms. A new one gets the next number: they are stored.
const (
	NoPlatform Platform = iota
	APNS
	FCM
)

// String gives the name used in configuration, messages and metrics.
func (p Platform) String() string {
	switch p {
	case APNS:
		return "apns"
	case FCM:
		return "fcm"
	}
	return "none"
}

// ParsePlatform is the inverse of String.
func ParsePlatform(s string) (Platform, bool) {
	switch s {
	case "apns":
		return APNS, true
	case "fcm":
		return FCM, true
	}
	return NoPlatform, false
}

// APNs has two environments; a token belongs to one of them. FCM has none.
const (
	Production = "production"
	Sandbox    = "sandbox"
)

// Route is one pool of connections: a provider, an app and, for APNs, its
// environment. Apple binds a connection to one team, Google to one project.
type Route struct {
	Platform    Platform
	App         string
	Environment string // empty for FCM
}

// String is the route's name in logs and metrics: "apns/shop/production".
func (r Route) String() string {
	s := r.Platform.String() + "/" + r.App
	if r.Environment != "" {
		s += "/" + r.Environment
	}
	return s
}

// ParseRoute is the inverse of Route's String.
func ParseRoute(s string) (Route, bool) {
	name, rest, _ := strings.Cut(s, "/")
	platform, ok := ParsePlatform(name)
	r := Route{Platform: platform, App: rest}
	if at := strings.LastIndexByte(rest, '/'); at >= 0 {
		r.App, r.Environment = rest[:at], rest[at+1:]
	}
	return r, ok && r.App != "" && r.String() == s
}

// Delivery is one Item to one device. It belongs to the provider from Submit
// until it is handed to done, and to the pipeline before and after.
//
// An item that was decided before its devices ends by one delivery to none of
// them, which has its verdict.
type Delivery struct {
	Item    *Item
	Device  Device
	Route   Route
	Expires time.Time // after this nothing may be sent; goes to the provider as its expiry too
	// Deadline is when an answer that has not come counts as AMBIGUOUS (or
	// NOT_ACCEPTED when nothing was written).
	Deadline time.Time

	// Verdict ends a delivery before it is sent (its token is gone, no route);
	// Undecided ones are sent.
	Verdict Verdict
	Reason  Reason
	Result  Result

	share     *share    // where it waits for its route; nil = it was never to be sent
	rechecked time.Time // when its user was read after it had waited; zero = as its item's
	sentAt    time.Time // when it was handed to the provider last
	confirmed time.Time // when its rows were read after it had waited; zero = as its item's
	pass      uint32    // of its route's gate: what it was admitted under; 0 = was not
	gate      *Gate     // of its route; set when it is handed to the provider
	paid      charge    // for that
	ending    Ending    // what Result means; set once it is answered
	inWindow  bool      // holds a place of its route's window
	abandoned bool      // has no durable end: the partition is leaving or the worker stops
}

// Lapsed reports whether it must not be sent now: its partition leaves, or the
// worker cannot know that the partition is still its own, or its route has been
// stopped. Providers ask
// right before they write, and give back unsent what is lapsed, with a Result
// of class NoAnswer: that is never an attempt.
func (d *Delivery) Lapsed(now time.Time) bool {
	return d.gate != nil && d.gate.Closed(now) || d.unowned(now)
}

// unowned reports whether its partition leaves or may be another's by now. What
// was committed before it is sent is ours for good.
func (d *Delivery) unowned(now time.Time) bool {
	it := d.Item
	return it.batch != nil && !it.committed && it.batch.Tracker.Lapsed(now)
}

// leaving reports whether its partition leaves before it was committed: then
// its next owner does it again.
func (d *Delivery) leaving() bool {
	it := d.Item
	return it.batch != nil && !it.committed && it.batch.Tracker.Draining()
}

// Class is what a send means for the message and its device.
type Class uint8

// The four classes of the contract.
const (
	NoAnswer  Class = iota // not sent: not yet, or given back because it was Lapsed
	Delivered              // the provider accepted it
	Again                  // not now: try later
	Gone                   // this token is dead
	Refused                // this message will never be accepted for this device
	Held                   // not sent: its route is stopped for long; ours, never a provider's
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

// Result is what became of one send. Every submitted Delivery gets exactly one.
type Result struct {
	Class      Class
	Scope      Scope
	Certainty  Certainty
	Halt       bool          // with Again: the route's credentials or set-up are at fault
	Expired    bool          // with Refused: given back unsent because Expires had passed
	Unsent     bool          // with Refused: our own code refused it, so it says nothing about the route
	After      time.Duration // with Again: not sooner than this
	Pause      bool          // with Again(route): After is for all of the route, because the provider said so
	Reason     string        // the provider's own word, or ours; never text from the message
	ProviderID string        // apns-id, or the FCM message name
	Until      time.Time     // with Held or Halt: the end of its route's pause, set by the route's gate; zero = not known
	Panic      *PanicError   // the provider's own code panicked: Refused = on this message, before anything was written
	DeadSince  time.Time     // with Gone: when the provider saw the token dead; zero = it did not say
}

// Provider sends to one route. Submit may be called by many goroutines.
//
// Submit takes the deliveries over until each is handed to done, in groups of
// any size and any order, exactly once, with its Result set. Submit blocks
// while the route's queue for the lane is full, and returns an error only when
// ctx ends first: then the deliveries from index n on were not taken and get
// no Result. done is called on the provider's goroutines, must not block, and
// owns the slice only for the time of the call.
type Provider interface {
	Submit(ctx context.Context, ds []*Delivery, done func([]*Delivery)) (n int, err error)
}
