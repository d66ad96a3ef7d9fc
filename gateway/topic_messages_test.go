package gateway

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/subscriptions"
)

func (w *world) messagesOf(topic, query, key string) *reply {
	w.t.Helper()
	return w.do(request{method: "GET", path: "/v1/topics/" + topic + "/messages" + query, key: key})
}

// ids are those of the messages in a list.
func (a *reply) ids() (list []string) {
	items, _ := a.json["messages"].([]any)
	for _, item := range items {
		list = append(list, item.(map[string]any)["id"].(string))
	}
	return list
}

// A topic is told with its counts and its newest messages where that is asked for.
func TestATopicWithWhatBecameOfIt(t *testing.T) {
	w, notes := fanoutWorld(t)
	topic, err := w.topics.Topic(t.Context(), "snow")
	if err != nil {
		t.Fatal(err)
	}
	w.joins(&topic, "u1", subscriptions.Push, time.Hour)
	w.toSnow(`{"title": "Snow"}`)
	j, _ := w.lastJob()
	notes.begun(t, j)
	for _, tt := range []struct {
		query            string
		status           int
		counts, messages bool
	}{
		{"", 200, false, false},
		{"?with=counts", 200, true, false},
		{"?with=messages", 200, false, true},
		{"?with=messages,counts", 200, true, true},
		{"?with=", 400, false, false},
		{"?with=counts,counts", 400, false, false},
		{"?with=subscribers", 400, false, false},
		{"?with=counts&with=messages", 400, false, false},
		{"?without=counts", 400, false, false},
	} {
		a := w.do(request{method: "GET", path: "/v1/topics/snow" + tt.query, key: keyOrders})
		counts, _ := a.json["counts"].(map[string]any)
		messages, _ := a.json["messages"].(map[string]any)
		if a.status != tt.status || (counts != nil) != tt.counts || (messages != nil) != tt.messages || a.status == 200 && a.string("name") != "snow" {
			t.Errorf("%q: %d %s", tt.query, a.status, a.text)
		}
		if tt.counts && counts["push"] != 1.0 || tt.messages && !strings.Contains(a.text, j.Message.String()) {
			t.Errorf("%q: %s", tt.query, a.text)
		}
	}
	// What is another sender's is not told by this way either.
	if a := w.do(request{method: "GET", path: "/v1/topics/snow?with=messages", key: keyLogins}); a.status != http.StatusOK || strings.Contains(a.text, j.Message.String()) {
		t.Errorf("to another sender: %d %s", a.status, a.text)
	}
	notes.set(errAway)
	if a := w.do(request{method: "GET", path: "/v1/topics/snow?with=messages", key: keyOrders}); a.status != http.StatusServiceUnavailable {
		t.Errorf("messages are away: %d %s", a.status, a.text)
	}
	w.gateway.o.Fanouts = nil
	if a := w.do(request{method: "GET", path: "/v1/topics/snow?with=messages", key: keyOrders}); a.status != http.StatusNotImplemented {
		t.Errorf("no messages: %d %s", a.status, a.text)
	}
}

