//go:build !race

// Firebase's SDK is 360 packages, which nothing else of ours needs: they are not
// compiled once more for the race detector. deploy/local/raceless.sh tests these.

package fcm_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	firebase "firebase.google.com/go/v4"
	"firebase.google.com/go/v4/messaging"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"

	"github.com/pushfleet/pushfleet/providers/fcm"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/push"
)

const device = "cXyZ_12-3:APA91b%Abc"

// differences are ours, theirs.
type differences = providertest.Differences

const absent = providertest.Absent

// always are the differences that every message has by design.
var always = differences{
	"body.message.data.pf_id":       {`"n1"`, absent}, // apps recognise copies by it
	"x-firebase-client":             {absent, "fire-admin-go/" + firebase.Version},
	"x-goog-api-client":             {absent, "of the SDK"},
	"x-goog-api-format-version":     {absent, "2"}, // of errors; we read the fields of both
	"body.message.android.priority": {`"HIGH"`, `"high"`},
}

// sample is the same message for both clients.
type sample struct {
	why      string
	record   string // what a producer writes, without id, app and user
	theirs   *messaging.Message
	differ   differences // besides always; a pair of equal values removes a difference
	fromEdge differences // of FromMessage(theirs), besides always; nil = as differ
}

func high(n *messaging.AndroidNotification) *messaging.AndroidConfig {
	return &messaging.AndroidConfig{Priority: "high", Notification: n}
}

func text(title, body string) *messaging.Notification {
	return &messaging.Notification{Title: title, Body: body}
}

// apple and web are the parts for Apple and browsers, with these headers.
func apple(aps *messaging.Aps, headers ...string) *messaging.APNSConfig {
	c := &messaging.APNSConfig{Headers: pairs(headers)}
	if aps != nil {
		c.Payload = &messaging.APNSPayload{Aps: aps}
	}
	return c
}

func web(n *messaging.WebpushNotification, headers ...string) *messaging.WebpushConfig {
	return &messaging.WebpushConfig{Headers: pairs(headers), Notification: n}
}

func pairs(list []string) map[string]string {
	m := map[string]string{}
	for ; len(list) > 0; list = list[2:] {
		m[list[0]] = list[1]
	}
	return m
}

// spellOut adds to a message for Apple and browsers what ours always says: how
// urgent it is, and that there is nothing to show.
func spellOut(m *messaging.Message, expires time.Time) {
	urgency, silent := "high", m.Notification == nil
	if m.Android != nil && m.Android.Priority == "normal" {
		urgency = "normal"
	}
	if m.APNS == nil {
		m.APNS = apple(nil)
	}
	if m.Webpush == nil {
		m.Webpush = web(nil)
	}
	usual := func(headers map[string]string, name, value string) {
		if headers[name] == "" {
			headers[name] = value
		}
	}
	usual(m.Webpush.Headers, "Urgency", urgency)
	switch h := m.APNS.Headers; {
	case silent:
		usual(h, "apns-push-type", "background")
		usual(h, "apns-priority", "5")
		m.APNS.Payload = &messaging.APNSPayload{Aps: &messaging.Aps{ContentAvailable: true}}
	case urgency == "high":
		usual(h, "apns-priority", "10")
	default:
		usual(h, "apns-priority", "5")
	}
	if m.APNS.Headers["apns-expiration"] != "" {
		m.APNS.Headers["apns-expiration"] = strconv.FormatInt(expires.Unix(), 10)
	}
}

// topic replaces the collapse key order-17 where only 32 characters of
// base64url are allowed.
const topic = "cqkOo9qLXdAb3i8nMU4C4hf5NRgupXOn"

