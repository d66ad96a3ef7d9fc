package gateway

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/subscriptions"
)

// lateBoard finds topics late.
type lateBoard struct {
	*board
	late time.Duration
}

func (b *lateBoard) Topic(ctx context.Context, name string) (subscriptions.Topic, error) {
	select {
	case <-time.After(b.late):
		return b.board.Topic(ctx, name)
	case <-ctx.Done():
		return subscriptions.Topic{}, ctx.Err()
	}
}

// The configuration leaves a request max(confirm, status) from the end of its body on
// (gateway.answer_timeout, gateway.drain): then its connection is cut. A send to a topic has
// both to wait for, and must not take their sum.
func TestASendToATopicAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &lateBoard{board: newBoard()}
		notes := newReports()
		w := newWorld(t, func(o *Options) { o.Fanouts, o.Topics = notes.fanouts(), late })
		if a := w.makeTopic("snow", `{"app": "shop", "service_type": "transactional"}`); a.status != http.StatusCreated {
			t.Fatal(a.text)
		}
		late.late = 4 * time.Second
		w.set(func() { w.ack = func(Record, func(Place, error)) {} }) // Kafka does not answer
		start := time.Now()
		a := w.toSnow(`{"title": "x"}`)
		most := max(w.gateway.o.Times.Confirm, w.gateway.o.Times.Status)
		if took := time.Since(start); a.status != http.StatusServiceUnavailable || took > most {
			t.Errorf("answered %d after %s, want at most %s", a.status, took, most)
		}
	})
}

func TestHostileSubscribers(t *testing.T) {
	w, _ := fanoutWorld(t)
	for _, user := range []string{"..", ".", "a/b", "//", "a//b", "../../v1/topics", "%2F", "%", "a b", "ü", "?x=1", "#", "\"<script>", strings.Repeat("u", 128), ";", "u+1", "*", "{user}", "\u202e", "\ufeff"} {
		path := "/v1/topics/snow/subscriptions/" + strings.ReplaceAll(url.PathEscape(user), ".", "%2E")
		for _, method := range []string{"PUT", "DELETE"} {
			a := w.do(request{method: method, path: path, key: keySupport, body: map[string]string{"PUT": `{}`}[method]})
			if a.status != 200 || a.string("user_id") != user {
				t.Errorf("%s %q: %d %s", method, user, a.status, a.text)
			}
		}
		a := w.do(request{method: "GET", path: "/v1/users/" + strings.ReplaceAll(url.PathEscape(user), ".", "%2E") + "/subscriptions?left=true", key: keySupport})
		if list, _ := a.json["subscriptions"].([]any); a.status != 200 || len(list) != 1 {
			t.Errorf("GET %q: %d %s", user, a.status, a.text)
		}
	}
	for _, user := range []string{"\x00", "a\nb", "\x7f", "\xff", strings.Repeat("u", 129)} {
		a := w.do(request{method: "PUT", path: "/v1/topics/snow/subscriptions/" + url.PathEscape(user), key: keySupport, body: `{}`})
		if a.status != 422 && a.status != 400 {
			t.Errorf("%q: %d %s", user, a.status, a.text)
		}
	}
	for _, name := range []string{"%2e%2e", "SNOW", "snow%00", "snow%0a", "sn%2Fow", "%FF", strings.Repeat("a", 129), "snow%20"} {
		for _, tail := range []string{"", "/subscriptions", "/messages", "/subscriptions/u1"} {
			r := request{method: "GET", path: "/v1/topics/" + name + tail, key: keySupport}
			switch tail {
			case "/messages":
				r.method, r.body = "POST", `{"title": "x"}`
			case "/subscriptions/u1":
				r.method, r.body = "PUT", `{}`
			}
			if a := w.do(r); a.status != 404 && a.status != 422 && a.status != 400 {
				t.Errorf("%s: %d %s", r.path, a.status, a.text)
			}
		}
	}
	for _, after := range []string{"AA", "____", "AAAA", "AABcAA", "BAB1", "not-base64!", strings.Repeat("A", 400), "..", "AAD_", "AAA%0a"} {
		a := w.do(request{method: "GET", path: "/v1/topics/snow/subscriptions?after=" + after, key: keySupport})
		if a.status != 200 && a.status != 400 {
			t.Errorf("after=%s: %d %s", after, a.status, a.text)
		}
	}
	for _, body := range []string{`{"us\u0065r_id": "victim", "title": "x"}`, `{"d\u0065vice": {"platform": "fcm", "token": "t"}, "title": "x"}`, `{"title": "x", "app": "shop", "\u0061pp": "shop"}`,
		`{"title": "x"}}`, `{"title": "x"}{"title": "y"}`, `[]`, `""`, `null`, `{`, ``, "\xff", `{"title": "x", "user_id": null, "device": ""}`, `{"title":"x","user_id":{}}`, `{"title":"x","app":{}}`} {
		before := len(w.produced)
		a := w.toSnow(body)
		if a.status == http.StatusAccepted {
			if j, _ := w.lastJob(); strings.Contains(string(j.Rest), "user") || strings.Contains(string(j.Rest), "device") {
				t.Errorf("%s: accepted with %s", body, j.Rest)
			}
			continue
		}
		if len(w.produced) != before || a.status/100 != 4 {
			t.Errorf("%s: %d %s", body, a.status, a.text)
		}
	}
}
