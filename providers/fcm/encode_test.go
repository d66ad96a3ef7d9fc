package fcm

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"firebase.google.com/go/v4/messaging"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/exchange"
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
	return &codec{tokens: keeperWith("Bearer abc"), path: []byte("/v1/projects/shop-1/messages:send")}
}

func delivery(m pipeline.Message) *pipeline.Delivery {
	if m.ID == "" {
		m.ID = "n1"
	}
	if m.Priority == 0 {
		m.Priority = pipeline.Medium
	}
	return &pipeline.Delivery{Item: &pipeline.Item{Message: m}, Device: pipeline.Device{Platform: pipeline.FCM, Token: registration, Hash: "h"}}
}

func TestBodies(t *testing.T) {
	for _, k := range []struct {
		why  string
		m    pipeline.Message
		want string
	}{
		{"everything", pipeline.Message{Priority: pipeline.High, Title: `Say "hi"`, Body: "new\nline 🎉", Image: "https://i.example/x.png", Video: "https://v.example/x.mp4",
			Sound: "default", Badge: 3, HasBadge: true, CollapseKey: "order-17", Data: json.RawMessage(`{"k":"v"}`)},
			`{"token":"T","notification":{"title":"Say \"hi\"","body":"new\nline 🎉","image":"https://i.example/x.png"},
			"data":{"k":"v","video":"https://v.example/x.mp4","pf_id":"n1"},
			"android":{"priority":"HIGH","notification":{"tag":"order-17","sound":"default","notification_count":3}}}`},
		{"text alone", pipeline.Message{Title: "t"}, `{"token":"T","notification":{"title":"t"},"data":{"pf_id":"n1"},"android":{"priority":"HIGH"}}`},
		{"data alone stays a data message", pipeline.Message{CollapseKey: "x", Sound: "s", Image: "https://i/1", Data: json.RawMessage(`{"k":"v"}`)},
			`{"token":"T","data":{"k":"v","image":"https://i/1","pf_id":"n1"},"android":{"priority":"HIGH"}}`},
		{"pf_id is ours", pipeline.Message{Data: json.RawMessage(`{"pf_id":"x"}`)}, `{"token":"T","data":{"pf_id":"n1"},"android":{"priority":"HIGH"}}`},
		{"the raw object is merged deep and wins, but not the target", pipeline.Message{Title: "t", Body: "b",
			FCM: json.RawMessage(`{"token":"x","notification":{"body":"theirs"},"android":{"priority":"NORMAL","notification":{"channel_id":"c"}},"apns":{"headers":{"apns-priority":"5"}},"fcm_options":{"analytics_label":"l"}}`)},
			`{"token":"T","notification":{"title":"t","body":"theirs"},"data":{"pf_id":"n1"},"android":{"priority":"NORMAL","notification":{"channel_id":"c"}},"apns":{"headers":{"apns-priority":"5"}},"fcm_options":{"analytics_label":"l"}}`},
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
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %s\nwant %s", r.Body, k.want)
			}
		})
	}
}

func TestFirebaseReadsOurBody(t *testing.T) {
	d := delivery(pipeline.Message{Priority: pipeline.Low, Title: "t", Body: "b", Image: "https://i/1", Sound: "s", HasBadge: true, Badge: 2, CollapseKey: "tag", Data: json.RawMessage(`{"k":"v"}`)})
	now := time.Now()
	d.Expires = now.Add(90*time.Minute + 300*time.Millisecond)
	r := &exchange.Draft{}
	if _, ok := encodeBody(r, d, now); !ok {
		t.Fatal("refused")
	}
	var body struct{ Message messaging.Message }
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	m := body.Message
	//lint:ignore SA1019 our registry holds tokens, not installation ids
	if m.Token != registration || m.Topic != "" || m.Condition != "" {
		t.Errorf("target %+v", m)
	}
	if !reflect.DeepEqual(m.Notification, &messaging.Notification{Title: "t", Body: "b", ImageURL: "https://i/1"}) {
		t.Errorf("notification %+v", m.Notification)
	}
	if !reflect.DeepEqual(m.Data, map[string]string{"k": "v", "pf_id": "n1"}) {
		t.Errorf("data %v", m.Data)
	}
	count, ttl := 2, 90*time.Minute
	if !strings.EqualFold(m.Android.Priority, "normal") || *m.Android.TTL != ttl || m.Android.CollapseKey != "" {
		t.Errorf("android %+v, ttl %v", m.Android, *m.Android.TTL)
	}
	if n := m.Android.Notification; n.Tag != "tag" || n.Sound != "s" || *n.NotificationCount != count {
		t.Errorf("android notification %+v", n)
	}
}

