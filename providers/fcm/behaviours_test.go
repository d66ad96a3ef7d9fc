package fcm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// answer makes the next pushes get this reply, and checks the results.
func answer(p *providertest.Play, reply sim.Reply, n int, want push.Result) {
	p.Helper()
	p.Order(sim.Command{Do: "answer", Reply: reply.String(), Times: n})
	p.All(p.Push(p.Make(n)), want)
}

var delivered = push.Result{Class: push.Delivered, Certainty: push.Accepted}

func again(scope push.Scope, after time.Duration, reason string) push.Result {
	return push.Result{Class: push.Again, Scope: scope, After: after, Reason: reason}
}

func halted(scope push.Scope, reason string) push.Result {
	return push.Result{Class: push.Again, Scope: scope, Halt: true, After: 10 * time.Second, Reason: reason}
}

func gone(reason string) push.Result {
	return push.Result{Class: push.Gone, Reason: reason}
}

func refused(reason string) push.Result {
	return push.Result{Class: push.Refused, Reason: reason}
}

func pressing(p push.Pressure, r push.Result) push.Result {
	r.Pressure = p
	return r
}

func paused(r push.Result) push.Result {
	r.Pause = true
	return r
}

func ambiguous(r push.Result) push.Result {
	r.Certainty = push.Ambiguous
	return r
}

