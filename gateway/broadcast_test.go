package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
)

const keyNews = "news-news-news-news-news-news-news-news" // sender news, apps shop and unconfigured: broadcast and read

// broadcastWorld has users of the app shop: early, who was noted before the message of the
// tests can be accepted. Later ones are noted in an hour.
func broadcastWorld(t *testing.T, change ...func(*Options)) (*world, *reports, *audiences.Memory) {
	t.Helper()
	text := keysText(t)
	text = text[:len(text)-len("]}")] + `, {"name": "news", "sha256": "` + hashOf(t, keyNews) + `", "sender": "news", "apps": ["shop", "unconfigured"], "rights": ["broadcast", "read"]}]}`
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	callers, err := OpenCallers(path)
	if err != nil {
		t.Fatal(err)
	}
	notes, now := newReports(), time.Now().Add(-time.Hour)
	users := audiences.NewMemory(func() time.Time { return now })
	if _, err := users.Add(t.Context(), []audiences.Use{{App: "shop", User: "early"}, {App: "bank", User: "banker"}}); err != nil {
		t.Fatal(err)
	}
	now = time.Now().Add(time.Hour)
	w := newWorld(t, append([]func(*Options){func(o *Options) {
		o.Callers, o.Fanouts = callers, notes.fanouts()
		o.Fanouts.Users = users
	}}, change...)...)
	return w, notes, users
}

func (w *world) toShop(key, body string, header ...string) *reply {
	w.t.Helper()
	h := map[string]string{}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return w.do(request{method: "POST", path: "/v1/apps/shop/messages", key: key, body: body, header: h})
}

func TestSendToAllUsersOfAnApp(t *testing.T) {
	w, _, _ := broadcastWorld(t)
	id, _ := newID(clock())
	a := w.toShop(keyNews, `{"id": "`+id+`", "service_type": "transactional", "title": "Terms", "data": {"a": "b"}, "app": "shop", "user_id": "", "device": null}`,
		"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if a.status != http.StatusAccepted || a.string("id") != id || a.string("lane") != "transactional" || a.string("status") != "PENDING" || a.string("receipt") == "" {
		t.Fatalf("%d %s", a.status, a.text)
	}
	j, r := w.lastJob()
	message := fanout.MessageOf(uuid.MustParse(id), "news", "shop", "app/shop")
	if r.Topic != fanout.JobsTopic || string(r.Key) != string(message[:]) || j.Message != message || j.Sender != "news" || j.App != "shop" || j.ServiceType != "transactional" ||
		j.To != (fanout.To{Kind: fanout.OfApp, Name: "shop", Parts: fanout.Slices}) || j.Priority != push.Medium || j.Expires.Sub(j.Accepted) != time.Hour || j.Traceparent == "" || !j.Until.IsZero() {
		t.Errorf("%+v", j)
	}
	if got, want := string(j.Rest), `"sender_id":"news","app":"shop","title": "Terms","data": {"a": "b"},"campaign":"`+message.String()+`"}`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for said, want := range map[string]push.Priority{"bulk": push.Bulk, "high": push.High, "critical": push.Critical} {
		if a := w.toShop(keyNews, `{"service_type": "otp", "title": "x", "priority": "`+said+`"}`); a.status != http.StatusAccepted {
			t.Fatal(a.text)
		}
		if j, _ := w.lastJob(); j.Priority != want || j.Lane != "critical" {
			t.Errorf("%s: %+v", said, j)
		}
	}
	// The same key is the same message, whichever replica takes it; another one has another id.
	key, _ := newID(clock())
	first := w.toShop(keyNews, `{"service_type": "otp", "title": "x"}`, "Idempotency-Key", key)
	again := w.toShop(keyNews, `{"service_type": "otp", "title": "x"}`, "Idempotency-Key", key)
	if first.status != http.StatusAccepted || again.string("id") != first.string("id") {
		t.Errorf("%s\n%s", first.text, again.text)
	}
	if a := w.toShop(keyNews, `{"service_type": "otp", "title": "x", "clicks": true}`); a.status != http.StatusAccepted {
		t.Error(a.text)
	} else if j, _ := w.lastJob(); !j.Clicks || !strings.HasPrefix(string(j.Rest), fanout.DataBegins) {
		t.Errorf("%+v", j)
	}
}

