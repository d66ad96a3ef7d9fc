package calls

import (
	"context"
	"errors"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Sendable reports whether d may be sent now, and if not what it ends with. A
// delivery without a lease is nobody's attempt: another worker may have it.
func Sendable(d *pipeline.Delivery, now time.Time) (result push.Result, ok bool) {
	switch {
	case d.Lapsed(now):
		return push.Result{Class: push.Unsent}, false
	case !d.Expires.IsZero() && now.After(d.Expires.Time()):
		return Expired(), false
	case now.After(d.Deadline.Time()): // it waited for so long, and nothing was written
		return push.Result{Class: push.Again, Scope: push.ScopeConnection, Reason: string(push.Timeout)}, false
	}
	return push.Result{}, true
}

// Expired is the result of a delivery that was not sent because it is too late.
func Expired() push.Result {
	return push.Result{Class: push.Refused, Expired: true, Reason: string(push.PastExpiry)}
}

// NotConnected is the result of a delivery of which nothing was written.
func NotConnected() push.Result {
	return push.Result{Class: push.Again, Scope: push.ScopeConnection, Reason: string(push.NotConnected)}
}

// Unanswered is the result of a delivery that was written, and whose answer did not
// come because of err: it may have been accepted.
func Unanswered(err error) push.Result {
	reason := push.ConnectionLost
	if errors.Is(err, context.DeadlineExceeded) {
		reason = push.Timeout
	}
	return push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: push.Ambiguous, Reason: string(reason)}
}

// Panicked is the result of a delivery whose answer our code could not read, or
// during whose call it panicked: it may have been accepted.
func Panicked(p *push.PanicError) push.Result {
	return push.Result{Class: push.Again, Certainty: push.Ambiguous, Panic: p, Reason: string(push.Panicked)}
}
