package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
)

// reports are those of a world.
func (w *world) reports() *Clicks {
	return &Clicks{Store: w.clicks, Valid: 720 * time.Hour, Kept: 2160 * time.Hour, Rate: 1000}
}

// sent is a message to u42 with a click token, as its sender and its app know it.
func (w *world) sent(kind string) (id, receipt, token string) {
	w.t.Helper()
	got := w.post(`{"app":"shop","service_type":"transactional","user_id":"u42","type":"` + kind + `","title":"Snow","clicks":true}`)
	if got.status != 202 {
		w.t.Fatal(got.text)
	}
	_, data := w.sentData()
	return got.string("id"), got.string("receipt"), data[clickKey]
}

// tell reports an event by a token.
func (w *world) tell(token, event string) *reply {
	w.t.Helper()
	return w.do(request{method: "POST", path: "/v1/events", body: `{"token":"` + token + `","event":"` + event + `"}`})
}

// counts is what u42 has clicked, in short.
func (w *world) counts(key, query string) string {
	w.t.Helper()
	a := w.as(key, "GET", "/v1/users/u42/clicks?"+query, "")
	if a.status != 200 {
		return a.code()
	}
	var b strings.Builder
	for _, c := range a.json["counts"].([]any) {
		one := c.(map[string]any)
		fmt.Fprintf(&b, "%v %v %v; ", one["type"], one["clicked"], one["unsubscribed"])
	}
	return b.String()
}