func TestPriorityAndTTL(t *testing.T) {
	now := time.Now()
	for p, want := range map[pipeline.Priority]string{pipeline.Critical: "HIGH", pipeline.High: "HIGH", pipeline.Medium: "HIGH", pipeline.Low: "NORMAL", pipeline.Bulk: "NORMAL"} {
		if got := string(appendAndroid([]byte("{"), &pipeline.Message{Priority: p}, false, time.Time{}, now)); got != `{"android":{"priority":"`+want+`"}` {
			t.Errorf("%v: %s", p, got)
		}
	}
	for left, want := range map[time.Duration]string{90 * time.Second: "90s", 1500 * time.Millisecond: "1s", 0: "0s", -time.Hour: "0s", 365 * 24 * time.Hour: "2419200s"} {
		got := string(appendAndroid([]byte("{"), &pipeline.Message{Priority: pipeline.High}, false, now.Add(left), now))
		if !strings.Contains(got, `"ttl":"`+want+`"`) {
			t.Errorf("%v left: %s", left, got)
		}
	}
}

func TestRefusedBeforeSending(t *testing.T) {
	long := func(n int) json.RawMessage { return json.RawMessage(`{"k":"` + strings.Repeat("x", n) + `"}`) }
	for _, k := range []struct {
		why    string
		m      pipeline.Message
		reason string
	}{
		{"fits: {\"k\":\"…\",\"pf_id\":\"n1\"} of 4,096", pipeline.Message{Data: long(4096 - 21)}, ""},
		{"one more", pipeline.Message{Data: long(4097 - 21)}, "payload_too_large"},
		{"too large after merging", pipeline.Message{Title: "t", FCM: json.RawMessage(`{"notification":{"body":"` + strings.Repeat("x", 4100) + `"}}`)}, "payload_too_large"},
		{"reserved key", pipeline.Message{Data: json.RawMessage(`{"from":"x"}`)}, "invalid_message"},
		{"reserved prefix", pipeline.Message{Data: json.RawMessage(`{"google.x":"x"}`)}, "invalid_message"},
		{"reserved prefix", pipeline.Message{Data: json.RawMessage(`{"gcm.x":"x"}`)}, "invalid_message"},
		{"another target", pipeline.Message{FCM: json.RawMessage(`{"topic":"all"}`)}, "invalid_message"},
		{"another target", pipeline.Message{FCM: json.RawMessage(`{"condition":"x"}`)}, "invalid_message"},
	} {
		result, ok := testCodec().Encode(delivery(k.m), &exchange.Draft{})
		if ok != (k.reason == "") || result.Reason != k.reason || !ok && result.Class != pipeline.Refused {
			t.Errorf("%s: %+v", k.why, result)
		}
	}
	for _, token := range []string{"", "/", "..", "a/b", "a\r\nb", "a\x00", "é", "a b", `a"`, strings.Repeat("a", 4097), "a.b", "a?b", "a#b"} {
		d := delivery(pipeline.Message{Title: "t"})
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
	d := delivery(pipeline.Message{Title: "t"})
	want := pipeline.Result{Class: pipeline.Again, Scope: pipeline.ScopeRoute, After: 10 * time.Second, Reason: "auth_failed"}
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
	d := delivery(pipeline.Message{Title: "Your order", Body: "is on its way", Sound: "default", CollapseKey: "order-17", HasBadge: true,
		Data: json.RawMessage(`{"k":"v"}`), FCM: json.RawMessage(`{"android":{"notification":{"channel_id":"c"}}}`)})
	d.Expires = time.Now().Add(time.Hour)
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
