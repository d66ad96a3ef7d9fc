package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeysFiles(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	key := func(members string) string { return `{"keys": [{` + members + `}]}` }
	whole := `"name": "a", "sha256": "` + hash + `", "sender": "s", "apps": ["shop"], "rights": ["send"]`
	byName := func(name, certificate string) string {
		return strings.NewReplacer(`"a"`, `"`+name+`"`, "sha256", "certificate", hash, certificate).Replace(whole)
	}
	for _, tt := range []struct{ why, text, says string }{
		{"empty", "", "not a file of keys"},
		{"no keys", `{"keys": []}`, "has 0 keys"},
		{"another member", `{"keys": [], "secret-secret": 1}`, "a member that is not known"},
		{"the keys twice", `{"keys": [{` + whole + `}], "keys": [{"name": "b", "sha256": "` + strings.Repeat("0b", 32) + `", "sender": "s"}]}`, "the member keys is there twice"},
		{"the keys in capitals, too", `{"keys": [{` + whole + `}], "KEYS": [{"name": "b", "sha256": "` + strings.Repeat("0b", 32) + `", "sender": "s"}]}`, "a member that is not known"},
		{"rights twice", key(whole + `, "rights": ["admin"]`), "the member rights is there twice"},
		{"a key for a name", key(strings.Replace(whole, `"a"`, `"secret-secret+/="`, 1)), "keys[0].name"},
		{"a key for a sender", key(strings.Replace(whole, `"s"`, `"secret-secret+/="`, 1)), "keys[0].sender"},
		{"a key for a right", key(strings.Replace(whole, `"send"`, `"secret-secret"`, 1)), "keys[0].rights"},
		{"two objects", key(whole) + "{}", "something follows"},
		{"no name", key(strings.Replace(whole, `"a"`, `""`, 1)), "keys[0].name"},
		{"a short hash", key(strings.Replace(whole, hash, "0a", 1)), "keys[0].sha256"},
		{"a long hash", key(strings.Replace(whole, hash, hash+"0a", 1)), "keys[0].sha256"},
		{"the key in place of its hash", key(strings.Replace(whole, hash, "secret-secret", 1)), "keys[0].sha256"},
		{"no sender", key(strings.Replace(whole, `"s"`, `""`, 1)), "keys[0].sender"},
		{"no apps", key(strings.Replace(whole, `["shop"]`, `[]`, 1)), "keys[0].apps"},
		{"a wrong app", key(strings.Replace(whole, `["shop"]`, `["a b"]`, 1)), "keys[0].apps"},
		{"no rights", key(strings.Replace(whole, `["send"]`, `[]`, 1)), "keys[0].rights"},
		{"a wrong right", key(strings.Replace(whole, `"send"`, `"sent"`, 1)), "keys[0].rights"},
		{"a name twice", `{"keys": [{` + whole + `}, {` + strings.Replace(whole, hash, strings.Repeat("0b", 32), 1) + `}]}`, "keys[1].name"},
		{"a hash twice", `{"keys": [{` + whole + `}, {` + strings.Replace(whole, `"a"`, `"b"`, 1) + `}]}`, "keys[1]: what b is known by"},
		{"neither hash nor certificate", key(strings.Replace(whole, `"sha256": "`+hash+`", `, "", 1)), "or certificate in its place"},
		{"both", key(whole + `, "certificate": "a.example"`), "there is a sha256 as well"},
		{"a certificate twice", `{"keys": [{` + byName("a", "a.example") + `}, {` + byName("b", "a.example") + `}]}`, "keys[1]: what b is known by"},
		{"a certificate for the dashboard", key(strings.Replace(byName("a", "a.example"), `"send"`, `"dashboard"`, 1)), "is for keys"},
	} {
		_, err := parseKeys([]byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "secret-secret") {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.says)
		}
	}
	if callers, err := parseKeys([]byte(key(whole))); err != nil || len(callers) != 1 || !callers[0].may(Send) || callers[0].may(Read) {
		t.Errorf("a good one: %v", err)
	}
}

