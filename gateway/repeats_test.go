package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/gateway/quota"
	"github.com/pushfleet/pushfleet/push"
)

// kept is a Firsts in memory.
type kept struct {
	mu    sync.Mutex
	texts map[[16]byte]string // guarded by mu
	asked int                 // guarded by mu; names that were looked for
	blind bool                // guarded by mu; nothing is found
}

func newKept() *kept { return &kept{texts: map[[16]byte]string{}} }

func (k *kept) Find(_ context.Context, names [][16]byte, found []string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		text := k.texts[name]
		if k.asked++; k.blind {
			text = ""
		}
		found = append(found, text)
	}
	return found
}

func (k *kept) Keep(name [16]byte, value []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.texts[name]; !there {
		k.texts[name] = string(value)
	}
}

func (k *kept) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// know lets a world know repeats.
func (k *kept) know(o *Options) { o.Firsts = k }

// wants wants an answer to be that of a first acceptance again, or a new one.
func (w *world) wants(why string, a *reply, first *reply, again bool, produced int) {
	w.t.Helper()
	w.mu.Lock()
	n := len(w.produced)
	w.mu.Unlock()
	same := a.string("receipt") == first.string("receipt")
	if a.status != http.StatusAccepted || same != again || (a.header.Get(headerReplayed) == "true") != again || (a.json["replayed"] == true) != again || n != produced {
		w.t.Errorf("%s: %d %s after %s, %d produced", why, a.status, a.text, first.text, n)
	}
	if again && (a.string("accepted_at") != first.string("accepted_at") || a.string("lane") != first.string("lane") || a.string("mode") != first.string("mode") || a.string("service_type") != first.string("service_type")) {
		w.t.Errorf("%s: %s after %s", why, a.text, first.text)
	}
}

func TestRepeats(t *testing.T) {
	const byID = `{"id": "order-17", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x", "data": {"a": "1", "b": "2"}}`
	const toDevice = `{"id": "order-17", "app": "shop", "device": {"platform": "fcm", "token": "secret-token"}, "service_type": "transactional", "title": "x"}`
	const byKey = `{"app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`
	for _, tt := range []struct {
		why           string
		first, second string
		header        []string
		again         bool
	}{
		{"an id", byID, byID, nil, true},
		{"other spaces and order", byID, `{"data":{"b":"2","a":"\u0031"},"title":"x","service_type":"transactional","sender_id":"orders","user_id":"u42","app":"shop","body":null,"id":"order-17"}`, nil, true},
		{"empty is as absent", byID, strings.Replace(byID, `"title"`, `"body": "", "image": "", "clicks": false, "title"`, 1), nil, true},
		{"another word for the mode", strings.Replace(byID, `"title"`, `"mode": "exactly_once", "title"`, 1), strings.Replace(byID, `"title"`, `"mode": "effectively_once", "title"`, 1), nil, true},
		{"to a device", toDevice, toDevice, nil, true},
		{"an Idempotency-Key", byKey, byKey, []string{"Idempotency-Key", "order-17"}, true},
		{"an Idempotency-Key for somebody else", byKey, strings.Replace(byKey, "u42", "u43", 1), []string{"Idempotency-Key", "order-17"}, false},
		{"no name", byKey, byKey, nil, false},
		{"another id", byID, strings.Replace(byID, "order-17", "order-18", 1), nil, false},
	} {
		k := newKept()
		w := newWorld(t, k.know, func(o *Options) { o.Metrics = NewMetrics(prometheus.NewRegistry()) })
		first := w.post(tt.first, tt.header...)
		produced, counted := 2, 0.0
		if tt.again {
			produced, counted = 1, 1
		}
		again := w.post(tt.second, tt.header...)
		w.wants(tt.why, again, first, tt.again, produced)
		if n := testutil.ToFloat64(w.gateway.o.Metrics.messages.WithLabelValues("transactional", "repeated")); n != counted || len(again.header.Values(headerReplayed)) != int(counted) {
			t.Errorf("%s: %v counted, and the header is %q", tt.why, n, again.header.Values(headerReplayed))
		}
		if claim, ok := w.gateway.o.Signer.open("orders", again.string("receipt")); !ok || claim.app != "shop" || claim.owner == (owner{}) {
			t.Errorf("%s: the receipt says %+v", tt.why, claim)
		}
		if named := strings.Contains(tt.first, `"id"`) || len(tt.header) > 0; named != (k.asked > 0) || named != (len(k.texts) > 0) {
			t.Errorf("%s: %d looked for, %d kept", tt.why, k.asked, len(k.texts))
		}
		for _, text := range k.texts {
			for _, secret := range []string{"u42", "shop", push.DeviceHash(push.FCM, "secret-token")} {
				if strings.Contains(text, secret) {
					t.Errorf("%s: %q is kept", tt.why, text)
				}
			}
		}
	}
}

