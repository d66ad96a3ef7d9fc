package gateway

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/fanout"
)

// What is known of a fan-out is kept as long as states are. Who asks later is told that it is
// gone, and not that it will begin.
func TestAFanoutLongAgoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, notes := fanoutWorld(t)
		receipt := w.toSnow(`{"title": "x"}`).string("receipt")
		time.Sleep(w.gateway.o.Times.Kept + 48*time.Hour)
		notes.Memory = fanout.NewMemory() // the rows have ended by their TTL
		a := w.do(request{method: "GET", path: "/v1/receipts/" + receipt, key: keyOrders})
		if a.status != http.StatusGone || a.code() != codeGone {
			t.Errorf("%d %s", a.status, a.text)
		}
	})
}