// A notification that is clicked counts once, however often and wherever that is reported.
func TestClicksCountOnce(t *testing.T) {
	w := newWorld(t)
	other := New(w.gateway.o) // another gateway, with the same store
	_, _, news := w.sent("news")
	_, _, promo := w.sent("promo")
	var all sync.WaitGroup
	for i := range 40 {
		g := []*Gateway{w.gateway, other}[i%2]
		all.Go(func() {
			req := httptest.NewRequest("POST", "/v1/events", strings.NewReader(`{"token":"`+news+`","event":"CLICKED"}`))
			req.Header.Set("Content-Type", "application/json")
			rec := httptest.NewRecorder()
			g.ServeHTTP(rec, req)
			if rec.Code != 200 && rec.Code != 503 {
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
		})
	}
	all.Wait()
	for range 2 {
		if got := w.tell(promo, "CLICKED"); got.status != 200 || got.string("event") != "CLICKED" || len(got.json) != 1 {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
	if got := w.counts(keySupport, "app=shop"); got != "news 1 0; promo 1 0; " {
		t.Errorf("counted %s", got)
	}
	if w.people.count() != 0 {
		t.Errorf("%d changes of users", w.people.count())
	}
	if got := testutil.ToFloat64(w.gateway.o.Metrics.events.WithLabelValues("CLICKED", "accepted")); got < 3 {
		t.Errorf("counted %v of 3 and more", got)
	}
}

// A report of UNSUBSCRIBED that comes again, from an app that heard no answer, does not undo
// what its user wants by then. What was not kept takes effect again.
func TestUnsubscribedAgain(t *testing.T) {
	w := newWorld(t)
	_, _, token := w.sent("promo")
	again := func(want string) {
		t.Helper()
		if got := w.as(keyLogins, "PUT", "/v1/users/u42/preferences", `{}`); got.status != 202 {
			t.Fatal(got.text)
		}
		if got := w.tell(token, "UNSUBSCRIBED"); got.status != 200 {
			t.Errorf("%d %s", got.status, got.text)
		}
		if got := w.types("u42"); got != want {
			t.Errorf("opted out of %s, want %s", got, want)
		}
	}
	w.clicks.Fail(errors.New("timeout"))
	if got := w.tell(token, "UNSUBSCRIBED"); got.code() != "status_away" || w.types("u42") != "[promo]" {
		t.Errorf("while nothing can be kept: %d %s, opted out of %s", got.status, got.text, w.types("u42"))
	}
	w.clicks.Fail(nil)
	if got := w.tell(token, "CLICKED"); got.status != 200 {
		t.Errorf("%d %s", got.status, got.text)
	}
	again("[promo]")
	again("[]")
	if got := w.counts(keySupport, "app=shop"); got != "promo 1 1; " {
		t.Errorf("counted %s", got)
	}
}

// UNSUBSCRIBED opts out of the notification's type as a link does, once, and is counted
// beside clicks.
func TestUnsubscribedByAToken(t *testing.T) {
	w := newWorld(t)
	if got := w.as(keyLogins, "PUT", "/v1/users/u42/preferences", `{"opt_out_types":["news"]}`); got.status != 202 {
		t.Fatal(got.text)
	}
	_, _, token := w.sent("promo")
	for range 3 {
		if got := w.tell(token, "UNSUBSCRIBED"); got.status != 200 || got.string("event") != "UNSUBSCRIBED" {
			t.Errorf("%d %s", got.status, got.text)
		}
	}
	if got := w.types("u42"); got != "[news promo]" || w.people.count() != 2 {
		t.Errorf("opted out of %s, by %d records", got, w.people.count())
	}
	if got := w.counts(keySupport, "app=shop"); got != "promo 0 1; " {
		t.Errorf("counted %s", got)
	}
	w = newWorld(t, func(o *Options) { o.Users = NewUsers(newPeople(), nil) })
	_, _, token = w.sent("promo")
	if got := w.tell(token, "UNSUBSCRIBED"); got.code() != "not_configured" || w.clicks.Notes() != 0 {
		t.Errorf("without a registry: %d %s", got.status, got.text)
	}
	if got := w.tell(token, "CLICKED"); got.status != 200 {
		t.Errorf("clicked, without a registry: %d %s", got.status, got.text)
	}
}

// What is no report of a token changes nothing.
func TestReportsRefused(t *testing.T) {
	w := newWorld(t)
	_, receipt, token := w.sent("news")
	path := strings.TrimPrefix(w.link("u42", "news"), "/u/")
	old, huge := aClick(), aClick()
	old.sent = time.Now().Add(-720 * time.Hour)
	huge.sent = time.UnixMilli(1 << 53)
	forged := token[:20] + string(rune(token[20]^1)) + token[21:] // in base64url, or not: no signature fits
	body := func(token, event string) string { return `{"token":"` + token + `","event":"` + event + `"}` }
	for _, tt := range []struct {
		why, body string
		header    map[string]string
		status    int
		code      string
	}{
		{"nothing", "", nil, 400, "bad_request"},
		{"no object", "[]", nil, 400, "bad_request"},
		{"no token", `{"event":"CLICKED"}`, nil, 404, "no_such_token"},
		{"no event", `{"token":"` + token + `"}`, nil, 422, "invalid_field"},
		{"another event", body(token, "OPENED"), nil, 422, "invalid_field"},
		{"in small letters", body(token, "clicked"), nil, 422, "invalid_field"},
		{"a number", `{"token":` + strings.Repeat("9", 400) + `,"event":"CLICKED"}`, nil, 400, "bad_request"},
		{"the event's number", `{"token":"` + token + `","event":20}`, nil, 422, "invalid_field"},
		{"a member more", `{"token":"` + token + `","event":"CLICKED","user_id":"u43"}`, nil, 400, "bad_request"},
		{"a member twice", `{"token":"` + token + `","event":"CLICKED","event":"CLICKED"}`, nil, 400, "bad_request"},
		{"something behind it", body(token, "CLICKED") + "{}", nil, 400, "bad_request"},
		{"more than is read", body(strings.Repeat("A", 3<<10), "CLICKED"), nil, 413, "body_too_large"},
		{"a form", "token=" + token + "&event=CLICKED", map[string]string{"Content-Type": clickForm}, 415, "media_type"},
		{"a forged one", body(forged, "CLICKED"), nil, 404, "no_such_token"},
		{"a receipt", body(receipt, "CLICKED"), nil, 404, "no_such_token"},
		{"a link", body(path, "UNSUBSCRIBED"), nil, 404, "no_such_token"},
		{"one of another secret", body(tokenOf(signer(t, strings.Repeat("o", 32)), aClick()), "CLICKED"), nil, 404, "no_such_token"},
		{"one that has ended", body(tokenOf(w.gateway.o.Signer, old), "CLICKED"), nil, 410, "gone"},
		{"one that has ended, of who unsubscribes", body(tokenOf(w.gateway.o.Signer, old), "UNSUBSCRIBED"), nil, 410, "gone"},
		{"a caller's key in its place", body(keySupport, "CLICKED"), map[string]string{"Authorization": "Bearer " + keySupport}, 404, "no_such_token"},
	} {
		got := w.do(request{method: "POST", path: "/v1/events", body: tt.body, header: tt.header})
		if got.status != tt.status || got.code() != tt.code || strings.Contains(got.text, "u42") || strings.Contains(got.text, token) {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
	}
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		if got := w.do(request{method: method, path: "/v1/events"}); got.status != 405 || got.header.Get("Allow") != "POST" {
			t.Errorf("%s: %d", method, got.status)
		}
	}
	if w.clicks.Notes() != 0 || w.people.count() != 0 {
		t.Errorf("%d reports, %d records of users", w.clicks.Notes(), w.people.count())
	}
	if got := newWorld(t, func(o *Options) { o.Clicks = nil }).tell(token, "CLICKED"); got.code() != "not_configured" {
		t.Errorf("not configured: %d %s", got.status, got.text)
	}
}

// A token is good to the end of its time, by the notification's own clock.
func TestATokenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, _, token := w.sent("news")
		time.Sleep(720*time.Hour - time.Millisecond)
		if got := w.tell(token, "CLICKED"); got.status != 200 {
			t.Errorf("before: %d %s", got.status, got.text)
		}
		time.Sleep(time.Millisecond)
		if got := w.tell(token, "CLICKED"); got.status != 410 {
			t.Errorf("then: %d %s", got.status, got.text)
		}
	})
}