// Who may not, and what is no message to all users of an app, reaches no topic of Kafka.
func TestRefusedBroadcasts(t *testing.T) {
	w, _, _ := broadcastWorld(t)
	const good = `{"service_type": "otp", "title": "x"}`
	future, _ := newID(clock().Add(time.Hour))
	for _, tt := range []struct {
		why, path, key, body string
		header               map[string]string
		status               int
		code, pointer        string
	}{
		{"nobody's key", "shop", "nobodys-nobodys-nobodys-nobodys-nobodys", good, nil, 401, "unauthorized", ""},
		{"a key without the right", "shop", keyOrders, good, nil, 403, "forbidden", ""},
		{"an admin's key without the right", "shop", keySupport, good, nil, 403, "forbidden", ""},
		{"another's app", "bank", keyNews, good, nil, 403, "foreign_app", ""},
		{"no app", "none", keyNews, good, nil, 403, "foreign_app", ""},
		{"an app that is a path", "shop%2F..%2Fbank", keyNews, good, nil, 403, "foreign_app", ""},
		{"an app that the fleet has not", "unconfigured", keyNews, good, nil, 422, "unknown_app", "/app"},
		{"another app in the body", "shop", keyNews, `{"service_type": "otp", "title": "x", "app": "bank"}`, nil, 422, "invalid_field", "/app"},
		{"a receiver", "shop", keyNews, `{"service_type": "otp", "title": "x", "user_id": "u1"}`, nil, 422, "invalid_field", "/user_id"},
		{"a device", "shop", keyNews, `{"service_type": "otp", "title": "x", "device": {"platform": "fcm", "token": "abc"}}`, nil, 422, "invalid_field", "/device"},
		{"another sender", "shop", keyNews, `{"service_type": "otp", "title": "x", "sender_id": "orders"}`, nil, 403, "foreign_sender", "/sender_id"},
		{"no service type", "shop", keyNews, `{"title": "x"}`, nil, 400, "no_service_type", "/service_type"},
		{"an unknown service type", "shop", keyNews, `{"service_type": "none", "title": "x"}`, nil, 400, "no_lane", "/service_type"},
		{"a service type that is none", "shop", keyNews, `{"service_type": 7, "title": "x"}`, nil, 422, "wrong_type", "/service_type"},
		{"no lane of the mode", "shop", keyNews, `{"service_type": "otp", "title": "x", "mode": "exactly_once"}`, nil, 400, "no_lane", "/mode"},
		{"an id without a time", "shop", keyNews, `{"service_type": "otp", "title": "x", "id": "n-1"}`, nil, 422, "invalid_field", "/id"},
		{"an id from the future", "shop", keyNews, `{"service_type": "otp", "title": "x", "id": "` + future + `"}`, nil, 422, "id_in_future", "/id"},
		{"a key without a time", "shop", keyNews, good, map[string]string{"Idempotency-Key": "terms-17"}, 400, "bad_header", ""},
		{"expired", "shop", keyNews, `{"service_type": "otp", "title": "x", "expires_at": "2020-01-01T00:00:00Z"}`, nil, 422, "invalid_field", "/expires_at"},
		{"no JSON", "shop", keyNews, `{"service_type": "otp",`, nil, 422, "bad_json", ""},
		{"an app twice", "shop", keyNews, `{"service_type": "otp", "app": "shop", "app": "bank", "title": "x"}`, nil, 422, "duplicate_key", ""},
		{"a list", "shop", keyNews, `[]`, nil, 422, "", ""},
		{"nothing", "shop", keyNews, ``, nil, 422, "", ""},
		{"too much", "shop", keyNews, `{"service_type": "otp", "title": "` + strings.Repeat("x", 200<<10) + `"}`, nil, 413, "body_too_large", ""},
		{"no JSON's type", "shop", keyNews, good, map[string]string{"Content-Type": "text/plain"}, 415, "media_type", ""},
	} {
		a := w.do(request{method: "POST", path: "/v1/apps/" + tt.path + "/messages", key: tt.key, body: tt.body, header: tt.header})
		if a.status != tt.status || tt.code != "" && a.code() != tt.code || tt.pointer != "" && a.pointer() != tt.pointer {
			t.Errorf("%s: %d %s", tt.why, a.status, a.text)
		}
	}
	if n := len(w.produced); n != 0 {
		t.Errorf("%d jobs were produced", n)
	}
	for why, change := range map[string]func(*Options){"no fan-outs": func(o *Options) { o.Fanouts = nil }, "no audiences": func(o *Options) { o.Fanouts.Users = nil }} {
		w, _, _ := broadcastWorld(t, change)
		if a := w.toShop(keyNews, good); a.status != http.StatusNotImplemented || a.code() != "not_configured" || len(w.produced) != 0 {
			t.Errorf("%s: %d %s", why, a.status, a.text)
		}
	}
}

