package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

const plain = `{"app":"shop","service_type":"transactional","user_id":"u42","title":"Hello"}`

// record is the last one produced, as a worker reads it.
func (w *world) record() (Record, push.Message) {
	w.t.Helper()
	r := w.produced[len(w.produced)-1]
	var m push.Message
	if d := decode.Message(r.Value, &m); d != nil {
		w.t.Fatalf("a worker would refuse %s: %v", r.Value, d)
	}
	return r, m
}

func TestSend(t *testing.T) {
	w := newWorld(t)
	got := w.post(`{ "app":"shop", "mode":"exactly_once","service_type":"transactional", "user_id":"u42", "title":"Hello","x":{"mode":"x"}, "sender_id":"orders" }`,
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if got.status != http.StatusAccepted || got.string("mode") != "effectively_once" || got.string("lane") != "transactional" || got.string("status") != "PENDING" {
		t.Fatalf("%d %s", got.status, got.text)
	}
	r, m := w.record()
	if r.Topic != "push.transactional" || string(r.Key) != "u42" || r.Traceparent == "" || m.ID != got.string("id") || m.SenderID != "orders" || m.Title != "Hello" {
		t.Errorf("produced %+v: %s", r, r.Value)
	}
	if strings.Contains(string(r.Value), "service_type") || strings.Count(string(r.Value), `"mode"`) != 1 {
		t.Errorf("the record has what is for the gateway: %s", r.Value)
	}
	if at, ok := push.MintedAt(got.string("id")); !ok || !at.Equal(r.At) {
		t.Errorf("the new id %s is of %v, accepted at %v", got.string("id"), at, r.At)
	}
	if c, ok := w.gateway.o.Signer.open("orders", got.string("receipt")); !ok || c.place != (Place{3, 0}) || c.topic != w.topic || c.owner.user != "u42" || c.app != "shop" {
		t.Errorf("the receipt says %+v", c)
	}
	if got := w.post(`{"app":"shop","service_type":"otp","device":{"platform":"fcm","token":"abc"}}`); got.status != http.StatusAccepted {
		t.Fatalf("to a device: %d %s", got.status, got.text)
	}
	if r, _ := w.record(); r.Topic != "push.critical" || string(r.Key) != push.DeviceHash(push.FCM, "abc") {
		t.Errorf("a device's record is %+v", r)
	}
}

// What would be dead-lettered is 422 with the same code and a pointer; what is the
// caller's fault otherwise has its own code. Nothing of it is produced.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	at := func(d time.Duration) string { u, _ := newID(time.Now().Add(d)); return u }
	for _, tt := range []struct {
		why, body     string
		header        []string
		status        int
		code, pointer string
	}{
		{"no JSON", `{"app"`, nil, 422, "bad_json", ""},
		{"nothing", ``, nil, 422, "empty_value", ""},
		{"a list", `[]`, nil, 422, "wrong_type", ""},
		{"a key twice", `{"app":"shop","app":"shop"}`, nil, 422, "duplicate_key", "/app"},
		{"deep", `{"x":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`, nil, 422, "too_deep", ""},
		{"no UTF-8", "{\"app\":\"shop\",\"title\":\"\xff\"}", nil, 422, "bad_utf8", "/title"},
		{"too large", `{"x":"` + strings.Repeat("x", 65<<10) + `"}`, nil, 422, "too_large", ""},
		{"too large with what is added", `{"app":"shop","service_type":"transactional","user_id":"u","x":"` + strings.Repeat("x", decode.MaxValue-70) + `"}`, nil, 422, "too_large", ""},
		{"a long field", `{"id":"n","app":"shop","user_id":"u","collapse_key":"` + strings.Repeat("x", 65) + `"}`, nil, 422, "field_too_long", "/collapse_key"},
		{"a value inside", `{"id":"n","app":"shop","user_id":"u","data":{"aps":"x"}}`, nil, 422, "bad_value", "/data/aps"},
		{"no app, with no id either", `{"user_id":"u"}`, nil, 422, "missing_field", "/app"},
		{"no receiver", `{"app":"shop","service_type":"transactional"}`, nil, 422, "missing_field", "/user_id"},
		{"an app that nobody has", `{"app":"unconfigured","service_type":"transactional","user_id":"u"}`, nil, 422, "unknown_app", "/app"},
		{"an app of others", `{"app":"bank","service_type":"transactional","user_id":"u"}`, nil, 403, "foreign_app", "/app"},
		{"another sender", `{"app":"shop","service_type":"transactional","user_id":"u","sender_id":"auth"}`, nil, 403, "foreign_sender", "/sender_id"},
		{"another sender behind an escape", `{"app":"shop","service_type":"transactional","user_id":"u","\u0073ender_id":"auth"}`, nil, 403, "foreign_sender", "/sender_id"},
		{"no service type", `{"app":"shop","user_id":"u"}`, nil, 400, "no_service_type", "/service_type"},
		{"an unknown service type", `{"app":"shop","user_id":"u","service_type":"x"}`, nil, 400, "no_lane", "/service_type"},
		{"a mode without a lane", `{"app":"shop","user_id":"u","service_type":"otp","mode":"at_most_once"}`, nil, 400, "no_lane", "/mode"},
		{"an unknown mode", `{"app":"shop","user_id":"u","service_type":"otp","mode":"thrice"}`, nil, 400, "unknown_mode", "/mode"},
		{"a mode of another type", `{"app":"shop","user_id":"u","service_type":"otp","mode":1}`, nil, 422, "wrong_type", "/mode"},
		{"an id from the future", `{"id":"` + at(70*time.Second) + `","app":"shop","service_type":"otp","user_id":"u"}`, nil, 422, "id_in_future", "/id"},
		{"a key from the future", plain, []string{"Idempotency-Key", at(70 * time.Second)}, 422, "id_in_future", "none"},
		{"an id and a key", `{"id":"n","app":"shop","service_type":"otp","user_id":"u"}`, []string{"Idempotency-Key", "k"}, 400, "id_and_key", "none"},
		{"a long key", plain, []string{"Idempotency-Key", strings.Repeat("k", 65)}, 400, "bad_header", "none"},
		{"an empty key", plain, []string{"Idempotency-Key", `""`}, 400, "bad_header", "none"},
		{"a key of other letters", plain, []string{"Idempotency-Key", "schlüssel"}, 400, "bad_header", "none"},
		{"half a quoted key", plain, []string{"Idempotency-Key", `"a"b"`}, 400, "bad_header", "none"},
		{"a form", plain, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "media_type", "none"},
		{"no type", plain, []string{"Content-Type", ""}, 415, "media_type", "none"},
		{"another charset", plain, []string{"Content-Type", "application/json; charset=utf-16"}, 415, "media_type", "none"},
		{"packed", plain, []string{"Content-Encoding", "gzip"}, 415, "media_type", "none"},
		{"more than is read", strings.Repeat(" ", 129<<10), nil, 413, "body_too_large", "none"},
	} {
		got := w.post(tt.body, tt.header...)
		if got.status != tt.status || got.code() != tt.code || got.pointer() != tt.pointer {
			t.Errorf("%s: %d %s %s, want %d %s %s", tt.why, got.status, got.code(), got.pointer(), tt.status, tt.code, tt.pointer)
		}
	}
	if len(w.produced) > 0 {
		t.Errorf("%d were produced", len(w.produced))
	}
	if got := w.post(`{"id":"` + at(50*time.Second) + `","app":"shop","service_type":"otp","user_id":"u"}`); got.status != http.StatusAccepted {
		t.Errorf("a clock that is 50 s ahead: %s", got.text)
	}
	if got := w.post(plain, "Content-Type", "application/json; charset=UTF-8"); got.status != http.StatusAccepted {
		t.Errorf("a charset that is ours: %s", got.text)
	}
}