// While a store is away nothing is answered 200 that would be lost, and a repeat makes it
// good.
func TestReportsInTheDark(t *testing.T) {
	w := newWorld(t)
	_, _, token := w.sent("promo")
	for _, tt := range []struct {
		why    string
		event  string
		change func()
		status int
		code   string
		notes  int
	}{
		{"Cassandra is away", "CLICKED", func() { w.clicks.Fail(errAway) }, 503, "status_away", 0},
		{"Cassandra is away, for who unsubscribes", "UNSUBSCRIBED", func() {}, 503, "status_away", 0},
		{"the registry is away", "UNSUBSCRIBED", func() {
			w.clicks.Fail(nil)
			w.people.set(func() { w.people.readErr = errAway })
		}, 503, "registry_away", 0},
		{"both are back", "UNSUBSCRIBED", func() { w.people.set(func() { w.people.readErr = nil }) }, 200, "", 1},
		{"both are back", "CLICKED", func() {}, 200, "", 2},
	} {
		tt.change()
		got := w.tell(token, tt.event)
		if got.status != tt.status || got.code() != tt.code || w.clicks.Notes() != tt.notes || (got.header.Get("Retry-After") != "") != (tt.status == 503) {
			t.Errorf("%s: %d %s, %d notes", tt.why, got.status, got.text, w.clicks.Notes())
		}
	}
	if got := w.types("u42"); got != "[promo]" || w.people.count() != 1 {
		t.Errorf("opted out of %s, by %d records", got, w.people.count())
	}
	w = newWorld(t)
	_, _, token = w.sent("promo")
	w.people.set(func() { w.people.err = errAway })
	if got := w.tell(token, "UNSUBSCRIBED"); got.code() != "unconfirmed" || w.clicks.Notes() != 0 {
		t.Errorf("Kafka is away: %d %s, %d notes", got.status, got.text, w.clicks.Notes())
	}
}

// stuckReports never come back before their time is over.
type stuckReports struct {
	*clicks.Memory
	entered chan struct{}
}

func (s stuckReports) Note(ctx context.Context, _ *clicks.Report) error {
	s.entered <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// A gateway takes so many reports a second, and so many at once, and goes on with all else.
func TestReportsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Clicks.Rate = 3 })
		_, _, token := w.sent("news")
		taken := func() (n int) {
			for range 10 {
				switch got := w.tell(token, "CLICKED"); {
				case got.status == 200:
					n++
				case got.code() != "busy" || got.header.Get("Retry-After") != "1":
					t.Errorf("%d %s", got.status, got.text)
				}
			}
			return n
		}
		if got := taken(); got != 3 {
			t.Errorf("%d at first, want 3", got)
		}
		time.Sleep(time.Second / 3 * 2)
		if got := taken(); got != 2 && got != 1 { // 0.66 of a second's three, in floats
			t.Errorf("%d two thirds of a second later, want 2", got)
		}
		time.Sleep(time.Hour)
		if got := taken(); got != 3 {
			t.Errorf("%d an hour later, want 3", got)
		}

		stuck := stuckReports{w.clicks, make(chan struct{}, 100)}
		w = newWorld(t, func(o *Options) { o.Clicks.Store, o.Limits.Requests = stuck, 40 })
		_, _, token = w.sent("news")
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if got := w.tell(token, "CLICKED"); got.code() != "status_away" {
					t.Errorf("%d %s", got.status, got.text)
				}
			})
		}
		for range 10 {
			<-stuck.entered
		}
		if got := w.tell(token, "CLICKED"); got.code() != "busy" {
			t.Errorf("one more: %d %s", got.status, got.text)
		}
		if got := w.post(plain); got.status != 202 {
			t.Errorf("a message meanwhile: %d %s", got.status, got.text)
		}
		all.Wait()
	})
}

