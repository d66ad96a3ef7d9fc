package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

const phone = `{"platform":"fcm","token":"secret-token","app":"shop"}`

var phoneHash = push.DeviceHash(push.FCM, "secret-token")

// as makes a request with a key or a token.
func (w *world) as(key, method, path, body string) *reply {
	w.t.Helper()
	return w.do(request{method: method, path: path, key: key, body: body})
}

// token makes one of a user for an app.
func (w *world) token(key, user, app string) string {
	w.t.Helper()
	got := w.as(key, "POST", "/v1/users/"+url.PathEscape(user)+"/tokens", `{"app":"`+app+`"}`)
	if got.status != http.StatusCreated {
		w.t.Fatalf("no token: %d %s", got.status, got.text)
	}
	return got.string("token")
}

// Preferences replace all that there were, whoever sets them, and are shown as they are.
func TestPreferences(t *testing.T) {
	w := newWorld(t)
	const path = "/v1/users/u42/preferences"
	if got := w.as(keyLogins, "GET", path, ""); got.status != 200 || got.string("user_id") != "u42" || got.json["blocked"] != false || len(got.json["quiet_hours"].([]any)) != 0 {
		t.Errorf("of somebody unknown: %d %s", got.status, got.text)
	}
	token := w.token(keyLogins, "u42", "shop")
	for _, key := range []string{keyLogins, token} {
		got := w.as(key, "PUT", path, `{"opt_out_types":["promo"],"blocked":false,"opt_in_types":null,"quiet_hours":[{"from":"22:00","to":"07:00","days":["fri"],"types":["news"]}]}`)
		if got.status != http.StatusAccepted || got.string("user_id") != "u42" {
			t.Fatalf("%d %s", got.status, got.text)
		}
		got = w.as(key, "GET", path, "")
		if got.status != 200 || fmt.Sprint(got.json["opt_out_types"], got.json["quiet_hours"], got.json["opt_in_types"], got.json["unreadable"]) != "[promo] [map[days:[fri] from:22:00 to:07:00 types:[news]]] [] false" {
			t.Errorf("%d %s", got.status, got.text)
		}
		if got := w.as(key, "PUT", path, `{}`); got.status != http.StatusAccepted {
			t.Errorf("nothing: %d %s", got.status, got.text)
		}
		if r := w.people.last(); r.Key != "u42/prefs" || r.Value != nil {
			t.Errorf("to want nothing is a tombstone, and was %+v", r)
		}
	}
	w.people.set(func() { w.people.users["u42"].Quarantine = push.PreferencesBroken })
	if got := w.as(keyLogins, "GET", path, ""); got.json["unreadable"] != true {
		t.Errorf("that cannot be read: %s", got.text)
	}
}