// Nothing durable, nothing promised: and the repeat with the id that is named is the same
// message.
func TestABroadcastThatKafkaDoesNotTake(t *testing.T) {
	w, notes, _ := broadcastWorld(t)
	w.set(func() { w.ack = func(_ Record, done func(Place, error)) { done(Place{}, errors.New("no leader")) } })
	a := w.toShop(keyNews, `{"service_type": "otp", "title": "x"}`)
	if a.status != http.StatusServiceUnavailable || a.string("id") == "" || a.header.Get("Retry-After") == "" {
		t.Fatalf("%d %s", a.status, a.text)
	}
	w.set(func() { w.ack = nil })
	if again := w.toShop(keyNews, `{"service_type": "otp", "title": "x", "id": "`+a.string("id")+`"}`); again.status != http.StatusAccepted || again.string("id") != a.string("id") {
		t.Errorf("%d %s", again.status, again.text)
	}
	notes.set(errors.New("no coordinator"))
	if a := w.toShop(keyNews, `{"service_type": "otp", "title": "x"}`); a.status != http.StatusServiceUnavailable || a.code() != "unconfirmed" {
		t.Errorf("%d %s", a.status, a.text)
	}
}

// begun is a broadcast that has begun, and its receipt.
func begun(t *testing.T, w *world, notes *reports) (receipt string, j *fanout.Job) {
	t.Helper()
	a := w.toShop(keyNews, `{"service_type": "otp", "title": "x"}`)
	if a.status != http.StatusAccepted {
		t.Fatal(a.text)
	}
	j, _ = w.lastJob()
	if _, err := notes.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return a.string("receipt"), j
}

// The receipt, orders, and who may give them.
func TestReceiptsAndOrdersOfBroadcasts(t *testing.T) {
	w, notes, _ := broadcastWorld(t)
	receipt, j := begun(t, w, notes)
	for part := range 3 {
		if err := notes.End(t.Context(), j.Message, part, &fanout.Counts{Emitted: 10}); err != nil {
			t.Fatal(err)
		}
	}
	a := w.do(request{path: "/v1/receipts/" + receipt, key: keyNews})
	if a.status != 200 || a.string("status") != "SENDING" || a.string("topic") != "" || a.string("app") != "shop" ||
		!strings.Contains(a.text, `"fanout":{"state":"running","audience":"app","chunks":{"all":1024,"done":3},"emitted":30}`) {
		t.Errorf("%d %s", a.status, a.text)
	}
	order := func(key, id, verb string, want int) {
		t.Helper()
		if a := w.do(request{method: "POST", path: "/v1/messages/" + id + "/" + verb, key: key, header: map[string]string{"Content-Type": ""}}); a.status != want {
			t.Errorf("%s: %d %s", verb, a.status, a.text)
		}
	}
	order(keyNews, receipt, "pause", 202)
	order(keyNews, j.Message.String(), "resume", 202)
	order(keyOrders, receipt, "cancel", 404)            // another sender's
	order(keyReader, j.Message.String(), "cancel", 403) // neither right
	order(keyNews, receipt, "cancel", 202)
	order(keyNews, receipt, "resume", 409)
	if state, err := notes.State(t.Context(), j.Message); err != nil || state != fanout.Cancelled {
		t.Errorf("%s, %v", state, err)
	}
}

