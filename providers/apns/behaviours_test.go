package apns_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

var (
	delivered = push.Result{Class: push.Delivered, Certainty: push.Accepted}
	lost      = push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: push.Ambiguous, Reason: "connection_lost"}
	timedOut  = push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: push.Ambiguous, Reason: "timeout"}
)

func halted(reason string) push.Result {
	return push.Result{Class: push.Again, Scope: push.ScopeRoute, Halt: true, Reason: reason}
}

func slow(d time.Duration) sim.Options {
	return sim.Options{Faults: sim.RouteSet{APNS: sim.Faults{Latency: d}}}
}

// impatient notices within two seconds what otherwise takes 20.
func impatient(o *h2.Options) {
	o.Connections, o.StreamsPerConnection = 3, 20
	o.PingInterval, o.PingTimeout, o.DialTimeout = time.Second, time.Second, time.Second
	o.MaxBackoff = 200 * time.Millisecond
}

// patience sets when the deliveries of a row are given up.
func patience(d time.Duration, ds []*pipeline.Delivery) []*pipeline.Delivery {
	for i := range ds {
		ds[i].Deadline = pipeline.UptimeAt(time.Now().Add(d))
	}
	return ds
}

// Every APNs behaviour of the simulator, by its number, as the rest of the
// worker sees it through the provider: each delivery ends once, with the right
// class and certainty.
func TestBehaviours(t *testing.T) {
	for n, row := range [18]func(t *testing.T) *providertest.Play{
		1: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{UpperCaseIDs: true})
			for _, d := range p.Push(p.Make(300)) {
				if len(d.Result.ProviderID) != 36 {
					t.Fatalf("apns-id %q", d.Result.ProviderID)
				}
			}
			p.All(p.Sent, delivered)
			return p
		},
		2: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{OneStream: true}})
			p.All(p.Push(p.Make(1000)), delivered)
			if broken := p.Sim.Events().Of(2); len(broken) > 0 || p.Client.Stats().GoAways > 0 {
				t.Errorf("the rule was broken: %+v", broken)
			}
			return p
		},
		3: func(t *testing.T) *providertest.Play {
			// One connection, so that the bad token meets the others. Otherwise
			// chance decides which of ten gets it, and a fresh one has nothing
			// else in flight.
			p := newPlay(t, sim.Options{Rules: sim.Rules{AdaptiveStreams: true}}, func(o *h2.Options) { o.Connections, o.Resends = 1, 100 })
			p.All(p.Push(p.Make(300)), delivered) // it is open and authenticated
			bad := func(ds []*pipeline.Delivery) []*pipeline.Delivery {
				for _, d := range ds {
					p.Sim.Devices().Bad(sim.APNS, d.Device.Token)
				}
				return ds
			}
			gone := push.Result{Class: push.Gone, Reason: "BadDeviceToken"}
			p.Latency(time.Hour) // none of these is answered before the bad one
			held := p.Make(50)
			p.During(held, func() {
				p.Latency(0)
				p.All(p.Push(bad(p.Make(1))), gone)
				p.Until("all but the oldest are refused", func() bool { return p.Client.Stats().Resent == 49 })
				if st := p.Client.Stats(); st.Dials != 1 || st.InFlight != 1 || st.Waiting != 49 {
					t.Errorf("%+v: more than the one stream, or connections to make up for streams", st)
				}
				p.Order(sim.Command{Do: "kill"}) // the oldest would take an hour
			})
			p.All(held[:1], lost)
			p.All(held[1:], delivered)
			p.Latency(2 * time.Millisecond)
			ds := p.Make(1000)
			bad(ds[:5])
			p.Push(ds)
			p.All(ds[:5], gone)
			p.All(ds[5:], delivered) // an acceptance gives the streams back
			if st := p.Client.Stats(); st.Dials != 2 || st.GoAways != 0 {
				t.Errorf("%+v", st)
			}
			return p
		},
		4: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{BadTokens: sim.Limit{Count: 2, Per: time.Minute}}}, func(o *h2.Options) { o.Connections = 1 })
			p.All(p.Push(p.Make(100)), delivered) // most tokens are valid
			bad := p.Make(3)
			for _, d := range bad {
				p.Sim.Devices().Bad(sim.APNS, d.Device.Token)
			}
			p.All(p.Push(bad), push.Result{Class: push.Gone, Reason: "BadDeviceToken"})
			p.Until("the GOAWAY", func() bool { return p.Client.Stats().GoAways == 1 })
			p.All(p.Push(p.Make(100)), delivered)
			if st := p.Client.Stats(); st.Calms != 1 || st.Dials != 2 {
				t.Errorf("%+v: no pause before the next connection", st)
			}
			return p
		},
		5: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{AdaptiveStreams: true}})
			ds := p.Make(100)
			p.Sim.Devices().Dead(sim.APNS, ds[0].Device.Token, died)
			p.Sim.Devices().Set(sim.APNS, ds[1].Device.Token, sim.Mark{Reply: sim.APNSExpiredToken, Since: died})
			p.Push(ds)
			p.All(ds[:1], push.Result{Class: push.Gone, Reason: "Unregistered", DeadSince: push.At(died)})
			p.All(ds[1:2], push.Result{Class: push.Gone, Reason: "ExpiredToken", DeadSince: push.At(died)})
			p.All(ds[2:], delivered)
			if slowed := p.Sim.Events().Of(3); len(slowed) > 0 {
				t.Errorf("a 410 cost streams: %+v", slowed)
			}
			return p
		},
		6: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{})
			p.Order(sim.Command{Do: "lapse", For: sim.Interval(time.Hour)})
			first := p.Push(p.Make(1))
			p.All(first, delivered)
			again := p.Make(2)
			again[0].Device, again[1].Device = first[0].Device, first[0].Device
			p.All(p.Push(again[:1]), delivered)
			if err := p.Sim.SetClock(59*time.Minute, 1); err != nil { // less than an hour
				t.Fatal(err)
			}
			p.Until("the grace is over", func() bool {
				return p.Sim.SetClock(time.Second, 1) == nil && time.Until(p.Sim.Clock().Now()) > time.Hour
			})
			p.Push(again[1:])
			if r := again[1].Result; r.Class != push.Gone || r.Reason != "Unregistered" || r.DeadSince.IsZero() {
				t.Errorf("%+v", r)
			}
			return p
		},
		7: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{})
			ds := p.Make(200)
			p.Sim.Devices().Bad(sim.APNS, ds[100].Device.Token)
			p.Push(ds)
			p.All(ds[100:101], push.Result{Class: push.Gone, Reason: "BadDeviceToken"})
			p.All(slices.Concat(ds[:100], ds[101:]), delivered)
			p.Order(sim.Command{Do: "answer", Reply: "DeviceTokenNotForTopic", For: sim.Interval(time.Hour)})
			ds = p.Push(p.Make(1000)) // as with a wrong topic
			if got := providertest.Tally(ds)["gone/not accepted"]; got == 0 || got > 50 {
				t.Errorf("%d of %d tokens taken for dead", got, len(ds))
			}
			p.All(ds[len(ds)-1:], halted("DeviceTokenNotForTopic"))
			return p
		},
		8: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{}, func(o *h2.Options) { o.Connections = 2 })
			p.All(p.Push(p.Make(50)), delivered)
			// Two hours pass at Apple: our token is too old, and its Date says
			// why.
			if err := p.Sim.SetClock(2*time.Hour, 1); err != nil {
				t.Fatal(err)
			}
			for _, d := range p.Push(p.Make(1)) {
				p.All([]*pipeline.Delivery{d}, delivered)
			}
			ds := p.Make(200)
			for again := ds; len(again) > 0; { // those that met a wedged connection twice
				p.Push(again)
				var left []*pipeline.Delivery
				for _, d := range again {
					if r := d.Result; r.Class == push.Again && r.Scope == push.ScopeConnection && !r.Halt {
						left = append(left, d)
					}
				}
				if len(left) == len(again) {
					t.Fatalf("%d get nowhere: %+v", len(left), left[0].Result)
				}
				again = left
			}
			p.All(ds, delivered)
			return p
		},
		9: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{UpdatesPerAddress: true}})
			p.All(p.Push(p.Make(500)), delivered)
			p.Order(sim.Command{Do: "answer", Reply: "TooManyProviderTokenUpdates", Times: 1})
			p.All(p.Push(p.Make(1)), push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: time.Minute, Reason: "TooManyProviderTokenUpdates"})
			p.All(p.Push(p.Make(500)), delivered)
			if n := len(p.Sim.Events().Of(9)); n != 1 {
				t.Errorf("%d complaints about tokens", n)
			}
			return p
		},
		10: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{}, func(o *h2.Options) { o.Connections = 1 })
			for _, reply := range []string{"InvalidProviderToken", "MissingProviderToken", "BadEnvironmentKeyInToken", "BadEnvironmentKeyIdInToken", "BadCertificate"} {
				p.Order(sim.Command{Do: "answer", Reply: reply, Times: 1})
				p.All(p.Push(p.Make(1)), halted(reply))
			}
			p.Order(sim.Command{Do: "answer", Reply: "UnrelatedKeyIdInToken", Times: 1})
			dials := p.Client.Stats().Dials
			p.All(p.Push(p.Make(1)), delivered)
			if p.Client.Stats().Dials == dials {
				t.Error("not over another connection")
			}
			return p
		},
		11: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{PerDevice: sim.Limit{Count: 5, Per: time.Minute}}})
			ds := p.Make(100)
			for _, d := range ds[:20] {
				d.Device = ds[0].Device
			}
			p.Push(ds)
			p.Tally(ds[:20], map[string]int{"again/not accepted": 15, "delivered/accepted": 5})
			for _, d := range ds[:20] {
				if r := d.Result; r.Class == push.Again && (r.Scope != push.ScopeDevice || r.After != time.Minute || r.Reason != "TooManyRequests") {
					t.Errorf("%+v", r)
				}
			}
			p.All(ds[20:], delivered)
			return p
		},
		12: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{})
			ds := p.Make(6)
			ds[0].Item.Body = string(make([]byte, 4097))
			ds[1].Item.PushType, ds[1].Item.Body = "voip", string(make([]byte, 5121))
			ds[2].Device.Token = "zz"
			p.Push(ds[:3])
			for i, reason := range []string{"payload_too_large", "payload_too_large", "invalid_token"} {
				p.All(ds[i:i+1], push.Result{Class: push.Refused, Local: true, Reason: reason})
			}
			if n := p.Arrived(); n != 0 {
				t.Errorf("%d of them were sent", n)
			}
			for i, reason := range []string{"BadCollapseId", "PayloadTooLarge", "BadPath"} {
				p.Order(sim.Command{Do: "answer", Reply: reason, Times: 1})
				p.All(p.Push(ds[3+i:4+i]), push.Result{Class: push.Refused, Reason: reason})
			}
			return p
		},
		13: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{})
			p.Order(sim.Command{Do: "answer", Reply: "ServiceUnavailable", For: sim.Interval(time.Minute)})
			p.All(p.Push(p.Make(200)), push.Result{Class: push.Again, Scope: push.ScopeRoute, Pressure: push.Failing, Reason: "ServiceUnavailable"})
			p.Order(sim.Command{Do: "calm"})
			p.Order(sim.Command{Do: "answer", Reply: "InternalServerError", For: sim.Interval(time.Minute)})
			p.All(p.Push(p.Make(200)), push.Result{Class: push.Again, Scope: push.ScopeRoute, Certainty: push.Ambiguous, Pressure: push.Failing, Reason: "InternalServerError"})
			p.Order(sim.Command{Do: "calm"})
			p.All(p.Push(p.Make(200)), delivered)
			return p
		},
		14: func(t *testing.T) *providertest.Play {
			p := newPlay(t, slow(time.Second), func(o *h2.Options) { o.Connections, o.Resends = 3, 20 })
			p.Push(p.Make(100))
			p.During(p.Make(200), func() { p.Order(sim.Command{Do: "drain", Unprocessed: 5}) })
			p.All(p.Sent, delivered)
			p.Order(sim.Command{Do: "drain", Shutdowns: 3})
			for _, d := range p.Push(p.Make(200)) {
				// One quick retry elsewhere, where the connection may also be
				// about to end.
				if r := d.Result; r.Class != push.Delivered && (r.Class != push.Again || r.Scope != push.ScopeConnection || r.Reason != "Shutdown") {
					t.Errorf("%+v", r)
				}
			}
			if n := providertest.Tally(p.Sent); n["delivered/accepted"] < len(p.Sent)-5 {
				t.Errorf("%v", n)
			}
			if st := p.Client.Stats(); st.GoAways == 0 || st.Resent == 0 {
				t.Errorf("%+v", st)
			}
			return p
		},
		15: func(t *testing.T) *providertest.Play {
			// Enough to get past all connections that are about to end.
			p := newPlay(t, slow(time.Second), func(o *h2.Options) { o.Resends = 20 })
			p.All(p.Push(p.Make(100)), delivered)
			p.All(p.During(p.Make(100), func() { p.Order(sim.Command{Do: "kill"}) }), lost)
			p.All(p.Push(p.Make(100)), delivered)
			ds := p.During(p.Make(100), func() { p.Order(sim.Command{Do: "abandon", Unprocessed: 2}) })
			if n := providertest.Tally(ds); n["again/ambiguous"] == 0 || n["delivered/accepted"] == 0 || n["again/ambiguous"]+n["delivered/accepted"] != 100 {
				t.Errorf("%v: those above the last stream go elsewhere, the others are ambiguous", n)
			}
			return p
		},
		16: func(t *testing.T) *providertest.Play {
			p := newPlay(t, slow(20*time.Millisecond), impatient)
			p.All(p.Push(p.Make(60)), delivered)
			p.Order(sim.Command{Do: "hang", Times: 3})
			ds := p.Push(patience(5*time.Second, p.Make(60)))
			p.Tally(ds, map[string]int{"again/ambiguous": 3, "delivered/accepted": 57})
			for _, d := range ds {
				if d.Result.Class == push.Again {
					p.All([]*pipeline.Delivery{d}, timedOut)
				}
			}
			for _, do := range []string{"deaf", "mute", "black_hole", "stall"} {
				p.Order(sim.Command{Do: do})
				ds := p.Push(patience(time.Minute, p.Make(60)))
				for _, d := range ds {
					if r := providertest.Bare(d.Result); r != lost && r != timedOut && r.Class != push.Delivered {
						t.Fatalf("%s: %+v", do, r)
					}
				}
				p.Push(patience(time.Minute, p.Make(60))) // over new connections
				if last := p.Sent[len(p.Sent)-60:]; do != "mute" && providertest.Tally(last)["delivered/accepted"] == 0 {
					t.Errorf("%s: nothing goes through any more: %v", do, providertest.Tally(last))
				}
			}
			return p
		},
		17: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{}, impatient)
			p.Order(sim.Command{Do: "refuse", For: sim.Interval(time.Hour)})
			p.All(p.Push(patience(time.Second, p.Make(50))), push.Result{Class: push.Again, Scope: push.ScopeConnection, Reason: "not_connected"})
			if st := p.Client.Stats(); st.Dials == 0 || st.Dials > 60 {
				t.Errorf("%+v: dials without measure", st)
			}
			if err := p.Sim.SetClock(2*time.Hour, 1); err != nil {
				t.Fatal(err)
			}
			p.All(p.Push(p.Make(1)), delivered)
			return p
		},
	} {
		if row != nil {
			t.Run(fmt.Sprint(n, " ", sim.Behaviours[n]), func(t *testing.T) {
				t.Parallel() // they mostly wait for answers
				row(t).End()
			})
		}
	}
}