// Every FCM behaviour of the simulator, by its number, as the rest of the
// worker sees it through the provider: each delivery ends once, with the right
// class and certainty.
func TestBehaviours(t *testing.T) {
	const (
		device = push.ScopeDevice
		route  = push.ScopeRoute
	)
	for n, row := range [26]func(t *testing.T) *providertest.Play{
		18: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{})
			for _, d := range p.Push(p.Make(300)) {
				if !strings.HasPrefix(d.Result.ProviderID, "projects/") {
					t.Fatalf("name %q", d.Result.ProviderID)
				}
			}
			p.All(p.Sent, delivered)
			return p
		},
		19: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{})
			ds := p.Make(100)
			p.Sim.Devices().Dead(sim.FCM, ds[50].Device.Token, time.UnixMilli(1))
			p.Push(ds)
			p.All(ds[50:51], gone("UNREGISTERED"))
			p.All(ds[51:], delivered)
			answer(p, sim.FCMUnregisteredAPNS, 1, gone("UNREGISTERED"))
			answer(p, sim.FCMNotFound, 20, halted(route, "NOT_FOUND"))
			return p
		},
		20: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{})
			p.All(p.Push(p.Make(50)), delivered)
			answer(p, sim.FCMInvalidToken, 1, gone("INVALID_ARGUMENT"))
			answer(p, sim.FCMInvalidTokenField, 1, gone("INVALID_ARGUMENT"))
			answer(p, sim.FCMInvalidValue, 3, refused("INVALID_ARGUMENT"))
			answer(p, sim.FCMTooLarge, 3, refused("INVALID_ARGUMENT"))
			answer(p, sim.FCMDisabledToken, 1, gone("Unregistered"))
			return p
		},
		21: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{ProjectQuota: sim.Limit{Count: 100, Per: time.Minute}, QuotaRetryAfter: true}})
			ds := p.Push(p.Make(250)) // in one window, or the end of one and the start of the next
			over := 0
			for _, d := range ds {
				if r := d.Result; r.Class == push.Delivered {
					continue
				}
				over++
				if r := d.Result; r.Class != push.Again || r.Scope != route || !r.Pause || r.Halt || r.After < 10*time.Second || r.After > time.Minute || r.Reason != "RATE_LIMIT_EXCEEDED" {
					t.Fatalf("%+v", r)
				}
			}
			if over < 50 {
				t.Errorf("%d of 250 over a quota of 100", over)
			}
			if err := p.Sim.SetRules(sim.Rules{}); err != nil {
				t.Fatal(err)
			}
			answer(p, sim.FCMProjectQuota, 10, pressing(push.OverQuota, paused(again(route, time.Minute, "RATE_LIMIT_EXCEEDED"))))
			return p
		},
		22: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{DeviceQuota: sim.Limit{Count: 1, Per: time.Hour}}})
			ds := p.Make(100)
			p.All(p.Push(ds), delivered)
			more := p.Make(100)
			for i := range 50 {
				more[i].Device = ds[i].Device
			}
			p.Push(more)
			p.All(more[:50], again(device, time.Minute, "QUOTA_EXCEEDED"))
			p.All(more[50:], delivered)
			return p
		},
		23: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{})
			soon := 10 * time.Second
			answer(p, sim.FCMInternal, 5, pressing(push.Failing, ambiguous(again(route, soon, "INTERNAL"))))
			answer(p, sim.FCMBadGateway, 5, pressing(push.Failing, ambiguous(again(route, soon, "http_502"))))
			answer(p, sim.FCMUnavailable, 5, pressing(push.Failing, again(route, soon, "UNAVAILABLE")))
			for _, date := range []bool{false, true} {
				if err := p.Sim.SetFaults(sim.FCM, sim.Faults{Unavailable: 1, RetryAfter: 40 * time.Second, RetryAfterDate: date}); err != nil {
					t.Fatal(err)
				}
				for _, d := range p.Push(p.Make(20)) {
					// A date has whole seconds, by the server's clock.
					if r := d.Result; r.Class != push.Again || r.Scope != route || !r.Pause || r.After < 38*time.Second || r.After > 40*time.Second {
						t.Fatalf("by date %v: %+v", date, r)
					}
				}
			}
			if err := p.Sim.SetFaults(sim.FCM, sim.Faults{}); err != nil {
				t.Fatal(err)
			}
			p.All(p.Push(p.Make(100)), delivered)
			return p
		},
		24: func(t *testing.T) *providertest.Play {
			p := newPlay(t, sim.Options{})
			p.All(p.Push(p.Make(50)), delivered)
			tokens := func() uint64 { return p.Sim.Ledger().Totals().Providers["oauth"].Accepted }
			before := tokens()
			answer(p, sim.FCMThirdPartyAuth, 1, halted(device, "THIRD_PARTY_AUTH_ERROR"))
			answer(p, sim.FCMThirdPartyAuthSameText, 1, halted(device, "THIRD_PARTY_AUTH_ERROR"))
			answer(p, sim.FCMSenderIDMismatch, 1, gone("SENDER_ID_MISMATCH"))
			answer(p, sim.FCMPermissionDenied, 10, halted(route, "PERMISSION_DENIED"))
			if tokens() != before {
				t.Error("a new access token for what is not about it")
			}
			p.Sim.RevokeAccessTokens()
			p.All(p.Push(p.Make(200)), delivered)
			if n := tokens() - before; n != 1 {
				t.Errorf("%d access tokens for one that was revoked", n)
			}
			return p
		},
		25: func(t *testing.T) *providertest.Play {
			latency := sim.Faults{Latency: time.Second}
			p := newPlay(t, sim.Options{Rules: sim.Rules{Streams: 100, Pings: sim.Limit{Count: 4, Per: time.Minute}}, Faults: sim.RouteSet{FCM: latency}},
				func(o *h2.Options) { o.Connections = 3 })
			p.All(p.Push(p.Make(1000)), delivered)
			if broken := p.Sim.Events().Of(25); len(broken) > 0 {
				t.Errorf("more than 100 streams, or too many PINGs: %+v", broken)
			}
			p.Order(sim.Command{Do: "session_timed_out"}) // idle: replaced when there is something to send
			p.All(p.Push(p.Make(100)), delivered)
			p.All(p.During(p.Make(100), func() { p.Order(sim.Command{Do: "drain"}) }), delivered)
			p.All(p.During(p.Make(100), func() { p.Order(sim.Command{Do: "too_many_streams"}) }), delivered)
			p.All(p.During(p.Make(100), func() { p.Order(sim.Command{Do: "too_many_pings"}) }), delivered)
			if st := p.Client.Stats(); st.GoAways < 4 || st.Calms != 1 {
				t.Errorf("%+v", st)
			}
			p.All(p.Push(p.Make(100)), delivered)
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
