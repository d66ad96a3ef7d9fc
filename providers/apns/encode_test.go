package apns

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/push"
)

const deviceToken = "00FC13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

func delivery(m push.Message) *pipeline.Delivery {
	if m.ID == "" {
		m.ID = "0199f3c2-0000-7000-8000-000000000001"
	}
	if m.Priority == 0 {
		m.Priority = push.Medium
	}
	return &pipeline.Delivery{
		Item:    &pipeline.Item{Message: m},
		Device:  pipeline.Device{Token: deviceToken, Hash: "hash0123456789ab"},
		Expires: push.At(time.Unix(1795000000, 0)),
	}
}

func testCodec(t testing.TB) *codec {
	t.Helper()
	c, err := newCodec("com.example.shop", source(t, newKey(t)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func encode(t testing.TB, c *codec, d *pipeline.Delivery) (*exchange.Draft, map[string]string, push.Result) {
	t.Helper()
	r := &exchange.Draft{}
	result, ok := c.Encode(d, r)
	if ok != (result == push.Result{}) {
		t.Fatalf("ok %v with result %+v", ok, result)
	}
	headers := map[string]string{}
	for _, f := range r.Header {
		if _, twice := headers[f.Name]; twice {
			t.Errorf("header %s twice", f.Name)
		}
		headers[f.Name] = string(f.Value)
	}
	return r, headers, result
}

func sameJSON(t *testing.T, got []byte, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPushTypesAndPriorities(t *testing.T) {
	c := testCodec(t)
	topics := map[string]string{
		"alert": "", "background": "", "mdm": "", "location": ".location-query", "voip": ".voip",
		"complication": ".complication", "fileprovider": ".pushkit.fileprovider",
		"liveactivity": ".push-type.liveactivity", "pushtotalk": ".voip-ptt",
		"widgets": ".push-type.widgets", "controls": ".push-type.controls",
	}
	if len(topics) != 11 || len(pushTypes) != 11 {
		t.Fatal("Apple has eleven push types")
	}
	urgent := map[push.Priority]string{push.Critical: "10", push.High: "10", push.Medium: "10", push.Low: "5", push.Bulk: "5"}
	for pushType, suffix := range topics {
		for p, want := range urgent {
			if pushType == "background" {
				want = "5" // Apple refuses 10
			}
			_, h, _ := encode(t, c, delivery(push.Message{PushType: pushType, Priority: p, Title: "t"}))
			if h["apns-push-type"] != pushType || h["apns-topic"] != "com.example.shop"+suffix || h["apns-priority"] != want {
				t.Errorf("%s %v: %v", pushType, p, h)
			}
		}
	}
	if _, _, result := encode(t, c, delivery(push.Message{PushType: "telegram"})); result.Reason != "invalid_message" {
		t.Errorf("unknown push type: %+v", result)
	}
}

func TestPayloads(t *testing.T) {
	c := testCodec(t)
	for _, k := range []struct {
		why  string
		m    push.Message
		want string
	}{
		{"everything", push.Message{ID: "n1", PushType: "alert", Title: `Say "hi"`, Body: "new\nline 🎉", Sound: "default", Badge: 3, HasBadge: true,
			Category: "ORDER", ThreadID: "o17", Locale: "de-AT", Image: "https://i.example/x.png", Video: "https://v.example/x.mp4", Data: json.RawMessage(`{"k":"v","order":"17"}`)},
			`{"aps":{"alert":{"title":"Say \"hi\"","body":"new\nline 🎉"},"sound":"default","badge":3,"category":"ORDER","thread-id":"o17","mutable-content":1},
			"k":"v","order":"17","image":"https://i.example/x.png","video":"https://v.example/x.mp4","locale":"de-AT","pf_id":"n1"}`},
		{"title alone", push.Message{ID: "n1", PushType: "alert", Title: "t"}, `{"aps":{"alert":{"title":"t"}},"pf_id":"n1"}`},
		{"a badge of 0 clears it", push.Message{ID: "n1", PushType: "alert", HasBadge: true}, `{"aps":{"badge":0},"pf_id":"n1"}`},
		{"background has content-available alone", push.Message{ID: "n1", PushType: "background", Sound: "x", HasBadge: true, Data: json.RawMessage(`{"k":"v"}`)},
			`{"aps":{"content-available":1},"k":"v","pf_id":"n1"}`},
		{"mdm has no aps", push.Message{ID: "n1", PushType: "mdm", Title: "t", APNSPayload: json.RawMessage(`{"mdm":"magic"}`)}, `{"mdm":"magic","pf_id":"n1"}`},
		{"the producer's aps is merged deep and wins", push.Message{ID: "n1", PushType: "alert", Title: "t", Body: "b", Sound: "default",
			APNSPayload: json.RawMessage(`{"aps":{"alert":{"body":"theirs","subtitle":"s"},"sound":{"critical":1},"interruption-level":"critical"},"extra":[1]}`)},
			`{"aps":{"alert":{"title":"t","body":"theirs","subtitle":"s"},"sound":{"critical":1},"interruption-level":"critical"},"extra":[1],"pf_id":"n1"}`},
		{"live activity", push.Message{ID: "n1", PushType: "liveactivity", APNSPayload: json.RawMessage(`{"aps":{"timestamp":1,"event":"update","content-state":{"x":1}}}`)},
			`{"aps":{"timestamp":1,"event":"update","content-state":{"x":1}},"pf_id":"n1"}`},
		{"pf_id is ours", push.Message{ID: "n1", PushType: "alert", Data: json.RawMessage(`{"pf_id":"x"}`), APNSPayload: json.RawMessage(`{"pf_id":"y"}`)}, `{"pf_id":"n1"}`},
		{"escapes are sent as UTF-8, halves of pairs as U+FFFD", push.Message{ID: "n1", PushType: "alert", Title: "t", Data: json.RawMessage(`{"\u0413":"\ud83d\u0413\/"}`),
			APNSPayload: json.RawMessage(`{"aps":{"alert":{"subtitle":"\u0413"}},"x":["\ud83c\udf89"]}`)},
			"{\"aps\":{\"alert\":{\"title\":\"t\",\"subtitle\":\"Г\"}},\"Г\":\"\uFFFDГ/\",\"x\":[\"🎉\"],\"pf_id\":\"n1\"}"},
		{"data's own locale stands", push.Message{ID: "n1", PushType: "alert", Title: "t", Locale: "de", Data: json.RawMessage(`{"loc\u0061le":"theirs"}`)},
			`{"aps":{"alert":{"title":"t"}},"locale":"theirs","pf_id":"n1"}`},
		{"data's own image stands", push.Message{ID: "n1", PushType: "alert", Image: "https://i/1", Data: json.RawMessage(`{"image":"theirs"}`)},
			`{"aps":{"mutable-content":1},"image":"theirs","pf_id":"n1"}`},
	} {
		t.Run(k.why, func(t *testing.T) {
			r, _, result := encode(t, c, delivery(k.m))
			if result != (push.Result{}) {
				t.Fatalf("refused: %+v", result)
			}
			sameJSON(t, r.Body, k.want)
			if bytes.Contains(r.Body, []byte(`\u`)) {
				t.Errorf("escapes are left in %s", r.Body)
			}
		})
	}
	if _, _, result := encode(t, c, delivery(push.Message{PushType: "alert", Data: json.RawMessage(`{"aps":"x"}`)})); result.Reason != "invalid_message" || result.Class != push.Refused {
		t.Errorf("data that replaces aps: %+v", result)
	}
}

func TestHeaders(t *testing.T) {
	c := testCodec(t)
	d := delivery(push.Message{ID: "n1", PushType: "alert", Title: "t", CollapseKey: "order-17"})
	r, h, _ := encode(t, c, d)
	if got := string(r.Path); got != "/3/device/"+strings.ToLower(deviceToken) {
		t.Errorf("path %s", got)
	}
	if !strings.HasPrefix(h["authorization"], "bearer ey") || h["apns-expiration"] != "1795000000" || h["apns-collapse-id"] != "order-17" {
		t.Errorf("%v", h)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(h["apns-id"]) {
		t.Errorf("apns-id %q is no UUID", h["apns-id"])
	}
	if _, again, _ := encode(t, c, d); again["apns-id"] != h["apns-id"] {
		t.Error("the same attempt has another apns-id")
	}
	d.Item.Attempt = 1
	if _, next, _ := encode(t, c, d); next["apns-id"] == h["apns-id"] {
		t.Error("the next attempt has the same apns-id")
	}
	d.Expires = 0
	if _, h, _ := encode(t, c, d); h["apns-expiration"] != "" {
		t.Errorf("no expiry, but %q", h["apns-expiration"])
	}
	_, h, _ = encode(t, c, delivery(push.Message{PushType: "alert", Priority: push.High, CollapseKey: "x", APNSHeaders: []push.Header{
		{Name: "apns-push-type", Value: "voip"}, {Name: "apns-priority", Value: "1"}, {Name: "apns-collapse-id", Value: "theirs"}, {Name: "apns-expiration", Value: "0"}}}))
	if h["apns-push-type"] != "voip" || h["apns-topic"] != "com.example.shop.voip" || h["apns-priority"] != "1" || h["apns-collapse-id"] != "theirs" || h["apns-expiration"] != "0" {
		t.Errorf("raw headers: %v", h)
	}
	for _, name := range []string{"authorization", "host", ":path", "x-other"} {
		_, _, result := encode(t, c, delivery(push.Message{PushType: "alert", APNSHeaders: []push.Header{{Name: name, Value: "x"}}}))
		if result.Reason != "invalid_message" {
			t.Errorf("raw header %s: %+v", name, result)
		}
	}
}

func TestCollapseIDFitsAHeader(t *testing.T) {
	plain := regexp.MustCompile(`^[!-~]([ -~]{0,62}[!-~])?$`)
	seen := map[string]string{}
	for _, key := range []string{"order-17", "two words", strings.Repeat("x", 64), strings.Repeat("x", 65), "Größe", "a\r\nb", " a", "a ", "\x00"} {
		got := string(appendCollapseID(nil, key))
		if !plain.MatchString(got) {
			t.Errorf("%q became %q", key, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q collapse", key, other)
		}
		seen[got] = key
	}
}

func TestSizeLimits(t *testing.T) {
	c := testCodec(t)
	fill := func(pushType string, size int) push.Message {
		m := push.Message{ID: "n1", PushType: pushType, Title: "x"}
		r, _, _ := encode(t, c, delivery(m))
		m.Title = strings.Repeat("x", size-len(r.Body)+1)
		return m
	}
	for _, k := range []struct {
		pushType string
		size     int
		ok       bool
	}{{"alert", 4096, true}, {"alert", 4097, false}, {"voip", 5120, true}, {"voip", 5121, false}} {
		r, _, result := encode(t, c, delivery(fill(k.pushType, k.size)))
		if len(r.Body) != k.size {
			t.Fatalf("built %d bytes instead of %d", len(r.Body), k.size)
		}
		if (result == push.Result{}) != k.ok || !k.ok && (result.Class != push.Refused || result.Reason != "payload_too_large") {
			t.Errorf("%s with %d bytes: %+v", k.pushType, k.size, result)
		}
	}
}

// Many producers escape everything that is not ASCII. It is the same text, and
// must fit where the text fits.
func TestEscapedTextHasTheSizeOfItsText(t *testing.T) {
	c := testCodec(t)
	for _, word := range []string{"Г", "你", "🎉", `"`, "\n"} {
		text, _ := json.Marshal(strings.Repeat(word, 900))
		escaped := []byte(strconv.QuoteToASCII(strings.Repeat(word, 900)))
		escaped = bytes.ReplaceAll(escaped, []byte(`\U0001f389`), []byte(`\ud83c\udf89`)) // as in Go's source
		for _, m := range []func(value []byte) push.Message{
			func(v []byte) push.Message {
				return push.Message{Data: json.RawMessage(`{"k":` + string(v) + `}`)}
			},
			func(v []byte) push.Message {
				return push.Message{APNSPayload: json.RawMessage(`{"k":` + string(v) + `}`)}
			},
		} {
			plain, _, wantResult := encode(t, c, delivery(m(text)))
			got, _, result := encode(t, c, delivery(m(escaped)))
			if !bytes.Equal(got.Body, plain.Body) || result != wantResult || result != (push.Result{}) {
				t.Errorf("%s: %d bytes, %+v; as UTF-8 %d, %+v", word, len(got.Body), result, len(plain.Body), wantResult)
			}
		}
	}
}

// attacks are tokens that must never be part of a path (T-51).
var attacks = []string{
	"", "/", "..", "../../3/device/x", "a/b", "%2f", "%2e%2e", "?x=1", "#x", "\r\n", "\n", "\x00", "\x7f", " ", "é", "g", "0",
}

func TestTokenGrammar(t *testing.T) {
	c := testCodec(t)
	for _, a := range attacks {
		for _, token := range []string{a, deviceToken + a, a + deviceToken, deviceToken[:62] + a, deviceToken[:32] + a + deviceToken[32:]} {
			if token == deviceToken {
				continue
			}
			d := delivery(push.Message{PushType: "alert", Title: "t"})
			d.Device.Token = token
			r, _, result := encode(t, c, d)
			if result.Class != push.Refused || result.Reason != "invalid_token" || len(r.Path) != 0 {
				t.Errorf("%q: %+v, path %q", token, result, r.Path)
			}
		}
	}
	for size, ok := range map[int]bool{62: false, 64: true, 65: false, 160: true, 512: true, 514: false, 10 << 10: false} {
		if got := validToken(strings.Repeat("a", size)); got != ok {
			t.Errorf("%d digits: %v", size, got)
		}
	}
}

func TestEncodeIntoAWarmDraftAllocatesNothing(t *testing.T) {
	c := testCodec(t)
	d := delivery(push.Message{ID: "n1", PushType: "alert", Title: "Your order", Body: "is on its way", Sound: "default", HasBadge: true, Badge: 3,
		CollapseKey: "order-17", Data: json.RawMessage(`{"k":"v","order":"17"}`), APNSPayload: json.RawMessage(`{"aps":{"relevance-score":0.5}}`),
		APNSHeaders: []push.Header{{Name: "apns-priority", Value: "5"}}})
	r := &exchange.Draft{}
	if n := testing.AllocsPerRun(200, func() {
		r.Path, r.Header, r.Body, r.Values, r.Work = r.Path[:0], r.Header[:0], r.Body[:0], r.Values[:0], r.Work[:0]
		if _, ok := c.Encode(d, r); !ok {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEncode(b *testing.B) {
	c := testCodec(b)
	d := delivery(push.Message{ID: "0199f3c2-0000-7000-8000-000000000001", PushType: "alert", Title: "Your order", Body: "is on its way", Sound: "default", CollapseKey: "order-17", Data: json.RawMessage(`{"k":"v","order":"17"}`)})
	r := &exchange.Draft{}
	b.ReportAllocs()
	for b.Loop() {
		r.Path, r.Header, r.Body, r.Values, r.Work = r.Path[:0], r.Header[:0], r.Body[:0], r.Values[:0], r.Work[:0]
		c.Encode(d, r)
	}
}

func TestValuesDoNotGrowIntoEachOther(t *testing.T) {
	c := testCodec(t)
	r, h, _ := encode(t, c, delivery(push.Message{PushType: "alert", CollapseKey: "k"}))
	for i := range r.Header {
		_ = append(r.Header[i].Value, "overflow"...)
	}
	for _, f := range r.Header {
		if f.Name != "authorization" && f.Name != "apns-topic" && string(f.Value) != h[f.Name] || bytes.Contains(f.Value, []byte("overflow")) {
			t.Errorf("%s became %s", f.Name, f.Value)
		}
	}
	if _, err := strconv.ParseInt(h["apns-expiration"], 10, 64); err != nil {
		t.Error(err)
	}
}

// The id in a payload is ours, whatever a sender's data says.
func TestTheIDInAPayloadIsOurs(t *testing.T) {
	d := plain()
	d.Item.Data = []byte(`{"k":"v","pf_id":"another"}`)
	r, _, result := encode(t, testCodec(t), d)
	if result != (push.Result{}) {
		t.Fatalf("%+v", result)
	}
	body := string(r.Body)
	if strings.Contains(body, "another") || strings.Count(body, `"pf_id"`) != 1 || !strings.Contains(body, `"k":"v"`) {
		t.Errorf("the body is %s", body)
	}
}
