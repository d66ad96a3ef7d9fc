package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/subscriptions"
)

// offers is a topic that may be made.
const offers = `{"app": "shop", "service_type": "transactional", "modes": ["push", "pull"]}`

// makeTopic makes a topic of the app shop as sender orders.
func (w *world) makeTopic(name, body string) *reply {
	w.t.Helper()
	return w.do(request{method: "PUT", path: "/v1/topics/" + name, key: keyOrders, body: body})
}

// userToken is a token of a user, by the key logins.
func (w *world) userToken(user string) string {
	w.t.Helper()
	a := w.do(request{method: "POST", path: "/v1/users/" + user + "/tokens", key: keyLogins, body: `{"app": "shop"}`})
	if a.status != http.StatusCreated {
		w.t.Fatal(a.text)
	}
	return a.string("token")
}

func TestTopicIsMade(t *testing.T) {
	w := newWorld(t)
	full := `{"app": "shop", "service_type": "transactional", "metadata": {"priority": "high", "security": "restricted"}, "modes": ["pull", "push"], "size": "large"}`
	made := w.makeTopic("offers.2026_x-1", full)
	if made.status != http.StatusCreated {
		t.Fatal(made.text)
	}
	want := `{"name":"offers.2026_x-1","app":"shop","service_type":"transactional","metadata":{"priority":"high","security":"restricted"},"modes":["push","pull"],"size":"large","state":"open","created_by":"orders","created_at":"` +
		made.string("created_at") + `","version":1}` + "\n"
	if made.text != want {
		t.Errorf("made\n%swant\n%s", made.text, want)
	}
	for _, tt := range []struct {
		why    string
		r      request
		status int
		code   string
	}{
		{"the same again", request{method: "PUT", path: "/v1/topics/offers.2026_x-1", key: keyOrders, body: full}, 200, ""},
		{"the same by POST", request{method: "POST", path: "/v1/topics", key: keyOrders, body: `{"name": "offers.2026_x-1",` + full[1:]}, 200, ""},
		{"the same by another sender of the app", request{method: "PUT", path: "/v1/topics/offers.2026_x-1", key: keySupport, body: full}, 200, ""},
		{"another body", request{method: "PUT", path: "/v1/topics/offers.2026_x-1", key: keyOrders, body: offers}, 409, codeTopicTaken},
		{"another app", request{method: "PUT", path: "/v1/topics/offers.2026_x-1", key: keySupport, body: strings.Replace(full, "shop", "bank", 1)}, 409, codeTopicTaken},
		{"a new one by POST", request{method: "POST", path: "/v1/topics", key: keyOrders, body: `{"name": "second", "app": "shop", "service_type": "otp"}`}, 201, ""},
		{"read", request{method: "GET", path: "/v1/topics/offers.2026_x-1", key: keyOrders}, 200, ""},
		{"read by a key with users alone", request{method: "GET", path: "/v1/topics/offers.2026_x-1", key: keyLogins}, 200, ""},
		{"read by a key of another app", request{method: "GET", path: "/v1/topics/offers.2026_x-1", key: keyReader}, 404, codeNoTopic},
		{"one that is not there", request{method: "GET", path: "/v1/topics/none", key: keyOrders}, 404, codeNoTopic},
		{"nobody", request{method: "GET", path: "/v1/topics/none"}, 401, codeUnauthorized},
		{"made by a key that may not send", request{method: "PUT", path: "/v1/topics/x", key: keyReader, body: offers}, 403, codeForbidden},
		{"made by a key with users alone", request{method: "PUT", path: "/v1/topics/x", key: keyLogins, body: offers}, 403, codeForbidden},
		{"of an app that is not the key's", request{method: "PUT", path: "/v1/topics/x", key: keyOrders, body: `{"app": "bank", "service_type": "otp"}`}, 403, codeForeignApp},
		{"of an app that there is not", request{method: "PUT", path: "/v1/topics/x", key: keyOrders, body: `{"app": "unconfigured", "service_type": "otp"}`}, 422, "unknown_app"},
		{"a user's token sees no settings", request{method: "GET", path: "/v1/topics/second", key: w.userToken("u1")}, 401, codeUnauthorized},
	} {
		if got := w.do(tt.r); got.status != tt.status || got.code() != tt.code {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
	}
}

// What is wrong with a topic is said by member, all at once; and nothing is made.
func TestTopicIsRefused(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		why, name, body string
		status          int
		code, pointers  string
	}{
		{"nothing", "x", `{}`, 422, codeInvalidField, "/app /service_type"},
		{"all wrong", "x", `{"app": "a b", "service_type": "", "metadata": {"priority": "urgent", "security": "secret"}, "modes": [], "size": "huge"}`, 422, codeInvalidField,
			"/app /service_type /metadata/priority /metadata/security /modes /size"},
		{"a mode twice", "x", `{"app": "shop", "service_type": "otp", "modes": ["push", "push"]}`, 422, codeInvalidField, "/modes"},
		{"a mode that is none", "x", `{"app": "shop", "service_type": "otp", "modes": ["push", "left"]}`, 422, codeInvalidField, "/modes"},
		{"a service type that there is not", "x", `{"app": "shop", "service_type": "news"}`, 422, codeInvalidField, "/service_type"},
		{"another name", "x", `{"name": "y", "app": "shop", "service_type": "otp"}`, 422, codeInvalidField, "/name"},
		{"a number for a word", "x", `{"app": "shop", "service_type": 7}`, 422, codeInvalidField, "/service_type"},
		{"a word for an object", "x", `{"app": "shop", "service_type": "otp", "metadata": "open"}`, 422, codeInvalidField, "/metadata"},
		{"an unknown member", "x", `{"app": "shop", "service_type": "otp", "colour": "red"}`, 400, codeBadRequest, ""},
		{"a member twice", "x", `{"app": "shop", "app": "shop", "service_type": "otp"}`, 400, codeBadRequest, ""},
		{"no JSON", "x", `app=shop`, 400, codeBadRequest, ""},
		{"a list", "x", `[]`, 400, codeBadRequest, ""},
		{"no text", "x", "{\"app\": \"\xff\"}", 400, codeBadRequest, ""},
		{"too much", "x", `{"app": "` + strings.Repeat("a", maxTopicForm) + `"}`, 413, codeBodyTooLarge, ""},
		{"a capital", "Offers", offers, 422, codeInvalidField, ""},
		{"a dot first", ".offers", offers, 422, codeInvalidField, ""},
		{"a slash", "a%2Fb", offers, 422, codeInvalidField, ""},
		{"a path upwards", "..%2Fusers", offers, 422, codeInvalidField, ""},
		{"a space", "a%20b", offers, 422, codeInvalidField, ""},
		{"another alphabet", "%D0%B0", offers, 422, codeInvalidField, ""},
		{"a zero", "a%00", offers, 422, codeInvalidField, ""},
		{"a line end after it", "a%0A", offers, 422, codeInvalidField, ""},
		{"129 letters", strings.Repeat("a", 129), offers, 422, codeInvalidField, ""},
		{"very many letters", strings.Repeat("a", 8000), offers, 422, codeInvalidField, ""},
	} {
		got := w.makeTopic(tt.name, tt.body)
		if got.status != tt.status || got.code() != tt.code || got.pointers() != tt.pointers {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
	}
	if got := w.do(request{method: "POST", path: "/v1/topics", key: keyOrders, body: `{"name": "A", "app": "shop", "service_type": "otp"}`}); got.status != 422 || got.pointers() != "/name" {
		t.Errorf("a name of the body: %d %s", got.status, got.text)
	}
	if list := w.do(request{method: "GET", path: "/v1/topics", key: keyOrders}); list.text != `{"topics":[]}`+"\n" {
		t.Errorf("there are %s", list.text)
	}
	if got := w.makeTopic(strings.Repeat("a", 128), offers); got.status != http.StatusCreated {
		t.Errorf("128 letters: %d %s", got.status, got.text)
	}
}

// pointers are the places of the faults of a problem.
func (a *reply) pointers() string {
	var p Problem
	_ = json.Unmarshal([]byte(a.text), &p)
	list := make([]string, 0, 1)
	for _, f := range p.Errors {
		list = append(list, f.Pointer)
	}
	return strings.Join(list, " ")
}

func TestTopicIsClosed(t *testing.T) {
	w := newWorld(t)
	w.makeTopic("offers", offers)
	w.makeTopic("others", offers)
	remove := func(name, key string) *reply {
		return w.do(request{method: "DELETE", path: "/v1/topics/" + name, key: key})
	}
	for _, tt := range []struct {
		why    string
		key    string
		status int
		code   string
	}{
		{"a key with users alone", keyLogins, 403, codeForbidden}, {"a reader of another app", keyReader, 403, codeForbidden},
		{"its sender", keyOrders, 200, ""}, {"again", keyOrders, 200, ""}, {"and by an admin", keySupport, 200, ""},
	} {
		if got := remove("offers", tt.key); got.status != tt.status || got.code() != tt.code || tt.status == 200 && got.string("state") != "closed" {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
	}
	if got := remove("others", keySupport); got.status != 200 || got.string("closed_at") == "" {
		t.Errorf("by an admin: %d %s", got.status, got.text)
	}
	if got := remove("none", keySupport); got.code() != codeNoTopic {
		t.Errorf("one that is not there: %s", got.text)
	}
	w.do(request{method: "PUT", path: "/v1/topics/theirs", key: keySupport, body: offers})
	if got := remove("theirs", keyOrders); got.status != 403 {
		t.Errorf("made by another sender: %d %s", got.status, got.text)
	}
	if got := w.makeTopic("offers", offers); got.code() != codeTopicClosed {
		t.Errorf("making it again: %s", got.text)
	}
	if got := w.join("offers", "u1", `{}`); got.code() != codeTopicClosed {
		t.Errorf("joining it: %s", got.text)
	}
	if got := w.do(request{method: "DELETE", path: "/v1/topics/offers/subscriptions/u1", key: keyLogins}); got.status != 200 || got.string("mode") != "left" {
		t.Errorf("leaving it: %d %s", got.status, got.text)
	}
}

func TestTopicsAreListed(t *testing.T) {
	w := newWorld(t)
	var want []string
	for i := range 5 {
		name := fmt.Sprint("t", i)
		w.makeTopic(name, offers)
		w.do(request{method: "PUT", path: "/v1/topics/bank" + name, key: keySupport, body: strings.Replace(offers, "shop", "bank", 1)})
		want = append(want, name)
	}
	list := func(key, query string) (names []string, next string) {
		a := w.do(request{method: "GET", path: "/v1/topics" + query, key: key})
		if a.status != 200 {
			t.Fatalf("%s: %s", query, a.text)
		}
		for _, one := range a.json["topics"].([]any) {
			names = append(names, one.(map[string]any)["name"].(string))
		}
		return names, a.string("next")
	}
	for _, limit := range []int{1, 2, 5, 6} {
		var got []string
		for query := fmt.Sprint("?limit=", limit); ; {
			names, next := list(keyOrders, query)
			got = append(got, names...)
			if next == "" {
				break
			}
			query = fmt.Sprintf("?limit=%d&after=%s", limit, next)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d a page: %q", limit, got)
		}
	}
	if names, _ := list(keySupport, ""); len(names) != 10 {
		t.Errorf("with two apps: %q", names)
	}
	if names, _ := list(keyReader, ""); len(names) != 5 || names[0] != "bankt0" {
		t.Errorf("of the bank: %q", names)
	}
	for _, query := range []string{
		"?limit=0", "?limit=1001", "?limit=-1", "?limit=x", "?limit=", "?limit=1&limit=1", "?after=A", "?after=a%2Fb", "?left=true", "?limt=1", "?after=%zz",
		"?limit=99999999999999999999",
	} {
		if a := w.do(request{method: "GET", path: "/v1/topics" + query, key: keyOrders}); a.status != 400 || a.code() != codeBadRequest {
			t.Errorf("%s: %d %s", query, a.status, a.text)
		}
	}
}

// A gateway without topics says so, to those who may know.
func TestNoTopics(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Topics = nil })
	for pattern := range w.gateway.handlers() {
		method, path, _ := strings.Cut(pattern, " ")
		if !strings.Contains(path, "topics") && !strings.Contains(path, "subscriptions") {
			continue
		}
		path = strings.NewReplacer("{topic}", "offers", "{user}", "u1").Replace(path)
		if got := w.do(request{method: method, path: path, key: keySupport, body: `{}`}); got.status != 501 || got.code() != codeNotConfigured {
			t.Errorf("%s: %d %s", pattern, got.status, got.text)
		}
		if got := w.do(request{method: method, path: path, body: `{}`}); got.status != 401 {
			t.Errorf("%s without a key: %d %s", pattern, got.status, got.text)
		}
	}
}

