package apns_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/apns"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// play is a simulator that is about to misbehave, and a client of it.
type play struct {
	*testing.T
	sim    *sim.Server
	client *apns.Client
	sent   []*pipeline.Delivery
}

func newPlay(t *testing.T, o sim.Options, change ...func(*h2.Options)) *play {
	s, c := simulator(t, o, change...)
	return &play{T: t, sim: s, client: c}
}

func (p *play) order(c sim.Command) {
	p.Helper()
	c.Provider = "apns"
	if err := p.sim.Command(c); err != nil {
		p.Fatal(err)
	}
}

// make makes n deliveries that no earlier one is like.
func (p *play) make(n int) []*pipeline.Delivery {
	ds := deliveries(len(p.sent) + n)[len(p.sent):]
	p.sent = append(p.sent, ds...)
	return ds
}

// push sends and waits for the results.
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

func (p *play) arrived() uint64 { return p.sim.Ledger().Totals().Providers["apns"].Received }

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

// tally counts results by class and certainty.
func tally(ds []*pipeline.Delivery) map[string]int {
	n := map[string]int{}
	for _, d := range ds {
		n[fmt.Sprint(d.Result.Class, "/", [...]string{"not accepted", "accepted", "ambiguous"}[d.Result.Certainty])]++
	}
	return n
}