// What is kept under a name that no gateway can have kept is not known, and harms nothing.
func TestImplausibleFirsts(t *testing.T) {
	const plain = `{"id": "order-17", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`
	k := newKept()
	w := newWorld(t, k.know)
	first := w.post(plain)
	for name, text := range k.texts {
		sum, was, ok := parseFirst(&message{id: "order-17"}, text)
		if !ok {
			t.Fatal("what was kept cannot be read")
		}
		n := 1
		for why, change := range map[string]func(c *claim){
			"no UTF-8": func(c *claim) { c.lane = "\xff\xfe" }, "no name": func(c *claim) { c.service = `x","status":"y` }, "no lane": func(c *claim) { c.lane = "" },
			"the future": func(c *claim) { c.at = time.Now().Add(2 * time.Minute) }, "the end of time": func(c *claim) { c.at = time.UnixMilli(1 << 53) }, "long ago": func(c *claim) { c.at = time.UnixMilli(0) },
		} {
			c := *was
			change(&c)
			k.texts[name] = string(formatFirst(nil, sum, &c))
			n++
			w.wants(why, w.post(plain), first, false, n)
		}
		c := *was
		c.lane = "retired" // which is configured no more
		k.texts[name] = string(formatFirst(nil, sum, &c))
		if a := w.post(plain); a.json["replayed"] != true || a.string("lane") != "retired" {
			t.Errorf("of a lane that was: %s", a.text)
		}
	}
}

// A topic that was made anew has none of what was in the former one, and is asked about if
// nothing else does.
func TestRepeatsOfATopicMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const plain = `{"id": "order-17", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`
		w := newWorld(t, newKept().know, func(o *Options) { o.Users.Close(); o.Users = nil })
		first := w.post(plain)
		time.Sleep(2 * topicAge)
		w.wants("the same topic", w.post(plain), first, true, 1)
		w.set(func() { w.topic = [16]byte{2} })
		time.Sleep(topicAge)
		w.wants("another topic", w.post(plain), first, false, 2)
	})
}

// The time that it takes to look counts as part of that for Kafka.
func TestLookingTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Users.Close(); o.Users, o.Firsts = nil, slowFirsts{newKept()} })
		w.set(func() { w.ack = func(Record, func(Place, error)) {} })
		began := time.Now()
		a := w.post(`{"id": "order-17", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`)
		if a.code() != codeUnconfirmed || time.Since(began) != w.gateway.o.Times.Confirm {
			t.Errorf("%s after %v", a.text, time.Since(began))
		}
	})
}

// slowFirsts are found after a while.
type slowFirsts struct{ *kept }

func (s slowFirsts) Find(ctx context.Context, names [][16]byte, found []string) []string {
	time.Sleep(50 * time.Millisecond)
	return s.kept.Find(ctx, names, found)
}

// Another gateway knows the repeat, too, also where it would go to another lane by now.
func TestRepeatAtAnotherGateway(t *testing.T) {
	const plain = `{"id": "order-17", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`
	k := newKept()
	a := newWorld(t, k.know)
	first := a.post(plain)
	b := newWorld(t, k.know, func(o *Options) { o.Lanes = []Lane{{"bulk", "push.bulk", "transactional", AtLeastOnce}} })
	b.wants("at another gateway", b.post(plain), first, true, 0)
	if got := a.post(plain); got.string("receipt") != first.string("receipt") {
		t.Errorf("and at the first: %s", got.text)
	}
	k.set(func() { k.blind = true })
	b.wants("nothing is known", b.post(plain), first, false, 1)
	k.set(func() { k.blind = false })
	a.wants("the first one stands", a.post(plain), first, true, 1)
}

