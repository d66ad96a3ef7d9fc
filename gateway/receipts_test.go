package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/push"
)

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// accepted sends a message and returns its id and receipt.
func (w *world) accepted() (id, receipt string) {
	w.t.Helper()
	got := w.post(plain)
	if got.status != http.StatusAccepted {
		w.t.Fatal(got.text)
	}
	return got.string("id"), got.string("receipt")
}

func (w *world) ask(receipt, key string) *reply {
	w.t.Helper()
	return w.do(request{method: "GET", path: "/v1/receipts/" + url.PathEscape(receipt), key: key})
}

// forget lets the next receipt ask for offsets again.
func (w *world) forget() { w.gateway.progress = newProgress(w, time.Second) }

func (w *world) row(id, device string, step int16, state push.State, reason string) push.Row {
	return push.Row{ID: id, Device: device, Step: step, State: state, Reason: reason, At: time.Now().UTC().Truncate(time.Millisecond), Platform: push.APNS, UserHash: push.UserHash("u42")}
}

func TestReceipts(t *testing.T) {
	for _, tt := range []struct {
		why                   string
		rows                  func(w *world, id string) []push.Row
		status, state, reason string
		final                 bool
		devices               int
	}{
		{"being sent", func(w *world, id string) []push.Row { return []push.Row{w.row(id, "a", 0, push.StateSending, "")} }, "SENDING", "SENDING", "", false, 1},
		{"to be tried again", func(w *world, id string) []push.Row {
			return []push.Row{w.row(id, "a", 0, push.StateRetrying, "timeout")}
		}, "SENDING", "RETRYING", "timeout", false, 1},
		{"held before its devices are known", func(w *world, id string) []push.Row {
			return []push.Row{w.row(id, "", 0, push.StateHeld, "quiet_hours")}
		}, "SENDING", "HELD", "quiet_hours", false, 0},
		{"delivered", func(w *world, id string) []push.Row {
			return []push.Row{w.row(id, "a", 0, push.StateDelivered, ""), w.row(id, "b", 0, push.StateFailed, "Unregistered")}
		}, "DELIVERED", "DELIVERED", "", true, 2},
		{"delivered to one, and another is open", func(w *world, id string) []push.Row {
			return []push.Row{w.row(id, "a", 0, push.StateDelivered, ""), w.row(id, "b", 0, push.StateRetrying, "timeout")}
		}, "DELIVERED", "DELIVERED", "", false, 2},
		{"no device", func(w *world, id string) []push.Row {
			return []push.Row{w.row(id, "", 0, push.StateSuppressed, "no_device")}
		}, "FAILED", "SUPPRESSED", "no_device", true, 0},
		{"the provider's own word", func(w *world, id string) []push.Row {
			return []push.Row{w.row(id, "a", 0, push.StateFailed, "Unregistered")}
		}, "FAILED", "FAILED", "Unregistered", true, 1},
		{"expired", func(w *world, id string) []push.Row {
			return []push.Row{w.row(id, "a", 0, push.StateRetrying, "timeout"), w.row(id, "a", 1, push.StateExpired, "past_greatest_age")}
		}, "FAILED", "EXPIRED", "past_greatest_age", true, 1},
		{"an attempt without a result", func(w *world, id string) []push.Row {
			return []push.Row{w.row(id, "a", 0, push.StateUnknown, "intent_without_result")}
		}, "FAILED", "UNKNOWN", "intent_without_result", true, 1},
		{"a state from a newer version", func(w *world, id string) []push.Row {
			return []push.Row{w.row(id, "a", 0, push.StateShed, "")}
		}, "FAILED", "SHED", "", true, 1},
	} {
		w := newWorld(t)
		id, receipt := w.accepted()
		w.rows[id] = tt.rows(w, id)
		got := w.ask(receipt, keyOrders)
		devices, _ := got.json["devices"].([]any)
		if got.status != http.StatusOK || got.string("status") != tt.status || got.string("state") != tt.state || got.string("reason") != tt.reason ||
			got.json["final"] != tt.final || len(devices) != tt.devices || got.string("meaning") == "" || got.string("mode") != "effectively_once" {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
		if again := got.header.Get("Retry-After"); (again == "") != tt.final {
			t.Errorf("%s: ask again after %q", tt.why, again)
		}
		if receiver, _ := got.json["receiver"].(map[string]any); receiver["user_id"] != "u42" {
			t.Errorf("%s: for %v", tt.why, receiver)
		}
	}
}

// PENDING is proved: the committed offset, read before the rows, is not behind the record.
func TestPending(t *testing.T) {
	w := newWorld(t)
	id, receipt := w.accepted() // at offset 0 of partition 3
	pending := func(why string) {
		t.Helper()
		if got := w.ask(receipt, keyOrders); got.status != 200 || got.string("status") != "PENDING" || got.json["final"] != false || got.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %s", why, got.status, got.text)
		}
	}
	pending("nothing is committed")
	w.forget()
	w.committed[3], w.committed[4] = 0, 100
	pending("the next record to be read is this one")

	w.forget()
	w.committed[3] = 1
	got := w.ask(receipt, keyOrders)
	if got.string("status") != "UNKNOWN" || got.string("reason") != "no_trace" || got.json["final"] != true {
		t.Errorf("passed without a trace: %d %s", got.status, got.text)
	}
	if n := testutil.ToFloat64(w.gateway.o.Metrics.traceless); n != 1 {
		t.Errorf("it was counted %v times", n)
	}
	place := push.PlaceID("push.transactional", 3, 0)
	w.rows[place] = []push.Row{w.row(place, "", 0, push.StateDeadLettered, "id_reused")}
	other := w.row(id, "a", 0, push.StateDelivered, "")
	other.UserHash = push.UserHash("somebody else")
	w.rows[id] = []push.Row{other}
	if got := w.ask(receipt, keyOrders); got.string("status") != "FAILED" || got.string("state") != "DEAD_LETTERED" || got.string("reason") != "id_reused" || got.string("id") != id {
		t.Errorf("ended under its place: %d %s", got.status, got.text)
	}

	w.forget()
	delete(w.rows, place)
	w.topic = [16]byte{2}
	if got := w.ask(receipt, keyOrders); got.string("status") != "UNKNOWN" || got.string("reason") != "place_unknown" || got.json["final"] != false {
		t.Errorf("in a topic that was made anew: %d %s", got.status, got.text)
	}
	w.forget()
	w.offErr = errAway
	if got := w.ask(receipt, keyOrders); got.status != 503 || got.code() != "status_away" {
		t.Errorf("without offsets: %d %s", got.status, got.text)
	}
	w.rows[id] = []push.Row{w.row(id, "a", 0, push.StateDelivered, "")}
	if got := w.ask(receipt, keyOrders); got.string("status") != "DELIVERED" {
		t.Errorf("rows need no offsets: %d %s", got.status, got.text)
	}
}

