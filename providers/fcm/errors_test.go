package fcm_test

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// T-31: every body that Google is known to answer, through the whole client.
func TestEveryErrorThroughTheClient(t *testing.T) {
	const (
		soon   = 10 * time.Second
		minute = time.Minute
	)
	table := map[sim.Reply]pipeline.Result{
		sim.FCMAccepted:        {Class: pipeline.Delivered, Certainty: pipeline.Accepted},
		sim.FCMValidated:       {Class: pipeline.Delivered, Certainty: pipeline.Accepted}, // we never ask for it
		sim.FCMInvalidValue:    {Class: pipeline.Refused, Reason: "INVALID_ARGUMENT"},
		sim.FCMInvalidArgument: {Class: pipeline.Refused, Reason: "INVALID_ARGUMENT"},
		sim.FCMTooLarge:        {Class: pipeline.Refused, Reason: "INVALID_ARGUMENT"},
		sim.FCMNoRecipient:     {Class: pipeline.Refused, Reason: "INVALID_ARGUMENT"},

		sim.FCMInvalidToken:      {Class: pipeline.Gone, Reason: "INVALID_ARGUMENT"},
		sim.FCMInvalidTokenField: {Class: pipeline.Gone, Reason: "INVALID_ARGUMENT"},
		sim.FCMDisabledToken:     {Class: pipeline.Gone, Reason: "Unregistered"},
		sim.FCMSenderIDMismatch:  {Class: pipeline.Gone, Reason: "SENDER_ID_MISMATCH"},
		sim.FCMUnregistered:      {Class: pipeline.Gone, Reason: "UNREGISTERED"},
		sim.FCMUnregisteredAPNS:  {Class: pipeline.Gone, Reason: "UNREGISTERED"},

		// Our token was renewed, once, and is refused again.
		sim.FCMUnauthenticated: {Class: pipeline.Again, Scope: pipeline.ScopeRoute, Halt: true, After: soon, Reason: "UNAUTHENTICATED"},
		// Google's credentials for Apple: ours are not renewed, Android goes on.
		sim.FCMThirdPartyAuth:         {Class: pipeline.Again, Scope: pipeline.ScopeDevice, Halt: true, After: soon, Reason: "THIRD_PARTY_AUTH_ERROR"},
		sim.FCMThirdPartyAuthSameText: {Class: pipeline.Again, Scope: pipeline.ScopeDevice, Halt: true, After: soon, Reason: "THIRD_PARTY_AUTH_ERROR"},
		sim.FCMPermissionDenied:       {Class: pipeline.Again, Scope: pipeline.ScopeRoute, Halt: true, After: soon, Reason: "PERMISSION_DENIED"},
		sim.FCMNotFound:               {Class: pipeline.Again, Scope: pipeline.ScopeRoute, Halt: true, After: soon, Reason: "NOT_FOUND"},

		sim.FCMProjectQuota: {Class: pipeline.Again, Scope: pipeline.ScopeRoute, After: minute, Pause: true, Reason: "RATE_LIMIT_EXCEEDED"},
		sim.FCMDeviceQuota:  {Class: pipeline.Again, Scope: pipeline.ScopeDevice, After: minute, Reason: "QUOTA_EXCEEDED"},
		sim.FCMTopicQuota:   {Class: pipeline.Again, Scope: pipeline.ScopeDevice, After: minute, Reason: "QUOTA_EXCEEDED"},
		sim.FCMInternal:     {Class: pipeline.Again, Scope: pipeline.ScopeRoute, After: soon, Certainty: pipeline.Ambiguous, Reason: "INTERNAL"},
		sim.FCMBadGateway:   {Class: pipeline.Again, Scope: pipeline.ScopeRoute, After: soon, Certainty: pipeline.Ambiguous, Reason: "http_502"},
		sim.FCMUnavailable:  {Class: pipeline.Again, Scope: pipeline.ScopeRoute, After: soon, Reason: "UNAVAILABLE"},
		sim.FCMUnspecified:  {Class: pipeline.Again, Scope: pipeline.ScopeRoute, After: soon, Certainty: pipeline.Ambiguous, Reason: "http_500"},
	}
	newPlay(t, sim.Options{}).Replies(table, sim.Mark{}, func(r pipeline.Result) bool { return (r.Class == pipeline.Delivered) == (r.ProviderID != "") })
}

// T-46: a wrong project makes every token look foreign, and must not empty the
// registry; UNREGISTERED is what Google is sure of.
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
				case r.Class == pipeline.Gone:
					gone++
				case r.Class == pipeline.Again && r.Halt && r.Scope == pipeline.ScopeRoute:
					halted++
				}
			}
			if gone != most || gone+halted != n {
				t.Errorf("%d gone and %d halted, want %d gone and the rest halted", gone, halted, most)
			}
		})
	}
}
