package apns_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/apns"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulator starts a simulator, and a client of it whose pool can be changed.
func simulator(t *testing.T, o sim.Options, change ...func(*h2.Options)) (*sim.Server, *apns.Client) {
	t.Helper()
	s := providertest.Simulator(t, o)
	pool := h2.Options{
		URL: s.URL(), TLS: s.ClientTLS(), Connections: 10, StreamsPerConnection: 100,
		Lanes: []h2.Lane{{Name: "critical", Weight: 4, Queue: 100}, {Name: "promotional", Weight: 1, Queue: 100}},
	}
	for _, f := range change {
		f(&pool)
	}
	c := providertest.Credentials()
	return s, newClient(t, c.Topic, tokenSource(t, c.TeamID, c.KeyID, c.P8), pool)
}

func tokenSource(t *testing.T, team, key string, p8 []byte) *apns.TokenSource {
	t.Helper()
	tokens, err := apns.NewTokenSource(team, key, p8)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func newClient(t *testing.T, topic string, tokens *apns.TokenSource, pool h2.Options) *apns.Client {
	t.Helper()
	client, err := apns.New(apns.Options{Topic: topic, Tokens: tokens, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	providertest.CloseAfter(t, client)
	return client
}

func newPlay(t *testing.T, o sim.Options, change ...func(*h2.Options)) *providertest.Play {
	t.Helper()
	s, client := simulator(t, o, change...)
	return providertest.NewPlay(t, sim.APNS, s, client, deliveries)
}

func deliveries(from, to int) []*pipeline.Delivery {
	return providertest.Deliveries(push.APNS, from, to, func(i int) string { return fmt.Sprintf("%064x", i+1) })
}

func TestEveryDeliveryReachesTheSimulatorOnce(t *testing.T) {
	s, client := simulator(t, sim.Options{})
	ds := deliveries(0, 2000)
	// Among them tokens that must never be sent (T-51).
	bad := map[int]string{3: "../../3/device/x", 500: "%2f" + ds[0].Device.Token[3:], 999: ds[0].Device.Token[:60] + "\r\nx:", 1999: ""}
	for i, token := range bad {
		ds[i].Device.Token = token
	}
	ds[7].Item.Body = strings.Repeat("x", 5000)
	ds[8].Expires = push.At(time.Now().Add(-time.Second))
	providertest.Push(t, client.Lane(0), ds[:1000])
	providertest.Push(t, client.Lane(1), ds[1000:])
	for i, d := range ds {
		want := push.Result{Class: push.Delivered, Certainty: push.Accepted, ProviderID: d.Result.ProviderID, Conn: d.Result.Conn}
		accepted := 1
		if _, isBad := bad[i]; isBad {
			want, accepted = push.Result{Class: push.Refused, Local: true, Reason: "invalid_token"}, 0
		} else if i == 7 {
			want, accepted = push.Result{Class: push.Refused, Local: true, Reason: "payload_too_large"}, 0
		} else if i == 8 {
			want, accepted = push.Result{Class: push.Refused, Reason: "past_expires_at", Expired: true, Conn: d.Result.Conn}, 0
		}
		if d.Result != want {
			t.Errorf("%d: %+v, want %+v", i, d.Result, want)
		}
		if got := s.Ledger().Accepted(d.Item.ID, d.Device.Hash); got != accepted {
			t.Errorf("%d: accepted %d times, want %d", i, got, accepted)
		}
		if accepted == 1 && len(d.Result.ProviderID) != 36 {
			t.Errorf("%d: apns-id %q", i, d.Result.ProviderID)
		}
	}
	if st := client.Stats(); st.Dials > 10 || st.Waiting != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

func TestSimulatedFaultsAreClassified(t *testing.T) {
	_, client := simulator(t, sim.Options{Seed: 1, Faults: sim.RouteSet{APNS: sim.Faults{Internal: 0.2, Unavailable: 0.2, TooMany: 0.2}}})
	ds := deliveries(0, 500)
	providertest.Push(t, client.Lane(0), ds)
	count := map[string]int{}
	for _, d := range ds {
		r := d.Result
		count[r.Reason]++
		ok := false
		switch r.Reason {
		case "":
			ok = r.Class == push.Delivered && r.Certainty == push.Accepted
		case "InternalServerError":
			ok = r.Class == push.Again && r.Scope == push.ScopeRoute && r.Certainty == push.Ambiguous
		case "ServiceUnavailable":
			ok = r.Class == push.Again && r.Scope == push.ScopeRoute && r.Certainty == push.NotAccepted
		case "TooManyRequests":
			ok = r.Class == push.Again && r.Scope == push.ScopeDevice && r.After == time.Minute
		}
		if !ok {
			t.Errorf("%+v", r)
		}
	}
	if len(count) != 4 {
		t.Errorf("reasons seen: %v", count)
	}
}

func TestSubmitThatIsCutShort(t *testing.T) {
	_, client := simulator(t, sim.Options{Faults: sim.RouteSet{APNS: sim.Faults{Latency: 50 * time.Millisecond}}})
	ds := deliveries(0, 20_000)
	for i := 50; i < len(ds); i += 100 {
		ds[i].Device.Token = "/"
	}
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	back := map[*pipeline.Delivery]int{}
	n, err := client.Lane(0).Submit(ctx, ds, func(done []*pipeline.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range done {
			back[d]++
		}
		if len(back) > 300 {
			cancel()
		}
	})
	if err == nil || n == 0 || n == len(ds) {
		t.Fatalf("Submit: %d, %v; it was to be cut short", n, err)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := client.Close(ctx); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, d := range ds {
		switch {
		case i < n && (back[d] != 1 || d.Result.Class == push.Unsent):
			t.Fatalf("%d of %d taken: handed back %d times with %+v", i, n, back[d], d.Result)
		case i >= n && (back[d] != 0 || d.Result != push.Result{}):
			t.Fatalf("%d was not taken: handed back %d times with %+v", i, back[d], d.Result)
		}
	}
}

// What cannot work is an error of New, and not one of each send.
func TestClientsThatCannotWork(t *testing.T) {
	c := providertest.Credentials()
	tokens := tokenSource(t, c.TeamID, c.KeyID, c.P8)
	pool := h2.Options{Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 1}}}
	for why, o := range map[string]apns.Options{
		"no topic":               {Tokens: tokens, Pool: pool},
		"no tokens":              {Topic: c.Topic, Pool: pool},
		"no lanes":               {Topic: c.Topic, Tokens: tokens},
		"an unknown environment": {Topic: c.Topic, Tokens: tokens, Pool: pool, Environment: "moon"},
	} {
		if client, err := apns.New(o); err == nil {
			t.Errorf("%s: accepted", why)
			providertest.CloseAfter(t, client)
		}
	}
}
