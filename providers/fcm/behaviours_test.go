package fcm_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/fcm"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// play is a simulator that is about to misbehave, and a client of it.
type play struct {
	*testing.T
	sim    *sim.Server
	client *fcm.Client
	sent   []*pipeline.Delivery
}

func newPlay(t *testing.T, o sim.Options, change ...func(*h2.Options)) *play {
	s, c := simulator(t, o, change...)
	return &play{T: t, sim: s, client: c}
}

func (p *play) order(c sim.Command) {
	p.Helper()
	c.Provider = "fcm"
	if err := p.sim.Command(c); err != nil {
		p.Fatal(err)
	}
}

// make makes n deliveries that no earlier one is like.
func (p *play) make(n int) []*pipeline.Delivery {
	ds := deliveries(len(p.sent), len(p.sent)+n)
	p.sent = append(p.sent, ds...)
	return ds
}

func (p *play) push(ds []*pipeline.Delivery) []*pipeline.Delivery {
	p.Helper()
	push(p.T, p.client.Lane(0), ds)
	return ds
}

// during sends, does something when all have arrived, and waits for the
// results.
func (p *play) during(ds []*pipeline.Delivery, do func()) []*pipeline.Delivery {
	p.Helper()
	before := p.arrived()
	var wg sync.WaitGroup
	wg.Go(func() { push(p.T, p.client.Lane(0), ds) })
	p.until("they have arrived", func() bool { return p.arrived() >= before+uint64(len(ds)) })
	do()
	wg.Wait()
	return ds
}

func (p *play) arrived() uint64 { return p.sim.Ledger().Totals().Providers["fcm"].Received }

func (p *play) until(what string, ok func() bool) {
	p.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatal("not within 20 s: ", what)
		}
	}
}

// all checks that every result is the same, but for the provider's id.
func (p *play) all(ds []*pipeline.Delivery, want pipeline.Result) {
	p.Helper()
	for _, d := range ds {
		got := d.Result
		got.ProviderID = ""
		if got != want {
			p.Fatalf("%s: got  %+v\nwant %+v", d.Item.ID, got, want)
		}
	}
}

// answer has the next pushes answered so, and checks what that means.
func (p *play) answer(reply sim.Reply, n int, want pipeline.Result) {
	p.Helper()
	p.order(sim.Command{Do: "answer", Reply: reply.String(), Times: n})
	p.all(p.push(p.make(n)), want)
}

// end checks, against the simulator's ledger, that no result says anything
// wrong, and that nothing is left anywhere.
func (p *play) end() {
	p.Helper()
	for _, d := range p.sent {
		accepted := p.sim.Ledger().Accepted(d.Item.ID, d.Device.Hash)
		switch r := d.Result; {
		case r.Class == pipeline.NoAnswer:
			p.Errorf("%s has no result", d.Item.ID)
		case r.Class == pipeline.Delivered && (accepted != 1 || r.Certainty != pipeline.Accepted):
			p.Errorf("%s: %+v, accepted %d times", d.Item.ID, r, accepted)
		case r.Class != pipeline.Delivered && (r.Certainty == pipeline.Accepted || r.Certainty == pipeline.NotAccepted && accepted != 0):
			p.Errorf("%s: %+v, and accepted %d times", d.Item.ID, r, accepted)
		case accepted > 1:
			p.Errorf("%s: accepted %d times", d.Item.ID, accepted)
		}
	}
	if st := p.client.Stats(); st.InFlight != 0 || st.Waiting != 0 {
		p.Errorf("left: %+v", st)
	}
}

var delivered = pipeline.Result{Class: pipeline.Delivered, Certainty: pipeline.Accepted}

func again(scope pipeline.Scope, after time.Duration, reason string) pipeline.Result {
	return pipeline.Result{Class: pipeline.Again, Scope: scope, After: after, Reason: reason}
}

func halted(scope pipeline.Scope, reason string) pipeline.Result {
	return pipeline.Result{Class: pipeline.Again, Scope: scope, Halt: true, After: 10 * time.Second, Reason: reason}
}

func gone(reason string) pipeline.Result {
	return pipeline.Result{Class: pipeline.Gone, Reason: reason}
}

func refused(reason string) pipeline.Result {
	return pipeline.Result{Class: pipeline.Refused, Reason: reason}
}

func ambiguous(r pipeline.Result) pipeline.Result {
	r.Certainty = pipeline.Ambiguous
	return r
}

func paused(r pipeline.Result) pipeline.Result {
	r.Pause = true
	return r
}

