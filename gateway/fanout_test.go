package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// reports are notes of fan-outs that can be away.
type reports struct {
	*fanout.Memory
	mu         sync.Mutex
	err        error // guarded by mu
	partitions int32 // guarded by mu
}

func newReports() *reports { return &reports{Memory: fanout.NewMemory(), partitions: 6} }

func (r *reports) fanouts() *Fanouts {
	return &Fanouts{Records: r, Partitions: r.of, Ages: map[string]time.Duration{"transactional": time.Hour, "once": time.Minute, "critical": time.Minute}}
}

func (r *reports) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *reports) trouble() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *reports) Look(ctx context.Context, id uuid.UUID) (*fanout.Progress, error) {
	if err := r.trouble(); err != nil {
		return nil, err
	}
	return r.Memory.Look(ctx, id)
}

func (r *reports) Messages(ctx context.Context, app string, to fanout.To, before fanout.Place, oldest time.Time, limit int) ([]fanout.Listed, error) {
	if err := r.trouble(); err != nil {
		return nil, err
	}
	return r.Memory.Messages(ctx, app, to, before, oldest, limit)
}

func (r *reports) Order(ctx context.Context, id uuid.UUID, s fanout.State, at time.Time) error {
	if err := r.trouble(); err != nil {
		return err
	}
	return r.Memory.Order(ctx, id, s, at)
}

func (r *reports) of(context.Context, string) (int32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.partitions, r.err
}

// fanoutWorld has the topic snow of the app shop, of medium size and high priority.
func fanoutWorld(t *testing.T) (*world, *reports) {
	t.Helper()
	notes := newReports()
	w := newWorld(t, func(o *Options) { o.Fanouts = notes.fanouts() })
	if a := w.makeTopic("snow", `{"app": "shop", "service_type": "transactional", "metadata": {"priority": "high"}}`); a.status != http.StatusCreated {
		t.Fatal(a.text)
	}
	return w, notes
}

// toSnow sends a message to the topic as orders.
func (w *world) toSnow(body string, header ...string) *reply {
	w.t.Helper()
	h := map[string]string{}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return w.do(request{method: "POST", path: "/v1/topics/snow/messages", key: keyOrders, body: body, header: h})
}

// lastJob is the job that was produced last.
func (w *world) lastJob() (*fanout.Job, Record) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.produced) == 0 {
		w.t.Fatal("nothing was produced")
	}
	r := w.produced[len(w.produced)-1]
	j, err := fanout.DecodeJob(r.Value)
	if err != nil {
		w.t.Fatal(err)
	}
	return j, r
}

func TestSendToTopic(t *testing.T) {
	w, _ := fanoutWorld(t)
	id, _ := newID(clock())
	a := w.toSnow(`{"id": "`+id+`", "title": "Sn\"ow", "data": {"a": "b"}, "type": "news", "expires_at": "2999-01-01T00:00:00Z"}`, "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if a.status != http.StatusAccepted || a.string("id") != id || a.string("lane") != "transactional" || a.string("status") != "PENDING" {
		t.Fatalf("%d %s", a.status, a.text)
	}
	j, r := w.lastJob()
	if r.Topic != fanout.JobsTopic || string(r.Key) != string(j.Message[:]) || r.Traceparent == "" || j.Traceparent != r.Traceparent {
		t.Errorf("%+v", r)
	}
	want := fanout.To{Kind: fanout.OfTopic, Name: "snow", Layout: j.To.Layout, Buckets: 64, Parts: 256}
	message := fanout.MessageOf(uuid.MustParse(id), "orders", "shop", "snow")
	if j.Message != message || j.Sender != "orders" || j.App != "shop" || j.ServiceType != "transactional" || j.Topic != "push.transactional" || j.Partitions != 6 || j.To != want ||
		j.Priority != push.High || j.Expires.Sub(j.Accepted) != time.Hour || j.Campaign != message.String() {
		t.Errorf("%+v", j)
	}
	if got, want := string(j.Rest), `"sender_id":"orders","app":"shop","title": "Sn\"ow","data": {"a": "b"},"type": "news","campaign":"`+message.String()+`"}`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	// The priority and the expiry of the message count, as far as they are below.
	at := clock().Add(10 * time.Minute)
	if a := w.toSnow(fmt.Sprintf(`{"title": "x", "priority": "low", "expires_at": %q, "app": "shop", "service_type": "transactional", "user_id": "", "device": null, "mode": "at_most_once"}`,
		at.Format(time.RFC3339Nano))); a.status != http.StatusAccepted || a.string("mode") != "at_most_once" {
		t.Fatalf("%d %s", a.status, a.text)
	}
	if j, _ := w.lastJob(); j.Priority != push.Low || !j.Expires.Equal(j.Accepted.Add(time.Minute)) || j.Lane != "once" {
		t.Errorf("%+v", j)
	}
	if a := w.toSnow(fmt.Sprintf(`{"title": "x", "priority": "critical", "expires_at": %q}`, at.Format(time.RFC3339Nano))); a.status != http.StatusAccepted {
		t.Fatal(a.text)
	}
	if j, _ := w.lastJob(); j.Priority != push.High || !j.Expires.Equal(at) {
		t.Errorf("%+v", j)
	}
}

