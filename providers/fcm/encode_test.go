package fcm

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/push"
)

const registration = "cXyZ_12-3:APA91b%Abc"

func keeperWith(header string) *tokenKeeper {
	k := &tokenKeeper{first: make(chan struct{}), refresh: make(chan struct{}, 1)}
	if header != "" {
		k.current.Store(&accessToken{header: []byte(header), expiry: time.Now().Add(time.Hour)})
	}
	return k
}

func testCodec() *codec {
	c := &codec{tokens: keeperWith("Bearer abc"), path: []byte("/v1/projects/shop-1/messages:send"), refusal: calls.NewRefusal(nil)}
	c.key.Store(new(string))
	c.asked.Store(new(string))
	return c
}

func delivery(m push.Message) *pipeline.Delivery {
	if m.ID == "" {
		m.ID = "n1"
	}
	if m.Priority == 0 {
		m.Priority = push.Medium
	}
	return &pipeline.Delivery{Item: &pipeline.Item{Message: m}, Device: pipeline.Device{Token: registration, Hash: "h"}}
}

// The parts of a body for Apple and web push, by default.
const (
	alertParts  = `"apns":{"headers":{"apns-priority":"10"}},"webpush":{"headers":{"Urgency":"high"}}`
	silentParts = `"apns":{"headers":{"apns-push-type":"background","apns-priority":"5"},"payload":{"aps":{"content-available":1}}},"webpush":{"headers":{"Urgency":"high"}}`
)