// A device is registered by its token and shown by its hash, to who may see its app.
func TestDevices(t *testing.T) {
	w := newWorld(t)
	const path = "/v1/users/u42/devices"
	got := w.as(keyLogins, "PUT", path, phone)
	if got.status != http.StatusAccepted || got.string("device") != phoneHash {
		t.Fatalf("%d %s", got.status, got.text)
	}
	if r := w.people.last(); r.Key != "u42/device:"+phoneHash || !strings.Contains(string(r.Value), `"secret-token"`) {
		t.Errorf("appended %+v", r)
	}
	if got := w.as(keyLogins, "PUT", path+"/"+phoneHash, phone); got.status != http.StatusAccepted {
		t.Errorf("by its hash: %d %s", got.status, got.text)
	}
	if got := w.as(keySupport, "PUT", path, `{"platform":"apns","environment":"sandbox","token":"`+strings.Repeat("AB", 32)+`","app":"bank","registered_at":"2026-11-21T10:00:00Z"}`); got.status != http.StatusAccepted {
		t.Fatalf("%d %s", got.status, got.text)
	}
	bank := push.DeviceHash(push.APNS, strings.Repeat("ab", 32))
	token := w.token(keyLogins, "u42", "shop")
	for _, tt := range []struct {
		why, key string
		sees     []string
	}{{"all apps", keySupport, []string{phoneHash, bank}}, {"one app", keyLogins, []string{phoneHash}}, {"the user's token", token, []string{phoneHash}}} {
		got := w.as(tt.key, "GET", path, "")
		if list, _ := got.json["devices"].([]any); got.status != 200 || len(list) != len(tt.sees) || strings.Contains(got.text, "secret-token") {
			t.Errorf("%s: %d %s", tt.why, got.status, got.text)
		}
		for _, hash := range tt.sees {
			if !strings.Contains(got.text, hash) {
				t.Errorf("%s: without %s: %s", tt.why, hash, got.text)
			}
			if got := w.as(tt.key, "GET", path+"/"+hash, ""); got.status != 200 || got.string("hash") != hash {
				t.Errorf("%s: %d %s", tt.why, got.status, got.text)
			}
		}
	}
	// Of another app is told what is told of none.
	foreign, none := w.as(keyLogins, "GET", path+"/"+bank, ""), w.as(keyLogins, "GET", path+"/AAAAAAAAAAAAAAAA", "")
	if foreign.code() != "no_such_device" || foreign.text != none.text {
		t.Errorf("told apart are %s and %s", foreign.text, none.text)
	}
	for _, key := range []string{keyLogins, token} {
		if got := w.as(key, "DELETE", path+"/"+bank, ""); got.status != 404 || got.code() != "no_such_device" {
			t.Errorf("removed from another app: %d %s", got.status, got.text)
		}
	}
	before := w.people.count()
	if got := w.as(token, "DELETE", path+"/AAAAAAAAAAAAAAAA", ""); got.status != http.StatusAccepted || w.people.count() != before+1 {
		t.Errorf("what may be on its way: %d %s", got.status, got.text)
	}
	if got := w.as(token, "DELETE", path+"/"+phoneHash, ""); got.status != http.StatusAccepted || got.string("device") != phoneHash {
		t.Errorf("%d %s", got.status, got.text)
	}
	if got := w.as(keySupport, "GET", path, ""); strings.Contains(got.text, phoneHash) || !strings.Contains(got.text, bank) {
		t.Errorf("left are %s", got.text)
	}
	// With a token the app may be left out, and the time is the gateway's.
	if got := w.as(token, "PUT", path, `{"platform":"fcm","token":"another"}`); got.status != http.StatusAccepted {
		t.Errorf("%d %s", got.status, got.text)
	}
	if got := w.as(token, "GET", path+"/"+push.DeviceHash(push.FCM, "another"), ""); got.string("app") != "shop" {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// Of an app the latest 20 devices of a user are kept.
func TestManyDevices(t *testing.T) {
	w := newWorld(t)
	start := time.Now().Add(-time.Hour)
	for i := range 25 {
		body := fmt.Sprintf(`{"platform":"fcm","token":"t%d","app":"shop","registered_at":%q}`, i, start.Add(time.Duration(i)*time.Second).Format(time.RFC3339))
		if got := w.as(keyLogins, "PUT", "/v1/users/u42/devices", body); got.status != http.StatusAccepted {
			t.Fatalf("%d %s", got.status, got.text)
		}
	}
	got := w.as(keyLogins, "GET", "/v1/users/u42/devices", "")
	if list, _ := got.json["devices"].([]any); len(list) != 20 || strings.Contains(got.text, push.DeviceHash(push.FCM, "t4")) || !strings.Contains(got.text, push.DeviceHash(push.FCM, "t24")) {
		t.Errorf("%d are kept: %s", len(list), got.text)
	}
}

// What is refused is refused by a code and a pointer, and nothing of it is appended.
func TestUsersRefused(t *testing.T) {
	w := newWorld(t)
	token := w.token(keyLogins, "u42", "shop")
	prefs, devices, tokens := "PUT /v1/users/u42/preferences", "PUT /v1/users/u42/devices", "POST /v1/users/u42/tokens"
	for _, tt := range []struct {
		why, key, to, body string
		status             int
		code, pointer      string
	}{
		{"no JSON", keyLogins, prefs, `{"blocked"`, 400, "bad_request", "none"},
		{"nothing", keyLogins, prefs, ``, 400, "bad_request", "none"},
		{"a list", keyLogins, prefs, `[]`, 400, "bad_request", "none"},
		{"null", keyLogins, prefs, `null`, 400, "bad_request", "none"},
		{"a second object", keyLogins, prefs, `{} {}`, 400, "bad_request", "none"},
		{"an unknown member", keyLogins, prefs, `{"opt_out":true}`, 400, "bad_request", "none"},
		{"a member in other letters", keyLogins, prefs, `{"Blocked":true}`, 400, "bad_request", "none"},
		{"a member twice", keyLogins, prefs, `{"blocked":true,"blocked":false}`, 400, "bad_request", "none"},
		{"a member of another object", keyLogins, prefs, `{"from":"22:00"}`, 400, "bad_request", "none"},
		{"deep", keyLogins, prefs, `{"opt_out_types":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`, 400, "bad_request", "none"},
		{"no UTF-8", keyLogins, prefs, "{\"opt_out_types\":[\"\xff\"]}", 400, "bad_request", "none"},
		{"another type", keyLogins, prefs, `{"opt_out_all":"yes"}`, 422, "invalid_field", "/opt_out_all"},
		{"a number among names", keyLogins, prefs, `{"opt_out_types":["a",1]}`, 422, "invalid_field", "/opt_out_types"},
		{"an empty name", keyLogins, prefs, `{"opt_out_types":[""]}`, 422, "invalid_field", "/opt_out_types"},
		{"a long name", keyLogins, prefs, `{"opt_out_senders":["` + strings.Repeat("x", 65) + `"]}`, 422, "invalid_field", "/opt_out_senders"},
		{"many names", keyLogins, prefs, `{"opt_in_types":["x"` + strings.Repeat(`,"x"`, 200) + `]}`, 422, "invalid_field", "/opt_in_types"},
		{"no time", keyLogins, prefs, `{"quiet_hours":[{"from":"25:00","to":"07:00"}]}`, 422, "invalid_field", "/quiet_hours"},
		{"more than is read", keyLogins, prefs, strings.Repeat(" ", 129<<10), 413, "body_too_large", "none"},

		{"no platform", keyLogins, devices, `{"token":"secret-token","app":"shop"}`, 422, "invalid_field", "/platform"},
		{"no token", keyLogins, devices, `{"platform":"fcm","app":"shop"}`, 422, "invalid_field", "/token"},
		{"a token of Apple's that is none", keyLogins, devices, `{"platform":"apns","token":"secret-token","app":"shop"}`, 422, "invalid_field", "/token"},
		{"no app", keyLogins, devices, `{"platform":"fcm","token":"secret-token"}`, 422, "invalid_field", "/app"},
		{"an app of others", keyLogins, devices, `{"platform":"fcm","token":"secret-token","app":"bank"}`, 403, "foreign_app", "/app"},
		{"an app of others, by the user", token, devices, `{"platform":"fcm","token":"secret-token","app":"unconfigured"}`, 403, "foreign_app", "/app"},
		{"an app that nobody has", keyLogins, devices, `{"platform":"fcm","token":"secret-token","app":"unconfigured"}`, 422, "unknown_app", "/app"},
		{"an environment where there is none", keyLogins, devices, `{"platform":"fcm","token":"secret-token","app":"shop","environment":"sandbox"}`, 422, "invalid_field", "/environment"},
		{"next week", keyLogins, devices, `{"platform":"fcm","token":"secret-token","app":"shop","registered_at":"2200-01-01T00:00:00Z"}`, 422, "invalid_field", "/registered_at"},
		{"a time of the client's", token, devices, `{"platform":"fcm","token":"secret-token","registered_at":"2026-11-21T10:00:00Z"}`, 422, "invalid_field", "/registered_at"},
		{"another user", keyLogins, devices, `{"platform":"fcm","token":"secret-token","app":"shop","user_id":"u43"}`, 422, "invalid_field", "/user_id"},
		{"more than a device", keyLogins, devices, strings.Repeat(" ", 40<<10), 413, "body_too_large", "none"},
		{"another device than the path's", keyLogins, "PUT /v1/users/u42/devices/AAAAAAAAAAAAAAAA", phone, 422, "invalid_field", "/token"},
		{"a hash that is none", keyLogins, "DELETE /v1/users/u42/devices/secret-token", "", 422, "invalid_field", "none"},
		{"a hash that is none, to be shown", keyLogins, "GET /v1/users/u42/devices/AAAA", "", 422, "invalid_field", "none"},

		{"a long user", keyLogins, "PUT /v1/users/" + strings.Repeat("u", 129) + "/preferences", `{}`, 422, "invalid_field", "none"},
		{"a user of control characters", keyLogins, "PUT /v1/users/%00/preferences", `{}`, 422, "invalid_field", "none"},
		{"a user of no UTF-8", keyLogins, "GET /v1/users/%ff/preferences", ``, 422, "invalid_field", "none"},

		{"no app of the token", keyLogins, tokens, `{}`, 422, "invalid_field", "/app"},
		{"a token for others' app", keyLogins, tokens, `{"app":"bank"}`, 403, "foreign_app", "/app"},
		{"a token for an app that nobody has", keyLogins, tokens, `{"app":"unconfigured"}`, 422, "unknown_app", "/app"},
		{"a token for no time", keyLogins, tokens, `{"app":"shop","expires_in":0}`, 422, "invalid_field", "/expires_in"},
		{"a token for two days", keyLogins, tokens, `{"app":"shop","expires_in":86401}`, 422, "invalid_field", "/expires_in"},
		{"a token for half a second", keyLogins, tokens, `{"app":"shop","expires_in":0.5}`, 422, "invalid_field", "/expires_in"},
		{"a token by a token", token, tokens, `{"app":"shop"}`, 403, "forbidden", "none"},

		{"without the right", keyOrders, prefs, `{}`, 403, "forbidden", "none"},
		{"nobody", "", prefs, `{}`, 401, "unauthorized", "none"},
		{"somebody", strings.Repeat("x", 40), prefs, `{}`, 401, "unauthorized", "none"},
		{"another user's token", token, "PUT /v1/users/u43/preferences", `{}`, 403, "foreign_user", "none"},
		{"a token to send with", token, "POST /v1/messages", plain, 401, "unauthorized", "none"},
		{"a token to look with", token, "GET /v1/receipts/x", "", 401, "unauthorized", "none"},
	} {
		method, path, _ := strings.Cut(tt.to, " ")
		got := w.as(tt.key, method, path, tt.body)
		if got.status != tt.status || got.code() != tt.code || got.pointer() != tt.pointer {
			t.Errorf("%s: %d %s %s, want %d %s %s: %s", tt.why, got.status, got.code(), got.pointer(), tt.status, tt.code, tt.pointer, got.text)
		}
		if strings.Contains(got.text, "secret-token") {
			t.Errorf("%s: the token is told: %s", tt.why, got.text)
		}
	}
	if n := w.people.count(); n > 0 || len(w.produced) > 0 {
		t.Errorf("%d records were appended", n)
	}
	// A user's id may have any letters, also those of paths.
	for _, user := range []string{"a/b", "..", "%2F", "ü 1", "a?b#c", strings.Repeat("u", 128)} {
		if got := w.as(keyLogins, "PUT", "/v1/users/"+strings.ReplaceAll(url.PathEscape(user), ".", "%2E")+"/preferences", `{"blocked":true}`); got.status != 202 || w.people.last().Key != user+"/prefs" {
			t.Errorf("user %q: %d %s, appended to %q", user, got.status, got.text, w.people.last().Key)
		}
	}
}

// A token ends with its time, with its key, and with the secret that signed it; its
// secret can be exchanged while it is good.
func TestTokensEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		token := w.token(keyLogins, "u42", "shop")
		good := func(w *world) string {
			t.Helper()
			return w.as(token, "GET", "/v1/users/u42/devices", "").code()
		}
		time.Sleep(time.Hour - 2*time.Second)
		if got := good(w); got != "" {
			t.Errorf("in its time: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := good(w); got != "unauthorized" {
			t.Errorf("behind its time: %q", got)
		}
		token = w.token(keyLogins, "u42", "shop")
		old, exchanged := strings.Repeat("s", MinKey), strings.Repeat("t", MinKey)
		for _, tt := range []struct{ why, secret, code string }{{"its secret is second", exchanged + "\n" + old, ""}, {"it is gone", exchanged, "unauthorized"}} {
			if got := good(newWorld(t, func(o *Options) { o.Signer = signer(t, tt.secret) })); got != tt.code {
				t.Errorf("%s: %q", tt.why, got)
			}
		}
		text, err := os.ReadFile(w.keys)
		if err != nil {
			t.Fatal(err)
		}
		hash, _ := KeyHash(keyLogins)
		other, _ := KeyHash(strings.Repeat("n", 40))
		for _, tt := range []struct{ why, was, is, code string }{
			{"the key has no right to users", `"rights": ["users"]`, `"rights": ["send"]`, "unauthorized"},
			{"nor the app", `"apps": ["shop", "unconfigured"], "rights": ["users"]`, `"apps": ["bank"], "rights": ["users"]`, "unauthorized"},
			{"another key has its name", hash, other, "unauthorized"},
			{"the key has another name", `"logins", "sha256"`, `"logins-2", "sha256"`, "unauthorized"},
			{"all is as it was", "", "", ""},
		} {
			if err := os.WriteFile(w.keys, []byte(strings.Replace(string(text), tt.was, tt.is, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := w.gateway.o.Callers.Reload(); err != nil {
				t.Fatal(err)
			}
			if got := good(w); got != tt.code {
				t.Errorf("%s: %q", tt.why, got)
			}
		}
	})
}

// Kafka away: 503 within the time for it. What is on its way keeps its place, so that
// changes cannot pile up; and a gateway that ends waits for them.
func TestUsersWithoutKafka(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Limits.Requests = 2 * maxChanges })
		gate := make(chan struct{}) // closed by the test
		w.people.set(func() { w.people.gate, w.people.stubborn = gate, true })
		const path = "/v1/users/u42/preferences"
		start := time.Now()
		got := w.as(keyLogins, "PUT", path, `{"blocked":true}`)
		if took := time.Since(start); got.status != 503 || got.code() != "unconfirmed" || got.header.Get("Retry-After") == "" || took != 5*time.Second {
			t.Errorf("after %v: %d %s", took, got.status, got.text)
		}
		var all sync.WaitGroup
		for range maxChanges - 1 {
			all.Go(func() { w.as(keyLogins, "DELETE", "/v1/users/u42/devices/AAAAAAAAAAAAAAAA", "") })
		}
		all.Wait()
		if got := w.as(keyLogins, "PUT", path, `{}`); got.status != 503 || got.code() != "buffer_full" {
			t.Errorf("one more: %d %s", got.status, got.text)
		}
		if got := w.post(plain); got.status != http.StatusAccepted {
			t.Errorf("a send: %d %s", got.status, got.text)
		}
		close(gate)
		synctest.Wait()
		if got := w.as(keyLogins, "PUT", path, `{}`); got.status != http.StatusAccepted {
			t.Errorf("when Kafka is back: %d %s", got.status, got.text)
		}
		w.people.set(func() { w.people.err = errors.New("not enough replicas") })
		if got := w.as(keyLogins, "PUT", path, `{}`); got.status != 503 || got.code() != "unconfirmed" || strings.Contains(got.text, "replicas") {
			t.Errorf("refused by Kafka: %d %s", got.status, got.text)
		}
		w.gateway.o.Users.Close()
		if got := w.as(keyLogins, "PUT", path, `{}`); got.status != 503 {
			t.Errorf("a gateway that has ended: %d %s", got.status, got.text)
		}
		if n := testutil.ToFloat64(w.gateway.o.Metrics.changes.WithLabelValues("preferences", "accepted")); n != 1 {
			t.Errorf("counted are %v", n)
		}
	})
}

