package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// aClick is what a click token says in tests.
func aClick() *clickClaim {
	id := "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21"
	return &clickClaim{clicks.Key{User: "u42", App: "shop", ID: id}, "news", "orders", clicks.SentAt(id, time.Time{})}
}

func tokenOf(s *Signer, c *clickClaim) string { return string(s.appendClick(nil, c)) }

// A token says what was put into it, whatever that is, and is as long as docs/gateway.md
// says.
func TestClickTokens(t *testing.T) {
	s := signer(t, signing)
	long := func(n int) string { return strings.Repeat("ü", n/2) }
	for _, tt := range []struct {
		why    string
		change func(*clickClaim)
		length int
	}{
		{"as it is", func(*clickClaim) {}, 82},
		{"a user with a UUID", func(c *clickClaim) { c.User = "3f2b6c1e-0c3e-4b57-8f0a-5a5de2a1b6c4" }, 99},
		{"a UUID in capital letters", func(c *clickClaim) { c.User = "3F2B6C1E-0C3E-4B57-8F0A-5A5DE2A1B6C4" }, 126},
		{"a derived id", func(c *clickClaim) { c.ID = "k-mCKsbGbFj3y0hLr0Vg1DqcNnbhC6Rb0d" }, 106},
		{"bytes of all kinds", func(c *clickClaim) { c.User, c.kind = "\x00\"\\", "\n " }, 79},
		{"the nil UUID", func(c *clickClaim) { c.User = uuid.Nil.String() }, 99},
		{"no texts", func(c *clickClaim) { *c = clickClaim{sent: time.UnixMilli(0).UTC()} }, 31},
		{"the longest texts", func(c *clickClaim) {
			*c = clickClaim{clicks.Key{User: long(128), App: long(128), ID: long(64)}, long(64), long(64), time.UnixMilli(1 << 53).UTC()}
		}, mostClick},
	} {
		c := aClick()
		tt.change(c)
		token := tokenOf(s, c)
		if got, ok := s.openClick(token); !ok || *got != *c {
			t.Errorf("%s: %+v, want %+v", tt.why, got, c)
		}
		if len(token) != tt.length || len(token) > mostClick {
			t.Errorf("%s: %d characters, want %d", tt.why, len(token), tt.length)
		}
	}
	if got := string(s.AppendClickToken([]byte("x"), aClick().ID, "u42", "shop", "news", "orders", time.Now())); got != "x"+tokenOf(s, aClick()) {
		t.Errorf("as fan-outs make it: %s", got)
	}
}