// Every behaviour of FCM that the simulator has, by its number, as the rest of
// a worker sees it through the provider: each delivery ends once, with the
// right class, and as sure of it as one can be.
func TestBehaviours(t *testing.T) {
	const (
		device = pipeline.ScopeDevice
		route  = pipeline.ScopeRoute
	)
	for n, row := range [26]func(t *testing.T) *play{
		18: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{})
			for _, d := range p.push(p.make(300)) {
				if !strings.HasPrefix(d.Result.ProviderID, "projects/") {
					t.Fatalf("name %q", d.Result.ProviderID)
				}
			}
			p.all(p.sent, delivered)
			return p
		},
		19: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{})
			ds := p.make(100)
			p.sim.Devices().Dead(sim.FCM, ds[50].Device.Token, time.UnixMilli(1))
			p.push(ds)
			p.all(ds[50:51], gone("UNREGISTERED"))
			p.all(ds[51:], delivered)
			p.answer(sim.FCMUnregisteredAPNS, 1, gone("UNREGISTERED"))
			p.answer(sim.FCMNotFound, 20, halted(route, "NOT_FOUND"))
			return p
		},
		20: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{})
			p.all(p.push(p.make(50)), delivered)
			p.answer(sim.FCMInvalidToken, 1, gone("INVALID_ARGUMENT"))
			p.answer(sim.FCMInvalidTokenField, 1, gone("INVALID_ARGUMENT"))
			p.answer(sim.FCMInvalidValue, 3, refused("INVALID_ARGUMENT"))
			p.answer(sim.FCMTooLarge, 3, refused("INVALID_ARGUMENT"))
			p.answer(sim.FCMDisabledToken, 1, gone("Unregistered"))
			return p
		},
		21: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{ProjectQuota: sim.Limit{Count: 100, Per: time.Minute}, QuotaRetryAfter: true}})
			ds := p.push(p.make(250)) // one window's, or the end of one and the start of the next
			over := 0
			for _, d := range ds {
				if r := d.Result; r.Class == pipeline.Delivered {
					continue
				}
				over++
				if r := d.Result; r.Class != pipeline.Again || r.Scope != route || !r.Pause || r.Halt || r.After < 10*time.Second || r.After > time.Minute || r.Reason != "RATE_LIMIT_EXCEEDED" {
					t.Fatalf("%+v", r)
				}
			}
			if over < 50 {
				t.Errorf("%d of 250 over a quota of 100", over)
			}
			if err := p.sim.SetRules(sim.Rules{}); err != nil {
				t.Fatal(err)
			}
			p.answer(sim.FCMProjectQuota, 10, paused(again(route, time.Minute, "RATE_LIMIT_EXCEEDED")))
			return p
		},
		22: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{DeviceQuota: sim.Limit{Count: 1, Per: time.Hour}}})
			ds := p.make(100)
			p.all(p.push(ds), delivered)
			more := p.make(100)
			for i := range 50 {
				more[i].Device = ds[i].Device
			}
			p.push(more)
			p.all(more[:50], again(device, time.Minute, "QUOTA_EXCEEDED"))
			p.all(more[50:], delivered)
			return p
		},
		23: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{})
			soon := 10 * time.Second
			p.answer(sim.FCMInternal, 5, ambiguous(again(route, soon, "INTERNAL")))
			p.answer(sim.FCMBadGateway, 5, ambiguous(again(route, soon, "http_502")))
			p.answer(sim.FCMUnavailable, 5, again(route, soon, "UNAVAILABLE"))
			for _, date := range []bool{false, true} {
				if err := p.sim.SetFaults(sim.FCM, sim.Faults{Unavailable: 1, RetryAfter: 40 * time.Second, RetryAfterDate: date}); err != nil {
					t.Fatal(err)
				}
				for _, d := range p.push(p.make(20)) {
					// A date is in whole seconds, by the server's clock.
					if r := d.Result; r.Class != pipeline.Again || r.Scope != route || !r.Pause || r.After < 38*time.Second || r.After > 40*time.Second {
						t.Fatalf("by date %v: %+v", date, r)
					}
				}
			}
			if err := p.sim.SetFaults(sim.FCM, sim.Faults{}); err != nil {
				t.Fatal(err)
			}
			p.all(p.push(p.make(100)), delivered)
			return p
		},
		24: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{})
			p.all(p.push(p.make(50)), delivered)
			tokens := func() uint64 { return p.sim.Ledger().Totals().Providers["oauth"].Accepted }
			before := tokens()
			p.answer(sim.FCMThirdPartyAuth, 1, halted(device, "THIRD_PARTY_AUTH_ERROR"))
			p.answer(sim.FCMThirdPartyAuthSameText, 1, halted(device, "THIRD_PARTY_AUTH_ERROR"))
			p.answer(sim.FCMSenderIDMismatch, 1, gone("SENDER_ID_MISMATCH"))
			p.answer(sim.FCMPermissionDenied, 10, halted(route, "PERMISSION_DENIED"))
			if tokens() != before {
				t.Error("a new access token for what is not about it")
			}
			p.sim.RevokeAccessTokens()
			p.all(p.push(p.make(200)), delivered)
			if n := tokens() - before; n != 1 {
				t.Errorf("%d access tokens for one that was revoked", n)
			}
			return p
		},
		25: func(t *testing.T) *play {
			latency := sim.Faults{Latency: 100 * time.Millisecond}
			p := newPlay(t, sim.Options{Rules: sim.Rules{Streams: 100, Pings: sim.Limit{Count: 4, Per: time.Minute}}, Faults: sim.RouteSet{FCM: latency}},
				func(o *h2.Options) { o.Connections = 3 })
			p.all(p.push(p.make(1000)), delivered)
			if broken := p.sim.Events().Of(25); len(broken) > 0 {
				t.Errorf("more than 100 streams, or too many PINGs: %+v", broken)
			}
			p.order(sim.Command{Do: "session_timed_out"}) // idle: replaced when there is something to send
			p.all(p.push(p.make(100)), delivered)
			p.all(p.during(p.make(100), func() { p.order(sim.Command{Do: "drain"}) }), delivered)
			p.all(p.during(p.make(100), func() { p.order(sim.Command{Do: "too_many_streams"}) }), delivered)
			p.all(p.during(p.make(100), func() { p.order(sim.Command{Do: "too_many_pings"}) }), delivered)
			if st := p.client.Stats(); st.GoAways < 4 || st.Calms != 1 {
				t.Errorf("%+v", st)
			}
			p.all(p.push(p.make(100)), delivered)
			return p
		},
	} {
		if row != nil {
			t.Run(fmt.Sprint(n, " ", sim.Behaviours[n]), func(t *testing.T) { row(t).end() })
		}
	}
}
