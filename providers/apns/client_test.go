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
	"github.com/pushfleet/pushfleet/providers/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
func simulator(t *testing.T, o sim.Options, change ...func(*h2.Options)) (*sim.Server, *apns.Client) {
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
	tokens, err := apns.NewTokenSource(c.TeamID, c.KeyID, c.P8)
	if err != nil {
		t.Fatal(err)
	}
	pool := h2.Options{
		URL: s.URL(), TLS: s.ClientTLS(), Connections: 10, StreamsPerConnection: 100,
		Lanes: []h2.Lane{{Name: "critical", Weight: 4, Queue: 100}, {Name: "promotional", Weight: 1, Queue: 100}},
	}
	for _, f := range change {
		f(&pool)
	}
	client, err := apns.New(apns.Options{Topic: c.Topic, Tokens: tokens, Pool: pool})
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

func deliveries(n int) []*pipeline.Delivery {
	ds := make([]*pipeline.Delivery, n)
	for i := range ds {
		token := fmt.Sprintf("%064x", i+1)
		ds[i] = &pipeline.Delivery{
			Item:     &pipeline.Item{Message: pipeline.Message{ID: fmt.Sprintf("n%d", i), App: "shop", Priority: pipeline.High, PushType: "alert", Title: "hello", CollapseKey: "k"}},
			Device:   pipeline.Device{Platform: pipeline.APNS, Token: token, Hash: pipeline.DeviceHash(pipeline.APNS, token)},
			Expires:  time.Now().Add(time.Hour),
			Deadline: time.Now().Add(30 * time.Second),
		}
	}
	return ds
}

// push submits and waits until every delivery is handed back, once.
func push(t *testing.T, p pipeline.Provider, ds []*pipeline.Delivery) {
	t.Helper()
	var mu sync.Mutex
	seen := map[*pipeline.Delivery]int{}
	all := make(chan struct{})
	n, err := p.Submit(t.Context(), ds, func(back []*pipeline.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range back {
			if seen[d]++; seen[d] > 1 {
				t.Errorf("%s handed back twice", d.Item.ID)
			}
		}
		if len(seen) == len(ds) {
			close(all)
		}
	})
	if n != len(ds) || err != nil {
		t.Fatalf("Submit: %d, %v", n, err)
	}
	select {
	case <-all:
	case <-time.After(40 * time.Second):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d of %d handed back", len(seen), len(ds))
	}
}

func TestEveryDeliveryReachesTheSimulatorOnce(t *testing.T) {
	s, client := simulator(t, sim.Options{})
	ds := deliveries(2000)
	// Among them what must be stopped before the wire (T-51).
	bad := map[int]string{3: "../../3/device/x", 500: "%2f" + ds[0].Device.Token[3:], 999: ds[0].Device.Token[:60] + "\r\nx:", 1999: ""}
	for i, token := range bad {
		ds[i].Device.Token = token
	}
	ds[7].Item.Body = strings.Repeat("x", 5000)
	ds[8].Expires = time.Now().Add(-time.Second)
	push(t, client.Lane(0), ds[:1000])
	push(t, client.Lane(1), ds[1000:])
	for i, d := range ds {
		want := pipeline.Result{Class: pipeline.Delivered, Certainty: pipeline.Accepted, ProviderID: d.Result.ProviderID}
		accepted := 1
		if _, isBad := bad[i]; isBad {
			want, accepted = pipeline.Result{Class: pipeline.Refused, Reason: "invalid_token"}, 0
		} else if i == 7 {
			want, accepted = pipeline.Result{Class: pipeline.Refused, Reason: "payload_too_large"}, 0
		} else if i == 8 {
			want, accepted = pipeline.Result{Class: pipeline.Refused, Reason: "past_expires_at", Expired: true}, 0
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
	ds := deliveries(500)
	push(t, client.Lane(0), ds)
	count := map[string]int{}
	for _, d := range ds {
		r := d.Result
		count[r.Reason]++
		ok := false
		switch r.Reason {
		case "":
			ok = r.Class == pipeline.Delivered && r.Certainty == pipeline.Accepted
		case "InternalServerError":
			ok = r.Class == pipeline.Again && r.Scope == pipeline.ScopeRoute && r.Certainty == pipeline.Ambiguous
		case "ServiceUnavailable":
			ok = r.Class == pipeline.Again && r.Scope == pipeline.ScopeRoute && r.Certainty == pipeline.NotAccepted
		case "TooManyRequests":
			ok = r.Class == pipeline.Again && r.Scope == pipeline.ScopeDevice && r.After == time.Minute
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
	ds := deliveries(20_000)
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
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	if err := client.Close(ctx); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, d := range ds {
		switch {
		case i < n && (back[d] != 1 || d.Result.Class == pipeline.NoAnswer):
			t.Fatalf("%d of %d taken: handed back %d times with %+v", i, n, back[d], d.Result)
		case i >= n && (back[d] != 0 || d.Result != pipeline.Result{}):
			t.Fatalf("%d was not taken: handed back %d times with %+v", i, back[d], d.Result)
		}
	}
}
