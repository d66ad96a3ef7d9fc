package limits

import (
	"errors"
	"fmt"
	"time"
)

// Per is what a rule counts together. It is also the dimension that a decision
// names.
type Per string

// The scopes of a rule.
const (
	PerUser       Per = "user"        // all notifications of a user that the rule is about
	PerUserType   Per = "user_type"   // each type of a user by itself
	PerDeviceType Per = "device_type" // each type of each device of a user by itself
	PerSegment    Per = "segment"     // as PerUser, for users in one of the rule's segments
)

// Algorithm is how a recipient rule counts. Every one of them keeps the ids of
// what it allowed.
type Algorithm string

// The algorithms of recipients.
const (
	// SlidingLog allows Max in any stretch of Window.
	SlidingLog Algorithm = "sliding_log"
	// SlidingCounter allows Max in the current fixed stretch of Window and that
	// share of the stretch before which a sliding window would still see, as if
	// it were spread evenly. The stretches begin at multiples of Window since
	// 1970.
	SlidingCounter Algorithm = "sliding_counter"
	// FixedWindow allows Max in a minute, an hour or a day of the user's zone.
	FixedWindow Algorithm = "fixed_window"
	// EventSet allows Max different ids in a Window that slides, or in a
	// minute, hour or day of the user's zone.
	EventSet Algorithm = "event_set"
)

// Calendar is a window that begins with the user's clock.
type Calendar string

// The calendar windows.
const (
	Minute Calendar = "minute"
	Hour   Calendar = "hour"
	Day    Calendar = "day"
)

// Over is what becomes of a notification over the limit.
type Over string

// What a rule may do with it. The empty value drops.
const (
	Drop  Over = "drop"
	Defer Over = "defer"
)

// Rule is one limit of recipients: at most Max notifications in a window.
type Rule struct {
	Name      string        // in the reason of what it suppresses; unique
	Per       Per           //
	Algorithm Algorithm     // empty = SlidingLog
	Max       int           // 1 to 4,096
	Window    time.Duration // 1 s to 31 days, in whole ms; not with Calendar
	Calendar  Calendar      // for FixedWindow, and for EventSet in place of Window

	// What the rule is about; an empty list is about all. Segments say for whom
	// the rule holds and not what it counts: who enters a segment brings along
	// what other rules have kept of him.
	Lanes, Channels, Types, Apps []string
	Priorities                   []uint8 // 1 (bulk) to 5 (critical)
	Segments                     []string
	// Distinct, with PerUserType and PerDeviceType, are the types that have a
	// count of their own: all others share one. Empty = each has its own.
	Distinct []string
	PerApp   bool // each app has its own count

	Over Over
	// CountCritical makes critical notifications count against others. They
	// themselves pass every rule.
	CountCritical bool
	// Personal lets a user's own limit stand for Max: the one of the rule's
	// name, or, per type, of the type's name.
	Personal bool
	// SegmentMax stands for Max for users of a segment without a limit of their
	// own. Of several segments the first of the request's that is listed counts.
	SegmentMax map[string]int
}

const (
	maxPerRule = 4096
	minWindow  = time.Second
	maxWindow  = 31 * 24 * time.Hour
	// skew is by how much the clocks of two workers may differ without an event
	// being forgotten before the slower one is done with it.
	skew = time.Minute
	// onTime is how late a booking may ask and still counts as sent at its time:
	// the jitter of a minute, and another one on its way. What is later finds a
	// place of its own, and moves those behind it.
	onTime = 2 * time.Minute
	// farFuture is how far an event may lie ahead of the clock of the next worker
	// that decides.
	farFuture = 24 * time.Hour
	// maxEvents bounds a state (130 KiB): types are free names, so the rules alone
	// do not. What has no room is refused: forgetting the oldest would let junk
	// types flush the count of a cap.
	maxEvents = 4096
	// maxWaiting bounds the bookings that one rule may have in a state: more than
	// eight hours of a limit of 15 an hour.
	maxWaiting = 128
	// bookingHeld is how long a booking holds its place after its time, for a
	// record that comes back late.
	bookingHeld = 10 * time.Minute
)

