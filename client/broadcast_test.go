package client

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
)

// A message to all users of an app is repeated with its id, at the app's own path.
func TestBroadcast(t *testing.T) {
	var bodies []string
	w := newWorld(t)
	w.before = func(rw http.ResponseWriter, r *http.Request) bool {
		text, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.EscapedPath() != "/v1/apps/a%2Fb/messages" || r.Header.Get("Authorization") != "Bearer "+key {
			t.Errorf("%s %s: %v", r.Method, r.URL.EscapedPath(), err)
		}
		bodies = append(bodies, string(text))
		var m Message
		if err := json.Unmarshal(text, &m); err != nil {
			t.Error(err)
		}
		if len(bodies) == 1 {
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		rw.WriteHeader(http.StatusAccepted)
		_, _ = rw.Write([]byte(`{"id": "` + m.ID + `", "receipt": "r", "status": "PENDING"}`))
		return true
	}
	m := &Message{App: "a/b", ServiceType: "promotional", Title: "New terms"}
	got, err := w.client.Broadcast(t.Context(), m)
	if err != nil || got.ID != m.ID || m.ID == "" || len(bodies) != 2 || bodies[0] != bodies[1] || len(w.pauses) != 1 {
		t.Errorf("%+v, %v after %q", got, err, bodies)
	}
	if _, err := w.client.Broadcast(t.Context(), &Message{ServiceType: "promotional"}); err == nil || len(bodies) != 2 {
		t.Errorf("without an app: %v", err)
	}
	path := ""
	w.before = func(rw http.ResponseWriter, r *http.Request) bool {
		path = r.URL.EscapedPath()
		rw.WriteHeader(http.StatusAccepted)
		_, _ = rw.Write([]byte(`{"id": "n", "receipt": "r", "status": "PENDING"}`))
		return true
	}
	if _, err := w.client.BroadcastToSegment(t.Context(), "life/cycle", "new", &Message{App: "shop", Title: "Hello"}); err != nil || path != "/v1/apps/shop/segments/life%2Fcycle/new/messages" {
		t.Errorf("%s: %v", path, err)
	}
	if _, err := w.client.BroadcastToSegment(t.Context(), "", "new", &Message{App: "shop"}); err == nil {
		t.Error("without a group")
	}
}
