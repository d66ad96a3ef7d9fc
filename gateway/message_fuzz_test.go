package gateway

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// seeds are bodies near the edges.
var seeds = []string{
	plain, `{"id":"a\"b<\u00e9\\","app":"shop","service_type":"otp","user_id":"u"}`, `{}`, `[]`, ``, `null`, `{"id":"a","id":"b"}`, `{"\u0069d":"n1","app":"shop","user_id":"u","service_type":"otp"}`,
	` { "app" : "shop" , "data" : { "a" : "}\"" , "b":"," } , "mode" : null, "service_type" : "otp" , "user_id":"u" } `,
	`{"app":"shop","service_type":"otp","user_id":"u","x":[1,{"mode":"]"},-1.5e3,true,null,"\\"],"sender_id":""}`,
	`{"app":"shop","service_type":"otp","user_id":"u","mode":"exactly_once"}`, `{"app":"shop","service_type":"otp","device":{"platform":"apns","token":"00"}}`,
	"{\"app\":\"shop\",\"service_type\":\"otp\",\"user_id\":\"\xff\"}", `{"app":"shop","service_type":"otp","user_id":"u","badge":1,"badge2":2.0}`,
}

// What is accepted a worker reads, as the caller wrote it, with the id and the sender
// that the answer and the key say; what is refused is refused by a known code.
func FuzzMessage(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), "")
		f.Add([]byte(s), "key")
	}
	g := New(Options{Lanes: []Lane{{"critical", "push.critical", "otp", AtLeastOnce}, {"t", "push.t", "transactional", EffectivelyOnce}}, Apps: []string{"shop"},
		Limits: Limits{Requests: 1, Batches: 1}, Metrics: NewMetrics(nil)})
	var err error
	if g.o.Signer, err = NewSigner(strings.Repeat("s", MinKey)); err != nil {
		f.Fatal(err)
	}
	c := &Caller{Sender: "orders", apps: map[string]bool{"shop": true}}
	now := time.UnixMilli(1_764_000_000_000).UTC()
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		before := string(body)
		var m message
		k := &check{caller: c, key: key, now: now}
		problem := g.accept(k, body, &m)
		if string(body) != before {
			t.Fatal("the body was changed")
		}
		clear(body) // its memory is used again while the message is under way
		if problem != nil {
			if _, known := kinds[problem.Code]; !known && problem.Status != 422 || problem.Status < 400 {
				t.Fatalf("refused with %+v", problem)
			}
			return
		}
		var read push.Message
		if d := decode.Message(m.record.Value, &read); d != nil {
			t.Fatalf("a worker refuses %s: %v", m.record.Value, d)
		}
		if read.ID != m.id || read.SenderID != "orders" || read.App != m.app || string(m.record.Key) != m.owner.key() {
			t.Fatalf("the record is %s of %+v", m.record.Value, m)
		}
		sameMembers(t, []byte(before), m.record.Value)
		g.sameAnswer(t, k, m)
	})
}

// sameMembers wants all that is not the gateway's to be as it was.
func sameMembers(t *testing.T, body, value []byte) {
	t.Helper()
	var was, is map[string]any
	if err := json.Unmarshal(body, &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(value, &is); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{memberID, memberSender, memberMode, memberService} {
		delete(was, name)
		delete(is, name)
	}
	if !reflect.DeepEqual(was, is) {
		t.Fatalf("of\n%s\nbecame\n%s", body, value)
	}
}

// sameAnswer wants the answer to be JSON that says what was accepted, with a receipt that
// can be read.
func (g *Gateway) sameAnswer(t *testing.T, k *check, m message) {
	t.Helper()
	var said struct {
		Line                      int
		ID, Receipt, Status, Lane string
		Mode                      Mode
		ServiceType               string    `json:"service_type"`
		AcceptedAt                time.Time `json:"accepted_at"`
	}
	text := g.appendAccepted(nil, &sending{check: *k}, &entry{message: m, line: 7, place: Place{3, 4}})
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	cl, ok := g.o.Signer.open("orders", said.Receipt)
	if !ok || cl.id != m.id || cl.owner != m.owner || cl.app != m.app || cl.place != (Place{3, 4}) || !cl.at.Equal(k.now) {
		t.Fatalf("the receipt says %+v of %+v", cl, m)
	}
	if said.Line != 7 || said.ID != m.id || said.Status != statusPending || said.Lane != m.lane.Name || said.Mode != m.lane.Mode || said.ServiceType != m.lane.ServiceType || !said.AcceptedAt.Equal(k.now) {
		t.Fatalf("answered %s to %+v", text, m)
	}
}

// A batch of any bytes has a result for each line that is not blank, in their order.
func FuzzBatch(f *testing.F) {
	f.Add([]byte(strings.Join(seeds, "\n")))
	f.Add([]byte("\r\n\n{}\r"))
	g := New(Options{Lanes: []Lane{{"critical", "push.critical", "otp", AtLeastOnce}}, Apps: []string{"shop"}, Limits: Limits{Lines: 20, Requests: 1, Batches: 1}, Metrics: NewMetrics(nil)})
	f.Fuzz(func(t *testing.T, body []byte) {
		lines, problem := g.lines(body)
		if problem != nil {
			return
		}
		last := 0
		for _, l := range lines {
			if l.number <= last || len(l.text) == 0 || strings.Contains(string(l.text), "\n") {
				t.Fatalf("line %d: %q", l.number, l.text)
			}
			last = l.number
			g.accept(&check{caller: &Caller{Sender: "s", apps: map[string]bool{"shop": true}}, haveIDs: true, now: time.UnixMilli(1)}, l.text, &message{})
		}
	})
}

// Queries, headers and files of keys of any bytes are answered or refused.
func FuzzQuery(f *testing.F) {
	f.Add([]byte(`{"receipts":["a"]}`), "Bearer "+keyOrders, `"a\"b"`, []byte(`{"keys":[]}`))
	f.Fuzz(func(t *testing.T, body []byte, authorization, key string, keys []byte) {
		w := newWorld(t)
		req := httptest.NewRequest("POST", "/v1/receipts:query", strings.NewReader(string(body)))
		req.Header["Authorization"], req.Header["Content-Type"], req.Header["Idempotency-Key"] = []string{authorization}, []string{"application/json"}, []string{key}
		w.exchange(req)
		if k, problem := idempotencyKey(req.Header); problem == nil && (k == "" || len(k) > maxIdempotencyKey) {
			t.Errorf("%q is the key %q", key, k)
		}
		if callers, err := parseKeys(keys); (err == nil) != (len(callers) > 0) {
			t.Errorf("%d callers, %v", len(callers), err)
		}
	})
}