// With the same id comes another message: it is refused, and says what stands. Another
// sender's is another one.
func TestIDTaken(t *testing.T) {
	const plain = `{"id": "order-17", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`
	w := newWorld(t, newKept().know)
	first := w.post(plain)
	for _, other := range []string{
		strings.Replace(plain, `"x"`, `"y"`, 1), strings.Replace(plain, "u42", "u43", 1),
		strings.Replace(plain, "transactional", "otp", 1), plain[:len(plain)-1] + `, "mode": "at_most_once"}`,
		plain[:len(plain)-1] + `, "clicks": true}`, plain[:len(plain)-1] + `, "data": {"a": "1"}}`,
	} {
		a := w.post(other)
		if a.status != http.StatusUnprocessableEntity || a.code() != codeIDTaken || a.string("id") != "order-17" || !strings.Contains(a.string("detail"), first.string("accepted_at")) {
			t.Errorf("%s: %d %s", other, a.status, a.text)
		}
	}
	w.wants("the first one", w.post(plain), first, true, 1)
	theirs := w.do(request{method: "POST", path: "/v1/messages", key: keySupport, body: plain})
	w.wants("of another sender", theirs, first, false, 2)
}

func TestRepeatsInABatch(t *testing.T) {
	k := newKept()
	w := newWorld(t, k.know)
	line := func(id, title string) string {
		return `{"id": "` + id + `", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "` + title + `"}` + "\n"
	}
	send := func(body string) []any {
		a := w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: body})
		results, _ := a.json["results"].([]any)
		return results
	}
	first := send(line("a", "x") + line("b", "x"))
	again := send(line("a", "x") + line("c", "x") + line("b", "y"))
	if len(first) != 2 || len(again) != 3 {
		t.Fatalf("%v, %v", first, again)
	}
	of := func(results []any, i int, name string) any { return results[i].(map[string]any)[name] }
	if of(again, 0, "replayed") != true || of(again, 0, "receipt") != of(first, 0, "receipt") || of(first, 0, "replayed") != nil {
		t.Errorf("the repeat: %v after %v", again[0], first[0])
	}
	if of(again, 1, "replayed") != nil || of(again, 1, "receipt") == nil {
		t.Errorf("the new one: %v", again[1])
	}
	if p, _ := of(again, 2, "problem").(map[string]any); p["code"] != codeIDTaken {
		t.Errorf("the other one: %v", again[2])
	}
	if len(w.produced) != 3 || k.asked != 5 {
		t.Errorf("%d produced, %d looked for", len(w.produced), k.asked)
	}
}

// A message to many has one receipt, too; with the same id to others it is another one.
func TestRepeatToMany(t *testing.T) {
	k := newKept()
	w, _ := fanoutWorld(t)
	w.gateway.o.Firsts = k
	w.makeTopic("rain", `{"app": "shop", "service_type": "transactional"}`)
	const body = `{"id": "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", "title": "x"}`
	to := func(topic, body string) *reply {
		return w.do(request{method: "POST", path: "/v1/topics/" + topic + "/messages", key: keyOrders, body: body})
	}
	first := to("snow", body)
	w.wants("to a topic", to("snow", body), first, true, 1)
	w.wants("to another topic", to("rain", body), first, false, 2)
	if a := to("snow", strings.Replace(body, `"x"`, `"y"`, 1)); a.code() != codeIDTaken {
		t.Errorf("another one: %s", a.text)
	}
}

// A message to many that has expired by now was accepted all the same, and so was one for which
// Kafka does not answer any more, or whose topic was closed since.
func TestLateRepeatToMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notes := newReports()
		w := newWorld(t, newKept().know, func(o *Options) { o.Users.Close(); o.Users, o.Fanouts = nil, notes.fanouts() })
		w.makeTopic("snow", `{"app": "shop", "service_type": "transactional"}`)
		body := `{"id": "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", "title": "x", "expires_at": "` + time.Now().Add(time.Minute).UTC().Format(time.RFC3339) + `"}`
		id, err := newID(clock())
		if err != nil {
			t.Fatal(err)
		}
		body = strings.Replace(body, "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", id, 1)
		first := w.toSnow(body)
		notes.set(errAway)
		time.Sleep(2 * time.Minute)
		w.wants("expired", w.toSnow(body), first, true, 1)
		notes.set(nil)
		if a := w.do(request{method: "DELETE", path: "/v1/topics/snow", key: keyOrders}); a.status != http.StatusOK {
			t.Fatal(a.text)
		}
		w.wants("closed", w.toSnow(body), first, true, 1)
		if a := w.toSnow(`{"title": "x"}`); a.code() != codeTopicClosed || len(w.produced) != 1 {
			t.Errorf("another message: %s", a.text)
		}
	})
}

