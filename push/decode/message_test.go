package decode

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// with is the smallest valid record, plus one more member.
func with(member string) string {
	return `{"id":"n1","app":"shop","user_id":"u1",` + member + `}`
}

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestMessageReadsEveryField(t *testing.T) {
	t.Parallel()
	const record = ` {
		"id": "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", "app": "shop", "user_id": "u42",
		"device": {"platform": "apns", "token": "aB01", "environment": "sandbox", "model": "x"},
		"type": "order_update", "sender_id": "orders", "campaign": "autumn", "priority": "critical", "push_type": "voip",
		"title": "\u00dcber \"alles\"\n\ud83d\ude00", "body": "Köln", "image": "https://i/1.jpg", "video": "https://v/1.mp4",
		"sound": "ping", "category": "ORDER", "thread_id": "orders", "locale": "de-AT", "badge": 7,
		"data": { "k": "v", "e": "\u0041" }, "collapse_key": "order-17", "expires_at": "2026-11-21T10:00:00.5+02:00",
		"apns": {"headers": {"apns-priority": "5", "apns-collapse-id": "c 1", "apns-expiration": "0"}, "payload": {"aps": {"x": [1, 2.5e3, null]}}},
		"fcm": {"android": {"ttl": "5s"}}, "later": {"unknown": [true, false]}
	}
	`
	want := push.Message{
		ID: "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", App: "shop", UserID: "u42",
		Device: push.Target{Platform: push.APNS, Token: "aB01", Environment: push.Sandbox},
		Type:   "order_update", SenderID: "orders", Campaign: "autumn", Priority: push.Critical, PushType: "voip",
		Title: "Über \"alles\"\n😀", Body: "Köln", Image: "https://i/1.jpg", Video: "https://v/1.mp4",
		Sound: "ping", Category: "ORDER", ThreadID: "orders", Locale: "de-AT", Badge: 7, HasBadge: true,
		Data: json.RawMessage(`{ "k": "v", "e": "\u0041" }`), CollapseKey: "order-17",
		ExpiresAt:   time.Date(2026, 11, 21, 8, 0, 0, 5e8, time.UTC),
		APNSHeaders: []push.Header{{Name: "apns-priority", Value: "5"}, {Name: "apns-collapse-id", Value: "c 1"}, {Name: "apns-expiration", Value: "0"}},
		APNSPayload: json.RawMessage(`{"aps": {"x": [1, 2.5e3, null]}}`),
		FCM:         json.RawMessage(`{"android": {"ttl": "5s"}}`),
	}
	got := push.Message{Title: "left over"}
	if d := Message([]byte(record), &got); d != nil {
		t.Fatal(d)
	}
	got.ExpiresAt = got.ExpiresAt.UTC()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestMessageDefaults(t *testing.T) {
	t.Parallel()
	alert := push.Message{ID: "n1", App: "shop", UserID: "u1", Type: "default", PushType: "alert"}
	background := alert
	background.PushType = "background"
	change := func(m push.Message, f func(*push.Message)) push.Message { f(&m); return m }
	for name, tt := range map[string]struct {
		member string
		want   push.Message
	}{
		"neither title nor body is a background push": {`"x":1`, background},
		"empty strings stand for absent fields": {
			`"type":"","priority":"","push_type":"","title":"","body":"","expires_at":"","collapse_key":""`, background},
		"so does null": {
			`"type":null,"priority":null,"push_type":null,"title":null,"badge":null,"data":null,"expires_at":null,"device":null,"apns":null,"fcm":null`, background},
		"a title makes an alert": {`"title":"t"`, change(alert, func(m *push.Message) { m.Title = "t" })},
		"a body makes an alert":  {`"body":"b"`, change(alert, func(m *push.Message) { m.Body = "b" })},
		"an explicit push type stands": {
			`"push_type":"background","body":"b"`, change(background, func(m *push.Message) { m.Body = "b" })},
		"the raw header names the push type": {
			`"apns":{"headers":{"apns-push-type":"location"}}`, change(background, func(m *push.Message) { m.PushType = "location" })},
		"the raw header may repeat the field": {
			`"push_type":"voip","apns":{"headers":{"apns-push-type":"voip"}}`, change(background, func(m *push.Message) { m.PushType = "voip" })},
		"an APNs device is in production": {`"device":{"platform":"apns","token":"ab"}`,
			change(background, func(m *push.Message) {
				m.Device = push.Target{Platform: push.APNS, Token: "ab", Environment: push.Production}
			})},
		"FCM has no environment": {`"device":{"platform":"fcm","token":"ab","environment":"production"}`,
			change(background, func(m *push.Message) { m.Device = push.Target{Platform: push.FCM, Token: "ab"} })},
		"badge 0 clears the badge": {`"badge":0`, change(background, func(m *push.Message) { m.HasBadge = true })},
		"names are exact":          {`"Title":"t","BADGE":"x"`, background},
		"half a surrogate pair is replaced": {`"title":"a\ud83d"`,
			change(alert, func(m *push.Message) { m.Title = "a\ufffd" })},
	} {
		t.Run(name, func(t *testing.T) {
			var got push.Message
			if d := Message([]byte(with(tt.member)), &got); d != nil {
				t.Fatal(d)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// The largest values that the contract allows.
func TestMessageAcceptsUpToTheLimits(t *testing.T) {
	t.Parallel()
	const rest = `"app":"shop","user_id":"u1"`
	for name, record := range map[string]string{
		"id of 64":                         `{"id":"` + strings.Repeat("x", 64) + `",` + rest + `}`,
		"id with every sign":               `{"id":" !\"#$%&'()*+,-./~",` + rest + `}`,
		"user of 128":                      `{"id":"n1","app":"shop","user_id":"` + strings.Repeat("ü", 64) + `"}`,
		"a device and no user":             `{"id":"n1","app":"shop","device":{"platform":"fcm","token":"t"}}`,
		"type of 64":                       with(`"type":"` + strings.Repeat("x", 64) + `"`),
		"campaign of 64":                   with(`"campaign":"` + strings.Repeat("x", 64) + `"`),
		"collapse key of 64":               with(`"collapse_key":"` + strings.Repeat("x", 64) + `"`),
		"token of 4096":                    with(`"device":{"platform":"fcm","token":"` + strings.Repeat("x", 4096) + `"}`),
		"a token the provider will refuse": with(`"device":{"platform":"apns","token":"../\r\n"}`),
		"depth 16":                         with(`"x":` + nested(15)),
		"64 KiB":                           with(`"x":"` + strings.Repeat("x", MaxValue-len(with(`"x":""`))) + `"`),
		"a thousand keys":                  with(`"x":{` + manyKeys(1000) + `}`),
		"same key, other depth":            with(`"x":{"id":1,"x":{"id":2}},"y":[{"a":1},{"a":2}]`),
		"the greatest badge":               with(`"badge":2147483647`),
		"Apple's part of fcm": with(`"push_type":"alert","fcm":{"apns":{"headers":{"apns-priority":"5","apns-push-type":"alert","apns-collapse-id":"c","apns-expiration":"0"},` +
			`"payload":{"aps":{"x":{"pf_id":1}},"k":[{"pf_id":2}]},"fcm_options":{"image":"x"}}}`),
		"a push type for fcm alone": with(`"fcm":{"apns":{"headers":{"apns-push-type":"alert"}}}`),
		"the other parts of fcm":    with(`"fcm":{"data":{"k":"v"},"android":{"data":{"k":"v"},"ttl":"5s"},"webpush":{"data":{"k":"v"},"headers":{"TTL":"5","apns-topic":"x"}}}`),
	} {
		t.Run(name, func(t *testing.T) {
			var m push.Message
			if d := Message([]byte(record), &m); d != nil {
				t.Error(d)
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"k` + strings.Repeat("x", i%7) + string(rune('A'+i%26)) + string(rune('a'+i/26)) + `":0`)
	}
	return b.String()
}

// Every way in which a record can be unusable, and the defect that is reported.
func TestMessageRefuses(t *testing.T) {
	t.Parallel()
	const good = `"id":"n1","app":"shop","user_id":"u1"`
	for _, tt := range []struct {
		name, record string
		reason       push.Reason
		field        string
	}{
		{"nothing", ``, push.EmptyValue, ""},
		{"one byte too many", with(`"x":"` + strings.Repeat("x", MaxValue+1-len(with(`"x":""`))) + `"`), push.TooLarge, ""},
		{"1 MiB", strings.Repeat("x", 1<<20), push.TooLarge, ""},

		{"white space only", " \n", push.BadJSON, "@2"},
		{"not JSON", `id=n1`, push.BadJSON, "@0"},
		{"cut off", `{"id":"n1","app":"sh`, push.BadJSON, "app@20"},
		{"cut off in an escape", `{"id":"n1\`, push.BadJSON, "id@9"},
		{"cut off after a key", `{"id"`, push.BadJSON, "@5"},
		{"text behind", `{` + good + `} x`, push.BadJSON, "@40"},
		{"a second record behind", `{` + good + `}{}`, push.BadJSON, "@39"},
		{"no colon", `{"id" "n1"}`, push.BadJSON, "@6"},
		{"no comma", `{"id":"n1" "app":"x"}`, push.BadJSON, "@11"},
		{"comma at the end", `{"id":"n1",}`, push.BadJSON, "@11"},
		{"comma at the start", `{,"id":"n1"}`, push.BadJSON, "@1"},
		{"comma at the end of an array", with(`"x":[1,]`), push.BadJSON, "@46"},
		{"key without quotes", `{id:"n1"}`, push.BadJSON, "@1"},
		{"single quotes", `{'id':'n1'}`, push.BadJSON, "@1"},
		{"comment", `{/* */"id":"n1"}`, push.BadJSON, "@1"},
		{"byte order mark", "\ufeff{" + good + `}`, push.BadJSON, "@0"},
		{"a zero byte behind", "{" + good + "}\x00", push.BadJSON, "@39"},
		{"line break in a string", with("\"title\":\"a\nb\""), push.BadJSON, "title@49"},
		{"unknown escape", with(`"title":"\x41"`), push.BadJSON, "title@48"},
		{"short unicode escape", with(`"title":"\u12"`), push.BadJSON, "title@48"},
		{"leading zero", with(`"badge":01`), push.BadJSON, "@48"},
		{"number without digits", with(`"badge":-`), push.BadJSON, "badge@48"},
		{"number with a bare point", with(`"x":1.`), push.BadJSON, "@45"},
		{"number with a bare exponent", with(`"x":1e+`), push.BadJSON, "@46"},
		{"plus sign", with(`"badge":+1`), push.BadJSON, "badge@47"},
		{"NaN", with(`"x":NaN`), push.BadJSON, "@43"},
		{"true misspelt", with(`"x":ture`), push.BadJSON, "@43"},
		{"broken inside data", with(`"data":{"k":"v"`), push.BadJSON, "@55"},
		{"broken inside a raw part", with(`"fcm":{"android":{]}`), push.BadJSON, "fcm@57"},

		{"UTF-8 in a field", with("\"title\":\"\xff\""), push.BadUTF8, "title@48"},
		{"UTF-8 in an unknown field", with("\"x\":\"ab\xc3\""), push.BadUTF8, "@44"},
		{"UTF-8 in a key", with("\"\xed\xa0\x80\":1"), push.BadUTF8, "@40"},
		{"UTF-8 in data", with("\"data\":{\"k\":\"\xc0\xaf\"}"), push.BadUTF8, "data@52"},
		{"UTF-8 outside strings", "{\xff}", push.BadJSON, "@1"},

		{"depth 17", with(`"x":` + nested(16)), push.TooDeep, "@58"},
		{"depth 17 in a raw part", with(`"fcm":{"a":` + nested(15) + `}`), push.TooDeep, "fcm@64"},
		{"depth 10,000", nested(10_000), push.TooDeep, "@16"},
		{"depth 10,000 without an end", strings.Repeat(`{"a":`, 10_000), push.TooDeep, "@80"},

		{"a field twice", `{"id":"n1","id":"n1"}`, push.DuplicateKey, "id"},
		{"a campaign twice", with(`"campaign":"a","campaign":"b"`), push.DuplicateKey, "campaign"},
		{"a field twice, once escaped", `{"id":"n1","\u0069d":"n2"}`, push.DuplicateKey, "id"},
		{"a device's token twice", with(`"device":{"platform":"fcm","token":"a","token":"b"}`), push.DuplicateKey, "device.token"},
		{"payload twice", with(`"apns":{"payload":{},"payload":{}}`), push.DuplicateKey, "apns.payload"},
		{"an unknown field twice", with(`"x":1,"x":1`), push.DuplicateKey, "@49"},
		{"a key of data twice", with(`"data":{"k":"v","k":"w"}`), push.DuplicateKey, "data@59"},
		{"a header twice", with(`"apns":{"headers":{"apns-priority":"5","apns-priority":"5"}}`), push.DuplicateKey, "apns.headers@94"},
		{"a key deep inside a raw part twice", with(`"apns":{"payload":{"aps":{"alert":{"a":1,"a":2}}}}`), push.DuplicateKey, "apns.payload@84"},
		{"the last of a thousand keys", with(`"x":{` + manyKeys(1000) + `,"kAa":1}`), push.DuplicateKey, "@11241"},

		{"an array", `[]`, push.WrongType, ""},
		{"null", `null`, push.WrongType, ""},
		{"a string", `"id"`, push.WrongType, ""},
		{"id is a number", `{"id":1,"app":"shop","user_id":"u1"}`, push.WrongType, "id"},
		{"user_id is a number", `{"id":"n1","app":"shop","user_id":42}`, push.WrongType, "user_id"},
		{"title is an object", with(`"title":{"en":"x"}`), push.WrongType, "title"},
		{"device is a string", with(`"device":"x"`), push.WrongType, "device"},
		{"token is an array", with(`"device":{"platform":"fcm","token":["x"]}`), push.WrongType, "device.token"},
		{"badge is a string", with(`"badge":"1"`), push.WrongType, "badge"},
		{"badge has a fraction", with(`"badge":1.0`), push.WrongType, "badge"},
		{"badge has an exponent", with(`"badge":1e2`), push.WrongType, "badge"},
		{"data is an array", with(`"data":[]`), push.WrongType, "data"},
		{"data holds a number", with(`"data":{"k":"v","n":1}`), push.WrongType, "data@59"},
		{"data holds null", with(`"data":{"n":null}`), push.WrongType, "data@51"},
		{"expires_at is a number", with(`"expires_at":1763719200`), push.WrongType, "expires_at"},
		{"apns is a string", with(`"apns":"x"`), push.WrongType, "apns"},
		{"headers is an array", with(`"apns":{"headers":[]}`), push.WrongType, "apns.headers"},
		{"a header is a number", with(`"apns":{"headers":{"apns-priority":5}}`), push.WrongType, "apns.headers.apns-priority"},
		{"payload is a string", with(`"apns":{"payload":"{}"}`), push.WrongType, "apns.payload"},
		{"aps is a string", with(`"apns":{"payload":{"aps":"x"}}`), push.WrongType, "apns.payload.aps"},
		{"fcm is true", with(`"fcm":true`), push.WrongType, "fcm"},
		{"android is null", with(`"fcm":{"android":null}`), push.WrongType, "fcm.android"},

		{"no id", `{"app":"shop","user_id":"u1"}`, push.MissingField, "id"},
		{"id is empty", `{"id":"","app":"shop","user_id":"u1"}`, push.MissingField, "id"},
		{"id is null", `{"id":null,"app":"shop","user_id":"u1"}`, push.MissingField, "id"},
		{"no app", `{"id":"n1","user_id":"u1"}`, push.MissingField, "app"},
		{"neither user nor device", `{"id":"n1","app":"shop"}`, push.MissingField, "user_id"},
		{"an empty device", with(`"device":{}`), push.MissingField, "device.platform"},
		{"no token", with(`"device":{"platform":"apns"}`), push.MissingField, "device.token"},

		{"id of 65", `{"id":"` + strings.Repeat("x", 65) + `","app":"shop","user_id":"u1"}`, push.FieldTooLong, "id"},
		{"app of 129", `{"id":"n1","app":"` + strings.Repeat("x", 129) + `","user_id":"u1"}`, push.FieldTooLong, "app"},
		{"user of 129", `{"id":"n1","app":"shop","user_id":"` + strings.Repeat("x", 129) + `"}`, push.FieldTooLong, "user_id"},
		{"user of 65 letters in 130 bytes", `{"id":"n1","app":"shop","user_id":"` + strings.Repeat("ü", 65) + `"}`, push.FieldTooLong, "user_id"},
		{"type of 65", with(`"type":"` + strings.Repeat("x", 65) + `"`), push.FieldTooLong, "type"},
		{"sender of 129", with(`"sender_id":"` + strings.Repeat("x", 129) + `"`), push.FieldTooLong, "sender_id"},
		{"campaign of 65", with(`"campaign":"` + strings.Repeat("x", 65) + `"`), push.FieldTooLong, "campaign"},
		{"campaign with LF", with(`"campaign":"a\nb"`), push.BadValue, "campaign"},
		{"campaign is a number", with(`"campaign":7`), push.WrongType, "campaign"},
		{"collapse key of 65", with(`"collapse_key":"` + strings.Repeat("x", 65) + `"`), push.FieldTooLong, "collapse_key"},
		{"token of 4097", with(`"device":{"platform":"fcm","token":"` + strings.Repeat("x", 4097) + `"}`), push.FieldTooLong, "device.token"},

		{"id with a line break", `{"id":"n\n1","app":"shop","user_id":"u1"}`, push.BadValue, "id"},
		{"id with an umlaut", `{"id":"nü","app":"shop","user_id":"u1"}`, push.BadValue, "id"},
		{"unknown priority", with(`"priority":"urgent"`), push.BadValue, "priority"},
		{"priority in capitals", with(`"priority":"HIGH"`), push.BadValue, "priority"},
		{"unknown push type", with(`"push_type":"silent"`), push.BadValue, "push_type"},
		{"unknown platform", with(`"device":{"platform":"hms","token":"x"}`), push.BadValue, "device.platform"},
		{"unknown environment", with(`"device":{"platform":"apns","token":"x","environment":"development"}`), push.BadValue, "device.environment"},
		{"badge below 0", with(`"badge":-1`), push.BadValue, "badge"},
		{"badge over 32 bits", with(`"badge":2147483648`), push.BadValue, "badge"},
		{"badge over 64 bits", with(`"badge":99999999999999999999`), push.BadValue, "badge"},
		{"data replaces aps", with(`"data":{"aps":"x"}`), push.BadValue, "data.aps"},
		{"data replaces the id", with(`"data":{"pf_id":"x"}`), push.BadValue, "data.pf_id"},
		{"collapse key with CR LF", with(`"collapse_key":"a\r\nb: c"`), push.BadValue, "collapse_key"},
		{"expiry without zone", with(`"expires_at":"2026-11-21T10:00:00"`), push.BadValue, "expires_at"},
		{"expiry without seconds", with(`"expires_at":"2026-11-21T10:00Z"`), push.BadValue, "expires_at"},
		{"expiry with a space", with(`"expires_at":"2026-11-21 10:00:00Z"`), push.BadValue, "expires_at"},
		{"expiry on a day that is none", with(`"expires_at":"2026-02-30T10:00:00Z"`), push.BadValue, "expires_at"},
		{"authorization", with(`"apns":{"headers":{"authorization":"bearer x"}}`), push.BadValue, "apns.headers.authorization"},
		{"topic", with(`"apns":{"headers":{"apns-topic":"com.other"}}`), push.BadValue, "apns.headers.apns-topic"},
		{"apns-id", with(`"apns":{"headers":{"apns-id":"x"}}`), push.BadValue, "apns.headers.apns-id"},
		{"a pseudo header", with(`"apns":{"headers":{":path":"/"}}`), push.BadValue, "apns.headers"},
		{"a header with CR LF", with(`"apns":{"headers":{"apns-collapse-id":"a\r\nb: c"}}`), push.BadValue, "apns.headers.apns-collapse-id"},
		{"a header with an umlaut", with(`"apns":{"headers":{"apns-collapse-id":"ü"}}`), push.BadValue, "apns.headers.apns-collapse-id"},
		{"a header with a space behind", with(`"apns":{"headers":{"apns-collapse-id":"a "}}`), push.BadValue, "apns.headers.apns-collapse-id"},
		{"an empty header", with(`"apns":{"headers":{"apns-expiration":""}}`), push.BadValue, "apns.headers.apns-expiration"},
		{"a negative expiration", with(`"apns":{"headers":{"apns-expiration":"-1"}}`), push.BadValue, "apns.headers.apns-expiration"},
		{"an unknown apns-priority", with(`"apns":{"headers":{"apns-priority":"7"}}`), push.BadValue, "apns.headers.apns-priority"},
		{"two push types", with(`"push_type":"voip","apns":{"headers":{"apns-push-type":"alert"}}`), push.BadValue, "apns.headers.apns-push-type"},
		{"two push types, header first", with(`"apns":{"headers":{"apns-push-type":"alert"}},"push_type":"voip"`), push.BadValue, "push_type"},
		{"payload replaces the id", with(`"apns":{"payload":{"pf_id":"x"}}`), push.BadValue, "apns.payload.pf_id"},
		{"fcm goes to another token", with(`"fcm":{"token":"x"}`), push.BadValue, "fcm.token"},
		{"fcm goes to a topic", with(`"fcm":{"topic":"news"}`), push.BadValue, "fcm.topic"},
		{"fcm goes to a live activity", with(`"fcm":{"apns":{"live_activity_token":"x"}}`), push.BadValue, "fcm.apns.live_activity_token"},
		{"fcm goes to a live activity, in the other spelling", with(`"fcm":{"apns":{"liveActivityToken":"x"}}`), push.BadValue, "fcm.apns.live_activity_token"},
		{"fcm: another topic of Apple's", with(`"fcm":{"apns":{"headers":{"apns-topic":"com.other.voip"}}}`), push.BadValue, "fcm.apns.headers.apns-topic"},
		{"fcm: authorization", with(`"fcm":{"apns":{"headers":{"Authorization":"bearer x"}}}`), push.BadValue, "fcm.apns.headers.authorization"},
		{"fcm: apns-id", with(`"fcm":{"apns":{"headers":{"apns-id":"x"}}}`), push.BadValue, "fcm.apns.headers.apns-id"},
		{"fcm: a header that is none of Apple's", with(`"fcm":{"apns":{"headers":{"x":"y"}}}`), push.BadValue, "fcm.apns.headers"},
		{"fcm: a header in capitals", with(`"fcm":{"apns":{"headers":{"APNS-TOPIC":"x"}}}`), push.BadValue, "fcm.apns.headers"},
		{"fcm: an unknown push type", with(`"fcm":{"apns":{"headers":{"apns-push-type":"telegram"}}}`), push.BadValue, "fcm.apns.headers.apns-push-type"},
		{"fcm: another push type", with(`"fcm":{"apns":{"headers":{"apns-push-type":"background"}}},"push_type":"alert"`), push.BadValue, "fcm.apns.headers.apns-push-type"},
		{"fcm: another push type, field first", with(`"push_type":"alert","fcm":{"apns":{"headers":{"apns-push-type":"background"}}}`), push.BadValue, "fcm.apns.headers.apns-push-type"},
		{"fcm: a header with CR LF", with(`"fcm":{"apns":{"headers":{"apns-collapse-id":"a\r\nb: c"}}}`), push.BadValue, "fcm.apns.headers.apns-collapse-id"},
		{"fcm: a header is a number", with(`"fcm":{"apns":{"headers":{"apns-priority":5}}}`), push.WrongType, "fcm.apns.headers.apns-priority"},
		{"fcm: headers are an array", with(`"fcm":{"apns":{"headers":[]}}`), push.WrongType, "fcm.apns.headers"},
		{"fcm: Apple's payload is a string", with(`"fcm":{"apns":{"payload":"{}"}}`), push.WrongType, "fcm.apns.payload"},
		{"fcm: aps is a string", with(`"fcm":{"apns":{"payload":{"aps":"x"}}}`), push.WrongType, "fcm.apns.payload.aps"},
		{"fcm: Apple's payload replaces the id", with(`"fcm":{"apns":{"payload":{"pf_id":"x"}}}`), push.BadValue, "fcm.apns.payload.pf_id"},
		{"fcm: data replaces the id", with(`"fcm":{"data":{"k":"v","pf_\u0069d":"x"}}`), push.BadValue, "fcm.data.pf_id"},
		{"fcm: Android's data replaces the id", with(`"fcm":{"android":{"data":{"pf_id":"x"}}}`), push.BadValue, "fcm.android.data.pf_id"},
		{"fcm: web push's data replaces the id", with(`"fcm":{"webpush":{"data":{"pf_id":"x"}}}`), push.BadValue, "fcm.webpush.data.pf_id"},
		{"fcm: Android's data is a string", with(`"fcm":{"android":{"data":"x"}}`), push.WrongType, "fcm.android.data"},
		{"fcm goes by a condition", with(`"fcm":{"condition":"'a' in topics"}`), push.BadValue, "fcm.condition"},

		{"the first of two defects", with(`"priority":"x","badge":-1`), push.BadValue, "priority"},
		{"unreadable beats a defect before it", with(`"priority":"x","badge":`), push.BadJSON, "badge@62"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m push.Message
			d := Message([]byte(tt.record), &m)
			if d == nil {
				t.Fatalf("accepted as %+v", m)
			}
			if d.Reason != tt.reason || d.Field != tt.field {
				t.Errorf("got %q at %q, want %q at %q", d.Reason, d.Field, tt.reason, tt.field)
			}
		})
	}
}

// A status row is written under the id, so the id is found wherever it is in a
// readable record, but never taken from an unreadable one.
func TestMessageKeepsTheIDOfAReadableRecord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		record string
		want   push.Message
	}{
		"id after the defect": {`{"badge":"x","title":"t","app":"shop","user_id":"u1","id":"n1"}`,
			push.Message{ID: "n1", App: "shop", UserID: "u1"}},
		"device instead of a user": {`{"id":"n1","device":{"platform":"fcm","token":"t"}}`,
			push.Message{ID: "n1", Device: push.Target{Platform: push.FCM, Token: "t"}}},
		"unusable id":      {`{"id":"n\n1","app":"shop","user_id":"u1"}`, push.Message{App: "shop", UserID: "u1"}},
		"unusable device":  {`{"id":"n1","device":{"platform":"apns","token":"t","environment":"x"}}`, push.Message{ID: "n1"}},
		"broken behind it": {`{"id":"n1","app":"shop","user_id":"u1"`, push.Message{}},
		"id there twice":   {`{"id":"n1","app":"shop","user_id":"u1","id":"n2"}`, push.Message{}},
		"too deep behind":  {with(`"x":` + nested(20)), push.Message{}},
		"bad UTF-8 behind": {with("\"x\":\"\xff\""), push.Message{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := push.Message{ID: "left over"}
			if d := Message([]byte(tt.record), &got); d == nil {
				t.Fatal("accepted")
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// What a producer wrote must not reach a log through a Defect.
func TestDefectsTellNoContent(t *testing.T) {
	t.Parallel()
	const secret = "SECRET"
	for _, record := range []string{
		with(`"priority":"SECRET"`), with(`"push_type":"SECRET"`), with(`"expires_at":"SECRET"`),
		with(`"device":{"platform":"SECRET","token":"SECRET"}`), with(`"data":{"SECRET":1}`),
		with(`"data":{"SECRET":"SECRET","SECRET":"SECRET"}`), with(`"SECRET":1,"SECRET":2`), with(`"SECRET":SECRET`),
		with(`"apns":{"headers":{"SECRET":"SECRET"}}`), with(`"apns":{"headers":{"apns-collapse-id":"SECRET\n"}}`),
		with(`"fcm":{"SECRET":{"SECRET":1,"SECRET":1}}`), `{"id":"SECRET\n","app":"a","user_id":"u"}`, `SECRET`,
	} {
		var m push.Message
		d := Message([]byte(record), &m)
		if d == nil {
			t.Fatalf("accepted: %s", record)
		}
		if strings.Contains(d.Error(), secret) {
			t.Errorf("%s is told in: %v", record, d)
		}
	}
}

func TestMessageCutsWithoutCopying(t *testing.T) {
	var m push.Message
	value := []byte(typicalRecord)
	if n := testing.AllocsPerRun(100, func() { Message(value, &m) }); n > 0 {
		t.Errorf("%v allocations for a typical record, want none", n)
	}
	if cap(m.Data) != len(m.Data) {
		t.Error("appending to Data would write over the record")
	}
}

// A zero time that was written explicitly is an expiry in the past, whatever
// its year and zone.
func TestAnUnsetExpiryIsAnExpiry(t *testing.T) {
	for _, at := range []string{"0001-01-01T00:00:00Z", "0001-01-01T01:00:00+01:00", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00.000000001Z"} {
		var m push.Message
		if d := Message(fmt.Appendf(nil, `{"id":"n1","app":"shop","user_id":"u1","expires_at":%q}`, at), &m); d != nil {
			t.Errorf("%s: %v", at, d)
		}
		if m.ExpiresAt.IsZero() || m.ExpiresAt.Year() > 1 {
			t.Errorf("%s is read as %v", at, m.ExpiresAt)
		}
	}
}
