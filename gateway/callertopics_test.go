package gateway

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/fanout"
)

// forTopics gives the keys of orders and logins some topics, and that of support none.
func (w *world) forTopics(topics string) error {
	w.t.Helper()
	text := keysText(w.t)
	for _, sender := range []string{"orders", "logins"} {
		text = strings.ReplaceAll(text, `"sender": "`+sender+`"`, `"topics": `+topics+`, "sender": "`+sender+`"`)
	}
	if err := os.WriteFile(w.keys, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	_, err := w.gateway.o.Callers.Reload()
	return err
}

// A key may be for some topics of its apps only: of others it makes none, sees none, sends to
// none and changes no subscription, nor do the tokens of users that it makes.
func TestKeysForTopics(t *testing.T) {
	w, _ := fanoutWorld(t)
	for _, name := range []string{"news", "news.sport", "newsletter", "snow.high"} {
		w.makeTopic(name, `{"app": "shop", "service_type": "transactional"}`)
	}
	subscribe := func(topic, by string) *reply {
		return w.do(request{method: "PUT", path: "/v1/topics/" + topic + "/subscriptions/u42", key: by, body: `{}`})
	}
	for _, name := range []string{"news", "snow", "newsletter"} {
		if a := subscribe(name, keySupport); a.status != http.StatusOK {
			t.Fatal(a.text)
		}
	}
	if err := w.forTopics(`["snow", "news.*"]`); err != nil {
		t.Fatal(err)
	}
	token := w.userToken("u42")
	for name, may := range map[string]bool{"snow": true, "news.sport": true, "news": false, "newsletter": false, "snow.high": false, "none": false} {
		for what, a := range map[string]*reply{
			"see":                     w.do(request{method: "GET", path: "/v1/topics/" + name, key: keyOrders}),
			"count":                   w.do(request{method: "GET", path: "/v1/topics/" + name + "/counts", key: keyOrders}),
			"list messages":           w.do(request{method: "GET", path: "/v1/topics/" + name + "/messages", key: keyOrders}),
			"send":                    w.do(request{method: "POST", path: "/v1/topics/" + name + "/messages", key: keyOrders, body: `{"title": "x"}`}),
			"subscribe":               subscribe(name, keyLogins),
			"subscribe by a token":    subscribe(name, token),
			"leave":                   w.do(request{method: "DELETE", path: "/v1/topics/" + name + "/subscriptions/u43", key: keyLogins}),
			"subscribe many":          w.do(request{method: "POST", path: "/v1/topics/" + name + "/subscriptions/batch", key: keyLogins, body: `{"user_id": "u44"}`}),
			"list who has subscribed": w.do(request{method: "GET", path: "/v1/topics/" + name + "/subscriptions", key: keyLogins}),
		} {
			if may != (a.status < 300) || !may && a.code() != codeNoTopic {
				t.Errorf("%s %s: %d %s", what, name, a.status, a.text)
			}
		}
	}
	for name, want := range map[string]int{"news.winter": http.StatusCreated, "newest": http.StatusForbidden, "snow": http.StatusConflict} {
		if a := w.makeTopic(name, `{"app": "shop", "service_type": "transactional"}`); a.status != want {
			t.Errorf("make %s: %d %s", name, a.status, a.text)
		}
	}
	if a := w.do(request{method: "DELETE", path: "/v1/topics/news", key: keyOrders}); a.code() != codeNoTopic {
		t.Errorf("close: %s", a.text)
	}
	list := func(path, key, member, field string) (names []string) {
		a := w.do(request{method: "GET", path: path, key: key})
		for _, one := range a.json[member].([]any) {
			names = append(names, one.(map[string]any)[field].(string))
		}
		return names
	}
	for _, tt := range []struct{ why, got, want string }{
		{"topics", fmt.Sprint(list("/v1/topics", keyOrders, "topics", "name")), "[news.sport news.winter snow]"},
		{"topics for a key without a list", fmt.Sprint(list("/v1/topics", keySupport, "topics", "name")), "[news news.sport news.winter newsletter snow snow.high]"},
		{"of a user", fmt.Sprint(list("/v1/users/u42/subscriptions", keyLogins, "subscriptions", "topic")), "[news.sport snow]"},
		{"of a user, by a token", fmt.Sprint(list("/v1/users/u42/subscriptions", token, "subscriptions", "topic")), "[news.sport snow]"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, tt.got, tt.want)
		}
	}
	for limit, after := 1, ""; ; {
		a := w.do(request{method: "GET", path: fmt.Sprintf("/v1/topics?limit=%d&after=%s", limit, after), key: keyOrders})
		if after = a.string("next"); after == "" {
			break
		}
		if after != "snow" && !strings.HasPrefix(after, "news.") {
			t.Errorf("next names another topic: %s", a.text)
		}
	}
	for _, wrong := range []string{`[]`, `null`, `["snow"], "topics": null`, `["*"]`, `["a*b"]`, `["snow", ""]`, `["Snow"]`, `["news.**"]`, `7`} {
		if err := w.forTopics(wrong); err == nil || !strings.Contains(err.Error(), "topics") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// Who sees the whole fleet sees every topic.
func TestNoDashboardForSomeTopics(t *testing.T) {
	text := strings.Replace(keysText(t), `"rights": ["send", "read"]`, `"topics": ["snow"], "rights": ["dashboard"]`, 1)
	if _, err := parseKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), "keys[0].rights") || !strings.Contains(err.Error(), "topics") {
		t.Errorf("%v", err)
	}
}

// What is known of messages to other topics is told to no key for some topics, of whatever
// sender, and none orders about them.
func TestKeysForTopicsAndTheirMessages(t *testing.T) {
	w, notes, to, receipt, j := countWorld(t)
	to.add(0, 3, fanout.Member{})
	notes.ended(t, j, fanout.Counts{Emitted: 3}, 0)
	ask := func(want func(status int) bool) {
		t.Helper()
		for who, key := range map[string]string{"the same sender": keyOrders, "another sender with admin": keySupport} {
			for _, name := range []string{j.Message.String(), receipt} {
				at := "/v1/messages/" + name
				for what, r := range map[string]request{
					"counts": {method: "GET", path: at + "/counts"}, "recipient": {method: "GET", path: at + "/recipients/u42"}, "receipt": {method: "GET", path: "/v1/receipts/" + name},
					"pause": {method: "POST", path: at + "/pause"}, "resume": {method: "POST", path: at + "/resume"},
				} {
					if name == receipt && key == keySupport || what == "receipt" && name != receipt && key == keyOrders {
						continue // a receipt is its sender's, and a bare id needs admin
					}
					r.key = key
					if a := w.do(r); !want(a.status) {
						t.Errorf("%s, %s by %.20s: %d %s", who, what, name, a.status, a.text)
					}
				}
			}
		}
	}
	ask(func(status int) bool { return status < 300 })
	limit := func(topics string) {
		t.Helper()
		text := strings.ReplaceAll(keysText(t), `"sender": `, `"topics": `+topics+`, "sender": `)
		if err := os.WriteFile(w.keys, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := w.gateway.o.Callers.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	limit(`["sn*"]`)
	ask(func(status int) bool { return status < 300 })
	limit(`["news.*"]`)
	ask(func(status int) bool { return status == http.StatusNotFound })
}
