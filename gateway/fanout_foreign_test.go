package gateway

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/pushfleet/pushfleet/fanout"
)

const keyStranger = "stranger-stranger-stranger-stranger-" // sender stranger, app bank: send and read

// strangers are callers that include a sender of another app.
func strangers(t *testing.T) *Callers {
	t.Helper()
	hash, err := KeyHash(keyStranger)
	if err != nil {
		t.Fatal(err)
	}
	text := keysText(t)
	text = text[:len(text)-len("]}")] + `, {"name": "stranger", "sha256": "` + hash + `", "sender": "stranger", "apps": ["bank"], "rights": ["send", "read"]},
		{"name": "boss", "sha256": "` + hashOf(t, keyBoss) + `", "sender": "boss", "apps": ["bank"], "rights": ["send", "read", "admin"]}]}`
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	callers, err := OpenCallers(path)
	if err != nil {
		t.Fatal(err)
	}
	return callers
}

const keyBoss = "boss-boss-boss-boss-boss-boss-boss-bo" // sender boss, app bank: send, read and admin

func hashOf(t *testing.T, key string) string {
	t.Helper()
	h, err := KeyHash(key)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// foreignWorld has a fan-out of the sender orders that has begun, and a topic of the app bank.
func foreignWorld(t *testing.T) (w *world, notes *reports, j *fanout.Job) {
	t.Helper()
	notes = newReports()
	w = newWorld(t, func(o *Options) { o.Fanouts, o.Callers = notes.fanouts(), strangers(t) })
	if a := w.makeTopic("snow", `{"app": "shop", "service_type": "transactional"}`); a.status != http.StatusCreated {
		t.Fatal(a.text)
	}
	a := w.do(request{method: "PUT", path: "/v1/topics/rates", key: keyStranger, body: `{"app": "bank", "service_type": "transactional"}`})
	if a.status != http.StatusCreated {
		t.Fatal(a.text)
	}
	if a := w.toSnow(`{"title": "x"}`); a.status != http.StatusAccepted {
		t.Fatal(a.text)
	}
	j, _ = w.lastJob()
	if _, err := notes.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return w, notes, j
}

// Whoever sends under the id of another sender's fan-out, which its receivers see as the
// campaign, gets a receipt for that id. It must not be a receipt for the other's message.
func TestAnIDOfAnothersFanoutGivesNoPowerOverIt(t *testing.T) {
	w, notes, j := foreignWorld(t)
	a := w.do(request{method: "POST", path: "/v1/topics/rates/messages", key: keyStranger, body: `{"title": "y", "id": "` + j.Message.String() + `"}`})
	if a.status != http.StatusAccepted {
		return // to refuse it is right, too
	}
	receipt := a.string("receipt")
	for _, order := range []string{"pause", "cancel"} {
		a = w.do(request{method: "POST", path: "/v1/messages/" + receipt + "/" + order, key: keyStranger, header: map[string]string{"Content-Type": ""}})
		if state, err := notes.State(t.Context(), j.Message); err != nil || state != fanout.Running {
			t.Errorf("a stranger's %s, answered %d, made another sender's fan-out %s (%v)", order, a.status, state, err)
		}
	}
}

// The same receipt must not show the topic, the app and the counts of the other's message.
func TestAnIDOfAnothersFanoutDoesNotShowIt(t *testing.T) {
	w, notes, j := foreignWorld(t)
	if err := notes.End(t.Context(), j.Message, 0, &fanout.Counts{Emitted: 4711}); err != nil {
		t.Fatal(err)
	}
	a := w.do(request{method: "POST", path: "/v1/topics/rates/messages", key: keyStranger, body: `{"title": "y", "id": "` + j.Message.String() + `"}`})
	if a.status != http.StatusAccepted {
		return
	}
	a = w.do(request{method: "GET", path: "/v1/receipts/" + a.string("receipt"), key: keyStranger})
	if a.string("topic") == "snow" || a.string("app") == "shop" || a.fanoutOf(t).Emitted != 0 {
		t.Errorf("a stranger sees of another sender's fan-out: %s", a.text)
	}
}

// A key sees only its apps' topics, also one with the right admin: its orders are refused for
// other apps, and the name of their topic is not told.
func TestABareIDShowsNoTopicOfAnotherApp(t *testing.T) {
	w, _, j := foreignWorld(t)
	id := j.Message.String()
	if a := w.do(request{method: "POST", path: "/v1/messages/" + id + "/pause", key: keyBoss, header: map[string]string{"Content-Type": ""}}); a.status != http.StatusNotFound {
		t.Errorf("an order for a foreign app: %d %s", a.status, a.text)
	}
	if a := w.do(request{method: "GET", path: "/v1/topics/snow", key: keyBoss}); a.status != http.StatusNotFound {
		t.Errorf("a foreign topic: %d %s", a.status, a.text)
	}
	if a := w.do(request{method: "GET", path: "/v1/receipts/" + id, key: keyBoss}); a.string("topic") == "snow" {
		t.Errorf("a foreign topic by its message: %d %s", a.status, a.text)
	}
}

// Two messages of one sender with one id, for two topics: the first one holds, so that the
// second is never sent. Its receipt must not say that it is.
func TestOneIDForTwoTopics(t *testing.T) {
	w, _, j := foreignWorld(t)
	if a := w.makeTopic("rain", `{"app": "shop", "service_type": "transactional"}`); a.status != 201 {
		t.Fatal(a.text)
	}
	a := w.do(request{method: "POST", path: "/v1/topics/rain/messages", key: keyOrders, body: `{"title": "rain", "id": "` + j.Message.String() + `"}`})
	if a.status != http.StatusAccepted {
		return
	}
	a = w.do(request{method: "GET", path: "/v1/receipts/" + a.string("receipt"), key: keyOrders})
	if a.status == 200 && a.string("topic") != "rain" && a.string("status") == "SENDING" {
		t.Errorf("a message to rain, which nobody will get, is SENDING: %s", a.text)
	}
}
