package gateway

import (
	"net/http"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/gateway/quota"
)

// How far a sender has come stands in the headers of every answer to a send, also to a topic.
func TestASendToATopicTellsTheLimits(t *testing.T) {
	underLimits(t, quota.Limits{Minute: 5, Hour: 1000}, func(w *world, _ *embedded.Redis) {
		time.Sleep(20*time.Second + 500*time.Millisecond)
		if a := w.makeTopic("snow", `{"app": "shop", "service_type": "transactional"}`); a.status != http.StatusCreated {
			t.Fatal(a.text)
		}
		for i := range 6 {
			a := w.toSnow(`{"title": "x"}`)
			if want := http.StatusAccepted; i < 5 && a.status != want {
				t.Fatalf("message %d: %d %s", i, a.status, a.text)
			}
			if i == 5 && a.status != http.StatusTooManyRequests {
				t.Errorf("beyond the limit: %d %s", a.status, a.text)
			}
			if a.told("RateLimit-Policy") == "" || a.told("RateLimit") == "" || a.told("X-RateLimit-Remaining") == "" || i > 3 && a.told("X-RateLimit-Warning") == "" {
				t.Errorf("message %d, answered %d: headers %v", i, a.status, a.header)
			}
		}
	})
}
