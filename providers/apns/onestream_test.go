package apns_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/apns"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// A connection has one stream until Apple has authenticated it. Whatever the
// first answers are, the client never opens a second one before.
func TestOneStreamUntilAuthenticated(t *testing.T) {
	for name, tc := range map[string]struct {
		wrongKey bool // from the start, and for good
		command  *sim.Command
	}{
		"accepted at once":            {},
		"the first ones are expired":  {command: &sim.Command{Do: "wedge", Provider: "apns", Times: 5}},
		"the first ones are invalid":  {command: &sim.Command{Do: "answer", Provider: "apns", Reply: "InvalidProviderToken", Times: 30}},
		"the first ones are bad":      {command: &sim.Command{Do: "answer", Provider: "apns", Reply: "BadDeviceToken", Times: 5}},
		"the key is wrong throughout": {wrongKey: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, client := simulator(t, sim.Options{
				Rules: sim.Rules{OneStream: true}, Faults: sim.RouteSet{APNS: sim.Faults{Latency: 5 * time.Millisecond}}})
			if tc.wrongKey {
				client = strangersClient(t, s)
			}
			if tc.command != nil {
				if err := s.Command(*tc.command); err != nil {
					t.Fatal(err)
				}
			}
			n := 2000
			if tc.wrongKey {
				n = 50 // one after the other on each connection
			}
			ds := deliveries(0, n)
			providertest.Push(t, client.Lane(0), ds)
			delivered := 0
			for _, d := range ds {
				switch r := d.Result; r.Class {
				case push.Delivered:
					delivered++
				case push.Unsent:
					t.Fatalf("%+v", r)
				}
			}
			if tc.wrongKey && delivered != 0 || !tc.wrongKey && delivered < n-30 {
				t.Errorf("%d of %d delivered", delivered, n)
			}
			for _, e := range s.Events().Of(2) {
				t.Errorf("the rule was broken: %+v", e)
			}
			if st := client.Stats(); st.GoAways != 0 || st.Dials > 15 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A refusal that is about the message and not about us authenticates the connection: what
// comes next is sent at once, as much as there is.
func TestAForbiddenMessageAuthenticates(t *testing.T) {
	const together = 5
	var came sync.WaitGroup // of those after the first
	came.Add(together)
	var known atomic.Bool // one request comes until it is answered
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !known.Swap(true) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"Forbidden"}`)
			return
		}
		came.Done()
		came.Wait() // none is answered before all are here
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	_, key := signingKey(t)
	client := newClient(t, topic, tokenSource(t, "TEAM123456", "KEY1234567", key), h2.Options{
		URL: s.URL, TLS: &tls.Config{RootCAs: roots}, Connections: 1, Timeout: 5 * time.Second, Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 10}},
	})
	providertest.Push(t, client.Lane(0), deliveries(0, 1))
	ds := deliveries(1, 1+together)
	providertest.Push(t, client.Lane(0), ds)
	for _, d := range ds {
		if d.Result.Class != push.Delivered {
			t.Fatalf("%+v", d.Result)
		}
	}
}

// strangersClient signs with a key that the simulator does not know.
func strangersClient(t *testing.T, s *sim.Server) *apns.Client {
	t.Helper()
	stranger, err := sim.NewCredentials("stranger", "com.example.shop")
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, stranger.Topic, tokenSource(t, stranger.TeamID, stranger.KeyID, stranger.P8), h2.Options{
		URL: s.URL(), TLS: s.ClientTLS(), Connections: 3, Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 100}},
	})
}

// After a complaint about its provider tokens, the pool slows down on all
// connections together, and continues with the previous token.
func TestTooManyTokenUpdatesSlowDown(t *testing.T) {
	s, client := simulator(t, sim.Options{})
	providertest.Push(t, client.Lane(0), deliveries(0, 500))
	if err := s.Command(sim.Command{Do: "answer", Provider: "apns", Reply: "TooManyProviderTokenUpdates", Times: 1}); err != nil {
		t.Fatal(err)
	}
	ds := deliveries(0, 1)
	providertest.Push(t, client.Lane(0), ds)
	if r := ds[0].Result; r.Class != push.Again || r.Scope != push.ScopeRoute || r.Reason != "TooManyProviderTokenUpdates" {
		t.Errorf("%+v", r)
	}
	ds = deliveries(0, 500)
	providertest.Push(t, client.Lane(0), ds)
	for _, d := range ds {
		if d.Result.Class != push.Delivered {
			t.Fatalf("%+v", d.Result)
		}
	}
	if st := client.Stats(); st.Calms != 1 {
		t.Errorf("%+v", st)
	}
}
