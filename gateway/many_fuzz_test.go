package gateway

import (
	"net/http"
	"testing"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// FuzzMany: bodies of messages to many receivers, of batches of subscriptions and reports, and
// of links are accepted whole or refused by a code that the contract has. What is accepted a
// fan-out can read, and each receiver's record a worker.
func FuzzMany(f *testing.F) {
	const snow = `{"title":"Snow","service_type":"transactional","type":"news","data":{"a":"b"},"clicks":true}`
	for _, body := range append([]string{snow, `{"title":"a","title":"b"}`, `{"service_type":"transactional","title":"\ud800"}`, `{"service_type":"transactional","title":"x","user_id":"u"}`,
		`{"service_type":"transactional","expires_at":"2999-01-01T00:00:00Z","title":"x","collapse_key":"k"}`, `{"app":"shop","type":"news"}`, `{"user_id":"u1","mode":"pull"}` + "\n" + `{"user_id":"u1"}`,
		`{"token":"x","event":"CLICKED"}` + "\n\n" + `{"token":"y"}`}, seeds...) {
		f.Add([]byte(body))
	}
	var w *world // one for all, as it takes longer than a request
	f.Fuzz(func(t *testing.T, body []byte) {
		if w == nil {
			w, _, _ = segmentWorld(t, someSegments{"lifecycle/new": true})
			if got := w.as(keySupport, "PUT", "/v1/topics/many", `{"app":"shop","service_type":"transactional","modes":["push","pull"]}`); got.status/100 != 2 {
				t.Fatal(got.text)
			}
		}
		w.t = t
		for _, to := range []struct{ key, path string }{{keySupport, "/v1/topics/many/messages"}, {keyNews, "/v1/apps/shop/messages"}, {keyNews, "/v1/apps/shop/segments/lifecycle/new/messages"}} {
			got := w.as(to.key, "POST", to.path, string(body))
			if got.status == http.StatusAccepted {
				w.readable(got)
			} else if got.code() == "" || got.status >= 500 && got.status != http.StatusNotImplemented {
				t.Fatalf("%s: %d %s", to.path, got.status, got.text)
			}
		}
		for _, to := range []struct{ key, path string }{{keySupport, "/v1/topics/many/subscriptions/batch"}, {"", "/v1/events/batch"}, {keySupport, "/v1/users/u1/unsubscribe-links"}} {
			if got := w.as(to.key, "POST", to.path, string(body)); got.status >= 500 || got.status >= 400 && got.code() == "" {
				t.Fatalf("%s: %d %s", to.path, got.status, got.text)
			}
		}
	})
}

// readable checks that the last job can be read, and that a worker reads what comes of it.
func (w *world) readable(accepted *reply) {
	w.t.Helper()
	j, _ := w.lastJob()
	record := `{"id":"` + fanout.ID(j.Message, "u1") + `","user_id":"u1",` + string(j.Rest)
	var m push.Message
	if d := decode.Message([]byte(record), &m); d != nil || m.UserID != "u1" || m.App != "shop" || m.SenderID != j.Sender || m.Device.Token != "" || j.Expires.Before(j.Accepted) {
		w.t.Fatalf("%s comes to %s: %v", accepted.text, record, d)
	}
}