func TestBodies(t *testing.T) {
	const topic = "cqkOo9qLXdAb3i8nMU4C4hf5NRgupXOn" // printf order-17 | sha256, 24 bytes in base64url
	for _, k := range []struct {
		why  string
		m    push.Message
		want string
	}{
		{"everything", push.Message{Priority: push.High, Title: `Say "hi"`, Body: "new\nline 🎉", Image: "https://i.example/x.png", Video: "https://v.example/x.mp4",
			Sound: "default", Badge: 3, HasBadge: true, Category: "ORDER", ThreadID: "o17", Locale: "de-AT", CollapseKey: "order-17", Data: json.RawMessage(`{"k":"v"}`)},
			`{"token":"T","notification":{"title":"Say \"hi\"","body":"new\nline 🎉","image":"https://i.example/x.png"},
			"data":{"k":"v","video":"https://v.example/x.mp4","category":"ORDER","thread_id":"o17","locale":"de-AT","pf_id":"n1"},
			"android":{"priority":"HIGH","notification":{"tag":"order-17","sound":"default","notification_count":3}},
			"apns":{"headers":{"apns-priority":"10","apns-collapse-id":"order-17"},"payload":{"aps":{"sound":"default","badge":3,"category":"ORDER","thread-id":"o17","mutable-content":1}}},
			"webpush":{"headers":{"Urgency":"high","Topic":"` + topic + `"},"notification":{"tag":"order-17"}}}`},
		{"text alone", push.Message{Title: "t"}, `{"token":"T","notification":{"title":"t"},"data":{"pf_id":"n1"},"android":{"priority":"HIGH"},` + alertParts + `}`},
		{"not urgent", push.Message{Title: "t", Priority: push.Low}, `{"token":"T","notification":{"title":"t"},"data":{"pf_id":"n1"},"android":{"priority":"NORMAL"},
			"apns":{"headers":{"apns-priority":"5"}},"webpush":{"headers":{"Urgency":"normal"}}}`},
		{"bulk", push.Message{Title: "t", Priority: push.Bulk}, `{"token":"T","notification":{"title":"t"},"data":{"pf_id":"n1"},"android":{"priority":"NORMAL"},
			"apns":{"headers":{"apns-priority":"5"}},"webpush":{"headers":{"Urgency":"low"}}}`},
		{"a badge of 0 clears it", push.Message{Title: "t", HasBadge: true}, `{"token":"T","notification":{"title":"t"},"data":{"pf_id":"n1"},"android":{"priority":"HIGH","notification":{"notification_count":0}},
			"apns":{"headers":{"apns-priority":"10"},"payload":{"aps":{"badge":0}}},"webpush":{"headers":{"Urgency":"high"}}}`},
		{"data alone stays a data message, silent for Apple", push.Message{CollapseKey: "x", Sound: "s", Image: "https://i/1", Data: json.RawMessage(`{"k":"v"}`)},
			`{"token":"T","data":{"k":"v","image":"https://i/1","pf_id":"n1"},"android":{"priority":"HIGH","collapse_key":"x"},
			"apns":{"headers":{"apns-push-type":"background","apns-priority":"5","apns-collapse-id":"x"},"payload":{"aps":{"content-available":1}}},
			"webpush":{"headers":{"Urgency":"high","Topic":"LXEWQrcmsEQBYnyp-6wy9chTD7GQPMTb"}}}`},
		{"a badge without text, as an alert", push.Message{PushType: "alert", HasBadge: true, Badge: 2}, `{"token":"T","data":{"pf_id":"n1"},"android":{"priority":"HIGH"},
			"apns":{"headers":{"apns-priority":"10"},"payload":{"aps":{"badge":2}}},"webpush":{"headers":{"Urgency":"high"}}}`},
		{"text is shown whatever the push type: FCM makes an alert of it", push.Message{PushType: "background", Title: "t", Sound: "s"}, `{"token":"T","notification":{"title":"t"},"data":{"pf_id":"n1"},
			"android":{"priority":"HIGH","notification":{"sound":"s"}},"apns":{"headers":{"apns-priority":"10"},"payload":{"aps":{"sound":"s"}}},"webpush":{"headers":{"Urgency":"high"}}}`},
		{"pf_id is ours", push.Message{Data: json.RawMessage(`{"pf_id":"x"}`)}, `{"token":"T","data":{"pf_id":"n1"},"android":{"priority":"HIGH"},` + silentParts + `}`},
		{"what has no other place gives way to data", push.Message{Title: "t", Locale: "de", Category: "c", ThreadID: "h", Data: json.RawMessage(`{"locale":"x","category":"y","thread_id":"z"}`)},
			`{"token":"T","notification":{"title":"t"},"data":{"locale":"x","category":"y","thread_id":"z","pf_id":"n1"},"android":{"priority":"HIGH"},
			"apns":{"headers":{"apns-priority":"10"},"payload":{"aps":{"category":"c","thread-id":"h"}}},"webpush":{"headers":{"Urgency":"high"}}}`},
		{"escapes are sent as UTF-8, halves of pairs as U+FFFD", push.Message{Title: "t", Data: json.RawMessage(`{"\u0413":"\ud83d\u0413\/"}`), FCM: json.RawMessage(`{"fcm_options":{"analytics_label":"\u0413"}}`)},
			"{\"token\":\"T\",\"notification\":{\"title\":\"t\"},\"data\":{\"Г\":\"\uFFFDГ/\",\"pf_id\":\"n1\"},\"android\":{\"priority\":\"HIGH\"},\"fcm_options\":{\"analytics_label\":\"Г\"}," + alertParts + "}"},
		{"the raw object is merged deep and wins, but not the target", push.Message{Title: "t", Body: "b", Sound: "s", HasBadge: true,
			FCM: json.RawMessage(`{"token":"x","notification":{"body":"theirs"},"android":{"priority":"NORMAL","notification":{"channel_id":"c"}},"apns":{"headers":{"apns-priority":"5"},"payload":{"aps":{"sound":"theirs"}}},"webpush":{"headers":{"TTL":"7"}},"fcm_options":{"analytics_label":"l"}}`)},
			`{"token":"T","notification":{"title":"t","body":"theirs"},"data":{"pf_id":"n1"},"android":{"priority":"NORMAL","notification":{"sound":"s","notification_count":0,"channel_id":"c"}},
			"apns":{"headers":{"apns-priority":"5"},"payload":{"aps":{"sound":"theirs","badge":0}}},"webpush":{"headers":{"Urgency":"high","TTL":"7"}},"fcm_options":{"analytics_label":"l"}}`},
	} {
		t.Run(k.why, func(t *testing.T) {
			r := &exchange.Draft{}
			if result, ok := testCodec().Encode(delivery(k.m), r); !ok {
				t.Fatalf("refused: %+v", result)
			}
			var got, want any
			if err := json.Unmarshal(r.Body, &got); err != nil {
				t.Fatalf("%s: %v", r.Body, err)
			}
			if err := json.Unmarshal([]byte(`{"message":`+strings.Replace(k.want, `"T"`, `"`+registration+`"`, 1)+`}`), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) || strings.Contains(string(r.Body), `\u`) {
				t.Errorf("got  %s\nwant %s", r.Body, k.want)
			}
		})
	}
}