// A client that goes away does not fail what it has sent, nor what others have in the
// same batch.
func TestAClientGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gate := make(chan struct{}) // closed by the test
		w.people.set(func() { w.people.gate = gate })
		ctx, leave := context.WithCancel(t.Context())
		req := httptest.NewRequestWithContext(ctx, "PUT", "/v1/users/u42/devices", strings.NewReader(phone))
		req.Header.Set("Authorization", "Bearer "+keyLogins)
		req.Header.Set("Content-Type", "application/json")
		answered := make(chan int, 1) // buffered, capacity 1; never closed
		go func() {
			rec := httptest.NewRecorder()
			w.gateway.ServeHTTP(rec, req)
			answered <- rec.Code
		}()
		synctest.Wait()
		leave()
		if code := <-answered; code != http.StatusServiceUnavailable {
			t.Errorf("answered %d", code)
		}
		close(gate)
		synctest.Wait()
		if w.people.count() != 1 {
			t.Error("what it sent was given up")
		}
	})
}

// Changes of many at once: each that was answered 202 is there, and is what its user set
// last.
func TestManyChangesAtOnce(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	for u := range 8 {
		user := fmt.Sprintf("u%d", u)
		token := w.token(keyLogins, user, "shop")
		all.Go(func() {
			for i := range 25 {
				body := fmt.Sprintf(`{"platform":"fcm","token":"%s-%d"}`, user, i%5)
				for _, got := range []*reply{
					w.as(token, "PUT", "/v1/users/"+user+"/devices", body),
					w.as(token, "PUT", "/v1/users/"+user+"/preferences", fmt.Sprintf(`{"opt_out_types":["t%d"]}`, i)),
				} {
					if got.status != http.StatusAccepted {
						t.Errorf("%d %s", got.status, got.text)
					}
				}
			}
		})
	}
	all.Wait()
	if n := w.people.count(); n != 8*25*2 {
		t.Errorf("%d records, want %d", n, 8*25*2)
	}
	for u := range 8 {
		path := fmt.Sprintf("/v1/users/u%d/", u)
		if got := w.as(keyLogins, "GET", path+"preferences", ""); fmt.Sprint(got.json["opt_out_types"]) != "[t24]" {
			t.Errorf("user %d: %s", u, got.text)
		}
		if got := w.as(keyLogins, "GET", path+"devices", ""); len(got.json["devices"].([]any)) != 5 {
			t.Errorf("user %d: %s", u, got.text)
		}
	}
}