// What Kafka did not confirm in time may come to be in it all the same: its repeat gets the
// receipt of that record. What Kafka refused is written again.
func TestRepeatOfTheUnconfirmed(t *testing.T) {
	for _, tt := range []struct {
		why   string
		named bool
		err   error
		again bool
	}{
		{"confirmed late", true, nil, true},
		{"confirmed late, by an id that the gateway made", false, nil, true},
		{"refused late", true, errAway, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, newKept().know, func(o *Options) { o.Users.Close(); o.Users = nil })
			var late func()
			w.set(func() {
				w.ack = func(r Record, done func(Place, error)) {
					late = func() {
						if tt.err != nil {
							done(Place{}, tt.err)
							return
						}
						done(w.keep(r), nil)
					}
				}
			})
			id := ""
			if tt.named {
				id = `"id": "order-17", `
			}
			a := w.post(`{` + id + `"app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`)
			if a.status != http.StatusServiceUnavailable || a.code() != codeUnconfirmed {
				t.Fatalf("%s: %d %s", tt.why, a.status, a.text)
			}
			at := time.Now()
			late()
			w.set(func() { w.ack = nil })
			time.Sleep(time.Second)
			b := w.post(`{"id": "` + a.string("id") + `", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`)
			claim, ok := w.gateway.o.Signer.open("orders", b.string("receipt"))
			if again := b.header.Get(headerReplayed) == "true"; again != tt.again || !ok || claim.place != (Place{3, 0}) || claim.at.Before(at) != tt.again || len(w.produced) != 1 {
				t.Errorf("%s: %s, %+v, %d produced", tt.why, b.text, claim, len(w.produced))
			}
		})
	}
}

// What is refused is not kept, and what cannot be read, or was in a topic that is gone, is not known.
func TestNothingFirst(t *testing.T) {
	const plain = `{"id": "order-17", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`
	k := newKept()
	w := newWorld(t, k.know)
	w.post(strings.Replace(plain, `"shop"`, `"bank"`, 1))
	w.set(func() { w.ack = func(_ Record, done func(Place, error)) { done(Place{}, ErrBufferFull) } })
	w.post(plain)
	w.set(func() { w.ack = nil })
	if len(k.texts) != 0 {
		t.Fatalf("kept %v", k.texts)
	}
	first := w.post(plain)
	var name [16]byte
	var text string
	for name, text = range k.texts {
	}
	if strings.Contains(text, "u42") || strings.Contains(text, "shop") || strings.Contains(string(name[:]), "order") {
		t.Errorf("%q is kept under %q", text, name)
	}
	for i := range len(text) {
		k.texts[name] = text[:i]
		if _, _, ok := parseFirst(&message{id: "order-17"}, text[:i]); ok {
			t.Errorf("%d bytes of %d were read", i, len(text))
		}
	}
	for n, foreign := range []string{text[:len(text)-1], "x", text[:sumBytes] + "\x02" + text[sumBytes+1:], text + "x", strings.Repeat("\xff", 100)} {
		k.texts[name] = foreign
		w.wants(fmt.Sprintf("kept %q", foreign), w.post(plain), first, false, 2+n)
	}
	k.texts[name] = text
	w.wants("as it was", w.post(plain), first, true, 6)
	w.set(func() { w.topic = [16]byte{2} })
	other := newWorld(t, k.know)
	other.set(func() { other.topic = [16]byte{2} })
	other.wants("another topic of that name", other.post(plain), first, false, 1)
}

// A repeat costs the sender nothing, and is answered beyond the limit too.
func TestRepeatCostsNothing(t *testing.T) {
	underLimits(t, quota.Limits{Hour: 2}, func(w *world, _ *embedded.Redis) {
		w.gateway.o.Firsts = newKept()
		const plain = `{"id": "order-17", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`
		first := w.post(plain)
		w.wants("a repeat", w.post(plain), first, true, 1)
		w.wants("another message", w.post(strings.Replace(plain, "17", "18", 1)), first, false, 2)
		if a := w.post(strings.Replace(plain, "17", "19", 1)); a.code() != codeTooMany {
			t.Errorf("the third: %s", a.text)
		}
		w.wants("a repeat beyond the limit", w.post(plain), first, true, 2)
	})
}