func samples() []sample {
	three, zero, none, hour := 3, 0, time.Duration(0), time.Hour
	const special = `Ünïcödé 日本 🎉 "quoted" \ / <b>&amp;</b>` + "\u2028\u2029\x7f\t\r\n\x01"
	const escaped = `Ünïcödé 日本 🎉 \"quoted\" \\ \/ <b>&amp;</b>\u2028\u2029\u007f\t\r\n\u0001`
	normal := differences{"body.message.android.priority": {`"NORMAL"`, `"normal"`}}
	// The longest: keys and values have 4,096 bytes.
	full := strings.Repeat("x", 4096-len("title"+"pf_id"+"n1"))
	return []sample{
		{why: "title and body", record: `"title":"t","body":"b","priority":"high"`, theirs: &messaging.Message{Notification: text("t", "b"), Android: high(nil)}},
		{why: "title alone", record: `"title":"t"`, theirs: &messaging.Message{Notification: text("t", ""), Android: high(nil)}},
		{why: "body alone", record: `"body":"b"`, theirs: &messaging.Message{Notification: text("", "b"), Android: high(nil)}},
		{why: "image", record: `"title":"t","image":"https://i.example/1.png"`,
			theirs: &messaging.Message{Notification: &messaging.Notification{Title: "t", ImageURL: "https://i.example/1.png"}, Android: high(nil), APNS: apple(&messaging.Aps{MutableContent: true})}},
		{why: "video, for which FCM has no field", record: `"title":"t","video":"https://v.example/1.mp4"`,
			theirs: &messaging.Message{Notification: text("t", ""), Data: map[string]string{"video": "https://v.example/1.mp4"}, Android: high(nil), APNS: apple(&messaging.Aps{MutableContent: true})}},
		{why: "critical", record: `"title":"t","priority":"critical"`, theirs: &messaging.Message{Notification: text("t", ""), Android: high(nil)}},
		{why: "low", record: `"title":"t","priority":"low"`, theirs: &messaging.Message{Notification: text("t", ""), Android: &messaging.AndroidConfig{Priority: "normal"}}, differ: normal},
		{why: "bulk", record: `"title":"t","priority":"bulk"`, theirs: &messaging.Message{Notification: text("t", ""), Android: &messaging.AndroidConfig{Priority: "normal"}, Webpush: web(nil, "Urgency", "low")}, differ: normal},
		{why: "no priority: Google's default for what is shown, spelled out", record: `"title":"t"`, theirs: &messaging.Message{Notification: text("t", "")},
			differ: differences{"body.message.android.priority": {`"HIGH"`, absent}}},
		{why: "no priority of data alone: ours is the lane's; Google's is normal", record: `"data":{"k":"v"}`, theirs: &messaging.Message{Data: map[string]string{"k": "v"}},
			differ: differences{"body.message.android.priority": {`"HIGH"`, absent}}, fromEdge: differences{"body.message.android.priority": {`"NORMAL"`, absent}}},
		{why: "silent: data alone", record: `"data":{"k":"v","n":"17","empty":""}`, theirs: &messaging.Message{Data: map[string]string{"k": "v", "n": "17", "empty": ""}, Android: high(nil)}},
		{why: "nothing but the id", record: `"priority":"low"`, theirs: &messaging.Message{Android: &messaging.AndroidConfig{Priority: "normal"}}, differ: normal},
		{why: "data alone with an image: the app shows it", record: `"image":"https://i.example/1.png"`,
			theirs: &messaging.Message{Data: map[string]string{"image": "https://i.example/1.png"}, Android: high(nil)}},
		{why: "expiry, in whole seconds that are left", record: `"title":"t","expires_at":"in an hour"`,
			theirs: &messaging.Message{Notification: text("t", ""), Android: &messaging.AndroidConfig{Priority: "high", TTL: &hour},
				APNS: apple(nil, "apns-expiration", "in an hour"), Webpush: web(nil, "TTL", "3600")}},
		{why: "now or never", record: `"title":"t","fcm":{"android":{"ttl":"0s"}}`,
			theirs: &messaging.Message{Notification: text("t", ""), Android: &messaging.AndroidConfig{Priority: "high", TTL: &none}}},
		{why: "collapse key is the tag", record: `"title":"t","collapse_key":"order-17"`, theirs: &messaging.Message{Notification: text("t", ""), Android: high(&messaging.AndroidNotification{Tag: "order-17"}),
			APNS: apple(nil, "apns-collapse-id", "order-17"), Webpush: web(&messaging.WebpushNotification{Tag: "order-17"}, "Topic", topic)}},
		{why: "collapse key of data alone", record: `"data":{"k":"v"},"collapse_key":"order-17"`, theirs: &messaging.Message{Data: map[string]string{"k": "v"}, Android: &messaging.AndroidConfig{Priority: "high", CollapseKey: "order-17"},
			APNS: apple(nil, "apns-collapse-id", "order-17"), Webpush: web(nil, "Topic", topic)}},
		{why: "sound and badge", record: `"title":"t","sound":"ping","badge":3`,
			theirs: &messaging.Message{Notification: text("t", ""), Android: high(&messaging.AndroidNotification{Sound: "ping", NotificationCount: &three}), APNS: apple(&messaging.Aps{Sound: "ping", Badge: &three})}},
		{why: "badge 0", record: `"title":"t","badge":0`, theirs: &messaging.Message{Notification: text("t", ""), Android: high(&messaging.AndroidNotification{NotificationCount: &zero}), APNS: apple(&messaging.Aps{Badge: &zero})}},
		{why: "category and thread are Apple's; Android and browsers have no field", record: `"title":"t","category":"c","thread_id":"h","locale":"de"`,
			theirs: &messaging.Message{Notification: text("t", ""), Data: map[string]string{"category": "c", "thread_id": "h", "locale": "de"}, Android: high(nil), APNS: apple(&messaging.Aps{Category: "c", ThreadID: "h"})}},
		{why: "raw override wins, member by member", record: `"title":"t","body":"b","sound":"x","data":{"k":"ours"},"fcm":{"notification":{"body":"theirs"},"data":{"k":"theirs"},"android":{"notification":{"sound":"y"}}}`,
			theirs: &messaging.Message{Notification: text("t", "theirs"), Data: map[string]string{"k": "theirs"}, Android: high(&messaging.AndroidNotification{Sound: "y"}), APNS: apple(&messaging.Aps{Sound: "x"})}},
		{why: "all of Android's", record: `"title":"t","fcm":{"android":{"collapse_key":"c","restricted_package_name":"com.example","data":{"a":"b"},"fcm_options":{"analytics_label":"al"},"direct_boot_ok":true,
			"notification":{"title":"at","body":"ab","icon":"i","color":"#ff0000","click_action":"OPEN","body_loc_key":"bk","body_loc_args":["1"],"title_loc_key":"tk","title_loc_args":["2"],"channel_id":"ch","ticker":"ti",
			"sticky":true,"local_only":true,"notification_priority":"PRIORITY_MAX","vibrate_timings":["0.100000000s","2s"],"default_sound":true,"visibility":"PRIVATE","proxy":"DENY"}}}`,
			theirs: &messaging.Message{Notification: text("t", ""), Android: &messaging.AndroidConfig{Priority: "high", CollapseKey: "c", RestrictedPackageName: "com.example", Data: map[string]string{"a": "b"},
				FCMOptions: &messaging.AndroidFCMOptions{AnalyticsLabel: "al"}, DirectBootOK: true, Notification: &messaging.AndroidNotification{
					Title: "at", Body: "ab", Icon: "i", Color: "#ff0000", ClickAction: "OPEN", BodyLocKey: "bk", BodyLocArgs: []string{"1"}, TitleLocKey: "tk", TitleLocArgs: []string{"2"}, ChannelID: "ch", Ticker: "ti",
					Sticky: true, LocalOnly: true, Priority: messaging.PriorityMax, VibrateTimingMillis: []int64{100, 2000}, DefaultSound: true, Visibility: messaging.VisibilityPrivate, Proxy: messaging.ProxyDeny}}}},
		{why: "Apple's, web push's and all platforms' parts", record: `"title":"t","fcm":{"apns":{"headers":{"apns-priority":"5"},"payload":{"aps":{"badge":3,"sound":{"critical":1,"name":"s","volume":0.5},"content-available":1},"x":[1]},
			"fcm_options":{"image":"https://i.example/2.png"}},"webpush":{"headers":{"TTL":"15"},"notification":{"title":"w","vibrate":[1,2]},"fcm_options":{"link":"https://example.com"}},"fcm_options":{"analytics_label":"l"}}`,
			theirs: &messaging.Message{Notification: text("t", ""), Android: high(nil), FCMOptions: &messaging.FCMOptions{AnalyticsLabel: "l"},
				APNS: &messaging.APNSConfig{Headers: map[string]string{"apns-priority": "5"}, FCMOptions: &messaging.APNSFCMOptions{ImageURL: "https://i.example/2.png"}, Payload: &messaging.APNSPayload{
					Aps: &messaging.Aps{Badge: &three, CriticalSound: &messaging.CriticalSound{Critical: true, Name: "s", Volume: 0.5}, ContentAvailable: true}, CustomData: map[string]any{"x": []int{1}}}},
				Webpush: &messaging.WebpushConfig{Headers: map[string]string{"TTL": "15"}, Notification: &messaging.WebpushNotification{Title: "w", Vibrate: []int{1, 2}}, FCMOptions: &messaging.WebpushFCMOptions{Link: "https://example.com"}}}},
		{why: "Unicode and escapes", record: `"title":"` + escaped + `","body":"` + escaped + `","data":{"` + escaped + `":"` + escaped + `"},"fcm":{"android":{"notification":{"ticker":"` + escaped + `"}}}`,
			theirs: &messaging.Message{Notification: text(special, special), Data: map[string]string{special: special}, Android: high(&messaging.AndroidNotification{Ticker: special})}},
		{why: "largest message", record: `"title":"` + full + `"`, theirs: &messaging.Message{Notification: text(full, ""), Android: high(nil)}},
	}
}

