//go:build linux

package send

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"sync"
	"testing"

	"github.com/pushfleet/pushfleet/providers/sim"
)

// Every client sends the same push: its payload is as long and says the same,
// and its headers differ only where each client makes its own.
func TestClientsSendTheSame(t *testing.T) {
	credentials, err := sim.NewCredentials("shop", "com.example.shop")
	if err != nil {
		t.Fatal(err)
	}
	for name := range drivers {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[string]string{} // path to body
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				if err != nil {
					return // the client is gone
				}
				for header, want := range map[string]string{
					"apns-topic": credentials.Topic, "apns-push-type": "alert", "apns-priority": "10", "apns-expiration": strconv.Itoa(expiration),
				} {
					if r.Header.Get(header) != want {
						t.Errorf("%s is %q, want %q", header, r.Header.Get(header), want)
					}
				}
				if len(r.Header.Get("apns-id")) != 36 || r.Header.Get("authorization") == "" {
					t.Errorf("apns-id %q, authorization %q", r.Header.Get("apns-id"), r.Header.Get("authorization"))
				}
				mu.Lock()
				defer mu.Unlock()
				if seen[r.URL.Path] = string(got); len(seen) == 8 {
					cancel()
				}
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			dir := t.TempDir()
			s := &Spec{
				Client: name, URL: server.URL, CAFile: filepath.Join(dir, "ca.pem"), KeyFile: filepath.Join(dir, "key.p8"),
				Topic: credentials.Topic, TeamID: credentials.TeamID, KeyID: credentials.KeyID, Connections: 2, Streams: 4,
			}
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			for file, content := range map[string][]byte{s.CAFile: ca, s.KeyFile: credentials.P8} {
				if err := os.WriteFile(file, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var c tally
			if err := drivers[name](ctx, s, &c); err != nil || c.err() != nil {
				t.Fatal(err, c.err())
			}
			var want any
			if err := json.Unmarshal([]byte(body), &want); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, d := range devices(8) {
				var got any
				text := seen[devicePath+d.token]
				if err := json.Unmarshal([]byte(text), &got); err != nil || len(text) != len(body) || !reflect.DeepEqual(got, want) {
					t.Fatalf("to %s: %q (%v)", d.token, text, err)
				}
			}
		})
	}
}