// Without a registry users can be changed and not read; without push.users neither.
func TestUsersNotConfigured(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Users = nil })
	for _, to := range []string{"GET /v1/users/u42/preferences", "PUT /v1/users/u42/devices", "POST /v1/users/u42/tokens"} {
		method, path, _ := strings.Cut(to, " ")
		if got := w.as(keyLogins, method, path, "{}"); got.status != 501 || got.code() != "not_configured" {
			t.Errorf("%s: %d %s", to, got.status, got.text)
		}
		if got := w.as(keyOrders, method, path, "{}"); got.status != 403 {
			t.Errorf("%s without the right: %d %s", to, got.status, got.text)
		}
	}
	p := newPeople()
	w = newWorld(t, func(o *Options) { o.Users = NewUsers(p, nil) })
	for to, status := range map[string]int{
		"GET /v1/users/u42/preferences": 501, "GET /v1/users/u42/devices": 501, "GET /v1/users/u42/devices/" + phoneHash: 501,
		"PUT /v1/users/u42/devices": 202, "DELETE /v1/users/u42/devices/" + phoneHash: 202,
	} {
		method, path, _ := strings.Cut(to, " ")
		if got := w.as(keyLogins, method, path, phone); got.status != status {
			t.Errorf("%s: %d %s", to, got.status, got.text)
		}
	}
	if p.count() != 2 {
		t.Errorf("%d records", p.count())
	}
	if got := w.post(plain); got.status != 202 {
		t.Errorf("a send: %d %s", got.status, got.text)
	}
}

