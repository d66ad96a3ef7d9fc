package fcm_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/fcm"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// credentials are the app's. Its keys take a second to make under the race
// detector, so all tests share them.
var credentials = sync.OnceValue(func() *sim.Credentials {
	c, err := sim.NewCredentials("shop", "com.example.shop")
	if err != nil {
		panic(err)
	}
	return c
})

// simulator starts one, and a client of it whose pool can be changed.
func simulator(t *testing.T, o sim.Options, change ...func(*h2.Options)) (*sim.Server, *fcm.Client) {
	t.Helper()
	c := credentials()
	o.Apps = append(o.Apps, c.App())
	s, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	account, err := c.ServiceAccount(s.TokenURI())
	if err != nil {
		t.Fatal(err)
	}
	pool := h2.Options{URL: s.URL(), TLS: s.ClientTLS(), Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 1000}}}
	for _, f := range change {
		f(&pool)
	}
	client, err := fcm.New(fcm.Options{ServiceAccount: account, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := client.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s, client
}

func deliveries(from, to int) []*pipeline.Delivery {
	var ds []*pipeline.Delivery
	for i := from; i < to; i++ {
		token := fmt.Sprintf("cXyZ_12-3:APA91b%d", i)
		ds = append(ds, &pipeline.Delivery{
			Item:     &pipeline.Item{Message: pipeline.Message{ID: fmt.Sprintf("n%d", i), App: "shop", Priority: pipeline.High, Title: "hello", CollapseKey: "k"}},
			Device:   pipeline.Device{Platform: pipeline.FCM, Token: token, Hash: pipeline.DeviceHash(pipeline.FCM, token)},
			Expires:  time.Now().Add(time.Hour),
			Deadline: time.Now().Add(30 * time.Second),
		})
	}
	return ds
}

func push(t *testing.T, p pipeline.Provider, ds []*pipeline.Delivery) {
	t.Helper()
	var left sync.WaitGroup
	left.Add(len(ds)) // one too many panics
	n, err := p.Submit(t.Context(), ds, func(back []*pipeline.Delivery) { left.Add(-len(back)) })
	if n != len(ds) || err != nil {
		t.Fatalf("Submit: %d, %v", n, err)
	}
	left.Wait()
}

func TestEveryDeliveryReachesTheSimulatorOnce(t *testing.T) {
	s, client := simulator(t, sim.Options{})
	ds := deliveries(0, 1000)
	ds[5].Device.Token = "a/b"
	push(t, client.Lane(0), ds)
	for i, d := range ds {
		want, accepted := pipeline.Result{Class: pipeline.Delivered, Certainty: pipeline.Accepted, ProviderID: d.Result.ProviderID}, 1
		if i == 5 {
			want, accepted = pipeline.Result{Class: pipeline.Refused, Reason: "invalid_token"}, 0
		}
		if d.Result != want || accepted == 1 && d.Result.ProviderID == "" {
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

func TestRevokedAccessTokenIsReplacedInside(t *testing.T) {
	s, client := simulator(t, sim.Options{})
	push(t, client.Lane(0), deliveries(0, 50))
	s.RevokeAccessTokens()
	ds := deliveries(50, 250)
	push(t, client.Lane(0), ds)
	for _, d := range ds {
		if d.Result.Class != pipeline.Delivered {
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
	push(t, client.Lane(0), ds)
	for _, d := range ds {
		if r := d.Result; r.Class != pipeline.Again || r.Scope != pipeline.ScopeRoute || r.Halt || r.Reason != "auth_failed" {
			t.Errorf("%+v", r)
		}
	}
	if client.TokenError() == nil {
		t.Error("no error to show")
	}
}
