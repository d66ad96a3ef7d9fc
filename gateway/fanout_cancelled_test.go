package gateway

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
)

// A cancelled chunk is noted as ended, with those whom it had reached. When every part of a
// message that was not done was open (all 16 of a small topic are), all parts are noted: it
// is cancelled all the same, and not every receiver has a notification.
func TestCancelledFanoutIsNotReportedAsEnded(t *testing.T) {
	w, notes := fanoutWorld(t)
	if a := w.makeTopic("club", `{"app": "shop", "service_type": "transactional", "size": "small"}`); a.status != http.StatusCreated {
		t.Fatal(a.text)
	}
	receipt := w.do(request{method: "POST", path: "/v1/topics/club/messages", key: keyOrders, body: `{"title": "x"}`}).string("receipt")
	j, _ := w.lastJob()
	if _, err := notes.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if a := w.do(request{method: "POST", path: "/v1/messages/" + receipt + "/cancel", key: keyOrders, header: map[string]string{"Content-Type": ""}}); a.status != http.StatusAccepted {
		t.Fatal(a.text)
	}
	for part := range j.To.Parts { // as the emitter and the holder do with chunks of a cancelled message
		if err := notes.End(t.Context(), j.Message, part, &fanout.Counts{}); err != nil {
			t.Fatal(err)
		}
	}
	a := w.do(request{method: "GET", path: "/v1/receipts/" + receipt, key: keyOrders})
	if f := a.fanoutOf(t); f.State != "cancelled" || a.json["final"] != true {
		t.Errorf("nobody got the cancelled message, and it is %q: %s", f.State, a.text)
	}
}

// slowNotes answer nothing until nobody waits any more.
type slowNotes struct{ fanout.Records }

func (slowNotes) Look(ctx context.Context, _ uuid.UUID) (*fanout.Progress, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Notes of fan-outs that do not answer take the time of nobody else: the others of a query
// have their rows, as they do when the offsets do not come.
func TestSlowFanoutsLeaveTimeForOtherReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, notes := fanoutWorld(t)
		many := w.toSnow(`{"title": "x"}`).string("receipt")
		single := w.post(`{"app": "shop", "service_type": "otp", "user_id": "u42", "title": "x"}`).string("receipt")
		w.gateway.o.Fanouts.Records = slowNotes{notes}
		a := w.do(request{method: "POST", path: "/v1/receipts:query", key: keyOrders, body: `{"receipts": ["` + many + `", "` + single + `"]}`})
		list, _ := a.json["results"].([]any)
		if len(list) != 2 || list[1].(map[string]any)["status"] != "PENDING" {
			t.Errorf("the single receipt is not answered: %d %s", a.status, a.text)
		}
	})
}
