package stages

import (
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
)

// Rules are what a lane's configuration says about users' preferences: the same
// before a notification is sent as when it has waited.
type Rules struct {
	Consent push.Consent
	Quiet   *quiet.Policy // nil = no hour is quiet
}

// Fixed returns rules that never change, for Preferences and Recheck.
func (r Rules) Fixed() func() Rules { return func() Rules { return r } }

// inForce asks for the rules of the moment; nil = none are there.
func inForce(current func() Rules) Rules {
	if current == nil {
		return Rules{}
	}
	return current()
}

// verdict is what a user's record means for a message at now. With Deferred, until is
// when quiet hours end; zero = when the record can be read.
func (r *Rules) verdict(u *push.User, m *push.Message, now, expires time.Time) (v push.Verdict, why push.Reason, until time.Time) {
	if v, why = u.Verdict(m, &r.Consent); v != push.Undecided || r.Quiet == nil {
		return v, why, time.Time{}
	}
	switch d := r.Quiet.Decide(u, m, now, expires); {
	case d.Action == quiet.Send:
		return push.Undecided, "", time.Time{}
	case d.Action == quiet.Drop:
		return push.Suppressed, push.QuietDropped, time.Time{}
	case d.Until.IsZero(), !d.Until.Before(expires):
		return push.Suppressed, push.QuietTooLong, time.Time{}
	default:
		return push.Deferred, push.Quiet, d.Until
	}
}
