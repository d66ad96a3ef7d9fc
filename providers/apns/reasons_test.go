package apns_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

var died = time.UnixMilli(1760000000000)

// T-31: everything that Apple documents, through the whole client. A result
// with DeadSince removes the token if it was registered before that time.
var reasons = map[sim.Reply]push.Result{
	sim.APNSAccepted: {Class: push.Delivered, Certainty: push.Accepted},

	sim.APNSBadCollapseID:      {Class: push.Refused},
	sim.APNSBadExpirationDate:  {Class: push.Refused},
	sim.APNSBadMessageID:       {Class: push.Refused},
	sim.APNSBadPriority:        {Class: push.Refused},
	sim.APNSDuplicateHeaders:   {Class: push.Refused},
	sim.APNSInvalidPushType:    {Class: push.Refused},
	sim.APNSMissingDeviceToken: {Class: push.Refused},
	sim.APNSPayloadEmpty:       {Class: push.Refused},
	sim.APNSForbidden:          {Class: push.Refused},
	sim.APNSBadPath:            {Class: push.Refused},
	sim.APNSMethodNotAllowed:   {Class: push.Refused},
	sim.APNSPayloadTooLarge:    {Class: push.Refused},

	sim.APNSBadDeviceToken:         {Class: push.Gone},
	sim.APNSDeviceTokenNotForTopic: {Class: push.Gone},
	sim.APNSUnregistered:           {Class: push.Gone, DeadSince: push.At(died)},
	sim.APNSExpiredToken:           {Class: push.Gone, DeadSince: push.At(died)},

	sim.APNSBadTopic:                   {Class: push.Again, Scope: push.ScopeRoute, Halt: true},
	sim.APNSMissingTopic:               {Class: push.Again, Scope: push.ScopeRoute, Halt: true},
	sim.APNSTopicDisallowed:            {Class: push.Again, Scope: push.ScopeRoute, Halt: true},
	sim.APNSBadCertificate:             {Class: push.Again, Scope: push.ScopeRoute, Halt: true},
	sim.APNSBadCertificateEnvironment:  {Class: push.Again, Scope: push.ScopeRoute, Halt: true},
	sim.APNSInvalidProviderToken:       {Class: push.Again, Scope: push.ScopeRoute, Halt: true},
	sim.APNSMissingProviderToken:       {Class: push.Again, Scope: push.ScopeRoute, Halt: true},
	sim.APNSBadEnvironmentKeyIDInToken: {Class: push.Again, Scope: push.ScopeRoute, Halt: true},
	sim.APNSBadEnvironmentKeyInToken:   {Class: push.Again, Scope: push.ScopeRoute, Halt: true},

	// Tried once on another connection, with the same answer.
	sim.APNSIdleTimeout:           {Class: push.Again, Scope: push.ScopeConnection},
	sim.APNSExpiredProviderToken:  {Class: push.Again, Scope: push.ScopeConnection},
	sim.APNSUnrelatedKeyIDInToken: {Class: push.Again, Scope: push.ScopeConnection},
	sim.APNSShutdown:              {Class: push.Again, Scope: push.ScopeConnection},

	sim.APNSTooManyProviderTokenUpdates: {Class: push.Again, Scope: push.ScopeRoute, After: time.Minute, Pause: true},
	sim.APNSTooManyRequests:             {Class: push.Again, Scope: push.ScopeDevice, After: time.Minute},
	sim.APNSInternalServerError:         {Class: push.Again, Scope: push.ScopeRoute, Certainty: push.Ambiguous, Pressure: push.Failing},
	sim.APNSServiceUnavailable:          {Class: push.Again, Scope: push.ScopeRoute, Pressure: push.Failing},
}

func TestEveryReasonThroughTheClient(t *testing.T) {
	want := maps.Clone(reasons)
	for reply, r := range want {
		if !reply.Accepted() {
			r.Reason = reply.String()
			want[reply] = r
		}
	}
	newPlay(t, sim.Options{}).Replies(want, sim.Mark{Since: died}, func(r push.Result) bool { return len(r.ProviderID) == 36 })
}

// T-46, the client's part: it says since when a token is dead, and the registry
// compares that with the registration. A token that was registered later is
// alive.
func TestDeadSinceIsPassedOn(t *testing.T) {
	s, client := simulator(t, sim.Options{})
	now := time.Now()
	for i, since := range []time.Time{time.UnixMilli(1), now.Add(-365 * 24 * time.Hour), now.Add(-time.Second), now.Add(time.Hour)} {
		since = time.UnixMilli(since.UnixMilli())
		ds := deliveries(i, i+1)
		s.Devices().Dead(sim.APNS, ds[0].Device.Token, since)
		providertest.Push(t, client.Lane(0), ds)
		got := ds[0].Result
		if alive := since.After(now); alive != (got.Class == push.Delivered) || !alive && (got.Class != push.Gone || !got.DeadSince.Time().Equal(since)) {
			t.Errorf("dead since %v: %+v", since, got)
		}
	}
}

// T-46: a wrong environment makes every token look bad, and must not empty the
// registry. 410 is certain, and all of them are passed on.
func TestMassOfDeadTokensThroughTheClient(t *testing.T) {
	const n = 1000
	for reply, most := range map[sim.Reply]int{sim.APNSBadDeviceToken: 10, sim.APNSDeviceTokenNotForTopic: 10, sim.APNSUnregistered: n} {
		t.Run(reply.String(), func(t *testing.T) {
			s, client := simulator(t, sim.Options{})
			ds := deliveries(0, n)
			for _, d := range ds {
				s.Devices().Set(sim.APNS, d.Device.Token, sim.Mark{Reply: reply, Since: died})
			}
			for left := ds; len(left) > 0; left = unanswered(ds) {
				providertest.Push(t, client.Lane(0), left)
			}
			count := map[string]int{}
			for _, d := range ds {
				r := d.Result
				count[fmt.Sprint(r.Class, " halt ", r.Halt)]++
			}
			if gone := count["gone halt false"]; gone != most || gone+count["again halt true"] != n {
				t.Errorf("%v; want %d gone, and the rest waiting on a halted route", count, most)
			}
		})
	}
}

// unanswered are those of which a connection was lost: on a machine that stands still for
// seconds its ping is late. They are to be sent again, as a worker would.
func unanswered(ds []*pipeline.Delivery) (left []*pipeline.Delivery) {
	for _, d := range ds {
		if d.Result.Class == push.Again && d.Result.Scope == push.ScopeConnection {
			d.Deadline = pipeline.UptimeAt(time.Now().Add(time.Minute))
			left = append(left, d)
		}
	}
	return left
}