// Keys see the clicks of their own sender's notifications and apps, with the right admin of
// all senders, and users their own.
func TestWhoSeesClicks(t *testing.T) {
	w := newWorld(t)
	_, _, token := w.sent("news")
	w.tell(token, "CLICKED")
	got := w.as(keySupport, "POST", "/v1/messages", `{"app":"shop","service_type":"transactional","user_id":"u42","type":"offer","title":"Snow","clicks":true}`)
	if got.status != 202 {
		t.Fatal(got.text)
	}
	_, data := w.sentData()
	w.tell(data[clickKey], "CLICKED")
	user, another := w.token(keyLogins, "u42", "shop"), w.token(keyLogins, "u43", "shop")
	for _, tt := range []struct{ key, query, want string }{
		{keyOrders, "app=shop", "news 1 0; "}, {keyOrders, "app=shop&days=1", "news 1 0; "}, {keySupport, "app=shop&days=90", "news 1 0; offer 1 0; "},
		{keySupport, "app=bank", ""}, {keyReader, "app=bank", ""}, {user, "", "news 1 0; offer 1 0; "}, {user, "app=shop", "news 1 0; offer 1 0; "},
		{keyReader, "app=shop", "foreign_app"}, {user, "app=bank", "foreign_app"}, {another, "", "foreign_user"}, {keyLogins, "app=shop", "forbidden"}, {"", "app=shop", "unauthorized"},
		{token, "app=shop", "unauthorized"}, {keyOrders, "", "invalid_field"}, {keyOrders, "app=unconfigured", "unknown_app"},
		{keyOrders, "app=shop&days=0", "bad_request"}, {keyOrders, "app=shop&days=91", "bad_request"}, {keyOrders, "app=shop&days=" + strings.Repeat("9", 30), "bad_request"},
		{keyOrders, "app=shop&days=-1", "bad_request"}, {keyOrders, "app=shop&app=shop", "bad_request"}, {keyOrders, "app=shop&type=news", "bad_request"}, {keyOrders, "app=%zz", "bad_request"},
	} {
		if got := w.counts(tt.key, tt.query); got != tt.want {
			t.Errorf("%.12s, %q: %s, want %s", tt.key, tt.query, got, tt.want)
		}
	}
	a := w.as(keyOrders, "GET", "/v1/users/u42/clicks?app=shop&days=7", "")
	now := time.Now().UTC()
	if a.string("sender") != "orders" || a.string("to") != now.Format(time.DateOnly) || a.string("from") != now.AddDate(0, 0, -6).Format(time.DateOnly) || a.json["more"] != false {
		t.Errorf("%s", a.text)
	}
	if a := w.as(keySupport, "GET", "/v1/users/u42/clicks?app=shop", ""); a.json["sender"] != nil {
		t.Errorf("%s", a.text)
	}
	if got := w.as(keyOrders, "GET", "/v1/users/%00/clicks?app=shop", ""); got.code() != "invalid_field" {
		t.Errorf("a user who is none: %d %s", got.status, got.text)
	}
	w.clicks.Fail(errAway)
	if got := w.as(keyOrders, "GET", "/v1/users/u42/clicks?app=shop", ""); got.code() != "status_away" || got.header.Get("Retry-After") == "" {
		t.Errorf("Cassandra is away: %d %s", got.status, got.text)
	}
	if got := newWorld(t, func(o *Options) { o.Clicks = nil }).counts(keyOrders, "app=shop"); got != "not_configured" {
		t.Error(got)
	}
}

