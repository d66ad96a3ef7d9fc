package limits

import (
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// critical is the priority that passes every rule, as push.Critical.
const critical = 5

// Request asks whether a user may get one more notification on a channel.
type Request struct {
	Owner string // user id, or the device hash of a bare device
	ID    string // of the notification; a channel of it counts by itself
	Type  string
	// What rules can be about.
	App, Lane, Channel string
	Priority           uint8 // 1 (bulk) to 5 (critical), as push.Priority
	// What is known of the user: shared slices, only read.
	Segments []string
	Personal []Personal
	Zone     *time.Location // nil = UTC
	// Devices are the deliveries to decide, each with its answer; none = rules of
	// devices are not asked.
	Devices []Device

	// State is the limiter state of the owner as it was read with the user
	// record; nil = none, or not read. It is only read, and may be stale.
	State   []byte
	At      time.Time
	Since   time.Time     // when the record was first seen; zero = At
	Expires time.Time     // not later than this; zero = never
	Jitter  time.Duration // added to RetryAfter of what is deferred, up to a minute: see Spread

	// Exempt requests are not held against rules of recipients: they are allowed,
	// spend nothing, and only senders are asked about them.
	Exempt bool

	// Sender names the bucket of the sender's rules; empty = none are asked.
	Sender string
	// Paid says that the sender's rules are not to be asked: they have given it a
	// token before. They set it when they do, now or, with Deferred, in advance.
	Paid bool

	Decision
}

// asks reports whether senders are to be asked.
func (r *Request) asks() bool { return r.Sender != "" && !r.Paid }

// held reports whether the answer is that of its sender's rules: it stays behind.
func (r *Request) held() bool { return r.Dimension == DimensionSender }

// Spread is what of the Jitter is added to a wait: at most half of what is left after it
// until the request expires. So it never makes the wait one too long.
func (r *Request) Spread(wait time.Duration) time.Duration {
	if r.Expires.IsZero() {
		return r.Jitter
	}
	return max(0, min(r.Jitter, r.Expires.Sub(r.At.Add(wait))/2))
}

// waits sets RetryAfter to a wait with its part of the jitter.
func (r *Request) waits(d time.Duration) { r.RetryAfter = d + r.Spread(d) }

// late reports whether the request expires before it may be asked again.
func (r *Request) late() bool { return !r.Expires.IsZero() && r.At.Add(r.RetryAfter).After(r.Expires) }

// Personal is a limit of the user's own. A Max of 0 allows none at all.
type Personal = push.PersonalLimit

// Device is one delivery of a request.
type Device struct {
	Hash uint32 // of the device, within its user
	// The answer: Rule names the first rule that refuses this delivery, Current is what
	// counts against it now, 0 and up, and Limit what the rule allows.
	Refused        bool
	Current, Limit int32
	Rule           string
}

// Decision is the answer to a request: allowed, deferred, or, with neither,
// refused.
type Decision struct {
	Allowed  bool
	Deferred bool // may be asked again after RetryAfter

	// Of the first rule, in the configured order, that does not allow it; zero
	// when Allowed.
	Dimension Dimension
	Rule      string
	Current   int // what counts against it now, 0 and up
	Limit     int
	// RetryAfter is how long the notification has to wait: of a deferred one
	// until its place, of a refused one until the rule would have room. 0 = never.
	RetryAfter time.Duration
	// ResetAt is when nothing counts any more, should nothing be added; zero =
	// never.
	ResetAt time.Time
}

// Dimension is what a rule limits: a Per, or DimensionSender.
type Dimension string

// DimensionSender is the dimension of rules of senders.
const DimensionSender Dimension = "sender"

// StateFull stands in place of a rule's name when a user's state has no room
// for one more event.
const StateFull = "state_full"
