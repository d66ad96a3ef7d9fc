package worker

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/configs"
)

// What is under way when a gateway is told to stop is answered as before: its sender is well
// under the limit.
func TestAStoppingGatewayLimitsAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		n.config.Gateway.Limits.Default = configs.SenderLimits{Hour: 1000}
		client, stop := n.startGateway()
		time.Sleep(time.Minute) // Kafka is found
		const message = `{"app": "shop", "service_type": "transactional", "user_id": "owl", "title": "x"}`
		if a, err := call(t, client, "POST", "http://gateway/v1/messages", message); err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%+v, %v", a, err)
		}
		body, more := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://gateway/v1/messages", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+gatewayKey)
		req.Header.Set("Content-Type", "application/json")
		answered := make(chan struct{}) // closed by the next goroutine
		go func() {
			defer close(answered)
			r, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			if text, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusAccepted {
				t.Errorf("%d %s", r.StatusCode, text)
			}
		}()
		_, _ = io.WriteString(more, message[:10])
		synctest.Wait()
		stopped := make(chan struct{}) // closed by the next goroutine
		go func() {
			defer close(stopped)
			stop()
		}()
		time.Sleep(500 * time.Millisecond)
		_, _ = io.WriteString(more, message[10:])
		_ = more.Close()
		<-answered
		<-stopped
	})
}