// TestSameAsFirebase sends every sample through Firebase's client, and through
// ours both as a producer's record and as read by FromMessage.
func TestSameAsFirebase(t *testing.T) {
	r := newRecorder(t)
	reference := firebaseClient(t, r)
	client := recorded(t, r)
	for _, k := range samples() {
		t.Run(k.why, func(t *testing.T) {
			//lint:ignore SA1019 registration tokens are what today's devices have
			k.theirs.Token = device
			now := time.Now()
			spellOut(k.theirs, now.Add(time.Hour))
			if _, err := reference.Send(t.Context(), k.theirs); err != nil {
				t.Fatal(err)
			}
			theirs := r.Next()
			record := strings.Replace(k.record, "in an hour", now.Add(time.Hour).Format(time.RFC3339Nano), 1)
			ours := r.Sent(t, client, providertest.Decoded(t, record), push.FCM, device)
			compare(ours, theirs).Expect(t, "as a producer writes it", always, k.differ)

			m, err := fcm.FromMessage(k.theirs, now)
			if err != nil {
				t.Fatal(err)
			}
			m.ID = "n1"
			expected := k.fromEdge
			if expected == nil {
				expected = k.differ
			}
			ours = r.Sent(t, client, m, push.FCM, m.Device.Token)
			compare(ours, theirs).Expect(t, "from the message", always, expected)
		})
	}
}