// If a raw part shows something on Apple's devices, the push must not be
// silent, because Apple may drop silent ones.
func TestRawAlertsAreNotSilent(t *testing.T) {
	for raw, silent := range map[string]bool{
		`{"apns":{"payload":{"aps":{"alert":{"title":"t"}}}}}`:       false,
		`{"apns":{"payload":{"aps":{"\u0061lert":"t"}}}}`:            false,
		`{"apns":{"payload":{"aps":{"sound":"s"}}}}`:                 false,
		`{"apns":{"payload":{"aps":{"badge":0}}}}`:                   false,
		`{"notification":{"image":"https://i/1"}}`:                   false,
		`{"apns":{"headers":{"apns-push-type":"alert"}}}`:            false,
		`{"apns":{"headers":{"apns-push-type":"background"}}}`:       true,
		`{"apns":{"headers":{"apns-priority":"5"},"payload":{}}}`:    true,
		`{"apns":{"payload":{"aps":{"x":1},"alert":"no alert"}}}`:    true,
		`{"android":{"notification":{"title_loc_key":"k"}}}`:         true,
		`{"data":{"notification":"n","apns":"a"},"webpush":{}}`:      true,
		`{"apns":{"payload":{"aps":{"content-available":1}}}}`:       true,
		`{"apns":{"payload":{"notification":{"alert":"t"}}}}`:        true,
		`{"apns":{"payload":{"aps":{"x":{"alert":"t","badge":1}}}}}`: true,
	} {
		r := &exchange.Draft{}
		if result, ok := testCodec().Encode(delivery(push.Message{PushType: "background", FCM: json.RawMessage(raw)}), r); !ok {
			t.Fatalf("%s: %+v", raw, result)
		}
		var body struct {
			Message struct {
				APNS struct {
					Headers map[string]string
					Payload struct{ Aps map[string]any }
				}
			}
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		h, aps := body.Message.APNS.Headers, body.Message.APNS.Payload.Aps
		if (aps["content-available"] != nil) != silent || (h["apns-push-type"] == "background") != silent || (h["apns-priority"] == "5") != silent {
			t.Errorf("%s became %s", raw, r.Body)
		}
	}
}

// FCM keeps four collapse keys per device, best effort, and throttles
// collapsible messages. A key that is made from the id does not count as one.
// Apple and browsers have no such limit.
func TestCollapseKeysOfDataMessages(t *testing.T) {
	type parts struct {
		Message struct {
			Android struct {
				CollapseKey  string `json:"collapse_key"`
				Notification struct{ Tag string }
			}
			APNS    struct{ Headers map[string]string }
			Webpush struct{ Headers map[string]string }
		}
	}
	for _, k := range []struct {
		why                       string
		m                         push.Message
		derived                   bool
		android, tag, apns, topic bool
	}{
		{"data, the producer's key", push.Message{CollapseKey: "a \"b\""}, false, true, false, true, true},
		{"data, a derived key", push.Message{CollapseKey: "d"}, true, false, false, true, true},
		{"text, the producer's key", push.Message{Title: "t", CollapseKey: "k"}, false, false, true, true, true},
		{"text, a derived key", push.Message{Title: "t", CollapseKey: "d"}, true, false, true, true, true},
		{"no key", push.Message{Title: "t"}, false, false, false, false, false},
	} {
		d := delivery(k.m)
		d.Item.Derived = k.derived
		r := &exchange.Draft{}
		if result, ok := testCodec().Encode(d, r); !ok {
			t.Fatalf("%s: %+v", k.why, result)
		}
		var p parts
		if err := json.Unmarshal(r.Body, &p); err != nil {
			t.Fatal(err)
		}
		want := func(there bool) string {
			if there {
				return k.m.CollapseKey
			}
			return ""
		}
		a := p.Message.Android
		if a.CollapseKey != want(k.android) || a.Notification.Tag != want(k.tag) || p.Message.APNS.Headers["apns-collapse-id"] != want(k.apns) {
			t.Errorf("%s: %s", k.why, r.Body)
		}
		if topic := p.Message.Webpush.Headers["Topic"]; (topic != "") != k.topic || !regexp.MustCompile(`^[A-Za-z0-9_-]{0,32}$`).MatchString(topic) {
			t.Errorf("%s: topic %q", k.why, topic)
		}
	}
}

func TestTimesToLive(t *testing.T) {
	now := time.Unix(1795000000, 0)
	for left, want := range map[time.Duration][3]string{
		90 * time.Second:        {"90s", "90", "1795000090"},
		1500 * time.Millisecond: {"1s", "1", "1795000001"},
		0:                       {"0s", "0", "1795000000"},
		-time.Hour:              {"0s", "0", "1794996400"},
		365 * 24 * time.Hour:    {"2419200s", "2419200", "1826536000"},
	} {
		d := delivery(push.Message{Title: "t"})
		d.Expires = push.At(now.Add(left))
		r := &exchange.Draft{}
		if _, ok := encodeBody(r, d, now); !ok {
			t.Fatal("refused")
		}
		var body struct {
			Message struct {
				Android       struct{ TTL string }
				APNS, Webpush struct{ Headers map[string]string }
			}
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		m := body.Message
		if got := [3]string{m.Android.TTL, m.Webpush.Headers["TTL"], m.APNS.Headers["apns-expiration"]}; got != want {
			t.Errorf("%v left: %v, want %v", left, got, want)
		}
	}
}

func TestRefusedBeforeSending(t *testing.T) {
	long := func(n int) json.RawMessage { return json.RawMessage(`{"k":"` + strings.Repeat("x", n) + `"}`) }
	for _, k := range []struct {
		why    string
		m      push.Message
		reason string
	}{
		{"fits: keys and values, k, …, pf_id and n1, are 4,096 bytes", push.Message{Data: long(4096 - 8)}, ""},
		{"one more", push.Message{Data: long(4097 - 8)}, "payload_too_large"},
		{"text counts too: title and t", push.Message{Title: "t", Data: long(4096 - 8 - 6)}, ""},
		{"one more", push.Message{Title: "t", Data: long(4097 - 8 - 6)}, "payload_too_large"},
		{"escapes count as the text they are", push.Message{Data: json.RawMessage(`{"k":"` + strings.Repeat(`\u0413`, 2044) + `"}`)}, ""},
		{"one more", push.Message{Data: json.RawMessage(`{"k":"` + strings.Repeat(`\u0413`, 2044) + `x"}`)}, "payload_too_large"},
		{"quotes count once", push.Message{Title: strings.Repeat(`"`, 4000)}, ""},
		{"escapes in a raw part", push.Message{Title: "t", FCM: json.RawMessage(`{"notification":{"body":"` + strings.Repeat(`\u4f60`, 1300) + `"}}`)}, ""},
		{"too large after merging", push.Message{Title: "t", FCM: json.RawMessage(`{"notification":{"body":"` + strings.Repeat("x", 4100) + `"}}`)}, "payload_too_large"},
		{"reserved key", push.Message{Data: json.RawMessage(`{"from":"x"}`)}, "invalid_message"},
		{"reserved prefix", push.Message{Data: json.RawMessage(`{"google.x":"x"}`)}, "invalid_message"},
		{"reserved prefix", push.Message{Data: json.RawMessage(`{"gcm.x":"x"}`)}, "invalid_message"},
		{"reserved prefix, escaped", push.Message{Data: json.RawMessage(`{"\u0067cm.x":"x"}`)}, "invalid_message"},
		{"no reserved prefix", push.Message{Data: json.RawMessage(`{"goog":"x","gc":"m","fro":"m","from2":"x"}`)}, ""},
		{"another target", push.Message{FCM: json.RawMessage(`{"topic":"all"}`)}, "invalid_message"},
		{"another target", push.Message{FCM: json.RawMessage(`{"condition":"x"}`)}, "invalid_message"},
		{"another target", push.Message{FCM: json.RawMessage(`{"apns":{"live_activity_token":"x"}}`)}, "invalid_message"},
		{"another target", push.Message{FCM: json.RawMessage(`{"apns":{"live\u0041ctivityToken":"x"}}`)}, "invalid_message"},
		{"another id", push.Message{FCM: json.RawMessage(`{"data":{"pf_id":"x"}}`)}, "invalid_message"},
		{"another id", push.Message{FCM: json.RawMessage(`{"android":{"data":{"pf_\u0069d":"x"}}}`)}, "invalid_message"},
		{"another id", push.Message{FCM: json.RawMessage(`{"webpush":{"data":{"pf_id":"x"}}}`)}, "invalid_message"},
		{"another id", push.Message{FCM: json.RawMessage(`{"apns":{"payload":{"pf_id":"x"}}}`)}, "invalid_message"},
		{"reserved for Android alone", push.Message{FCM: json.RawMessage(`{"webpush":{"data":{"from":"x"}},"apns":{"payload":{"from":"x"}}}`)}, ""},
		{"reserved key in the raw part", push.Message{FCM: json.RawMessage(`{"data":{"from":"x"}}`)}, "invalid_message"},
		{"reserved key in Android's part", push.Message{FCM: json.RawMessage(`{"android":{"data":{"gcm.x":"x"}}}`)}, "invalid_message"},
	} {
		result, ok := testCodec().Encode(delivery(k.m), &exchange.Draft{})
		if ok != (k.reason == "") || result.Reason != k.reason || !ok && result.Class != push.Refused {
			t.Errorf("%s: %+v", k.why, result)
		}
	}
	for _, token := range []string{"", "/", "..", "a/b", "a\r\nb", "a\x00", "é", "a b", `a"`, strings.Repeat("a", 4097), "a.b", "a?b", "a#b"} {
		d := delivery(push.Message{Title: "t"})
		d.Device.Token = token
		if result, ok := testCodec().Encode(d, &exchange.Draft{}); ok || result.Reason != "invalid_token" {
			t.Errorf("token %.20q: %+v", token, result)
		}
	}
	if !validToken(strings.Repeat("a", 4096)) || !validToken(registration) {
		t.Error("good tokens refused")
	}
}

func TestNoAccessToken(t *testing.T) {
	c := testCodec()
	c.tokens = keeperWith("")
	d := delivery(push.Message{Title: "t"})
	want := push.Result{Class: push.Again, Scope: push.ScopeRoute, After: 10 * time.Second, Reason: "auth_failed"}
	if result, ok := c.Encode(d, &exchange.Draft{}); ok || result != want {
		t.Errorf("endpoint away: %+v", result)
	}
	c.tokens.lastErr, want.Halt = &authError{status: 400, code: "invalid_grant"}, true
	if result, ok := c.Encode(d, &exchange.Draft{}); ok || result != want {
		t.Errorf("account refused: %+v", result)
	}
}

func TestEncodeIntoAWarmDraftAllocatesNothing(t *testing.T) {
	c := testCodec()
	d := delivery(push.Message{Title: "Your order", Body: "is on its way", Sound: "default", CollapseKey: "order-17", HasBadge: true,
		Data: json.RawMessage(`{"k":"\u0413"}`), FCM: json.RawMessage(`{"android":{"notification":{"channel_id":"\u0413"}}}`)})
	d.Expires = push.At(time.Now().Add(time.Hour))
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
	now := time.Now()
	d := delivery(push.Message{ID: "0199f3c2-0000-7000-8000-000000000001", Title: "Your order is on its way",
		Body:  "Parcel 1 of 2 left our warehouse in Köln and arrives on Tuesday.",
		Image: "https://img.example.com/p/48213377.jpg", Data: json.RawMessage(`{"order":"17-48213377","screen":"tracking"}`),
		Sound: "default", HasBadge: true, Badge: 1, Category: "ORDER", ThreadID: "orders", CollapseKey: "order-17"})
	d.Device.Token = strings.Repeat("dQw4w9WgXcQ:APA91b-_", 8)
	d.Expires = push.At(now.Add(time.Hour))
	r := &exchange.Draft{}
	b.ReportAllocs()
	for b.Loop() {
		r.Body, r.Work = r.Body[:0], r.Work[:0]
		if !validToken(d.Device.Token) {
			b.Fatal("refused")
		}
		if _, ok := encodeBody(r, d, now); !ok {
			b.Fatal("refused")
		}
	}
}