// Offsets are read before rows, and once a second for all.
func TestOffsetsAreReadFirst(t *testing.T) {
	w := newWorld(t)
	_, receipt := w.accepted()
	w.forget()
	w.order, w.asks = nil, 0
	w.ask(receipt, keyOrders)
	w.ask(receipt, keyOrders)
	if !slices.Equal(w.order, []string{"offsets", "rows", "rows"}) {
		t.Errorf("read were %q", w.order)
	}
}

// A key sees only its own sender's and apps' messages; what there is not looks the same.
func TestWhoMaySee(t *testing.T) {
	w := newWorld(t)
	id, receipt := w.accepted()
	w.rows[id] = []push.Row{w.row(id, "a", 0, push.StateDelivered, "")}
	last := receipt[len(receipt)-3:]
	forged := strings.TrimSuffix(receipt, last) + map[bool]string{true: "AAB", false: "AAA"}[last == "AAA"]
	var same string
	for _, tt := range []struct {
		why, receipt, key string
		status            int
		code              string
	}{
		{"the sender", receipt, keyOrders, 200, ""},
		{"the sender's key for another app", receipt, keyReader, 404, "no_receipt"},
		{"a forged one", forged, keyOrders, 404, "no_receipt"},
		{"for another id", "x" + receipt, keyOrders, 404, "no_receipt"},
		{"a bare id", id, keyOrders, 404, "no_receipt"},
		{"an id that there is not", "nothing", keyOrders, 404, "no_receipt"},
		{"not even a receipt", "~", keyOrders, 404, "no_receipt"},
		{"nobody", receipt, "", 401, "unauthorized"},
		{"an admin, by the bare id", id, keySupport, 200, ""},
		{"an admin, by another sender's receipt", receipt, keySupport, 200, ""},
		{"an admin, by an id without rows", "nothing", keySupport, 404, "no_receipt"},
		{"an admin, by what is no id", strings.Repeat("x", 65), keySupport, 404, "no_receipt"},
	} {
		got := w.ask(tt.receipt, tt.key)
		if got.status != tt.status || got.code() != tt.code {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
		if tt.key == keyOrders && tt.status == 404 {
			if same != "" && got.text != same {
				t.Errorf("%s: told apart by %s", tt.why, got.text)
			}
			same = got.text
		}
	}
}

func TestGone(t *testing.T) {
	w := newWorld(t)
	cl := claim{id: "old", mode: AtLeastOnce, lane: "critical", service: "otp", app: "shop", owner: owner{user: "u42"}, topic: w.topic, place: Place{3, 5},
		at: time.Now().Add(-721 * time.Hour)}
	w.committed[3] = 6
	if got := w.ask(signed(w.gateway.o.Signer, "orders", &cl), keyOrders); got.status != 410 || got.code() != "gone" {
		t.Errorf("%d %s", got.status, got.text)
	}
	w.rows["old"] = []push.Row{w.row("old", "a", 4, push.StateDelivered, "")}
	if got := w.ask(signed(w.gateway.o.Signer, "orders", &cl), keyOrders); got.string("status") != "DELIVERED" {
		t.Errorf("with a row that is left: %s", got.text)
	}
	cl.id, cl.lane = "young", "removed"
	cl.at = time.Now()
	if got := w.ask(signed(w.gateway.o.Signer, "orders", &cl), keyOrders); got.string("reason") != "place_unknown" {
		t.Errorf("of a lane that is gone: %s", got.text)
	}
	cl.lane, cl.place.Offset = "critical", -1
	if got := w.ask(signed(w.gateway.o.Signer, "orders", &cl), keyOrders); got.string("reason") != "place_unknown" {
		t.Errorf("of which the broker did not say the offset: %s", got.text)
	}
}

func TestQuery(t *testing.T) {
	w := newWorld(t)
	id, receipt := w.accepted()
	_, second := w.accepted()
	w.rows[id] = []push.Row{w.row(id, "a", 0, push.StateDelivered, "")}
	query := func(body string) *reply {
		return w.do(request{method: "POST", path: "/v1/receipts:query", key: keyOrders, body: body})
	}
	text, _ := json.Marshal(question{[]string{receipt, "nothing", second, receipt}})
	got := query(string(text))
	var said []string
	for _, r := range got.json["results"].([]any) {
		m := r.(map[string]any)
		if p, is := m["problem"].(map[string]any); is {
			said = append(said, p["code"].(string))
			continue
		}
		said = append(said, m["status"].(string))
	}
	if got.status != 200 || fmt.Sprint(said) != "[DELIVERED no_receipt PENDING DELIVERED]" || got.header.Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", got.status, got.header, said)
	}
	many, _ := json.Marshal(question{slices.Repeat([]string{receipt}, 1001)})
	for why, tt := range map[string]struct {
		body, code string
	}{
		"no JSON": {"{", "bad_request"}, "another member": {`{"receipts":["a"],"x":1}`, "bad_request"}, "none": {`{"receipts":[]}`, "bad_request"},
		"two objects": {`{"receipts":["a"]}{}`, "bad_request"}, "too many": {string(many), "too_many_lines"}, "other values": {`{"receipts":[1]}`, "bad_request"},
		"twice": {`{"receipts":["a"],"receipts":["b"]}`, "bad_request"}, "in other letters": {`{"Receipts":["a"]}`, "bad_request"}, "null": {`{"receipts":["a",null]}`, "bad_request"},
		"no UTF-8": {"{\"receipts\":[\"\xff\"]}", "bad_request"}, "another list": {`{"receipts":null}`, "bad_request"},
	} {
		if got := query(tt.body); got.code() != tt.code {
			t.Errorf("%s: %d %s", why, got.status, got.text)
		}
	}
	w.rowsErr = errAway
	if got := query(string(text)); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("without the store: %d %s", got.status, got.text)
	}
}

// More queries than there are places for are refused before they are read.
func TestTooManyQueries(t *testing.T) {
	w := newWorld(t)
	for range cap(w.gateway.queries) {
		w.gateway.queries <- struct{}{}
	}
	got := w.do(request{method: "POST", path: "/v1/receipts:query", key: keyOrders, body: `{"receipts":["x"]}`})
	if got.status != http.StatusServiceUnavailable || got.code() != "busy" {
		t.Errorf("got %d, %s", got.status, got.text)
	}
	<-w.gateway.queries
	if got := w.do(request{method: "POST", path: "/v1/receipts:query", key: keyOrders, body: `{"receipts":["x"]}`}); got.status != http.StatusOK {
		t.Errorf("with a place: %d, %s", got.status, got.text)
	}
}
