package sim_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/sideshow/apns2"
	"github.com/sideshow/apns2/payload"
	"github.com/sideshow/apns2/token"

	"github.com/pushfleet/pushfleet/providers/sim"
)

const appleToken = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

// start runs a simulator with one app until the test ends.
func start(t *testing.T, o sim.Options) (*sim.Server, *sim.Credentials) {
	t.Helper()
	c, err := sim.NewCredentials("shop", "com.example.shop")
	if err != nil {
		t.Fatal(err)
	}
	o.Apps = append(o.Apps, c.App())
	s, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, c
}

// http2Client is a client that speaks HTTP/2 only and trusts the simulator.
func http2Client(t *testing.T, s *sim.Server) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	tr := &http.Transport{TLSClientConfig: s.ClientTLS(), Protocols: protocols}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func appleClient(t *testing.T, s *sim.Server, c *sim.Credentials) *apns2.Client {
	t.Helper()
	key, err := token.AuthKeyFromBytes(c.P8)
	if err != nil {
		t.Fatal(err)
	}
	client := apns2.NewTokenClient(&token.Token{AuthKey: key, KeyID: c.KeyID, TeamID: c.TeamID})
	client.Host, client.HTTPClient = s.URL(), http2Client(t, s)
	return client
}

func TestAppleClient(t *testing.T) {
	s, c := start(t, sim.Options{})
	client := appleClient(t, s, c)
	const id = "123e4567-e89b-12d3-a456-426655440000"
	n := &apns2.Notification{
		ApnsID: id, DeviceToken: appleToken, Topic: c.Topic, PushType: apns2.PushTypeAlert, Priority: apns2.PriorityHigh,
		CollapseID: "order-17", Expiration: time.Now().Add(time.Hour),
		Payload: payload.NewPayload().AlertTitle("hello").Custom("pf_id", "n1"),
	}
	res, err := client.Push(n)
	if err != nil || !res.Sent() || res.ApnsID != id {
		t.Fatalf("got %+v, %v, want it sent with its own id", res, err)
	}

	dead := time.UnixMilli(1760000000000)
	s.Devices().Dead(sim.APNS, appleToken, dead)
	res, err = client.Push(n)
	if err != nil || res.StatusCode != 410 || res.Reason != apns2.ReasonUnregistered || !res.Timestamp.Equal(dead) {
		t.Fatalf("got %+v, %v, want 410 Unregistered since %v", res, err, dead)
	}
	e, _ := s.Ledger().Entry("n1", sim.DeviceHash(sim.APNS, appleToken))
	if e.Accepted != 1 || e.Refused != 1 || e.Last != sim.APNSUnregistered {
		t.Errorf("got %+v, want one acceptance, then Unregistered", e)
	}
}

// APNs is HTTP/2 only, as Apple's; FCM may be spoken to in HTTP/1.1.
func TestProtocols(t *testing.T) {
	s, _ := start(t, sim.Options{})
	config := s.ClientTLS()
	config.NextProtos = []string{"http/1.1"}
	tr := &http.Transport{TLSClientConfig: config, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	defer tr.CloseIdleConnections()
	for path, want := range map[string]int{
		"/3/device/" + appleToken:      http.StatusHTTPVersionNotSupported,
		"/v1/projects/p/messages:send": http.StatusUnauthorized,
	} {
		res, err := (&http.Client{Transport: tr}).Post(s.URL()+path, "application/json", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil || res.StatusCode != want {
			t.Errorf("%s over HTTP/1.1: got %d, want %d", path, res.StatusCode, want)
		}
	}
	_, err := (&http.Client{Transport: &http.Transport{}}).Get(s.URL())
	var unknown *tls.CertificateVerificationError
	if !errors.As(err, &unknown) {
		t.Errorf("a client without the authority got %v, want a certificate error", err)
	}
}