// A message with an id of its own is not read a second time, and its record is not larger
// than a worker takes either, whatever the sender's name adds.
func TestRecordsAreNotTooLarge(t *testing.T) {
	w := newWorld(t)
	message := func(size int) string {
		m := `{"id":"n","app":"shop","service_type":"otp","user_id":"u","x":"`
		return m + strings.Repeat("x", size-len(m)-2) + `"}`
	}
	more := len(`,"sender_id":"support"`) - len(`,"service_type":"otp"`)
	for size, status := range map[int]int{decode.MaxValue - more: http.StatusAccepted, decode.MaxValue - more + 1: http.StatusUnprocessableEntity, decode.MaxValue + 1: http.StatusUnprocessableEntity} {
		got := w.do(request{method: "POST", path: "/v1/messages", key: keySupport, body: message(size)})
		if got.status != status || status != http.StatusAccepted && (got.code() != "too_large" || size <= decode.MaxValue && got.string("id") != "n") {
			t.Errorf("%d bytes: %d %s", size, got.status, got.text)
		}
	}
	if r, _ := w.record(); len(w.produced) != 1 || len(r.Value) != decode.MaxValue {
		t.Errorf("%d were produced, the last one has %d bytes", len(w.produced), len(r.Value))
	}
}

// An Idempotency-Key stands for one id: of its sender, app and receiver.
func TestIdempotencyKeys(t *testing.T) {
	w := newWorld(t)
	id := func(body, key string) string {
		t.Helper()
		got := w.post(body, "Idempotency-Key", key)
		if got.status != http.StatusAccepted {
			t.Fatal(got.text)
		}
		return got.string("id")
	}
	first := id(plain, "order-17")
	if !push.DerivedID(first) {
		t.Errorf("%s is no derived id", first)
	}
	if again := id(plain, `"order-17"`); again != first {
		t.Errorf("quoted it is %s, and bare %s", again, first)
	}
	if again := id(strings.Replace(plain, "Hello", "Hello!", 1), "order-17"); again != first {
		t.Errorf("with another text it is %s", again)
	}
	for why, other := range map[string]string{
		"another key": id(plain, "order-18"), "another user": id(strings.Replace(plain, "u42", "u43", 1), "order-17"),
		"another device": id(strings.Replace(plain, `"user_id":"u42"`, `"user_id":"u42","device":{"platform":"fcm","token":"t"}`, 1), "order-17"),
		"another sender": w.do(request{method: "POST", path: "/v1/messages", key: keySupport, body: plain, header: map[string]string{"Idempotency-Key": "order-17"}}).string("id"),
	} {
		if other == first || other == "" {
			t.Errorf("%s gives the same id, %s", why, other)
		}
	}
	minted := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	u, err := newID(minted)
	if err != nil {
		t.Fatal(err)
	}
	timed := id(plain, u)
	if at, ok := push.MintedAt(timed); !ok || !at.Equal(minted) || timed == u || uuid.MustParse(timed).Variant() != uuid.RFC4122 {
		t.Errorf("of key %s became %s", u, timed)
	}
	if again := id(plain, u); again != timed {
		t.Errorf("again it is %s", again)
	}
	// What an id was derived to once it is for ever, or a repeat would be pushed twice.
	if got := idKeys(nil).derive("orders", "shop", owner{user: "u42"}, "order-17", time.Now()); got != first || got != "k-SsZfNlH2Zgu1XCd6kdA4SA1PPKSXo-ni" {
		t.Errorf("derived is %s", got)
	}
}

