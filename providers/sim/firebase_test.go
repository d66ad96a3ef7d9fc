//go:build !race

// Firebase's SDK is 360 packages, which nothing else of ours needs: they are not
// compiled once more for the race detector. deploy/local/raceless.sh tests these.

package sim_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	firebase "firebase.google.com/go/v4"
	"firebase.google.com/go/v4/messaging"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"github.com/pushfleet/pushfleet/providers/sim"
)

// firebaseClient sends through Firebase's own SDK, which fetches its access
// token from the simulator.
func firebaseClient(t *testing.T, s *sim.Server, c *sim.Credentials) *messaging.Client {
	t.Helper()
	file, err := c.ServiceAccount(s.TokenURI())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: s.ClientTLS(), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, &http.Client{Transport: transport})
	creds, err := google.CredentialsFromJSONWithType(ctx, file, google.ServiceAccount, "https://www.googleapis.com/auth/firebase.messaging")
	if err != nil {
		t.Fatal(err)
	}
	app, err := firebase.NewApp(ctx, &firebase.Config{ProjectID: c.Project},
		option.WithHTTPClient(oauth2.NewClient(ctx, creds.TokenSource)), option.WithEndpoint(s.URL()+"/v1"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := app.Messaging(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestFirebaseClient(t *testing.T) {
	s, c := start(t, sim.Options{})
	client := firebaseClient(t, s, c)
	ttl := 90 * time.Second
	count := 3
	const device = "fcm-token:one"
	m := &messaging.Message{
		//lint:ignore SA1019 registration tokens are what today's devices have
		Token: device, Data: map[string]string{"pf_id": "n1", "k": "v"},
		Notification: &messaging.Notification{Title: "hello", Body: "there"},
		Android: &messaging.AndroidConfig{
			Priority: "high", TTL: &ttl, CollapseKey: "c",
			Notification: &messaging.AndroidNotification{
				Tag: "order-17", Color: "#ff0000", NotificationCount: &count, Priority: messaging.PriorityMax,
				Visibility: messaging.VisibilityPrivate, Proxy: messaging.ProxyDeny, VibrateTimingMillis: []int64{100, 50},
				LightSettings: &messaging.LightSettings{Color: "#112233", LightOnDurationMillis: 100, LightOffDurationMillis: 200},
			},
		},
		APNS:    &messaging.APNSConfig{Headers: map[string]string{"apns-priority": "10"}, Payload: &messaging.APNSPayload{Aps: &messaging.Aps{Sound: "default"}}},
		Webpush: &messaging.WebpushConfig{Headers: map[string]string{"TTL": "15"}, FCMOptions: &messaging.WebpushFCMOptions{Link: "https://example.com"}},
	}
	name, err := client.Send(t.Context(), m)
	if err != nil || len(name) < len("projects/"+c.Project+"/messages/0:") {
		t.Fatalf("got %q, %v, want a message name", name, err)
	}
	if _, err := client.SendDryRun(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got := s.Ledger().Accepted("n1", sim.DeviceHash(sim.FCM, device)); got != 1 {
		t.Errorf("accepted %d times, want 1: a dry run delivers nothing", got)
	}

	for _, tt := range []struct {
		reply sim.Reply
		is    func(error) bool
	}{
		{sim.FCMUnregistered, messaging.IsUnregistered},
		{sim.FCMInvalidToken, messaging.IsInvalidArgument},
		{sim.FCMDeviceQuota, messaging.IsQuotaExceeded},
		{sim.FCMSenderIDMismatch, messaging.IsSenderIDMismatch},
		{sim.FCMThirdPartyAuth, messaging.IsThirdPartyAuthError},
		{sim.FCMInternal, messaging.IsInternal},
	} {
		s.Devices().Set(sim.FCM, device, sim.Mark{Reply: tt.reply})
		if _, err := client.Send(t.Context(), m); err == nil || !tt.is(err) {
			t.Errorf("%s: Firebase's SDK reads it as %v", tt.reply, err)
		}
	}
}