// A token of another secret, for another use, or with a bit of it changed is none. One that
// a former line of the secret has signed is.
func TestClickTokensAreSigned(t *testing.T) {
	s := signer(t, signing)
	token := tokenOf(s, aClick())
	for _, secret := range []string{strings.Repeat("o", 32) + "\n" + signing, signing + "\n" + strings.Repeat("o", 32)} {
		if _, ok := signer(t, secret).openClick(token); !ok {
			t.Errorf("not by a secret of two lines")
		}
	}
	if _, ok := signer(t, strings.Repeat("o", 32)).openClick(token); ok {
		t.Error("by another secret")
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(b) {
		changed := append([]byte(nil), b...)
		changed[i/8] ^= 1 << (i % 8)
		if _, ok := s.openClick(base64.RawURLEncoding.EncodeToString(changed)); ok {
			t.Errorf("with bit %d changed", i)
		}
	}
	body := b[:len(b)-macBytes]
	encode := base64.RawURLEncoding.EncodeToString
	for why, other := range map[string]string{
		"nothing": "", "half": token[:40], "more": token + "AA", "with a line end": token[:20] + "\n" + token[20:], "padded": token + "==", "too long": strings.Repeat("A", mostClick+1),
		"as a receipt": encode(s.signed(body[:len(body):len(body)], forReceipts)), "as a link": encode(s.signed(body[:len(body):len(body)], forLinks)),
		"of a later version":  encode(s.signed(append([]byte{2}, body[1:]...), forClicks)),
		"with something more": encode(s.signed(append(append([]byte(nil), body...), 0), forClicks)),
		"without its end":     encode(s.signed(append([]byte(nil), body[:len(body)-1]...), forClicks)),
		"without anything":    encode(s.signed(nil, forClicks)),
		"of a long text":      encode(s.signed([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, forClicks)),
		"a link":              s.signLink(&link{"shop", "u42", linkType, "news"}),
	} {
		if _, ok := s.openClick(other); ok {
			t.Errorf("%s is a token", why)
		}
	}
	if _, ok := s.openLink(token); ok {
		t.Error("a click token is a link")
	}
}

// sentData is the data of the message that was produced last, and what it says of the rest.
func (w *world) sentData() (m push.Message, data map[string]string) {
	w.t.Helper()
	value := w.produced[len(w.produced)-1].Value
	if d := decode.Message(value, &m); d != nil {
		w.t.Fatalf("a worker cannot read %s: %v", value, d)
	}
	if len(m.Data) > 0 {
		if err := json.Unmarshal(m.Data, &data); err != nil {
			w.t.Fatal(err)
		}
	}
	return m, data
}

// A message that says so gets a token for its own user and id, beside its data, which stay as
// they are; every other one gets none, and nobody hears of the word.
func TestMessagesWithClickTokens(t *testing.T) {
	for name, body := range map[string]string{
		"without data": `{"clicks":true,`, "without an id": `{"clicks":true,"data":{"order":"17"},`, "with an id": `{"id":"0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21","data":{"order":"17"},"clicks":true,`,
		"with blanks": `{ "data" : { "order" : "17" } , "clicks" : true ,`, "with no data": `{"data":null,"clicks":true,`, "with empty data": `{"data":{ },"clicks":true,`,
		"escaped": `{"d\u0061ta":{"order":"\u0031\"7"},"cl\u0069cks":true,`, "with a device": `{"clicks":true,"device":{"platform":"fcm","token":"abc"},`,
	} {
		w := newWorld(t)
		got := w.post(body + `"app":"shop","service_type":"transactional","user_id":"u42","type":"news","title":"Snow"}`)
		if got.status != 202 {
			t.Errorf("%s: %d %s", name, got.status, got.text)
			continue
		}
		m, data := w.sentData()
		c, ok := w.gateway.o.Signer.openClick(data[clickKey])
		if !ok || c.ID != got.string("id") || c.User != "u42" || c.App != "shop" || c.kind != "news" || c.sender != "orders" || !c.sent.Equal(clicks.SentAt(c.ID, c.sent)) {
			t.Errorf("%s: a token of %+v", name, c)
		}
		delete(data, clickKey)
		if want := strings.Contains(body, "order"); want != (data["order"] != "") || len(data) > 1 || m.Title != "Snow" || m.UserID != "u42" || m.ID != c.ID {
			t.Errorf("%s: %s", name, w.produced[0].Value)
		}
		if text := string(w.produced[0].Value); strings.Contains(text, `"clicks"`) || string(w.produced[0].Key) != "u42" {
			t.Errorf("%s: %s", name, text)
		}
	}
	w := newWorld(t)
	for _, says := range []string{"false", "null"} {
		if got := w.post(`{"clicks":` + says + `,` + plain[1:]); got.status != 202 || strings.Contains(string(w.produced[len(w.produced)-1].Value), "click") {
			t.Errorf("%s: %d %s", says, got.status, w.produced[len(w.produced)-1].Value)
		}
	}
	if got := w.post(plain, "Idempotency-Key", "order-17"); got.status != 202 {
		t.Fatal(got.text)
	}
	got := w.post(`{"clicks":true,`+plain[1:], "Idempotency-Key", "order-17")
	_, data := w.sentData()
	if c, ok := w.gateway.o.Signer.openClick(data[clickKey]); !ok || c.ID != got.string("id") || time.Since(c.sent) > time.Minute {
		t.Errorf("of an id without a time: %+v", c)
	}
}

// What cannot have a token is refused, and never sent without one.
func TestMessagesThatCannotHaveClickTokens(t *testing.T) {
	const rest = `"app":"shop","service_type":"transactional","user_id":"u42","title":"Snow"}`
	most := `{"clicks":true,"body":"` + strings.Repeat("x", decode.MaxValue-160) + `",` + rest
	off := func(o *Options) { o.Clicks = nil }
	for _, tt := range []struct {
		why, body string
		change    func(*Options)
		status    int
		code, at  string
	}{
		{"to a device alone", `{"clicks":true,"app":"shop","service_type":"transactional","device":{"platform":"fcm","token":"abc"},"title":"Snow"}`, nil, 422, "invalid_field", "/clicks"},
		{"a word", `{"clicks":"true",` + rest, nil, 422, "wrong_type", "/clicks"},
		{"a number", `{"clicks":1,` + rest, nil, 422, "wrong_type", "/clicks"},
		{"an object", `{"clicks":{},` + rest, nil, 422, "wrong_type", "/clicks"},
		{"twice", `{"clicks":true,"clicks":true,` + rest, nil, 422, "duplicate_key", "none"},
		{"a token of its own", `{"clicks":true,"data":{"pf_cl\u0069ck":"x"},` + rest, nil, 422, "invalid_field", "/data/pf_click"},
		{"not configured", `{"clicks":true,` + rest, off, 501, "not_configured", "/clicks"},
		{"too large with it", most, nil, 422, "too_large", ""},
	} {
		var change []func(*Options)
		if tt.change != nil {
			change = append(change, tt.change)
		}
		w := newWorld(t, change...)
		if got := w.post(tt.body); got.status != tt.status || got.code() != tt.code || got.pointer() != tt.at && tt.code != "duplicate_key" || len(w.produced) != 0 {
			t.Errorf("%s: %d %.400s", tt.why, got.status, got.text)
		}
	}
	w := newWorld(t)
	if got := w.post(strings.Replace(most, `"clicks":true,`, "", 1)); got.status != 202 {
		t.Errorf("what is too large with a token is too large without one: %.300s", got.text)
	}
	if got := newWorld(t, off).post(`{"clicks":false,"data":{"pf_click":"x"},` + rest); got.status != 202 {
		t.Errorf("without one: %d %s", got.status, got.text)
	}
	got := w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: `{"id":"n-1","clicks":true,` + rest + "\n" + `{"id":"n-2","clicks":3,` + rest + "\n" + `{"id":"n-3",` + rest})
	if got.status != 207 || fmt.Sprint(got.json["accepted"], got.json["failed"]) != "2 1" {
		t.Errorf("a batch: %d %s", got.status, got.text)
	}
}

