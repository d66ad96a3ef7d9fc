package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// join subscribes a user as logins.
func (w *world) join(topic, user, body string) *reply {
	w.t.Helper()
	return w.do(request{method: "PUT", path: "/v1/topics/" + topic + "/subscriptions/" + url.PathEscape(user), key: keyLogins, body: body})
}

// joinMany subscribes many as logins.
func (w *world) joinMany(topic string, lines ...string) *reply {
	w.t.Helper()
	return w.do(request{method: "POST", path: "/v1/topics/" + topic + "/subscriptions/batch", key: keyLogins, body: strings.Join(lines, "\n")})
}

// theirList is what is listed at a path.
func (w *world) theirList(path, key string) (list []map[string]any, next string) {
	w.t.Helper()
	a := w.do(request{method: "GET", path: path, key: key})
	if a.status != 200 {
		w.t.Fatalf("%s: %s", path, a.text)
	}
	for _, one := range a.json["subscriptions"].([]any) {
		list = append(list, one.(map[string]any))
	}
	return list, a.string("next")
}

func TestAUserJoinsAndLeaves(t *testing.T) {
	w := newWorld(t)
	w.makeTopic("offers", offers)
	const user = "ü/1 ?"
	first := w.join("offers", user, `{"mode": "push", "priority": "low"}`)
	if first.status != 200 || first.string("mode") != "push" || first.string("priority") != "low" || first.string("user_id") != user || first.string("topic") != "offers" {
		t.Fatal(first.text)
	}
	if again := w.join("offers", user, `{"mode": "push", "priority": "low"}`); again.text != first.text {
		t.Errorf("again %s", again.text)
	}
	if pull := w.join("offers", user, `{"mode": "pull"}`); pull.string("mode") != "pull" || pull.string("since") != first.string("since") || pull.string("priority") != "" {
		t.Errorf("another mode: %s", pull.text)
	}
	if usual := w.join("offers", user, `{}`); usual.string("mode") != "push" {
		t.Errorf("no mode: %s", usual.text)
	}
	if list, next := w.theirList("/v1/topics/offers/subscriptions", keyLogins); len(list) != 1 || next != "" || list[0]["user_id"] != user {
		t.Errorf("subscribers %v, %q", list, next)
	}
	at := "/v1/users/" + url.PathEscape(user) + "/subscriptions"
	if list, next := w.theirList(at, keyLogins); len(list) != 1 || next != "" || list[0]["topic"] != "offers" {
		t.Errorf("topics %v, %q", list, next)
	}
	for range 2 {
		gone := w.do(request{method: "DELETE", path: "/v1/topics/offers/subscriptions/" + url.PathEscape(user), key: keyLogins})
		if gone.status != 200 || gone.string("mode") != "left" || gone.string("left_at") == "" {
			t.Errorf("left: %d %s", gone.status, gone.text)
		}
	}
	for _, path := range []string{"/v1/topics/offers/subscriptions", at} {
		if list, _ := w.theirList(path, keyLogins); len(list) != 0 {
			t.Errorf("%s after he has left: %v", path, list)
		}
		if list, _ := w.theirList(path+"?left=true", keyLogins); len(list) != 1 || list[0]["mode"] != "left" {
			t.Errorf("%s with who has left: %v", path, list)
		}
	}
	if never := w.do(request{method: "DELETE", path: "/v1/topics/offers/subscriptions/never", key: keyLogins}); never.status != 200 || never.string("since") != "" {
		t.Errorf("who was never there: %d %s", never.status, never.text)
	}
}

