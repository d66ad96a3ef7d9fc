package apns_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/proxy"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// The network to Apple goes silent while connections stay open. Requests in
// flight end as ambiguous long before their deadline, and requests that were
// not written wait. When the network is back the waiting ones are sent, and
// once the ambiguous ones are sent again nothing is lost.
func TestASilentWayLosesNothing(t *testing.T) {
	for reason, fault := range map[string]proxy.Fault{
		"a black hole":                  proxy.BlackHole(),
		"half-open: answers are lost":   proxy.HalfOpen(),
		"half-open: requests are stuck": {HoldUp: true},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel() // each waits for PINGs
			s := providertest.Simulator(t, sim.Options{})
			way, err := proxy.Listen(strings.TrimPrefix(s.URL(), "https://"), nil)
			if err != nil {
				t.Fatal(err)
			}
			c := providertest.Credentials()
			pool := h2.Options{URL: "https://" + way.Addr(), TLS: s.ClientTLS(), Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 1000}}}
			impatient(&pool)
			pool.Connections = 1 // one that has answered nothing yet accepts only one stream
			client := newClient(t, c.Topic, tokenSource(t, c.TeamID, c.KeyID, c.P8), pool)
			t.Cleanup(func() {
				if err := way.Close(); err != nil {
					t.Error(err)
				}
			})
			p := providertest.NewPlay(t, sim.APNS, s, client, deliveries)
			p.All(p.Push(p.Make(300)), delivered) // it is open and authenticated

			p.Latency(time.Hour) // none of these is answered before the silence
			places := pool.StreamsPerConnection
			ds := p.Make(2 * places)
			var pushing sync.WaitGroup
			pushing.Go(func() { providertest.Push(t, client.Lane(0), ds) })
			p.Until("all streams are taken", func() bool { return client.Stats().InFlight == int64(places) })
			way.Set(fault)
			p.Until("the silence is noticed", func() bool { return client.Stats().InFlight == 0 })
			if st := client.Stats(); st.Waiting != places {
				t.Errorf("%d wait for a connection, want %d", st.Waiting, places)
			}
			p.Latency(0)
			way.Set(proxy.Fault{})
			pushing.Wait()

			var again []*pipeline.Delivery
			for _, d := range ds {
				if d.Result.Class != push.Delivered {
					again = append(again, d)
				}
			}
			p.All(again, lost)
			if len(again) != places {
				t.Errorf("%d are ambiguous, want the %d that were under way", len(again), places)
			}
			for _, d := range again {
				d.Result = push.Result{}
			}
			p.All(p.Push(again), delivered)
			for _, d := range ds {
				if n := s.Ledger().Accepted(d.Item.ID, d.Device.Hash); n < 1 || n > 2 {
					t.Errorf("%s was accepted %d times", d.Item.ID, n)
				}
			}
		})
	}
}