// A message to a topic brings a job whose receivers' notifications get tokens, and whose
// data comes first.
func TestMessagesToTopicsWithClickTokens(t *testing.T) {
	for name, tt := range map[string]struct{ body, rest string }{
		"with data": {`{"title":"Snow","data": { "a" : "b" },"clicks":true}`, `"data":{"a" : "b" },`}, "without": {`{"clicks":true,"title":"Snow"}`, `"data":{},`}, "with null": {`{"clicks":true,"data":null,"title":"Snow"}`, `"data":{},`},
	} {
		w, _ := fanoutWorld(t)
		if a := w.toSnow(tt.body); a.status != 202 {
			t.Fatalf("%s: %d %s", name, a.status, a.text)
		}
		j, _ := w.lastJob()
		if !j.Clicks || !strings.HasPrefix(string(j.Rest), tt.rest) || strings.Count(string(j.Rest), `"data"`) != 1 || strings.Contains(string(j.Rest), "click") {
			t.Errorf("%s: %v %s", name, j.Clicks, j.Rest)
		}
	}
	w, _ := fanoutWorld(t)
	if a := w.toSnow(`{"title":"Snow","data":{"pf_click":"x"}}`); a.status != 202 {
		t.Errorf("without tokens: %d %s", a.status, a.text)
	}
	if j, r := w.lastJob(); j.Clicks || r.Value[0] != 1 {
		t.Errorf("a job without tokens is of version %d", r.Value[0])
	}
	if a := w.toSnow(`{"title":"Snow","data":{"pf_click":"x"},"clicks":true}`); a.code() != "invalid_field" || a.pointer() != "/data/pf_click" {
		t.Errorf("with a token of its own: %d %s", a.status, a.text)
	}
	w, _ = fanoutWorld(t)
	w.gateway.o.Clicks = nil
	if a := w.toSnow(`{"title":"Snow","clicks":true}`); a.code() != "not_configured" {
		t.Errorf("not configured: %d %s", a.status, a.text)
	}
}