// Kafka away: 503 after the time for it, with the id; a client that repeats with it gets
// a receipt of the same id.
func TestKafkaAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ack = func(Record, func(Place, error)) {} // never
		start := time.Now()
		got := w.post(plain)
		if took := time.Since(start); got.status != http.StatusServiceUnavailable || got.code() != "unconfirmed" || took != 5*time.Second {
			t.Fatalf("after %v: %d %s", took, got.status, got.text)
		}
		if got.header.Get("Retry-After") == "" || got.string("id") == "" {
			t.Errorf("it says %v %s", got.header, got.text)
		}
		w.ack = nil
		again := w.post(`{"id":"` + got.string("id") + `",` + plain[1:])
		if again.status != http.StatusAccepted || again.string("id") != got.string("id") {
			t.Errorf("the repeat: %d %s", again.status, again.text)
		}
	})
}

func TestBufferFull(t *testing.T) {
	w := newWorld(t)
	w.ack = func(_ Record, done func(Place, error)) { done(Place{}, fmt.Errorf("lane: %w", ErrBufferFull)) }
	if got := w.post(plain); got.status != 503 || got.code() != "buffer_full" || got.header.Get("Retry-After") != "1" || got.string("id") == "" {
		t.Errorf("%d %v %s", got.status, got.header, got.text)
	}
	w.ack = func(_ Record, done func(Place, error)) { done(Place{}, errAway) }
	if got := w.post(plain); got.status != 503 || got.code() != "unconfirmed" {
		t.Errorf("an error of Kafka's: %d %s", got.status, got.text)
	}
}