func (p *play) tally(ds []*pipeline.Delivery, want map[string]int) {
	p.Helper()
	if got := tally(ds); fmt.Sprint(got) != fmt.Sprint(want) {
		p.Errorf("got %v, want %v", got, want)
	}
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

var (
	delivered = pipeline.Result{Class: pipeline.Delivered, Certainty: pipeline.Accepted}
	lost      = pipeline.Result{Class: pipeline.Again, Scope: pipeline.ScopeConnection, Certainty: pipeline.Ambiguous, Reason: "connection_lost"}
	timedOut  = pipeline.Result{Class: pipeline.Again, Scope: pipeline.ScopeConnection, Certainty: pipeline.Ambiguous, Reason: "timeout"}
)

func halted(reason string) pipeline.Result {
	return pipeline.Result{Class: pipeline.Again, Scope: pipeline.ScopeRoute, Halt: true, Reason: reason}
}

func slow(d time.Duration) sim.Options {
	return sim.Options{Faults: sim.RouteSet{APNS: sim.Faults{Latency: d}}}
}

// impatient notices within a second what takes 20 otherwise.
func impatient(o *h2.Options) {
	o.Connections, o.StreamsPerConnection = 3, 20
	o.PingInterval, o.PingTimeout, o.DialTimeout = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
	o.MaxBackoff = 200 * time.Millisecond
}

// patience is when the deliveries of a row are given up.
func patience(d time.Duration, ds []*pipeline.Delivery) []*pipeline.Delivery {
	for i := range ds {
		ds[i].Deadline = time.Now().Add(d)
	}
	return ds
}

// Every behaviour of APNs that the simulator has, by its number, as the rest of
// a worker sees it through the provider: each delivery ends once, with the
// right class, and as sure of it as one can be.
func TestBehaviours(t *testing.T) {
	for n, row := range [18]func(t *testing.T) *play{
		1: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{UpperCaseIDs: true})
			for _, d := range p.push(p.make(300)) {
				if len(d.Result.ProviderID) != 36 {
					t.Fatalf("apns-id %q", d.Result.ProviderID)
				}
			}
			p.all(p.sent, delivered)
			return p
		},
		2: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{OneStream: true}})
			p.all(p.push(p.make(1000)), delivered)
			if broken := p.sim.Events().Of(2); len(broken) > 0 || p.client.Stats().GoAways > 0 {
				t.Errorf("the rule was broken: %+v", broken)
			}
			return p
		},
		3: func(t *testing.T) *play {
			o := slow(2 * time.Millisecond)
			o.Rules.AdaptiveStreams = true
			p := newPlay(t, o, func(o *h2.Options) { o.Resends = 100 })
			p.all(p.push(p.make(300)), delivered) // all connections are open
			ds := p.make(1000)
			for _, d := range ds[:5] {
				p.sim.Devices().Bad(sim.APNS, d.Device.Token)
			}
			p.push(ds)
			p.all(ds[:5], pipeline.Result{Class: pipeline.Gone, Reason: "BadDeviceToken"})
			p.all(ds[5:], delivered)
			if st := p.client.Stats(); st.Dials > 10 || st.Resent == 0 {
				t.Errorf("%+v: connections to make up for streams, or nothing was refused", st)
			}
			return p
		},
		4: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{BadTokens: sim.Limit{Count: 2, Per: time.Minute}}}, func(o *h2.Options) { o.Connections = 1 })
			p.all(p.push(p.make(100)), delivered) // most tokens are good
			bad := p.make(3)
			for _, d := range bad {
				p.sim.Devices().Bad(sim.APNS, d.Device.Token)
			}
			p.all(p.push(bad), pipeline.Result{Class: pipeline.Gone, Reason: "BadDeviceToken"})
			p.until("the GOAWAY", func() bool { return p.client.Stats().GoAways == 1 })
			p.all(p.push(p.make(100)), delivered)
			if st := p.client.Stats(); st.Calms != 1 || st.Dials != 2 {
				t.Errorf("%+v: no pause before the next connection", st)
			}
			return p
		},
		5: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{AdaptiveStreams: true}})
			ds := p.make(100)
			p.sim.Devices().Dead(sim.APNS, ds[0].Device.Token, died)
			p.sim.Devices().Set(sim.APNS, ds[1].Device.Token, sim.Mark{Reply: sim.APNSExpiredToken, Since: died})
			p.push(ds)
			p.all(ds[:1], pipeline.Result{Class: pipeline.Gone, Reason: "Unregistered", DeadSince: died})
			p.all(ds[1:2], pipeline.Result{Class: pipeline.Gone, Reason: "ExpiredToken", DeadSince: died})
			p.all(ds[2:], delivered)
			if slowed := p.sim.Events().Of(3); len(slowed) > 0 {
				t.Errorf("a 410 cost streams: %+v", slowed)
			}
			return p
		},
		6: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{})
			p.order(sim.Command{Do: "lapse", For: sim.Interval(time.Hour)})
			first := p.push(p.make(1))
			p.all(first, delivered)
			again := p.make(2)
			again[0].Device, again[1].Device = first[0].Device, first[0].Device
			p.all(p.push(again[:1]), delivered)
			if err := p.sim.SetClock(59*time.Minute, 1); err != nil { // within our token's hour
				t.Fatal(err)
			}
			p.until("the grace is over", func() bool {
				return p.sim.SetClock(time.Second, 1) == nil && time.Until(p.sim.Clock().Now()) > time.Hour
			})
			p.push(again[1:])
			if r := again[1].Result; r.Class != pipeline.Gone || r.Reason != "Unregistered" || r.DeadSince.IsZero() {
				t.Errorf("%+v", r)
			}
			return p
		},
		7: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{})
			ds := p.make(200)
			p.sim.Devices().Bad(sim.APNS, ds[100].Device.Token)
			p.push(ds)
			p.all(ds[100:101], pipeline.Result{Class: pipeline.Gone, Reason: "BadDeviceToken"})
			p.all(slices.Concat(ds[:100], ds[101:]), delivered)
			p.order(sim.Command{Do: "answer", Reply: "DeviceTokenNotForTopic", For: sim.Interval(time.Hour)})
			ds = p.push(p.make(1000)) // the wrong topic, say
			if got := tally(ds)["gone/not accepted"]; got == 0 || got > 50 {
				t.Errorf("%d of %d tokens taken for dead", got, len(ds))
			}
			p.all(ds[len(ds)-1:], halted("DeviceTokenNotForTopic"))
			return p
		},
		8: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{}, func(o *h2.Options) { o.Connections = 2 })
			p.all(p.push(p.make(50)), delivered)
			// Two hours pass at Apple: our token is old, by its Date we see why.
			if err := p.sim.SetClock(2*time.Hour, 1); err != nil {
				t.Fatal(err)
			}
			for _, d := range p.push(p.make(1)) {
				p.all([]*pipeline.Delivery{d}, delivered)
			}
			ds := p.make(200)
			for again := ds; len(again) > 0; { // those that met a wedged connection twice
				p.push(again)
				var left []*pipeline.Delivery
				for _, d := range again {
					if r := d.Result; r.Class == pipeline.Again && r.Scope == pipeline.ScopeConnection && !r.Halt {
						left = append(left, d)
					}
				}
				if len(left) == len(again) {
					t.Fatalf("%d get nowhere: %+v", len(left), left[0].Result)
				}
				again = left
			}
			p.all(ds, delivered)
			return p
		},
		9: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{UpdatesPerAddress: true}})
			p.all(p.push(p.make(500)), delivered)
			p.order(sim.Command{Do: "answer", Reply: "TooManyProviderTokenUpdates", Times: 1})
			p.all(p.push(p.make(1)), pipeline.Result{Class: pipeline.Again, Scope: pipeline.ScopeRoute, Pause: true, After: time.Minute, Reason: "TooManyProviderTokenUpdates"})
			p.all(p.push(p.make(500)), delivered)
			if n := len(p.sim.Events().Of(9)); n != 1 {
				t.Errorf("%d complaints about tokens", n)
			}
			return p
		},
		10: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{}, func(o *h2.Options) { o.Connections = 1 })
			for _, reply := range []string{"InvalidProviderToken", "MissingProviderToken", "BadEnvironmentKeyInToken", "BadEnvironmentKeyIdInToken", "BadCertificate"} {
				p.order(sim.Command{Do: "answer", Reply: reply, Times: 1})
				p.all(p.push(p.make(1)), halted(reply))
			}
			p.order(sim.Command{Do: "answer", Reply: "UnrelatedKeyIdInToken", Times: 1})
			dials := p.client.Stats().Dials
			p.all(p.push(p.make(1)), delivered)
			if p.client.Stats().Dials == dials {
				t.Error("not over another connection")
			}
			return p
		},
		11: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{Rules: sim.Rules{PerDevice: sim.Limit{Count: 5, Per: time.Minute}}})
			ds := p.make(100)
			for _, d := range ds[:20] {
				d.Device = ds[0].Device
			}
			p.push(ds)
			p.tally(ds[:20], map[string]int{"again/not accepted": 15, "delivered/accepted": 5})
			for _, d := range ds[:20] {
				if r := d.Result; r.Class == pipeline.Again && (r.Scope != pipeline.ScopeDevice || r.After != time.Minute || r.Reason != "TooManyRequests") {
					t.Errorf("%+v", r)
				}
			}
			p.all(ds[20:], delivered)
			return p
		},
		12: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{})
			ds := p.make(6)
			ds[0].Item.Body = string(make([]byte, 4097))
			ds[1].Item.PushType, ds[1].Item.Body = "voip", string(make([]byte, 5121))
			ds[2].Device.Token = "zz"
			p.push(ds[:3])
			for i, reason := range []string{"payload_too_large", "payload_too_large", "invalid_token"} {
				p.all(ds[i:i+1], pipeline.Result{Class: pipeline.Refused, Reason: reason})
			}
			if n := p.arrived(); n != 0 {
				t.Errorf("%d of them were sent", n)
			}
			for i, reason := range []string{"BadCollapseId", "PayloadTooLarge", "BadPath"} {
				p.order(sim.Command{Do: "answer", Reply: reason, Times: 1})
				p.all(p.push(ds[3+i:4+i]), pipeline.Result{Class: pipeline.Refused, Reason: reason})
			}
			return p
		},
		13: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{})
			p.order(sim.Command{Do: "answer", Reply: "ServiceUnavailable", For: sim.Interval(time.Minute)})
			p.all(p.push(p.make(200)), pipeline.Result{Class: pipeline.Again, Scope: pipeline.ScopeRoute, Reason: "ServiceUnavailable"})
			p.order(sim.Command{Do: "calm"})
			p.order(sim.Command{Do: "answer", Reply: "InternalServerError", For: sim.Interval(time.Minute)})
			p.all(p.push(p.make(200)), pipeline.Result{Class: pipeline.Again, Scope: pipeline.ScopeRoute, Certainty: pipeline.Ambiguous, Reason: "InternalServerError"})
			p.order(sim.Command{Do: "calm"})
			p.all(p.push(p.make(200)), delivered)
			return p
		},
		14: func(t *testing.T) *play {
			p := newPlay(t, slow(300*time.Millisecond), func(o *h2.Options) { o.Connections, o.Resends = 3, 20 })
			p.push(p.make(100))
			p.during(p.make(200), func() { p.order(sim.Command{Do: "drain", Unprocessed: 5}) })
			p.all(p.sent, delivered)
			p.order(sim.Command{Do: "drain", Shutdowns: 3})
			for _, d := range p.push(p.make(200)) {
				// One quick try elsewhere: also that one may be about to leave.
				if r := d.Result; r.Class != pipeline.Delivered && (r.Class != pipeline.Again || r.Scope != pipeline.ScopeConnection || r.Reason != "Shutdown") {
					t.Errorf("%+v", r)
				}
			}
			if n := tally(p.sent); n["delivered/accepted"] < len(p.sent)-5 {
				t.Errorf("%v", n)
			}
			if st := p.client.Stats(); st.GoAways == 0 || st.Resent == 0 {
				t.Errorf("%+v", st)
			}
			return p
		},
		15: func(t *testing.T) *play {
			// Enough to get past all connections that are about to end.
			p := newPlay(t, slow(300*time.Millisecond), func(o *h2.Options) { o.Resends = 20 })
			p.all(p.push(p.make(100)), delivered)
			p.all(p.during(p.make(100), func() { p.order(sim.Command{Do: "kill"}) }), lost)
			p.all(p.push(p.make(100)), delivered)
			ds := p.during(p.make(100), func() { p.order(sim.Command{Do: "abandon", Unprocessed: 2}) })
			if n := tally(ds); n["again/ambiguous"] == 0 || n["delivered/accepted"] == 0 || n["again/ambiguous"]+n["delivered/accepted"] != 100 {
				t.Errorf("%v: those above the last stream go elsewhere, the others are ambiguous", n)
			}
			return p
		},
		16: func(t *testing.T) *play {
			p := newPlay(t, slow(20*time.Millisecond), impatient)
			p.all(p.push(p.make(60)), delivered)
			p.order(sim.Command{Do: "hang", Times: 3})
			ds := p.push(patience(time.Second, p.make(60)))
			p.tally(ds, map[string]int{"again/ambiguous": 3, "delivered/accepted": 57})
			for _, d := range ds {
				if d.Result.Class == pipeline.Again {
					p.all([]*pipeline.Delivery{d}, timedOut)
				}
			}
			for _, do := range []string{"deaf", "mute", "black_hole", "stall"} {
				p.order(sim.Command{Do: do})
				ds := p.push(patience(10*time.Second, p.make(60)))
				for _, d := range ds {
					if r := d.Result; r != lost && r != timedOut && r.Class != pipeline.Delivered {
						t.Fatalf("%s: %+v", do, r)
					}
				}
				p.push(patience(10*time.Second, p.make(60))) // over new connections
				if last := p.sent[len(p.sent)-60:]; do != "mute" && tally(last)["delivered/accepted"] == 0 {
					t.Errorf("%s: nothing goes through any more: %v", do, tally(last))
				}
			}
			return p
		},
		17: func(t *testing.T) *play {
			p := newPlay(t, sim.Options{}, impatient)
			p.order(sim.Command{Do: "refuse", For: sim.Interval(time.Hour)})
			p.all(p.push(patience(time.Second, p.make(50))), pipeline.Result{Class: pipeline.Again, Scope: pipeline.ScopeConnection, Reason: "not_connected"})
			if st := p.client.Stats(); st.Dials == 0 || st.Dials > 60 {
				t.Errorf("%+v: dials without measure", st)
			}
			if err := p.sim.SetClock(2*time.Hour, 1); err != nil {
				t.Fatal(err)
			}
			p.all(p.push(p.make(1)), delivered)
			return p
		},
	} {
		if row != nil {
			t.Run(fmt.Sprint(n, " ", sim.Behaviours[n]), func(t *testing.T) { row(t).end() })
		}
	}
}