// A topic's messages are listed as they have begun, the newest first and in pages, and each
// can be asked about by its id.
func TestMessagesOfATopic(t *testing.T) {
	w, notes := fanoutWorld(t)
	if a := w.messagesOf("snow", "", keyOrders); a.status != http.StatusOK || a.text != `{"messages":[]}`+"\n" && a.text != `{"messages":[]}` {
		t.Errorf("none: %d %s", a.status, a.text)
	}
	var want []string
	for i := range 5 {
		w.toSnow(`{"title": "Snow"}`)
		j, _ := w.lastJob()
		j.Accepted = j.Accepted.Add(-time.Duration(i) * 24 * time.Hour)
		notes.begun(t, j)
		want = append(want, j.Message.String())
	}
	w.toSnow(`{"title": "not begun"}`)
	if a := w.messagesOf("snow", "", keyOrders); !slices.Equal(a.ids(), want) || strings.Contains(a.text, "Snow") || a.json["next"] != nil {
		t.Errorf("%s, want %v", a.text, want)
	}
	var got []string
	query := "?limit=2"
	for range want {
		a := w.messagesOf("snow", query, keyOrders)
		got = append(got, a.ids()...)
		if a.json["next"] == nil {
			break
		}
		query = "?limit=2&after=" + a.string("next")
	}
	if !slices.Equal(got, want) {
		t.Errorf("in pages %v, want %v", got, want)
	}
	for _, id := range got {
		if a := w.counted(id, keyOrders); a.status != http.StatusNotImplemented && a.status != http.StatusOK {
			t.Errorf("%s: %d %s", id, a.status, a.text)
		}
	}
	w.gateway.o.Times.Kept = 36 * time.Hour
	if a := w.messagesOf("snow", "", keyOrders); !slices.Equal(a.ids(), want[:2]) {
		t.Errorf("of a day and a half %v, want %v", a.ids(), want[:2])
	}
}

// Another sender's messages are for those with the right admin alone, as what became of them.
func TestWhoSeesMessagesOfATopic(t *testing.T) {
	w, notes := fanoutWorld(t)
	for range 3 {
		w.toSnow(`{"title": "Snow"}`)
		j, _ := w.lastJob()
		notes.begun(t, j)
	}
	theirs, _ := w.lastJob()
	j := *theirs
	j.Sender, j.Message = "others", fanout.MessageOf(j.Message, "others", j.App, "snow")
	j.Rest = bytes.ReplaceAll(j.Rest, []byte(`"orders"`), []byte(`"others"`))
	notes.begun(t, &j)
	for key, want := range map[string]int{keyOrders: 3, keySupport: 4} {
		if a := w.messagesOf("snow", "", key); len(a.ids()) != want {
			t.Errorf("%s sees %d, want %d: %s", key, len(a.ids()), want, a.text)
		}
	}
}

// Where a page ends with another sender's message, where to go on does not name that one: by
// a message's id those of its notifications are known, and who sends one of these first has
// taken its place.
func TestPagesNameNoMessagesOfOthers(t *testing.T) {
	w, notes := fanoutWorld(t)
	w.toSnow(`{"title": "Snow"}`)
	first, _ := w.lastJob()
	var own []fanout.Place
	var others [][]byte
	for i, ms := range []int{0, 0, 0, 0, 1, 2, 2, 70_000, 70_001, 90_000_000, 90_000_000, 90_000_001} {
		j := *first
		j.Accepted = j.Accepted.Add(-time.Duration(ms) * time.Millisecond)
		if i%3 != 0 {
			j.Sender, j.Rest = "others", bytes.ReplaceAll(j.Rest, []byte(`"orders"`), []byte(`"others"`))
		}
		j.Message = fanout.MessageOf(j.Message, j.Sender, j.App, strconv.Itoa(i))
		notes.begun(t, &j)
		if i%3 == 0 {
			own = append(own, fanout.Place{At: j.Accepted, Message: j.Message})
		} else {
			others = append(others, j.Message[:])
		}
	}
	slices.SortFunc(own, func(a, b fanout.Place) int {
		return cmp.Or(b.At.Compare(a.At), slices.Compare(b.Message[:], a.Message[:]))
	})
	var want []string
	for _, p := range own {
		want = append(want, p.Message.String())
	}
	const all = 12
	for limit := 1; limit <= all+1; limit++ {
		var got []string
		pages, next := 0, ""
		for more := true; more && pages <= all; pages++ {
			a := w.messagesOf("snow", "?limit="+strconv.Itoa(limit)+next, keyOrders)
			got = append(got, a.ids()...)
			if more = a.json["next"] != nil; more {
				next = "&after=" + a.string("next")
				place, err := base64.RawURLEncoding.DecodeString(a.string("next"))
				if err != nil || slices.ContainsFunc(others, func(id []byte) bool { return bytes.Contains(place, id[:12]) }) {
					t.Errorf("in pages of %d: %x tells another's id, %v", limit, place, err)
				}
			}
		}
		if !slices.Equal(got, want) || pages != (all+limit-1)/limit {
			t.Errorf("in %d pages of %d: %v, want %v", pages, limit, got, want)
		}
	}
}