func TestSubscriptionIsRefused(t *testing.T) {
	w := newWorld(t)
	w.makeTopic("offers", `{"app": "shop", "service_type": "otp", "modes": ["push"], "metadata": {"priority": "medium"}}`)
	w.makeTopic("reading", `{"app": "shop", "service_type": "otp", "modes": ["pull"]}`)
	w.do(request{method: "PUT", path: "/v1/topics/theirs", key: keySupport, body: strings.Replace(offers, "shop", "bank", 1)})
	for _, tt := range []struct {
		why, topic, user, body string
		status                 int
		code, pointers         string
	}{
		{"a mode that is none", "offers", "u", `{"mode": "mail"}`, 422, codeInvalidField, "/mode"},
		{"left is no mode", "offers", "u", `{"mode": "left"}`, 422, codeInvalidField, "/mode"},
		{"a mode that the topic has not", "offers", "u", `{"mode": "pull"}`, 422, codeInvalidField, "/mode"},
		{"a priority that is none", "offers", "u", `{"priority": "5"}`, 422, codeInvalidField, "/priority"},
		{"a priority above the topic's", "offers", "u", `{"priority": "high"}`, 422, codeInvalidField, "/priority"},
		{"a number", "offers", "u", `{"priority": 5}`, 422, codeInvalidField, "/priority"},
		{"a member of lines", "offers", "u", `{"user_id": "u"}`, 400, codeBadRequest, ""},
		{"nothing", "offers", "u", ``, 400, codeBadRequest, ""},
		{"a member twice", "offers", "u", `{"mode": "push", "mode": "push"}`, 400, codeBadRequest, ""},
		{"too much", "offers", "u", `{"mode": "` + strings.Repeat("p", maxSubscription) + `"}`, 413, codeBodyTooLarge, ""},
		{"a user of 129 bytes", "offers", strings.Repeat("u", 129), `{}`, 422, codeInvalidField, ""},
		{"a user with a zero", "offers", "a\x00", `{}`, 422, codeInvalidField, ""},
		{"a user that is no text", "offers", "a\xff", `{}`, 422, codeInvalidField, ""},
		{"no such topic", "none", "u", `{}`, 404, codeNoTopic, ""},
		{"a topic of another app", "theirs", "u", `{}`, 404, codeNoTopic, ""},
		{"a topic that cannot be", "A%2F", "u", `{}`, 422, codeInvalidField, ""},
	} {
		if got := w.join(tt.topic, tt.user, tt.body); got.status != tt.status || got.code() != tt.code || got.pointers() != tt.pointers {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
	}
	if list, _ := w.theirList("/v1/topics/offers/subscriptions?left=true", keyLogins); len(list) != 0 {
		t.Errorf("subscribers %v", list)
	}
	if got := w.join("reading", "u", `{}`); got.string("mode") != "pull" {
		t.Errorf("without a mode, where there is only pull: %s", got.text)
	}
	for _, key := range []string{keyOrders, keyReader} {
		for _, r := range []request{
			{method: "PUT", path: "/v1/topics/offers/subscriptions/u", body: `{}`}, {method: "DELETE", path: "/v1/topics/offers/subscriptions/u"},
			{method: "GET", path: "/v1/topics/offers/subscriptions"}, {method: "POST", path: "/v1/topics/offers/subscriptions/batch", body: `{"user_id":"u"}`},
			{method: "GET", path: "/v1/users/u/subscriptions"},
		} {
			if r.key = key; w.do(r).code() != codeForbidden {
				t.Errorf("%s %s without the right users: %s", r.method, r.path, w.do(r).text)
			}
		}
	}
}

// A user's token reads and changes the user's own subscriptions of open topics of its app.
func TestAUserSubscribesByHimself(t *testing.T) {
	w := newWorld(t)
	for name, security := range map[string]string{"open": "open", "closedcircle": "restricted", "secret": "confidential"} {
		w.makeTopic(name, fmt.Sprintf(`{"app": "shop", "service_type": "otp", "metadata": {"security": %q}}`, security))
		if got := w.join(name, "u1", `{}`); got.status != 200 {
			t.Fatal(got.text)
		}
	}
	w.do(request{method: "PUT", path: "/v1/topics/bank", key: keySupport, body: `{"app": "bank", "service_type": "otp"}`})
	w.do(request{method: "PUT", path: "/v1/topics/bank/subscriptions/u1", key: keySupport, body: `{}`})
	token := w.userToken("u1")
	for _, tt := range []struct {
		why    string
		r      request
		status int
		code   string
	}{
		{"joins", request{method: "PUT", path: "/v1/topics/open/subscriptions/u1", body: `{"priority": "low"}`}, 200, ""},
		{"leaves", request{method: "DELETE", path: "/v1/topics/open/subscriptions/u1"}, 200, ""},
		{"joins again", request{method: "PUT", path: "/v1/topics/open/subscriptions/u1", body: `{}`}, 200, ""},
		{"joins what is restricted", request{method: "PUT", path: "/v1/topics/closedcircle/subscriptions/u1", body: `{}`}, 404, codeNoTopic},
		{"leaves what is confidential", request{method: "DELETE", path: "/v1/topics/secret/subscriptions/u1"}, 404, codeNoTopic},
		{"a topic of another app", request{method: "PUT", path: "/v1/topics/bank/subscriptions/u1", body: `{}`}, 404, codeNoTopic},
		{"for somebody else", request{method: "PUT", path: "/v1/topics/open/subscriptions/u2", body: `{}`}, 403, codeForeignUser},
		{"the topics of somebody else", request{method: "GET", path: "/v1/users/u2/subscriptions"}, 403, codeForeignUser},
		{"all subscribers", request{method: "GET", path: "/v1/topics/open/subscriptions"}, 401, codeUnauthorized},
		{"many", request{method: "POST", path: "/v1/topics/open/subscriptions/batch", body: `{"user_id":"u1"}`}, 401, codeUnauthorized},
	} {
		tt.r.key = token
		if got := w.do(tt.r); got.status != tt.status || got.code() != tt.code {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
	}
	if list, _ := w.theirList("/v1/users/u1/subscriptions", token); len(list) != 1 || list[0]["topic"] != "open" {
		t.Errorf("he sees %v", list)
	}
	if list, _ := w.theirList("/v1/users/u1/subscriptions", keyLogins); len(list) != 3 {
		t.Errorf("a key of the app sees %v", list)
	}
	if list, _ := w.theirList("/v1/users/u1/subscriptions", keySupport); len(list) != 4 {
		t.Errorf("a key of both apps sees %v", list)
	}
}

func TestManySubscribe(t *testing.T) {
	w := newWorld(t)
	w.makeTopic("offers", offers)
	got := w.joinMany("offers", `{"user_id": "u1"}`, ``, `{"user_id": "u2", "mode": "pull", "priority": "low"}`, `{"user_id": "never", "mode": "left"}`)
	if got.status != 200 || got.json["accepted"] != 3.0 || got.json["failed"] != 0.0 {
		t.Fatalf("%d %s", got.status, got.text)
	}
	if third := got.json["results"].([]any)[1].(map[string]any); third["line"] != 3.0 || third["mode"] != "pull" || third["priority"] != "low" {
		t.Errorf("the third line: %v", third)
	}
	got = w.joinMany("offers", `{"user_id": "u1", "mode": "left"}`, `{"user_id": "u1", "mode": "push"}`, `{"user_id": "u2", "mode": "push"}`, `{"user_id": "u2", "mode": "push"}`,
		`{"user_id": ""}`, `{"mode": "push"}`, `nothing`, `{"user_id": "u3", "mode": "mail"}`, `{"user_id": "u4", "priority": "critical"}`, `{"user_id": "u5", "mode": "left", "priority": "low"}`,
		`{"user_id": "`+strings.Repeat("u", 129)+`"}`, `{"user_id": "\u0000"}`, `{"user_id": "u6", "user_id": "u7"}`, `{"user_id": 6}`, `{"user_id": "u/8 ü"}`)
	if got.status != http.StatusMultiStatus || got.json["accepted"] != 3.0 || got.json["failed"] != 12.0 {
		t.Fatalf("%d %s", got.status, got.text)
	}
	var faults []string
	for _, one := range got.json["results"].([]any) {
		line := one.(map[string]any)
		problem, _ := line["problem"].(map[string]any)
		if problem == nil {
			faults = append(faults, fmt.Sprint(line["line"], " ", line["mode"]))
			continue
		}
		faults = append(faults, fmt.Sprint(line["line"], " ", problem["code"]))
	}
	want := "1 left, 2 invalid_field, 3 push, 4 invalid_field, 5 invalid_field, 6 invalid_field, 7 bad_request, 8 invalid_field, 9 invalid_field, 10 invalid_field, " +
		"11 invalid_field, 12 invalid_field, 13 bad_request, 14 invalid_field, 15 push"
	if all := strings.Join(faults, ", "); all != want {
		t.Errorf("lines\n%s\nwant\n%s", all, want)
	}
	if list, _ := w.theirList("/v1/topics/offers/subscriptions", keyLogins); len(list) != 2 {
		t.Errorf("subscribers %v", list)
	}
}

func TestBatchOfSubscriptionsIsRefused(t *testing.T) {
	w := newWorld(t)
	w.makeTopic("offers", offers)
	var lines []string
	for i := range 1001 {
		lines = append(lines, fmt.Sprintf(`{"user_id": "u%d"}`, i))
	}
	if got := w.joinMany("offers", lines...); got.status != 413 || got.code() != codeTooManyLines {
		t.Errorf("1,001 lines: %d %s", got.status, got.text)
	}
	if got := w.joinMany("none", lines[0]); got.code() != codeNoTopic {
		t.Errorf("no such topic: %s", got.text)
	}
	if got := w.joinMany("offers", ""); got.code() != codeBadRequest {
		t.Errorf("nothing: %s", got.text)
	}
	if got := w.joinMany("offers", strings.Repeat(" ", maxSubscription*subscriptions.MaxChanges+1)); got.code() != codeBodyTooLarge {
		t.Errorf("too much: %s", got.text)
	}
	if got := w.do(request{method: "POST", path: "/v1/topics/offers/subscriptions/batch", key: keyLogins, body: lines[0], header: map[string]string{"Content-Type": "application/json"}}); got.code() != codeMediaType {
		t.Errorf("JSON: %s", got.text)
	}
	if list, _ := w.theirList("/v1/topics/offers/subscriptions?left=true", keyLogins); len(list) != 0 {
		t.Errorf("%d subscribers", len(list))
	}
	if got := w.joinMany("offers", lines[:1000]...); got.status != 200 || got.json["accepted"] != 1000.0 {
		t.Errorf("1,000 lines: %d %s", got.status, got.text[:200])
	}
	for range cap(w.gateway.joining) {
		w.gateway.joining <- struct{}{}
	}
	if got := w.joinMany("offers", lines[0]); got.code() != codeBusy {
		t.Errorf("beside others: %s", got.text)
	}
}

// Of a batch in whose midst the store fails, or stops to answer, each line says what became
// of it: what is answered as done is there.
func TestTheStoreFailsInABatch(t *testing.T) {
	for why, change := range map[string]func(b *board){
		"it fails": func(b *board) { b.err = errAway }, "it does not answer": func(b *board) { b.hang = true },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.makeTopic("offers", offers)
			w.topics.set(func() {
				w.topics.after = 7
				change(w.topics)
			})
			var lines []string
			for i := range 20 {
				lines = append(lines, fmt.Sprintf(`{"user_id": "u%d"}`, i))
			}
			start := time.Now()
			got := w.joinMany("offers", lines...)
			if got.status != 207 || got.json["accepted"] != 7.0 || got.json["failed"] != 13.0 || got.header.Get("Retry-After") == "" {
				t.Errorf("%s: %d %s", why, got.status, got.text)
			}
			if took := time.Since(start); took > w.gateway.o.Times.Status {
				t.Errorf("%s: answered after %v", why, took)
			}
			w.topics.set(func() { w.topics.err, w.topics.hang = nil, false })
			list, _ := w.theirList("/v1/topics/offers/subscriptions", keyLogins)
			there := map[any]bool{}
			for _, one := range list {
				there[one["user_id"]] = true
			}
			for _, one := range got.json["results"].([]any) {
				line := one.(map[string]any)
				if problem, failed := line["problem"].(map[string]any); failed && (problem["code"] != codeTopicsAway || problem["retry_after"] == nil) || !failed && !there[line["user_id"]] {
					t.Errorf("%s: %v, subscribers %v", why, line, there)
				}
			}
			if again := w.joinMany("offers", lines...); again.status != 200 {
				t.Errorf("%s: all again: %d", why, again.status)
			}
		})
	}
}