// The status store and the offsets away: sends go on, and when the stores are back the
// receipt proves as much as any.
func TestSendsGoOn(t *testing.T) {
	w := newWorld(t)
	w.rowsErr, w.offErr = errAway, errAway
	got := w.post(plain)
	if got.status != http.StatusAccepted {
		t.Fatalf("%d %s", got.status, got.text)
	}
	if got := w.do(request{method: "GET", path: "/v1/receipts/" + got.string("receipt"), key: keyOrders}); got.status != 503 || got.code() != "status_away" {
		t.Errorf("its receipt: %d %s", got.status, got.text)
	}
	w.rowsErr, w.offErr = nil, nil
	w.forget()
	if got := w.do(request{method: "GET", path: "/v1/receipts/" + got.string("receipt"), key: keyOrders}); got.string("status") != "PENDING" {
		t.Errorf("its receipt, when all is back: %d %s", got.status, got.text)
	}
}

// The group's coordinator hangs while somebody asks for a receipt: sends wait for
// nothing, and a receipt that needs only its rows has them.
func TestTheCoordinatorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id, receipt := w.accepted()
		w.rows[id] = []push.Row{w.row(id, "a", 0, push.StateDelivered, "")}
		w.gateway.progress = newProgress(w, w.gateway.o.Times.Status)
		w.hang = true
		var asking sync.WaitGroup
		asking.Go(func() {
			if got := w.ask(receipt, keyOrders); got.string("status") != "DELIVERED" {
				t.Errorf("the receipt: %d %s", got.status, got.text)
			}
		})
		synctest.Wait()
		start := time.Now()
		if got := w.post(plain); got.status != http.StatusAccepted || time.Since(start) > 0 {
			t.Errorf("a send: %d after %v", got.status, time.Since(start))
		}
		asking.Wait()
	})
}

