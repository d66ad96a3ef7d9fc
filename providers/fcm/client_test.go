package fcm_test

import (
	"fmt"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/fcm"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// simulator starts a simulator, and a client of it whose pool can be changed.
func simulator(t *testing.T, o sim.Options, change ...func(*h2.Options)) (*sim.Server, *fcm.Client) {
	t.Helper()
	s := providertest.Simulator(t, o)
	account, err := providertest.Credentials().ServiceAccount(s.TokenURI())
	if err != nil {
		t.Fatal(err)
	}
	pool := h2.Options{URL: s.URL(), TLS: s.ClientTLS(), Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 1000}}}
	for _, f := range change {
		f(&pool)
	}
	return s, newClient(t, fcm.Options{ServiceAccount: account, Pool: pool})
}

func newClient(t *testing.T, o fcm.Options) *fcm.Client {
	t.Helper()
	client, err := fcm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	providertest.CloseAfter(t, client)
	return client
}

func newPlay(t *testing.T, o sim.Options, change ...func(*h2.Options)) *providertest.Play {
	t.Helper()
	s, client := simulator(t, o, change...)
	return providertest.NewPlay(t, sim.FCM, s, client, deliveries)
}

func deliveries(from, to int) []*pipeline.Delivery {
	return providertest.Deliveries(push.FCM, from, to, func(i int) string { return fmt.Sprintf("cXyZ_12-3:APA91b%d", i) })
}

func TestEveryDeliveryReachesTheSimulatorOnce(t *testing.T) {
	s, client := simulator(t, sim.Options{})
	ds := deliveries(0, 1000)
	ds[5].Device.Token = "a/b"
	providertest.Push(t, client.Lane(0), ds)
	for i, d := range ds {
		want, accepted := push.Result{Class: push.Delivered, Certainty: push.Accepted, ProviderID: d.Result.ProviderID, Conn: d.Result.Conn}, 1
		if i == 5 {
			want, accepted = push.Result{Class: push.Refused, Local: true, Reason: "invalid_token"}, 0
		}
		if d.Result != want || accepted == 1 && (d.Result.ProviderID == "" || d.Result.Conn == 0) {
			t.Fatalf("%d: %+v, want %+v", i, d.Result, want)
		}
		if got := s.Ledger().Accepted(d.Item.ID, d.Device.Hash); got != accepted {
			t.Fatalf("%d: accepted %d times, want %d", i, got, accepted)
		}
	}
	if client.TokenError() != nil {
		t.Error(client.TokenError())
	}
}

// An operator may want fewer connections than are usual.
func TestNoMoreConnectionsThanConfigured(t *testing.T) {
	_, client := simulator(t, sim.Options{}, func(o *h2.Options) { o.Connections, o.StreamsPerConnection = 1, 10 })
	providertest.Push(t, client.Lane(0), deliveries(0, 1000))
	if st := client.Stats(); st.Dials != 1 {
		t.Errorf("%d connections were opened, want 1", st.Dials)
	}
}

func TestRevokedAccessTokenIsReplacedInside(t *testing.T) {
	s, client := simulator(t, sim.Options{})
	providertest.Push(t, client.Lane(0), deliveries(0, 50))
	s.RevokeAccessTokens()
	ds := deliveries(50, 250)
	providertest.Push(t, client.Lane(0), ds)
	for _, d := range ds {
		if d.Result.Class != push.Delivered {
			t.Fatalf("%+v", d.Result)
		}
	}
	if n := client.Stats().Resent; n == 0 {
		t.Error("nothing was sent again: the test has not tested")
	}
}

func TestTokenEndpointAway(t *testing.T) {
	_, client := simulator(t, sim.Options{Faults: sim.RouteSet{OAuth: sim.Faults{Unavailable: 1}}})
	ds := deliveries(0, 3)
	providertest.Push(t, client.Lane(0), ds)
	for _, d := range ds {
		if r := d.Result; r.Class != push.Again || r.Scope != push.ScopeRoute || r.Halt || r.Reason != "auth_failed" {
			t.Errorf("%+v", r)
		}
	}
	if client.TokenError() == nil {
		t.Error("no error to show")
	}
}
