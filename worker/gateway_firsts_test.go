package worker

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

const plainOrder = `{"id": "order-17", "app": "shop", "service_type": "transactional", "user_id": "owl", "title": "x"}`

// Gateways know each other's messages for as long as it is configured, and what one has
// accepted just before its end. A repeat is then not in Kafka.
func TestGatewaysKnowRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fleetWithGateway(t)
		defer n.close()
		n.config.Gateway.Repeats = 10 * time.Minute
		send := func(before func()) (receipt string, replayed bool) {
			t.Helper()
			client, stop := n.startGateway()
			defer stop()
			time.Sleep(time.Minute) // Kafka is found
			before()
			a, err := call(t, client, "POST", "http://gateway/v1/messages", plainOrder)
			if err != nil || a.status != http.StatusAccepted {
				t.Fatalf("%+v, %v", a, err)
			}
			return a.receipt, a.json["replayed"] == true
		}
		first, replayed := send(func() {})
		if replayed {
			t.Error("the first one is a repeat")
		}
		if again, replayed := send(func() {}); again != first || !replayed {
			t.Errorf("at the next gateway: %s after %s, %v", again, first, replayed)
		}
		if again, replayed := send(func() { time.Sleep(10 * time.Minute) }); again == first || replayed {
			t.Errorf("after ten minutes: %s after %s, %v", again, first, replayed)
		}
		n.config.Gateway.Repeats = 0
		if again, replayed := send(func() {}); again == first || replayed {
			t.Errorf("where nothing is kept: %s after %s, %v", again, first, replayed)
		}
	})
}