func TestSubscribersArePaged(t *testing.T) {
	w := newWorld(t)
	w.makeTopic("offers", strings.Replace(offers, "{", `{"size": "large", `, 1))
	want := map[any]bool{}
	var lines []string
	for i := range 50 {
		user := fmt.Sprint("u", i)
		if i%3 == 0 {
			lines = append(lines, fmt.Sprintf(`{"user_id": %q, "mode": "left"}`, user))
			continue
		}
		want[user] = true
		lines = append(lines, fmt.Sprintf(`{"user_id": %q}`, user))
	}
	w.joinMany("offers", lines...)
	for _, limit := range []int{1, 7, 100} {
		seen := map[any]bool{}
		for after, answers := "", 0; ; answers++ {
			list, next := w.theirList(fmt.Sprintf("/v1/topics/offers/subscriptions?limit=%d&after=%s", limit, after), keyLogins)
			if len(list) > limit || answers > 200 {
				t.Fatalf("%d a page: %d, after %d answers", limit, len(list), answers)
			}
			for _, one := range list {
				if seen[one["user_id"]] || !want[one["user_id"]] {
					t.Errorf("%v is there twice, or has left", one)
				}
				seen[one["user_id"]] = true
			}
			if after = next; next == "" {
				break
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%d a page: %d of %d", limit, len(seen), len(want))
		}
	}
	for _, query := range []string{"?after=!", "?after=AA", "?after=_____w", "?left=1", "?left=", "?limit=1001", "?after=" + strings.Repeat("A", 300)} {
		if a := w.do(request{method: "GET", path: "/v1/topics/offers/subscriptions" + query, key: keyLogins}); query != "?after=AA" && a.code() != codeBadRequest || a.status >= 500 {
			t.Errorf("%s: %d %s", query, a.status, a.text)
		}
	}
}

func TestTopicsOfAUserArePaged(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		app := []string{"shop", "bank"}[i%2]
		name := fmt.Sprintf("t%02d", i)
		w.do(request{method: "PUT", path: "/v1/topics/" + name, key: keySupport, body: strings.Replace(offers, "shop", app, 1)})
		w.do(request{method: "PUT", path: "/v1/topics/" + name + "/subscriptions/u1", key: keySupport, body: `{}`})
	}
	for _, limit := range []int{1, 4, 6, 7} {
		var got []string
		for after := ""; ; {
			list, next := w.theirList(fmt.Sprintf("/v1/users/u1/subscriptions?limit=%d&after=%s", limit, after), keyLogins)
			for _, one := range list {
				got = append(got, one["topic"].(string))
			}
			if after = next; next == "" {
				break
			}
		}
		if all := strings.Join(got, " "); all != "t00 t02 t04 t06 t08 t10" {
			t.Errorf("%d a page: %s", limit, all)
		}
	}
}

