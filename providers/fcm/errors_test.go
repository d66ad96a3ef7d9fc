package fcm_test

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// T-31: every documented error body of Google's, through the whole client.
func TestEveryErrorThroughTheClient(t *testing.T) {
	const (
		soon   = 10 * time.Second
		minute = time.Minute
	)
	table := map[sim.Reply]push.Result{
		sim.FCMAccepted:        {Class: push.Delivered, Certainty: push.Accepted},
		sim.FCMValidated:       {Class: push.Delivered, Certainty: push.Accepted}, // we never ask for it
		sim.FCMInvalidValue:    {Class: push.Refused, Reason: "INVALID_ARGUMENT"},
		sim.FCMInvalidArgument: {Class: push.Refused, Reason: "INVALID_ARGUMENT"},
		sim.FCMTooLarge:        {Class: push.Refused, Reason: "INVALID_ARGUMENT"},
		sim.FCMNoRecipient:     {Class: push.Refused, Reason: "INVALID_ARGUMENT"},

		sim.FCMInvalidToken:      {Class: push.Gone, Reason: "INVALID_ARGUMENT"},
		sim.FCMInvalidTokenField: {Class: push.Gone, Reason: "INVALID_ARGUMENT"},
		sim.FCMDisabledToken:     {Class: push.Gone, Reason: "Unregistered"},
		sim.FCMSenderIDMismatch:  {Class: push.Gone, Reason: "SENDER_ID_MISMATCH"},
		sim.FCMUnregistered:      {Class: push.Gone, Reason: "UNREGISTERED"},
		sim.FCMUnregisteredAPNS:  {Class: push.Gone, Reason: "UNREGISTERED"},

		// Our token was renewed, once, and is refused again.
		sim.FCMUnauthenticated: {Class: push.Again, Scope: push.ScopeRoute, Halt: true, After: soon, Reason: "UNAUTHENTICATED"},
		// Google's credentials for Apple: ours are not renewed, and Android
		// goes on.
		sim.FCMThirdPartyAuth:         {Class: push.Again, Scope: push.ScopeDevice, Halt: true, After: soon, Reason: "THIRD_PARTY_AUTH_ERROR"},
		sim.FCMThirdPartyAuthSameText: {Class: push.Again, Scope: push.ScopeDevice, Halt: true, After: soon, Reason: "THIRD_PARTY_AUTH_ERROR"},
		sim.FCMPermissionDenied:       {Class: push.Again, Scope: push.ScopeRoute, Halt: true, After: soon, Reason: "PERMISSION_DENIED"},
		sim.FCMNotFound:               {Class: push.Again, Scope: push.ScopeRoute, Halt: true, After: soon, Reason: "NOT_FOUND"},

		sim.FCMProjectQuota: {Class: push.Again, Scope: push.ScopeRoute, After: minute, Pause: true, Pressure: push.OverQuota, Reason: "RATE_LIMIT_EXCEEDED"},
		sim.FCMDeviceQuota:  {Class: push.Again, Scope: push.ScopeDevice, After: minute, Reason: "QUOTA_EXCEEDED"},
		sim.FCMTopicQuota:   {Class: push.Again, Scope: push.ScopeDevice, After: minute, Reason: "QUOTA_EXCEEDED"},
		sim.FCMInternal:     {Class: push.Again, Scope: push.ScopeRoute, After: soon, Certainty: push.Ambiguous, Pressure: push.Failing, Reason: "INTERNAL"},
		sim.FCMBadGateway:   {Class: push.Again, Scope: push.ScopeRoute, After: soon, Certainty: push.Ambiguous, Pressure: push.Failing, Reason: "http_502"},
		sim.FCMUnavailable:  {Class: push.Again, Scope: push.ScopeRoute, After: soon, Pressure: push.Failing, Reason: "UNAVAILABLE"},
		sim.FCMUnspecified:  {Class: push.Again, Scope: push.ScopeRoute, After: soon, Certainty: push.Ambiguous, Pressure: push.Failing, Reason: "http_500"},
	}
	newPlay(t, sim.Options{}).Replies(table, sim.Mark{}, func(r push.Result) bool { return (r.Class == push.Delivered) == (r.ProviderID != "") })
}

// T-46: a wrong project makes every token look foreign, and must not empty the
// registry. UNREGISTERED is certain.
func TestMassOfDeadTokensThroughTheClient(t *testing.T) {
	const n = 500
	for reply, most := range map[sim.Reply]int{sim.FCMSenderIDMismatch: 10, sim.FCMInvalidToken: 10, sim.FCMUnregistered: n} {
		t.Run(reply.String(), func(t *testing.T) {
			s, client := simulator(t, sim.Options{})
			ds := deliveries(0, n)
			for _, d := range ds {
				s.Devices().Set(sim.FCM, d.Device.Token, sim.Mark{Reply: reply})
			}
			providertest.Push(t, client.Lane(0), ds)
			gone, halted := 0, 0
			for _, d := range ds {
				switch r := d.Result; {
				case r.Class == push.Gone:
					gone++
				case r.Class == push.Again && r.Halt && r.Scope == push.ScopeRoute:
					halted++
				}
			}
			if gone != most || gone+halted != n {
				t.Errorf("%d gone and %d halted, want %d gone and the rest halted", gone, halted, most)
			}
		})
	}
}