func (r *Rule) check() error {
	switch {
	case r.Name == "":
		return errors.New("a rule has no name")
	case r.Name == StateFull:
		return fmt.Errorf("rule %s: the name says that a state has no room", r.Name)
	case r.Max < 1 || r.Max > maxPerRule:
		return fmt.Errorf("rule %s: max %d, want 1 to %d", r.Name, r.Max, maxPerRule)
	case r.Over != "" && r.Over != Drop && r.Over != Defer:
		return fmt.Errorf("rule %s: over %q, want %q or %q", r.Name, r.Over, Drop, Defer)
	}
	for name, most := range r.SegmentMax {
		if most < 0 || most > maxPerRule {
			return fmt.Errorf("rule %s: max of segment %s: %d, want 0 to %d", r.Name, name, most, maxPerRule)
		}
	}
	for _, p := range r.Priorities {
		if p < 1 || p > critical {
			return fmt.Errorf("rule %s: priority %d, want 1 to %d", r.Name, p, critical)
		}
	}
	if err := r.checkScope(); err != nil {
		return err
	}
	return r.checkWindow()
}

func (r *Rule) checkScope() error {
	perType := r.Per == PerUserType || r.Per == PerDeviceType
	switch {
	case !perType && r.Per != PerUser && r.Per != PerSegment:
		return fmt.Errorf("rule %s: per %q, want %q, %q, %q or %q", r.Name, r.Per, PerUser, PerUserType, PerDeviceType, PerSegment)
	case r.Per == PerSegment && len(r.Segments) == 0:
		return fmt.Errorf("rule %s: per segment, and names none", r.Name)
	case r.Per == PerDeviceType && r.Over == Defer:
		return fmt.Errorf("rule %s: rules of devices only drop", r.Name)
	case len(r.Distinct) > 0 && !perType:
		return fmt.Errorf("rule %s: distinct types need per %q or %q", r.Name, PerUserType, PerDeviceType)
	}
	return nil
}

func (r *Rule) checkWindow() error {
	calendar := r.Calendar != ""
	switch {
	case calendar && calendarUnit(r.Calendar) == 0:
		return fmt.Errorf("rule %s: calendar %q, want %q, %q or %q", r.Name, r.Calendar, Minute, Hour, Day)
	case calendar && r.Window != 0:
		return fmt.Errorf("rule %s: both a window and a calendar", r.Name)
	case !calendar && (r.Window < minWindow || r.Window > maxWindow || r.Window%time.Millisecond != 0):
		return fmt.Errorf("rule %s: window %v, want %v to %v in whole ms", r.Name, r.Window, minWindow, maxWindow)
	}
	switch r.Algorithm {
	case "", SlidingLog, SlidingCounter:
		if calendar {
			return fmt.Errorf("rule %s: the windows of %s slide, a calendar is for %s and %s", r.Name, r.Algorithm, FixedWindow, EventSet)
		}
	case FixedWindow:
		if !calendar {
			return fmt.Errorf("rule %s: %s needs a calendar", r.Name, FixedWindow)
		}
	case EventSet:
	default:
		return fmt.Errorf("rule %s: algorithm %q, want %q, %q, %q or %q", r.Name, r.Algorithm, SlidingLog, SlidingCounter, FixedWindow, EventSet)
	}
	return nil
}

// plain reports whether states of version 1 can carry the rule: they know of
// an event its id, type and time.
func (r *Rule) plain() bool {
	return (r.Per == PerUser || r.Per == PerUserType) && (r.Algorithm == "" || r.Algorithm == SlidingLog) && r.Over != Defer &&
		len(r.Lanes)+len(r.Channels)+len(r.Apps)+len(r.Priorities)+len(r.Segments)+len(r.SegmentMax)+len(r.Distinct) == 0 &&
		!r.PerApp && !r.CountCritical && !r.Personal
}