func TestKeyHash(t *testing.T) {
	// sha256sum of 32 letters a.
	if got, err := KeyHash(strings.Repeat("a", 32)); err != nil || got != "3ba3f5f43b92602683c19aee62a20342b084dd5971ddd33808d81a328879a547" {
		t.Errorf("%s %v", got, err)
	}
	for _, wrong := range []string{"short", strings.Repeat("a", 513), strings.Repeat("a", 31) + " b", strings.Repeat("ü", 32)} {
		if _, err := KeyHash(wrong); err == nil || strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// The file is read again when it changes; one that cannot be used keeps the former keys.
func TestKeysAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		callers := w.gateway.o.Callers
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{}) // closed by the goroutine
		var mu sync.Mutex
		var all []error // guarded by mu
		said := func() []error {
			mu.Lock()
			defer mu.Unlock()
			return all
		}
		go func() {
			defer close(ended)
			callers.Watch(ctx, 5*time.Second, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				all = append(slices.Clone(all), err)
			})
		}()
		known := func(key string) bool {
			return w.do(request{method: "POST", path: "/v1/messages", key: key, body: plain}).status != 401
		}
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(w.keys, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(6 * time.Second)
			synctest.Wait()
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if told := said(); len(told) != 0 {
			t.Errorf("nothing has changed, and told is %v", told)
		}
		write(`{"keys": [`)
		if told := said(); len(told) != 1 || told[0] == nil || !known(keyOrders) {
			t.Fatalf("half a file: told %v, the former key is known: %v", told, known(keyOrders))
		}
		hash, _ := KeyHash(strings.Repeat("n", 40))
		write(`{"keys": [{"name": "n", "sha256": "` + hash + `", "sender": "s", "apps": ["shop"], "rights": ["send"]}]}`)
		if told := said(); told[len(told)-1] != nil || known(keyOrders) || !known(strings.Repeat("n", 40)) {
			t.Errorf("the new file is not in force: %v", told)
		}
		if err := os.Remove(w.keys); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if told := said(); told[len(told)-1] == nil || !known(strings.Repeat("n", 40)) {
			t.Errorf("a file that is gone: %v", told)
		}
		write(`{"keys": [{"name": "n", "sha256": "` + hash + `", "sender": "s", "apps": ["shop"], "rights": ["send"]}]}`)
		if told := said(); told[len(told)-1] != nil {
			t.Errorf("a file that is there again, as it was: %v", told[len(told)-1])
		}
		stop()
		<-ended
	})
	if _, err := OpenCallers(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("no file at the start is fine")
	}
}

// Headers that are not what they should be let nobody in.
func TestHostileHeaders(t *testing.T) {
	w := newWorld(t)
	for why, values := range map[string][]string{
		"none": nil, "empty": {""}, "no scheme": {keyOrders}, "another scheme": {"Basic " + keyOrders}, "no key": {"Bearer "},
		"two": {"Bearer " + keyOrders, "Bearer " + keyOrders}, "two in one": {"Bearer " + keyOrders + ", Bearer " + keyOrders},
		"a prefix": {"Bearer " + keyOrders[:len(keyOrders)-1]}, "more": {"Bearer " + keyOrders + "x"}, "a list": {"Bearer " + keyOrders + " x"},
		"its hash": {"Bearer " + func() string { h, _ := KeyHash(keyOrders); return h }()}, "long": {"Bearer " + strings.Repeat("x", 10_000)},
		"bytes": {"Bearer \x00\xff" + keyOrders}, "a tab": {"Bearer\t" + keyOrders}, "wildcard": {"Bearer *"},
	} {
		req := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(plain))
		req.Header["Authorization"] = values
		req.Header.Set("Content-Type", "application/json")
		if got := w.exchange(req); got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %d %s", why, got.status, got.text)
		}
	}
	if got := w.do(request{method: "POST", path: "/v1/messages", key: keyReader, body: plain}); got.status != 403 || got.code() != "forbidden" {
		t.Errorf("without the right: %d %s", got.status, got.text)
	}
	req := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(plain))
	req.Header["Authorization"], req.Header["Content-Type"] = []string{"bearer " + keyOrders}, []string{"application/json"}
	req.Header["Idempotency-Key"] = []string{"a", "b"}
	if got := w.exchange(req); got.code() != "bad_header" {
		t.Errorf("two Idempotency-Keys: %d %s", got.status, got.text)
	}
	for _, header := range []string{"Sender-Id", "X-Forwarded-User", "X-HTTP-Method-Override", "Traceparent"} {
		if got := w.post(plain, header, "auth\u00ff"); got.status != http.StatusAccepted {
			t.Errorf("%s: %d %s", header, got.status, got.text)
		}
	}
	for _, r := range w.produced {
		if r.Traceparent != "" || !strings.Contains(string(r.Value), `"sender_id":"orders"`) {
			t.Errorf("a header changed the record: %+v %s", r, r.Value)
		}
	}
}

// Whatever no route takes is a problem, and no page of net/http's.
func TestMisrouted(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/", 404, ""}, {"GET", "/v1/messages", 405, "POST"}, {"DELETE", "/v1/receipts/x", 405, "GET, HEAD"}, {"POST", "/v1/messages/", 404, ""},
		{"POST", "//v1/messages", 404, ""}, {"POST", "/v1/../v1/messages", 404, ""}, {"GET", "/v1/receipts/", 404, ""}, {"GET", "/v1/receipts/a/b", 404, ""},
		{"OPTIONS", "/v1/messages", 405, "POST"}, {"GET", "/debug/pprof/", 404, ""}, {"GET", "/metrics", 404, ""},
	} {
		got := w.do(request{method: tt.method, path: tt.path, key: keyOrders})
		if got.status != tt.status || got.header.Get("Allow") != tt.allow || got.code() == "" || got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: %d %v %s", tt.method, tt.path, got.status, got.header, got.text)
		}
	}
}