// compare ignores that a time to live has become shorter.
func compare(ours, theirs providertest.Wire) differences {
	d := providertest.Compare(ours, theirs)
	for _, ttl := range []string{"body.message.android.ttl", "body.message.webpush.headers.TTL"} {
		if p, differs := d[ttl]; differs && left(p[0]) <= left(p[1]) && left(p[0]) > left(p[1])-time.Minute {
			delete(d, ttl)
		}
	}
	return d
}

func left(ttl string) time.Duration {
	d, err := time.ParseDuration(strings.Trim(ttl, `"s`) + "s")
	if err != nil {
		return -time.Hour
	}
	return d
}

// What a message says to Android alone stays Android's. Only its urgency and
// lifetime count for all platforms, unless their parts say otherwise.
func TestMessagesForAndroidAlone(t *testing.T) {
	r := newRecorder(t)
	reference := firebaseClient(t, r)
	client := recorded(t, r)
	three, hour := 3, time.Hour
	const priority, urgency = "body.message.apns.headers.apns-priority", "body.message.webpush.headers.Urgency"
	for why, k := range map[string]struct {
		theirs *messaging.Message
		differ differences
	}{
		"tag, sound and count": {&messaging.Message{Notification: text("t", ""), Android: high(&messaging.AndroidNotification{Tag: "g", Sound: "s", NotificationCount: &three})},
			differences{priority: {`"10"`, absent}, urgency: {`"high"`, absent}}},
		"collapse key": {&messaging.Message{Data: map[string]string{"k": "v"}, Android: &messaging.AndroidConfig{Priority: "normal", CollapseKey: "c"}},
			differences{priority: {`"5"`, absent}, urgency: {`"normal"`, absent}, "body.message.android.priority": {`"NORMAL"`, `"normal"`},
				"body.message.apns.headers.apns-push-type": {`"background"`, absent}, "body.message.apns.payload.aps.content-available": {"1", absent}}},
		"time to live": {&messaging.Message{Notification: text("t", ""), Android: &messaging.AndroidConfig{Priority: "high", TTL: &hour}},
			differences{priority: {`"10"`, absent}, urgency: {`"high"`, absent}, "body.message.apns.headers.apns-expiration": {"in an hour", absent}, "body.message.webpush.headers.TTL": {"3600", absent}}},
		"other parts that say otherwise": {&messaging.Message{Notification: text("t", ""), Android: high(nil), APNS: apple(nil, "apns-priority", "5"), Webpush: web(nil, "Urgency", "low")}, nil},
	} {
		//lint:ignore SA1019 registration tokens are what today's devices have
		k.theirs.Token = device
		if _, err := reference.Send(t.Context(), k.theirs); err != nil {
			t.Fatal(err)
		}
		theirs := r.Next()
		now := time.Now()
		m, err := fcm.FromMessage(k.theirs, now)
		if err != nil {
			t.Fatal(err)
		}
		m.ID = "n1"
		ours := r.Sent(t, client, m, push.FCM, m.Device.Token)
		const expiration, ttl = "body.message.apns.headers.apns-expiration", "body.message.webpush.headers.TTL"
		if ours[expiration] == strconv.Quote(strconv.FormatInt(now.Add(hour).Unix(), 10)) {
			ours[expiration] = "in an hour"
		}
		if d := left(ours[ttl]); d <= hour && d > hour-time.Minute {
			ours[ttl] = "3600"
		}
		compare(ours, theirs).Expect(t, why+": from the message", always, k.differ)
	}
}