// A user at his limit is told so; what he has he may still change.
func TestTooManyTopics(t *testing.T) {
	w := newWorld(t)
	for i := range subscriptions.MaxTopics {
		topic := subscriptions.Topic{Name: fmt.Sprint("t", i), App: "shop", Security: subscriptions.Open, Priority: push.Medium, Modes: subscriptions.ModesOf(subscriptions.Push), State: subscriptions.Opened}
		if r := w.topics.Memory.Apply(context.Background(), &topic, []subscriptions.Change{{User: "u1", Mode: subscriptions.Push, At: time.Now()}}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	w.makeTopic("more", offers)
	w.makeTopic("t0", offers)
	if got := w.join("more", "u1", `{}`); got.status != 409 || got.code() != codeManyTopics {
		t.Errorf("one more: %d %s", got.status, got.text)
	}
	if got := w.joinMany("more", `{"user_id": "u1"}`, `{"user_id": "u2"}`); got.status != 207 || got.json["accepted"] != 1.0 {
		t.Errorf("in a batch: %d %s", got.status, got.text)
	}
	if got := w.join("t0", "u1", `{"mode": "pull"}`); got.status != 200 {
		t.Errorf("one that he has: %d %s", got.status, got.text)
	}
}

// Requests get times that rise, whatever the clock does.
func TestStampsRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock stands still
		var s stamps
		before := s.next()
		for range 1000 {
			at := s.next()
			if !at.After(before) {
				t.Fatalf("%v after %v", at, before)
			}
			before = at
		}
	})
}