// Without an answer of the store within the time for it, each route says when to ask again.
func TestTopicsAreAway(t *testing.T) {
	for why, change := range map[string]func(b *board){
		"it fails": func(b *board) { b.err = errAway }, "it does not answer": func(b *board) { b.hang = true },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.makeTopic("offers", offers)
			w.topics.set(func() { change(w.topics) })
			for pattern := range w.gateway.handlers() {
				method, path, _ := strings.Cut(pattern, " ")
				if !strings.Contains(path, "topics") && !strings.Contains(path, "subscriptions") {
					continue
				}
				body := `{}`
				if method == "PUT" && strings.HasSuffix(path, "{topic}") || path == "/v1/topics" {
					body = `{"name": "offers", ` + offers[1:]
				}
				path = strings.NewReplacer("{topic}", "offers", "{user}", "u1").Replace(path)
				start := time.Now()
				got := w.do(request{method: method, path: path, key: keySupport, body: body})
				if got.status != 503 || got.code() != codeTopicsAway || got.header.Get("Retry-After") != "2" {
					t.Errorf("%s, %s: %d %s", why, pattern, got.status, got.text)
				}
				if took := time.Since(start); took > w.gateway.o.Times.Status {
					t.Errorf("%s, %s: answered after %v", why, pattern, took)
				}
			}
		})
	}
}