func TestBatch(t *testing.T) {
	w := newWorld(t)
	line := func(id, user string) string {
		return `{"id":"` + id + `","app":"shop","service_type":"transactional","user_id":"` + user + `"}`
	}
	post := func(body string) *reply {
		return w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: body})
	}
	if got := post(line("a", "u1") + "\n\r\n" + line("b", "u2")); got.status != http.StatusAccepted || got.json["accepted"] != 2.0 {
		t.Fatalf("%d %s", got.status, got.text)
	}
	w.ack = func(r Record, done func(Place, error)) {
		if string(r.Key) == "full" {
			done(Place{}, ErrBufferFull)
			return
		}
		done(w.keep(r), nil)
	}
	got := post(line("c", "u1") + "\n" + `{"app":"shop","service_type":"transactional","user_id":"u"}` + "\n{\n" + line("d", "full") + "\n" + line("e", "u3"))
	if got.status != http.StatusMultiStatus || got.json["accepted"] != 2.0 || got.json["failed"] != 3.0 || got.header.Get("Retry-After") != "1" {
		t.Fatalf("%d %s", got.status, got.text)
	}
	var said []string
	for _, r := range got.json["results"].([]any) {
		m := r.(map[string]any)
		code := "accepted"
		if p, failed := m["problem"].(map[string]any); failed {
			code = p["code"].(string)
		}
		said = append(said, fmt.Sprint(m["line"], " ", m["id"], " ", code))
	}
	if want := "[1 c accepted 2 <nil> missing_field 3 <nil> bad_json 4 d buffer_full 5 e accepted]"; fmt.Sprint(said) != want {
		t.Errorf("said\n%v\nwant\n%s", said, want)
	}
	before := len(w.produced)
	for why, tt := range map[string]struct {
		body, code string
	}{
		"too many lines": {strings.Repeat(line("x", "u")+"\n", 1001), "too_many_lines"},
		"too many bytes": {strings.Repeat(" ", 4<<20+1), "body_too_large"},
		"no line":        {" \n\n", "bad_request"},
	} {
		if got := post(tt.body); got.code() != tt.code {
			t.Errorf("%s: %d %s", why, got.status, got.text)
		}
	}
	if got := w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: line("a", "u"), header: map[string]string{"Idempotency-Key": "k"}}); got.code() != "bad_header" {
		t.Errorf("with a key: %s", got.text)
	}
	if len(w.produced) != before {
		t.Error("something of a refused batch was produced")
	}
	if got := post(strings.Repeat(line("x", "u")+"\n", 1000)); got.status != http.StatusAccepted || got.json["accepted"] != 1000.0 {
		t.Errorf("1,000 lines: %d", got.status)
	}
}

// What is confirmed in a batch before the time is over stands, the rest is 503.
func TestBatchWhileKafkaGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ack = func(r Record, done func(Place, error)) {
			if string(r.Key) == "u1" {
				done(w.keep(r), nil)
			}
		}
		got := w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders,
			body: `{"id":"a","app":"shop","service_type":"otp","user_id":"u1"}` + "\n" + `{"id":"b","app":"shop","service_type":"otp","user_id":"u2"}`})
		if got.status != http.StatusMultiStatus || got.json["accepted"] != 1.0 || !strings.Contains(got.text, "unconfirmed") {
			t.Errorf("%d %s", got.status, got.text)
		}
	})
}

// More batches than there are places for are refused before they are read.
func TestBatchesAreBounded(t *testing.T) {
	w := newWorld(t)
	for range cap(w.gateway.batches) {
		w.gateway.batches <- struct{}{}
	}
	if got := w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: "x"}); got.code() != "busy" || got.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", got.status, got.text)
	}
	for range cap(w.gateway.requests) {
		w.gateway.requests <- struct{}{}
	}
	if got := w.post(plain); got.code() != "busy" {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// A client that goes away takes nobody else's message with it: what was handed over is
// written, and a repeat has the same id.
func TestClientGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		late := make(chan func(), 1) // buffered, capacity 1: closed by nobody
		w.ack = func(r Record, done func(Place, error)) { late <- func() { done(w.keep(r), nil) } }
		req := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(plain))
		req.Header.Set("Authorization", "Bearer "+keyOrders)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "order-17")
		ctx, cancel := contextWithCancel(t)
		cancel()
		w.gateway.ServeHTTP(httptest.NewRecorder(), req.WithContext(ctx))
		(<-late)()
		w.ack = nil
		again := w.post(plain, "Idempotency-Key", "order-17")
		var ids [2]struct{ ID string }
		for i, r := range w.produced {
			if err := json.Unmarshal(r.Value, &ids[i]); err != nil {
				t.Fatal(err)
			}
		}
		if ids[0] != ids[1] || ids[0].ID != again.string("id") {
			t.Errorf("produced are %v", ids)
		}
	})
}