// The tables keep fan-outs for 31 days, also where rows are kept for ten years: days before
// these are not looked into one by one.
func TestMessagesOfLongAgo(t *testing.T) {
	w, notes := fanoutWorld(t)
	w.gateway.o.Times.Kept = 87600 * time.Hour
	w.toSnow(`{"title": "Snow"}`)
	j, _ := w.lastJob()
	j.Accepted = j.Accepted.Add(-32 * 24 * time.Hour)
	notes.begun(t, j)
	if a := w.messagesOf("snow", "", keyOrders); a.status != http.StatusOK || len(a.ids()) != 0 {
		t.Errorf("%d %s", a.status, a.text)
	}
}

func TestWhatCannotBeListed(t *testing.T) {
	w, notes := fanoutWorld(t)
	late := base64.RawURLEncoding.EncodeToString(append([]byte{0x7f, 255, 255, 255, 255, 255, 255, 255}, make([]byte, 16)...))
	for _, tt := range []struct {
		why, topic, query, key string
		status                 int
		code                   string
	}{
		{"without the right read", "snow", "", keyLogins, 403, "forbidden"},
		{"no such topic", "rain", "", keyOrders, 404, "no_such_topic"},
		{"of another app", "snow", "", keyReader, 404, "no_such_topic"},
		{"no topic", "~", "", keyOrders, 422, "invalid_field"},
		{"another query", "snow", "?days=7", keyOrders, 400, "bad_request"},
		{"no page", "snow", "?limit=0", keyOrders, 400, "bad_request"},
		{"no place", "snow", "?after=x", keyOrders, 400, "bad_request"},
		{"half a place", "snow", "?after=" + strings.Repeat("A", 16), keyOrders, 400, "bad_request"},
		{"more than a place", "snow", "?after=" + strings.Repeat("A", 36), keyOrders, 400, "bad_request"},
		{"a place in two lines", "snow", "?after=" + strings.Repeat("A", 16) + "%0A" + strings.Repeat("A", 16), keyOrders, 400, "bad_request"},
		{"a place in the year 292 million", "snow", "?after=" + late, keyOrders, 400, "bad_request"},
	} {
		if a := w.messagesOf(tt.topic, tt.query, tt.key); a.status != tt.status || a.code() != tt.code {
			t.Errorf("%s: %d %s", tt.why, a.status, a.text)
		}
	}
	notes.set(errors.New("no hosts available"))
	if a := w.messagesOf("snow", "", keyOrders); a.status != http.StatusServiceUnavailable || a.code() != "status_away" || strings.Contains(a.text, "hosts") {
		t.Errorf("away: %d %s", a.status, a.text)
	}
	w.gateway.o.Fanouts = nil
	if a := w.messagesOf("snow", "", keyOrders); a.code() != "not_configured" {
		t.Errorf("no fan-outs: %d %s", a.status, a.text)
	}
}

// A place is read as it was told.
func TestMessagePlaces(t *testing.T) {
	now := clock()
	for _, at := range []time.Duration{0, -time.Hour, -31 * 24 * time.Hour} {
		id, _ := newID(now)
		p := fanout.Place{At: now.Add(at)}
		if err := p.Message.UnmarshalText([]byte(id)); err != nil {
			t.Fatal(err)
		}
		got, ok := messagePlace(messagePlaceText(p), now)
		if !ok || fmt.Sprint(got) != fmt.Sprint(p) {
			t.Errorf("%v, %t, want %v", got, ok, p)
		}
	}
}