// FuzzTopic: every body is answered, and what is accepted is a topic that reads as it was
// written.
func FuzzTopic(f *testing.F) {
	for _, body := range []string{
		offers, `{}`, `{"app":"shop","service_type":"otp","metadata":{"priority":"low","security":"open"},"modes":["pull"],"size":"small"}`,
		`{"name":"x","app":"shop","service_type":"otp"}`, `{"app":null,"modes":null,"metadata":null}`, `{"metadata":{"app":"shop"}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var form topicForm
		if p := parseObject(body, &form, topicFields); p != nil {
			known(t, p)
			return
		}
		form.Name = "fuzz"
		topic, p := form.topic()
		if p != nil {
			known(t, p)
			return
		}
		m := subscriptions.NewMemory(nil)
		made, _, err := m.Create(t.Context(), &topic)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		var again topicForm
		shown := ofTopic(&made)
		text, _ := json.Marshal(map[string]any{"app": shown.App, "service_type": shown.Service, "metadata": shown.Metadata, "modes": shown.Modes, "size": shown.Size})
		if p := parseObject(text, &again, topicFields); p != nil {
			t.Fatalf("%s: %+v", text, p)
		}
		again.Name = "fuzz"
		second, p := again.topic()
		if p != nil {
			t.Fatalf("%s: %+v", text, p)
		}
		if _, created, err := m.Create(t.Context(), &second); err != nil || created {
			t.Fatalf("%s is not the same as %s: %v", text, body, err)
		}
	})
}

// known fails for a problem that the contract does not know.
func known(t *testing.T, p *Problem) {
	t.Helper()
	if k, is := kinds[p.Code]; !is || p.Status != k.status || p.Status >= 500 {
		t.Fatalf("refused with %+v", p)
	}
}
