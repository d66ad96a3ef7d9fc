package pipeline_test

import (
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Answers as the providers give them.
var (
	good      = push.Result{Class: push.Delivered, Certainty: push.Accepted}
	away      = push.Result{Class: push.Again, Scope: push.ScopeConnection, Reason: "not_connected"}
	timedOut  = push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: push.Ambiguous, Reason: "timeout"}
	refused   = push.Result{Class: push.Refused, Reason: "PayloadTooLarge"}
	gone      = push.Result{Class: push.Gone, Reason: "UNREGISTERED"}
	tooMany   = push.Result{Class: push.Again, Scope: push.ScopeDevice, After: time.Minute, Reason: "TooManyRequests"}
	badKey    = push.Result{Class: push.Again, Scope: push.ScopeRoute, Halt: true, After: 10 * time.Second, Reason: "PERMISSION_DENIED"}
	appleKey  = push.Result{Class: push.Again, Scope: push.ScopeDevice, Halt: true, After: 10 * time.Second, Reason: "THIRD_PARTY_AUTH_ERROR"}
	vague     = push.Result{Class: push.Again, Scope: push.ScopeDevice, Certainty: push.Ambiguous, Reason: "http_500"}
	expired   = push.Result{Class: push.Refused, Expired: true, Reason: "past_expires_at"}
	startTime = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
)