// FuzzSubscription: every line is answered; what is accepted reads as it was written.
func FuzzSubscription(f *testing.F) {
	for _, line := range []string{`{}`, `{"user_id":"u","mode":"pull","priority":"low"}`, `{"user_id":"\ud800","mode":"left"}`, `{"user_id":null,"mode":null}`, `[]`, `{"mode":"push"}x`} {
		f.Add([]byte(line))
	}
	topic := &subscriptions.Topic{Name: "fuzz", App: "shop", Service: "otp", Priority: push.Medium, Security: subscriptions.Open, Size: subscriptions.Small,
		Modes: subscriptions.ModesOf(subscriptions.Push, subscriptions.Pull), State: subscriptions.Opened}
	f.Fuzz(func(t *testing.T, line []byte) {
		var form subscriptionForm
		if p := parseObject(line, &form, lineFields); p != nil {
			known(t, p)
			return
		}
		c, p := form.change(topic, time.UnixMicro(1))
		if p != nil {
			known(t, p)
			return
		}
		r := subscriptions.NewMemory(nil).Apply(t.Context(), topic, []subscriptions.Change{c})[0]
		if r.Err != nil {
			known(t, problemOfTopics(r.Err))
			return
		}
		text, err := json.Marshal(ofSubscription(topic.Name, &r.Subscription))
		if err != nil || r.Subscription.User != form.User || form.Mode != "" && !strings.Contains(string(text), `"mode":"`+form.Mode+`"`) {
			t.Fatalf("%s became %s, %v", line, text, err)
		}
	})
}

// FuzzPlace: no text is a place that is not told by the same text.
func FuzzPlace(f *testing.F) {
	for _, text := range []string{"", "AAA", "AAB1", "_____w", placeText(subscriptions.Position{Slice: 1023, User: "ü"})} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := placeOf(text); ok && text != "" && placeText(p) != text {
			t.Fatalf("%q is %+v, which is %q", text, p, placeText(p))
		}
	})
}