// A receipt and the steps of its user say what was reported, with its time, beside the
// status.
func TestReceiptsSayWhatWasReported(t *testing.T) {
	w := newWorld(t)
	id, receipt, token := w.sent("news")
	if a := w.ask(receipt, keyOrders); a.status != 200 || a.json["events"] != nil {
		t.Errorf("before: %s", a.text)
	}
	w.rows[id] = []push.Row{w.row(id, "a", 0, push.StateDelivered, "")}
	if a := w.ask(receipt, keyOrders); a.string("status") != "DELIVERED" || a.json["events"] != nil {
		t.Errorf("delivered: %s", a.text)
	}
	began := time.Now().Add(-time.Millisecond)
	w.tell(token, "CLICKED")
	w.tell(token, "UNSUBSCRIBED")
	want := func(events any) bool {
		list, _ := events.([]any)
		if len(list) != 2 || list[0].(map[string]any)["event"] != "CLICKED" || list[1].(map[string]any)["event"] != "UNSUBSCRIBED" {
			return false
		}
		at, err := time.Parse(time.RFC3339Nano, list[0].(map[string]any)["at"].(string))
		return err == nil && at.After(began) && !at.After(time.Now())
	}
	if a := w.ask(receipt, keyOrders); a.string("status") != "DELIVERED" || a.string("state") != "DELIVERED" || a.json["final"] != true || !want(a.json["events"]) {
		t.Errorf("clicked: %s", a.text)
	}
	_, other := w.accepted()
	a := w.as(keyOrders, "POST", "/v1/receipts:query", `{"receipts":["`+other+`","`+receipt+`"]}`)
	results := a.json["results"].([]any)
	if !want(results[1].(map[string]any)["events"]) || results[0].(map[string]any)["events"] != nil {
		t.Errorf("of many: %s", a.text)
	}
	for _, key := range []string{keyOrders, keySupport} {
		name := map[string]string{keyOrders: receipt, keySupport: id}[key] // by a bare id the app is not known
		if got := said(w.why(name, "u42", key)); !strings.HasSuffix(got, "receiver=user state=DELIVERED reported=CLICKED reported=UNSUBSCRIBED") || !strings.HasPrefix(got, "DELIVERED  true") {
			t.Errorf("%s", got)
		}
	}
	w.clicks.Fail(errAway)
	for _, a := range []*reply{w.ask(receipt, keyOrders), w.why(receipt, "u42", keyOrders)} {
		if a.code() != "status_away" || a.header.Get("Retry-After") == "" {
			t.Errorf("Cassandra is away: %d %s", a.status, a.text)
		}
	}
	if a := w.ask(other, keyOrders); a.status != 200 {
		t.Errorf("one that nobody has: %d %s", a.status, a.text)
	}
	phone := w.post(`{"app":"shop","service_type":"transactional","device":{"platform":"fcm","token":"abc"},"title":"Snow"}`)
	w.rows[phone.string("id")] = []push.Row{{ID: phone.string("id"), State: push.StateDelivered, At: time.Now(), UserHash: push.UserHash(push.DeviceHash(push.FCM, "abc"))}}
	if a := w.ask(phone.string("receipt"), keyOrders); a.status != 200 || a.string("status") != "DELIVERED" {
		t.Errorf("one to a device alone, of which nothing can be reported: %d %s", a.status, a.text)
	}
}

// Of a message to a topic each subscriber's own notification says it.
func TestAFanoutsRecipientsSayWhatWasReported(t *testing.T) {
	w, notes := fanoutWorld(t)
	w.as(keyLogins, "PUT", "/v1/topics/snow/subscriptions/u42", `{}`)
	a := w.toSnow(`{"title":"Snow","type":"news","clicks":true}`)
	j, _ := w.lastJob()
	if _, err := notes.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	own := fanout.ID(j.Message, "u42")
	w.rows[own] = []push.Row{w.row(own, "a", 0, push.StateDelivered, "")}
	w.tell(string(w.gateway.o.Signer.AppendClickToken(nil, own, "u42", "shop", "news", "orders", j.Accepted)), "CLICKED")
	if got := said(w.why(a.string("receipt"), "u42", keyOrders)); !strings.HasSuffix(got, "state=DELIVERED reported=CLICKED") {
		t.Errorf("%s", got)
	}
	if got := w.counts(keyOrders, "app=shop"); got != "news 1 0; " {
		t.Errorf("counted %s", got)
	}
}

// FuzzReport: a body of any bytes is answered as the contract says, and notes something only
// if it is a report by a token that was signed.
func FuzzReport(f *testing.F) {
	s, err := NewSigner(signing)
	if err != nil {
		f.Fatal(err)
	}
	c := aClick()
	c.sent = time.Now()
	good := tokenOf(s, c)
	for _, body := range []string{"", "{}", "[]", `{"token":"","event":"CLICKED"}`, `{"event":"CLICKED","token":"` + good + `"}`, `{"token":"` + good + `","event":"UNSUBSCRIBED"}`, `{"token":9e999,"event":"CLICKED"}`, "\xff"} {
		f.Add([]byte(body))
	}
	var w *world // one for all, as it takes longer than a request
	f.Fuzz(func(t *testing.T, body []byte) {
		if w == nil {
			w = newWorld(t, func(o *Options) { o.Users = nil })
		}
		w.t = t
		notes := w.clicks.Notes()
		req := httptest.NewRequest("POST", "/v1/events", strings.NewReader(string(body)))
		req.Header.Set("Content-Type", "application/json")
		got := w.exchange(req)
		var q reportRequest
		_ = json.Unmarshal(body, &q)
		if _, signed := s.openClick(q.Token); got.status == 200 && !signed || (got.status == 200) != (w.clicks.Notes() == notes+1) {
			t.Errorf("%d %s, %d notes more", got.status, got.text, w.clicks.Notes()-notes)
		}
	})
}