// An Idempotency-Key that is a UUIDv7 gives the same id again, and another key none.
func TestTopicIdempotency(t *testing.T) {
	w, _ := fanoutWorld(t)
	key, _ := newID(clock())
	var ids []string
	for range 2 {
		a := w.toSnow(`{"title": "x"}`, "Idempotency-Key", key)
		if a.status != http.StatusAccepted {
			t.Fatal(a.text)
		}
		ids = append(ids, a.string("id"))
	}
	if ids[0] != ids[1] || ids[0] == key {
		t.Errorf("ids %v of key %s", ids, key)
	}
	if a := w.toSnow(`{"title": "x"}`, "Idempotency-Key", "snow-17"); a.status != http.StatusBadRequest || a.code() != codeBadHeader {
		t.Errorf("%d %s", a.status, a.text)
	}
}

func TestMessagesToTopicsAreRefused(t *testing.T) {
	w, _ := fanoutWorld(t)
	for name, body := range map[string]string{"secret": `{"app": "shop", "service_type": "transactional", "metadata": {"security": "confidential"}}`, "gone": offers} {
		if a := w.makeTopic(name, body); a.status != http.StatusCreated {
			t.Fatal(a.text)
		}
	}
	if a := w.do(request{method: "DELETE", path: "/v1/topics/gone", key: keyOrders}); a.status != http.StatusOK {
		t.Fatal(a.text)
	}
	future, _ := newID(clock().Add(2 * time.Minute))
	for _, tt := range []struct {
		why, path, key, body string
		status               int
		code, pointer        string
	}{
		{"nobody", "snow", "", `{}`, 401, codeUnauthorized, ""},
		{"a key that may not send", "snow", keyReader, `{}`, 403, codeForbidden, ""},
		{"no topic", "rain", keyOrders, `{}`, 404, codeNoTopic, ""},
		{"a closed topic", "gone", keyOrders, `{"title": "x"}`, 409, codeTopicClosed, ""},
		{"a confidential topic", "secret", keyOrders, `{"title": "x"}`, 501, codeNotConfigured, ""},
		{"a receiver", "snow", keyOrders, `{"title": "x", "user_id": "u1"}`, 422, codeInvalidField, "/user_id"},
		{"a device", "snow", keyOrders, `{"title": "x", "device": {"platform": "fcm", "token": "t"}}`, 422, codeInvalidField, "/device"},
		{"another app", "snow", keyOrders, `{"title": "x", "app": "bank"}`, 422, codeInvalidField, "/app"},
		{"another service type", "snow", keyOrders, `{"title": "x", "service_type": "otp"}`, 422, codeInvalidField, "/service_type"},
		{"a service type that is none", "snow", keyOrders, `{"title": "x", "service_type": 7}`, 422, codeInvalidField, "/service_type"},
		{"no JSON", "snow", keyOrders, `title=x`, 422, "bad_json", ""},
		{"a member twice", "snow", keyOrders, `{"title": "x", "title": "y"}`, 422, "duplicate_key", "/title"},
		{"a wrong member", "snow", keyOrders, `{"title": 7}`, 422, "wrong_type", "/title"},
		{"another sender", "snow", keyOrders, `{"title": "x", "sender_id": "bank"}`, 403, codeForeignSender, "/sender_id"},
		{"a mode without a lane", "snow", keyOrders, `{"title": "x", "mode": "at_least_once"}`, 400, codeNoLane, "/mode"},
		{"an id without a time", "snow", keyOrders, `{"title": "x", "id": "snow-17"}`, 422, codeInvalidField, "/id"},
		{"an id of the future", "snow", keyOrders, `{"title": "x", "id": "` + future + `"}`, 422, codeFutureID, "/id"},
		{"expired", "snow", keyOrders, `{"title": "x", "expires_at": "2020-01-01T00:00:00Z"}`, 422, codeInvalidField, "/expires_at"},
		{"no room for a user", "snow", keyOrders, `{"title": "` + strings.Repeat("x", decode.MaxValue-600) + `"}`, 422, "too_large", ""},
	} {
		got := w.do(request{method: "POST", path: "/v1/topics/" + tt.path + "/messages", key: tt.key, body: tt.body})
		if got.status != tt.status || got.code() != tt.code || tt.pointer != "" && got.pointer() != tt.pointer {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
	}
	if len(w.produced) != 0 {
		t.Errorf("%d records were produced", len(w.produced))
	}
}

// Nothing is promised that is not in Kafka.
func TestSendToTopicUnconfirmed(t *testing.T) {
	w, notes := fanoutWorld(t)
	w.set(func() { w.ack = func(_ Record, done func(Place, error)) { done(Place{}, errAway) } })
	id, _ := newID(clock())
	body := `{"title": "x", "id": "` + id + `"}`
	if a := w.toSnow(body); a.status != http.StatusServiceUnavailable || a.code() != codeUnconfirmed || a.string("id") != id {
		t.Errorf("Kafka is away: %d %s", a.status, a.text)
	}
	w.set(func() { w.ack = nil })
	notes.set(errAway)
	if a := w.toSnow(body); a.status != http.StatusServiceUnavailable || a.code() != codeUnconfirmed || a.string("id") != id || len(w.produced) != 0 {
		t.Errorf("the lane's partitions are not known: %d %s", a.status, a.text)
	}
}

// fanoutOf is the report about a fan-out.
func (a *reply) fanoutOf(t *testing.T) FanoutReport {
	t.Helper()
	var r struct{ Fanout FanoutReport }
	if err := json.Unmarshal([]byte(a.text), &r); err != nil {
		t.Fatal(err)
	}
	return r.Fanout
}

func TestReceiptOfFanout(t *testing.T) {
	w, notes := fanoutWorld(t)
	receipt := w.toSnow(`{"title": "x"}`).string("receipt")
	ask := func() *reply {
		return w.do(request{method: "GET", path: "/v1/receipts/" + receipt, key: keyOrders})
	}
	a := ask()
	if f := a.fanoutOf(t); a.status != 200 || a.string("status") != "PENDING" || f.State != "accepted" || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.text)
	}
	j, _ := w.lastJob()
	if _, err := notes.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	for part := range 3 {
		if err := notes.End(t.Context(), j.Message, part, &fanout.Counts{Emitted: 100, Skipped: [5]int64{fanout.SkipLeft: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	a = ask()
	if f := a.fanoutOf(t); a.string("status") != "SENDING" || f.State != "running" || f.Chunks != (FanoutChunks{256, 3}) || f.Emitted != 300 || f.Skipped["left"] != 6 || a.string("topic") != "snow" || a.json["final"] != false {
		t.Errorf("%d %s", a.status, a.text)
	}
	order := func(path, key string) *reply {
		return w.do(request{method: "POST", path: "/v1/messages/" + path, key: key, header: map[string]string{"Content-Type": ""}})
	}
	for _, tt := range []struct {
		why, path, key string
		status         int
		code, order    string
		state          string
	}{
		{"by its receipt", receipt + "/pause", keyOrders, 202, "", "paused", "paused"},
		{"by its id", j.Message.String() + "/resume", keyOrders, 202, "", "running", "running"},
		{"another sender's receipt", receipt + "/cancel", keyLogins, 403, codeForbidden, "", "running"},
		{"an administrator", j.Message.String() + "/pause", keySupport, 202, "", "paused", "paused"},
		{"nobody", j.Message.String() + "/cancel", "", 401, codeUnauthorized, "", "paused"},
		{"no id", "x/cancel", keyOrders, 404, codeNoReceipt, "", "paused"},
		{"an id of which nothing is known", "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21/cancel", keyOrders, 404, codeNoReceipt, "", "paused"},
		{"the end", j.Message.String() + "/cancel", keyOrders, 202, "", "cancelled", "cancelled"},
		{"once more", receipt + "/cancel", keyOrders, 202, "", "cancelled", "cancelled"},
		{"after the end", receipt + "/resume", keyOrders, 409, codeFanoutOver, "", "cancelled"},
	} {
		a := order(tt.path, tt.key)
		if a.status != tt.status || a.code() != tt.code || a.string("order") != tt.order {
			t.Errorf("%s: %d %s", tt.why, a.status, a.text)
		}
		if got := ask().fanoutOf(t).State; got != tt.state {
			t.Errorf("%s: the state is %s", tt.why, got)
		}
	}
	if a := ask(); a.json["final"] != false || a.header.Get("Retry-After") == "" {
		t.Errorf("what was open has not been counted: %s", a.text)
	}
	for part := range 256 {
		if err := notes.End(t.Context(), j.Message, part, &fanout.Counts{Emitted: 1}); err != nil {
			t.Fatal(err)
		}
	}
	a = ask() // what was open of it has ended, and not for all
	if f := a.fanoutOf(t); f.State != "cancelled" || f.Emitted != 256 || a.json["final"] != true || a.string("status") != "SENDING" {
		t.Errorf("%d %s", a.status, a.text)
	}
	// Among others, and by the bare id.
	single := w.post(`{"app": "shop", "service_type": "otp", "user_id": "u42", "title": "x"}`).string("receipt")
	a = w.do(request{method: "POST", path: "/v1/receipts:query", key: keyOrders, body: `{"receipts": ["` + receipt + `", "` + single + `"]}`})
	if list, _ := a.json["results"].([]any); len(list) != 2 || list[0].(map[string]any)["fanout"] == nil || list[1].(map[string]any)["status"] != "PENDING" {
		t.Errorf("%d %s", a.status, a.text)
	}
	a = w.do(request{method: "GET", path: "/v1/receipts/" + j.Message.String(), key: keySupport})
	if a.status != 200 || a.fanoutOf(t).Emitted != 256 {
		t.Errorf("%d %s", a.status, a.text)
	}
	// A single message takes no orders.
	if a := order(single+"/cancel", keyOrders); a.status != 404 {
		t.Errorf("%d %s", a.status, a.text)
	}
	notes.set(errAway)
	for _, a := range []*reply{ask(), order(receipt+"/pause", keyOrders), order(j.Message.String()+"/pause", keyOrders)} {
		if a.status != 503 || a.code() != codeStatusAway {
			t.Errorf("Cassandra is away: %d %s", a.status, a.text)
		}
	}
}

func TestNoFanouts(t *testing.T) {
	w, _ := fanoutWorld(t)
	receipt := w.toSnow(`{"title": "x"}`).string("receipt")
	w.gateway.o.Fanouts = nil
	for _, r := range []request{{method: "POST", path: "/v1/topics/snow/messages", key: keyOrders, body: `{}`}, {method: "POST", path: "/v1/messages/x/pause", key: keyOrders},
		{method: "GET", path: "/v1/receipts/" + receipt, key: keyOrders}} {
		if a := w.do(r); a.status != http.StatusNotImplemented || a.code() != codeNotConfigured {
			t.Errorf("%s: %d %s", r.path, a.status, a.text)
		}
	}
}
