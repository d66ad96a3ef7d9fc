package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
)

// someSegments are names of segments; nil = they are not known yet.
type someSegments map[string]bool

func (s someSegments) Has(name string) (has, known bool) { return s[name], s != nil }

func segmentWorld(t *testing.T, names someSegments) (*world, *reports, *audiences.Memory) {
	t.Helper()
	return broadcastWorld(t, func(o *Options) { o.Fanouts.Segments = names })
}

// toSegment sends a message to the users of shop who are in a segment.
func (w *world) toSegment(key, segment, body string) *reply {
	w.t.Helper()
	return w.do(request{method: "POST", path: "/v1/apps/shop/segments/" + segment + "/messages", key: key, body: body})
}

func TestSendToASegment(t *testing.T) {
	long := strings.Repeat("g", 64) + "/" + strings.Repeat("s", 64)
	w, _, _ := segmentWorld(t, someSegments{"lifecycle/new": true, long: true})
	id, _ := newID(clock())
	a := w.toSegment(keyNews, "lifecycle/new", `{"id": "`+id+`", "service_type": "transactional", "title": "Hello"}`)
	if a.status != http.StatusAccepted || a.string("id") != id || a.string("receipt") == "" {
		t.Fatalf("%d %s", a.status, a.text)
	}
	j, _ := w.lastJob()
	if j.To != (fanout.To{Kind: fanout.OfSegment, Name: "lifecycle/new", Parts: fanout.Slices}) || j.App != "shop" || j.Priority != push.Medium ||
		j.Message != fanout.MessageOf(uuid.MustParse(id), "news", "shop", "segment/lifecycle/new") {
		t.Errorf("%+v", j)
	}
	// The same id for all users of the app is another message.
	if a := w.toShop(keyNews, `{"id": "`+id+`", "service_type": "transactional", "title": "Hello"}`); a.status != http.StatusAccepted {
		t.Fatal(a.text)
	}
	if all, _ := w.lastJob(); all.Message == j.Message || all.To.Kind != fanout.OfApp {
		t.Errorf("%+v", all)
	}
	if a := w.toSegment(keyNews, long, `{"service_type": "transactional", "title": "Hello"}`); a.status != http.StatusAccepted {
		t.Errorf("the longest name: %d %s", a.status, a.text)
	}
}

func TestRefusedSegments(t *testing.T) {
	const good = `{"service_type": "otp", "title": "x"}`
	w, _, _ := segmentWorld(t, someSegments{"lifecycle/new": true})
	for _, tt := range []struct {
		why, segment, key, body string
		status                  int
		code                    string
	}{
		{"no such segment", "lifecycle/old", keyNews, good, 404, "no_such_segment"},
		{"no such group", "none/new", keyNews, good, 404, "no_such_segment"},
		{"a path", "lifecycle%2Fnew/new", keyNews, good, 404, "no_such_segment"},
		{"without the right", "lifecycle/new", keyOrders, good, 403, "forbidden"},
		{"a receiver", "lifecycle/new", keyNews, `{"service_type": "otp", "title": "x", "user_id": "u1"}`, 422, "invalid_field"},
	} {
		if a := w.toSegment(tt.key, tt.segment, tt.body); a.status != tt.status || a.code() != tt.code {
			t.Errorf("%s: %d %s", tt.why, a.status, a.text)
		}
	}
	for _, segment := range []string{"lifecycle/new", "lifecycle/old"} { // which there are, is not told
		if a := w.do(request{method: "POST", path: "/v1/apps/bank/segments/" + segment + "/messages", key: keyNews, body: good}); a.code() != "foreign_app" {
			t.Errorf("another's app: %d %s", a.status, a.text)
		}
	}
	if n := len(w.produced); n != 0 {
		t.Errorf("%d jobs were produced", n)
	}
	w, _, _ = segmentWorld(t, nil)
	if a := w.toSegment(keyNews, "lifecycle/new", good); a.status != http.StatusServiceUnavailable || a.code() != "status_away" || len(w.produced) != 0 {
		t.Errorf("not read yet: %d %s", a.status, a.text)
	}
	for why, change := range map[string]func(*Options){"no segments": func(o *Options) { o.Fanouts.Segments = nil }, "no audiences": func(o *Options) { o.Fanouts.Users = nil }} {
		w, _, _ := broadcastWorld(t, change)
		if a := w.toSegment(keyNews, "lifecycle/new", good); a.code() != "not_configured" {
			t.Errorf("%s: %d %s", why, a.status, a.text)
		}
	}
}

// What a receipt and the steps of a user say. Nobody keeps who was in the segment.
func TestReceiptsOfSegments(t *testing.T) {
	w, notes, users := segmentWorld(t, someSegments{"lifecycle/new": true})
	a := w.toSegment(keyNews, "lifecycle/new", `{"service_type": "otp", "title": "x"}`)
	receipt := a.string("receipt")
	j, _ := w.lastJob()
	notes.begun(t, j)
	if _, err := users.Add(t.Context(), []audiences.Use{{App: "shop", User: "late"}}); err != nil {
		t.Fatal(err)
	}
	if a := w.do(request{path: "/v1/receipts/" + receipt, key: keyNews}); a.string("segment") != "lifecycle/new" || a.string("topic") != "" || !strings.Contains(a.text, `"audience":"segment"`) {
		t.Errorf("%d %s", a.status, a.text)
	}
	ask := func(user, want string) {
		t.Helper()
		if got := said(w.why(receipt, user, keyNews)); got != want {
			t.Errorf("%s: %s\nwant %s", user, got, want)
		}
	}
	ask("early", "PENDING  false: message=running audience=member(not_in_segment) chunk=waiting")
	ask("late", "NOT_SENT later true: message=running audience=member(later) chunk=waiting")
	notes.ended(t, j, fanout.Counts{}, j.To.PartOf("early"), j.To.PartOf("nobody"))
	ask("early", "UNKNOWN not_in_segment false: message=running audience=member(not_in_segment) chunk=done")
	ask("nobody", "NOT_SENT not_in_audience true: message=running audience=none(not_in_audience) chunk=done")
	id := fanout.ID(j.Message, "early")
	row := w.row(id, "a", 0, push.StateDelivered, "")
	row.UserHash = push.UserHash("early")
	w.set(func() { w.rows[id] = []push.Row{row} })
	ask("early", "DELIVERED  true: message=running audience=member(not_in_segment) chunk=done state=DELIVERED")
}
