package apns_test

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// T-33, the client's part: an answer after the deadline is ignored. The
// delivery has ended as ambiguous, once, and the connection goes on.
func TestAnswerAfterTheDeadline(t *testing.T) {
	t.Parallel()
	const latency = 3 * time.Second / 2
	p := newPlay(t, slow(latency), func(o *h2.Options) { o.Connections = 1 })
	p.All(p.Push(p.Make(1)), delivered)
	late := p.Push(patience(latency*2/3, p.Make(50)))
	p.All(late, timedOut)
	answered := func() uint64 { return p.Sim.Ledger().Totals().Providers["apns"].Accepted }
	p.Until("Apple has accepted the late ones", func() bool { return answered() == 51 })
	// These take as long, so the late answers have arrived by their end.
	again := p.Make(50)
	p.All(p.Push(again), delivered)
	p.All(late, timedOut) // the late answers have changed nothing
	if st := p.Client.Stats(); st.Dials != 1 {
		t.Errorf("%+v", st)
	}
	p.End()
}

// T-41: a GOAWAY can be about our credentials. The next connection would then
// end as well, so the route is stopped. That does not depend on the certainty
// of the requests.
func TestGoAwayWithAReason(t *testing.T) {
	for _, tc := range []struct {
		reason string
		halt   bool
	}{
		{"BadCertificate", true}, {"BadCertificateEnvironment", true}, {"InvalidProviderToken", true}, {"MissingProviderToken", true},
		{"Shutdown", false}, {"IdleTimeout", false}, {"BadDeviceToken", false}, {"SomethingNew", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			p := newPlay(t, sim.Options{}, func(o *h2.Options) { o.Connections, o.Resends = 1, -1 })
			p.Push(p.Make(1))
			if err := p.Sim.SetFaults(sim.APNS, sim.Faults{Latency: time.Minute}); err != nil {
				t.Fatal(err)
			}
			ds := p.During(p.Make(10), func() {
				p.Order(sim.Command{Do: "abandon", Reason: tc.reason, Unprocessed: 4})
			})
			p.Tally(ds, map[string]int{"again/ambiguous": 6, "again/not accepted": 4})
			for _, d := range ds {
				want := lost
				want.Certainty = d.Result.Certainty
				if tc.halt {
					want.Scope, want.Halt, want.Reason = push.ScopeRoute, true, tc.reason
				}
				p.All([]*pipeline.Delivery{d}, want)
			}
			p.End()
		})
	}
}

// T-44 against the simulator's Date: however far its clock is from ours, one
// token is refused to detect that, and two are made.
func TestClocksThatDiffer(t *testing.T) {
	for _, skew := range []time.Duration{2 * time.Hour, -2 * time.Hour, 61 * time.Minute, -91 * time.Minute, 20 * time.Minute, 0} {
		t.Run(skew.String(), func(t *testing.T) {
			p := newPlay(t, sim.Options{Rules: sim.Rules{OneStream: true, UpdatesPerAddress: true}, Now: func() time.Time { return time.Now().Add(skew) }},
				func(o *h2.Options) { o.Connections = 1 })
			p.All(p.Push(p.Make(1)), delivered)
			p.All(p.Push(p.Make(500)), delivered)
			replies := p.Sim.Ledger().Totals().Providers["apns"].Replies
			refused := replies["ExpiredProviderToken"] + replies["InvalidProviderToken"]
			if wrong := skew.Abs() > time.Hour; refused > 1 || wrong != (refused == 1) || replies["TooManyProviderTokenUpdates"] != 0 {
				t.Errorf("%v", replies)
			}
			p.End()
		})
	}
}

// A thousand bad tokens that messages name, and as many valid ones with push
// types of their own, affect neither the route nor other users' tokens.
func TestMassOfRefusedWordsThroughTheClient(t *testing.T) {
	const n = 1000
	s, client := simulator(t, sim.Options{})
	named, voip := deliveries(0, n), deliveries(n, 2*n)
	for i, d := range named {
		s.Devices().Set(sim.APNS, d.Device.Token, sim.Mark{Reply: sim.APNSBadDeviceToken})
		d.Item.Device = push.Target{Platform: push.APNS, Token: d.Device.Token, Environment: push.Production}
		s.Devices().Set(sim.APNS, voip[i].Device.Token, sim.Mark{Reply: sim.APNSDeviceTokenNotForTopic})
		voip[i].Item.PushType = "voip"
	}
	for want, ds := range map[string][]*pipeline.Delivery{"invalid_token": named, "DeviceTokenNotForTopic": voip} {
		providertest.Push(t, client.Lane(0), ds)
		for _, d := range ds {
			if d.Result.Class != push.Refused || d.Result.Reason != want {
				t.Fatalf("%+v", d.Result)
			}
		}
	}
	bad := deliveries(2*n, 2*n+1)
	s.Devices().Set(sim.APNS, bad[0].Device.Token, sim.Mark{Reply: sim.APNSBadDeviceToken})
	providertest.Push(t, client.Lane(0), bad)
	if bad[0].Result.Class != push.Gone {
		t.Errorf("a token of a user, after all those: %+v", bad[0].Result)
	}
}

// Requests that a connection did not accept, because Apple ended it for our
// certificate, are not sent again automatically: the next connection would end
// too.
func TestConnectionEndedForItsCertificate(t *testing.T) {
	p := newPlay(t, slow(200*time.Millisecond), func(o *h2.Options) { o.Connections, o.Resends = 3, 20 })
	p.All(p.Push(p.Make(3)), delivered)
	ds := p.During(p.Make(60), func() { p.Order(sim.Command{Do: "drain", Unprocessed: 5, Reason: "BadCertificate"}) })
	if n := p.Client.Stats().Resent; n > 0 {
		t.Errorf("%d were sent again as they were", n)
	}
	for _, d := range ds {
		if d.Result.Class != push.Delivered && providertest.Bare(d.Result) != halted("BadCertificate") {
			t.Errorf("%+v", d.Result)
		}
	}
}