// Why did X get it, or not: who is not in the audience is told so, for good once the part has
// been worked on.
func TestWhyOfABroadcast(t *testing.T) {
	w, notes, users := broadcastWorld(t)
	receipt, j := begun(t, w, notes)
	if _, err := users.Add(t.Context(), []audiences.Use{{App: "shop", User: "late"}}); err != nil {
		t.Fatal(err)
	}
	ask := func(user string) *reply {
		t.Helper()
		return w.do(request{path: "/v1/messages/" + receipt + "/recipients/" + user, key: keyNews})
	}
	is := func(user, status, reason, step string, final bool) {
		t.Helper()
		a := ask(user)
		if a.status != 200 || a.string("status") != status || a.string("reason") != reason || !strings.Contains(a.text, fmt.Sprintf(`"final":%v`, final)) || !strings.Contains(a.text, `"step":"audience","state":"`+step+`"`) {
			t.Errorf("%s: %d %s", user, a.status, a.text)
		}
	}
	is("early", "PENDING", "", "member", false)
	is("late", "NOT_SENT", "later", "member", true)
	is("nobody", "UNKNOWN", "not_in_audience", "none", false)
	is("banker", "UNKNOWN", "not_in_audience", "none", false)
	for part := range j.To.Parts {
		if err := notes.End(t.Context(), j.Message, part, &fanout.Counts{}); err != nil {
			t.Fatal(err)
		}
	}
	is("early", "PENDING", "", "member", false)
	is("nobody", "NOT_SENT", "not_in_audience", "none", true)
	w.set(func() {
		w.rows[fanout.ID(j.Message, "early")] = []push.Row{{ID: fanout.ID(j.Message, "early"), State: push.StateSuppressed, Reason: string(push.NoDevice), At: time.Now(), UserHash: push.UserHash("early")}}
	})
	if a := ask("early"); a.string("reason") != string(push.NoDevice) || a.string("notification") != fanout.ID(j.Message, "early") {
		t.Errorf("%d %s", a.status, a.text)
	}
	users.Fail(errors.New("no hosts available"))
	if a := ask("early"); a.status != http.StatusServiceUnavailable || a.code() != "status_away" {
		t.Errorf("%d %s", a.status, a.text)
	}
}

// Of a part that ended when the message had expired it is not known whether it was read: who
// has no state then is not said to have a notification.
func TestWhyOfABroadcastThatExpired(t *testing.T) {
	w, notes, _ := broadcastWorld(t)
	_, j := begun(t, w, notes)
	past := *j
	past.Message = fanout.MessageOf(j.Message, "news", "shop", "app/shop")
	past.Accepted, past.Expires = j.Accepted.Add(-30*time.Minute), j.Accepted.Add(-time.Minute)
	if _, err := notes.Begin(t.Context(), &past); err != nil {
		t.Fatal(err)
	}
	for part := range past.To.Parts {
		if err := notes.End(t.Context(), past.Message, part, &fanout.Counts{}); err != nil {
			t.Fatal(err)
		}
	}
	a := w.do(request{path: "/v1/messages/" + past.Message.String() + "/recipients/early", key: keyNews})
	if a.status != 200 || a.string("status") != "UNKNOWN" || a.string("reason") != "expired" || a.string("notification") != "" {
		t.Errorf("%d %s", a.status, a.text)
	}
}