func TestSumOf(t *testing.T) {
	const body = `{"a": "1", "data": {"x": "1", "y": "2"}, "n": 1}`
	for _, same := range []string{`{"a": "1", "data": {"x": "1", "y": "2"}, "n": 1, "mode": null, "clicks": false, "title": ""}`, `{"n":1,"a":"\u0031","data":{"y":"2","x":"1"}}`, `{"id": "x", "sender_id": "y", "z": null, "a": "1", "data": {"x": "1", "w": null, "y": "2"}, "n": 1}`} {
		if sumOf([]byte(same)) != sumOf([]byte(body)) {
			t.Errorf("%s has another sum", same)
		}
	}
	seen := map[uint64]string{}
	for _, other := range []string{body, `{}`, `{"a": "1", "data": {"x": "2", "y": "1"}, "n": 1}`, `{"a": "1", "data": {"x": "1", "y": "2"}, "n": "1"}`, `{"a": "1", "data": {"x": "1"}, "n": 1}`,
		`{"a": "1", "data": {}, "n": 1}`, `{"a": "1", "n": 1}`, `{"data": "1", "a": {"x": "1", "y": "2"}, "n": 1}`, `{"a": "1", "data": {"x": "1", "y": "2"}, "n": [1]}`, `{"a": "1", "x": "1", "y": "2", "n": 1}`,
		`{"a": "1", "data": {"y": "1", "x": "2"}, "n": 2}`} {
		sum := sumOf([]byte(other))
		if seen[sum] != "" {
			t.Errorf("%s and %s have one sum", other, seen[sum])
		}
		seen[sum] = other
	}
	for _, pair := range [][2]string{
		{`{"a": ["x", {"b": 1, "c": [2, 3]}]}`, `{"a":["\u0078",{"c":[ 2,3 ],"b":1}]}`},
		{`{"a": {"b": {"c": {"d": 1, "e": "2"}}}}`, `{"a":{"b":{"c":{"e":"2","d":1}}}}`},
		{`{"mode": "exactly_once"}`, `{"mode": "effectively_once"}`},
	} {
		if sumOf([]byte(pair[0])) != sumOf([]byte(pair[1])) {
			t.Errorf("%s and %s differ", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{{`{"a": [1, 2]}`, `{"a": [2, 1]}`}, {`{"a": [[1], 2]}`, `{"a": [1, 2]}`}, {`{"a": []}`, `{}`}, {`{"a": [1, 2]}`, `{"a": [12]}`}, {`{"a": ["1"]}`, `{"a": [1]}`}, {`{"a": {"b": ""}}`, `{"a": {}}`},
		{`{"mode": "at_least_once"}`, `{"mode": "at_most_once"}`}, {`{"clicks": true}`, `{}`}, {`{"a": [null]}`, `{"a": []}`}} {
		if sumOf([]byte(pair[0])) == sumOf([]byte(pair[1])) {
			t.Errorf("%s and %s have one sum", pair[0], pair[1])
		}
	}
	deep := strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20)
	if sumOf([]byte(deep)) == sumOf([]byte(strings.Replace(deep, "1", "2", 1))) {
		t.Error("what is far inside is not in the sum")
	}
}

// Of a batch some lines are confirmed in time, and others when it is answered: each is kept.
func TestLateHalfOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept()
		w := newWorld(t, k.know, func(o *Options) { o.Users.Close(); o.Users = nil })
		n, confirm := 0, w.gateway.o.Times.Confirm
		w.set(func() {
			w.ack = func(r Record, done func(Place, error)) {
				if n++; n%2 == 0 {
					done(w.keep(r), nil)
					return
				}
				go func() {
					time.Sleep(confirm)
					done(w.keep(r), nil)
				}()
			}
		})
		var body strings.Builder
		for i := range 20 {
			fmt.Fprintf(&body, `{"id": "order-%d", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "x"}`+"\n", i)
		}
		w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: body.String()})
		time.Sleep(time.Second)
		a := w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: body.String()})
		if n := strings.Count(a.text, `"replayed":true`); n != 20 || len(w.produced) != 20 {
			t.Errorf("%d of 20 were known, %d produced", n, len(w.produced))
		}
	})
}