// The registry away, or a shard that is not built: 503, and what needs no look goes on.
func TestUsersWithoutTheRegistry(t *testing.T) {
	w := newWorld(t)
	for _, err := range []error{errAway, &users.UnbuiltError{Shard: 3}} {
		w.people.set(func() { w.people.readErr = err })
		for to, status := range map[string]int{
			"GET /v1/users/u42/preferences": 503, "GET /v1/users/u42/devices": 503, "GET /v1/users/u42/devices/" + phoneHash: 503,
			"DELETE /v1/users/u42/devices/" + phoneHash: 503, "PUT /v1/users/u42/devices": 202,
		} {
			method, path, _ := strings.Cut(to, " ")
			got := w.as(keyLogins, method, path, phone)
			if got.status != status || status == 503 && (got.code() != "registry_away" || got.header.Get("Retry-After") == "") {
				t.Errorf("%s: %d %s", to, got.status, got.text)
			}
		}
	}
	w.people.set(func() { w.people.readErr, w.people.users["u42"].Quarantine = nil, push.RecordUnread })
	if got := w.as(keyLogins, "GET", "/v1/users/u42/devices", ""); got.code() != "registry_away" {
		t.Errorf("a record that cannot be read: %d %s", got.status, got.text)
	}
}

// Nothing that is secret gets into the log, whatever is logged.
func TestLogsHaveNoSecrets(t *testing.T) {
	var text bytes.Buffer
	var mu sync.Mutex // of text
	w := newWorld(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &text}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	token := w.token(keyLogins, "user-secret", "shop")
	w.people.set(func() { w.people.err, w.people.readErr = errAway, errAway })
	w.as(token, "PUT", "/v1/users/user-secret/devices", phone)
	w.as(token, "GET", "/v1/users/user-secret/devices", "")
	w.as(token, "PUT", "/v1/users/user-secret/preferences", `{"opt_out_types":["type-secret"]}`)
	w.as(token[:len(token)-1], "GET", "/v1/users/user-secret/devices", "")
	mu.Lock()
	defer mu.Unlock()
	if text.Len() == 0 {
		t.Fatal("nothing was logged, so this shows nothing")
	}
	for _, secret := range []string{"-secret", "secret-", token[:40], keyLogins} {
		if strings.Contains(text.String(), secret) {
			t.Errorf("logged is %q: %s", secret, &text)
		}
	}
}

// lockedWriter is for loggers that several goroutines use.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer // guarded by mu
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