func firebaseClient(t *testing.T, r *providertest.Recorder) *messaging.Client {
	t.Helper()
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, r.Client())
	source := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "abc", TokenType: "Bearer"})
	app, err := firebase.NewApp(ctx, &firebase.Config{ProjectID: "shop-1"},
		option.WithHTTPClient(oauth2.NewClient(ctx, source)), option.WithEndpoint(r.URL+"/v1"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := app.Messaging(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newRecorder(t *testing.T) *providertest.Recorder {
	t.Helper()
	return providertest.NewRecorder(t, func(w providertest.Wire) {
		if w["x-goog-api-client"] != "" {
			w["x-goog-api-client"] = "of the SDK"
		}
	}, `{"name":"projects/p/messages/1"}`)
}

// recorded is our client with a recorder as its server.
func recorded(t *testing.T, r *providertest.Recorder) *fcm.Client {
	t.Helper()
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"abc","token_type":"Bearer","expires_in":3600}`)
	}))
	t.Cleanup(tokens.Close)
	account, err := providertest.Credentials().ServiceAccount(tokens.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	return newClient(t, fcm.Options{ServiceAccount: account, ProjectID: "shop-1", Pool: h2.Options{
		URL: r.URL, TLS: &tls.Config{RootCAs: roots}, Connections: 1, Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 10}},
	}})
}
