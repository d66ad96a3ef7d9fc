package apns_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sideshow/apns2"
	"github.com/sideshow/apns2/payload"
	"github.com/sideshow/apns2/token"

	"github.com/pushfleet/pushfleet/providers/apns"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/providertest"
	"github.com/pushfleet/pushfleet/push"
)

const (
	topic  = "com.example.shop"
	device = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
)

// differences are ours, theirs.
type differences = providertest.Differences

const absent = providertest.Absent

// always are the differences that every notification has by design.
var always = differences{
	"apns-id":      {"a UUID", absent},                          // ours always has one: a re-send has the same
	"content-type": {absent, "application/json; charset=utf-8"}, // Apple requires none
	"body.pf_id":   {`"n1"`, absent},                            // apps recognise copies by it
}

// sample is the same notification for both clients.
type sample struct {
	why      string
	record   string // what a producer writes, without id, app and user
	theirs   *apns2.Notification
	differ   differences // besides always
	fromEdge differences // of FromNotification(theirs), besides always; nil = as differ
}

// note is a notification as users of apns2 write it.
func note(pushType apns2.EPushType, suffix string, p any) *apns2.Notification {
	return &apns2.Notification{DeviceToken: device, Topic: topic + suffix, PushType: pushType, Priority: apns2.PriorityHigh, Payload: p}
}

func with(n *apns2.Notification, change func(*apns2.Notification)) *apns2.Notification {
	change(n)
	return n
}

func content() *payload.Payload { return payload.NewPayload() }

const activity = `"aps":{"timestamp":1795000000,"event":"update","stale-date":1795000600,"dismissal-date":1795001200,"attributes-type":"Order","content-state":{"step":3,"late":false},"attributes":{"n":"17"},"alert":{"title":"t"}}`

func pushTypeSamples() []sample {
	emptyAPS := differences{"body.aps": {absent, "{}"}} // apns2 sends an empty one
	return []sample{
		{why: "alert", record: `"title":"t","body":"b"`, theirs: note(apns2.PushTypeAlert, "", content().AlertTitle("t").AlertBody("b"))},
		{why: "background", record: `"push_type":"background","data":{"k":"v"}`, theirs: with(note(apns2.PushTypeBackground, "", content().ContentAvailable().Custom("k", "v")),
			func(n *apns2.Notification) { n.Priority = apns2.PriorityLow })},
		{why: "location", record: `"push_type":"location","data":{"q":"1"}`, theirs: note(apns2.PushTypeLocation, ".location-query", content().Custom("q", "1")), differ: emptyAPS, fromEdge: differences{}},
		{why: "voip", record: `"push_type":"voip","title":"call","data":{"caller":"x"}`, theirs: note(apns2.PushTypeVOIP, ".voip", content().AlertTitle("call").Custom("caller", "x"))},
		{why: "complication", record: `"push_type":"complication","data":{"c":"7"}`, theirs: note(apns2.PushTypeComplication, ".complication", content().Custom("c", "7")), differ: emptyAPS, fromEdge: differences{}},
		{why: "fileprovider", record: `"push_type":"fileprovider","apns":{"payload":{"container-identifier":"c","domain":"d"}}`,
			theirs: note(apns2.PushTypeFileProvider, ".pushkit.fileprovider", map[string]any{"container-identifier": "c", "domain": "d"})},
		{why: "mdm: no aps", record: `"push_type":"mdm","apns":{"payload":{"mdm":"magic"}}`, theirs: note(apns2.PushTypeMDM, "", content().Mdm("magic")), differ: emptyAPS, fromEdge: differences{}},
		{why: "liveactivity", record: `"push_type":"liveactivity","apns":{"payload":{` + activity + `}}`, theirs: note(apns2.PushTypeLiveActivity, ".push-type.liveactivity",
			content().SetTimestamp(1795000000).SetEvent(payload.LiveActivityEventUpdate).SetStaleDate(1795000600).SetDismissalDate(1795001200).SetAttributesType("Order").
				SetContentState(map[string]any{"step": 3, "late": false}).SetAttributes(map[string]any{"n": "17"}).AlertTitle("t"))},
		{why: "pushtotalk", record: `"push_type":"pushtotalk","data":{"speaker":"x"}`, theirs: note(apns2.PushTypePushToTalk, ".voip-ptt", content().Custom("speaker", "x")), differ: emptyAPS, fromEdge: differences{}},
		// apns2 has no constants for these two, but its type accepts them.
		{why: "widgets", record: `"push_type":"widgets","apns":{"payload":{"aps":{"content-changed":true}}}`, theirs: note("widgets", ".push-type.widgets", `{"aps":{"content-changed":true}}`)},
		{why: "controls", record: `"push_type":"controls","apns":{"payload":{"aps":{"content-changed":true}}}`, theirs: note("controls", ".push-type.controls", []byte(`{"aps":{"content-changed":true}}`))},
	}
}

func headerSamples(expires time.Time) []sample {
	hello := func() *payload.Payload { return content().AlertTitle("t") }
	alert := func(change func(*apns2.Notification)) *apns2.Notification {
		return with(note(apns2.PushTypeAlert, "", hello()), change)
	}
	priority := func(p int) *apns2.Notification { return alert(func(n *apns2.Notification) { n.Priority = p }) }
	return []sample{
		{why: "no push type is an alert", record: `"title":"t"`, theirs: alert(func(n *apns2.Notification) { n.PushType = "" })},
		{why: "no priority: Apple's default is 10, and ours says so", record: `"title":"t"`, theirs: priority(0), differ: differences{"apns-priority": {"10", absent}}},
		{why: "critical", record: `"title":"t","priority":"critical"`, theirs: priority(10)},
		{why: "high", record: `"title":"t","priority":"high"`, theirs: priority(10)},
		{why: "medium", record: `"title":"t","priority":"medium"`, theirs: priority(10)},
		{why: "low", record: `"title":"t","priority":"low"`, theirs: priority(5)},
		{why: "bulk", record: `"title":"t","priority":"bulk"`, theirs: priority(5)},
		{why: "priority 1, for which apns2 has no constant", record: `"title":"t","apns":{"headers":{"apns-priority":"1"}}`, theirs: priority(1)},
		{why: "background is 5 whatever was asked: Apple calls 10 an error", record: `"push_type":"background","priority":"critical"`,
			theirs: note(apns2.PushTypeBackground, "", content().ContentAvailable()), differ: differences{"apns-priority": {"5", "10"}}},
		{why: "expiry", record: `"title":"t","expires_at":"` + expires.Format(time.RFC3339) + `"`, theirs: alert(func(n *apns2.Notification) { n.Expiration = expires })},
		{why: "one attempt, which apns2 cannot ask for", record: `"title":"t","apns":{"headers":{"apns-expiration":"0"}}`,
			theirs: alert(func(n *apns2.Notification) { n.Expiration = time.Unix(0, 0) }), differ: differences{"apns-expiration": {"0", absent}}, fromEdge: differences{}},
		{why: "raw expiry wins", record: `"title":"t","expires_at":"` + expires.Add(time.Hour).Format(time.RFC3339) + `","apns":{"headers":{"apns-expiration":"` + fmt.Sprint(expires.Unix()) + `"}}`,
			theirs: alert(func(n *apns2.Notification) { n.Expiration = expires })},
		{why: "collapse key", record: `"title":"t","collapse_key":"order-17"`, theirs: alert(func(n *apns2.Notification) { n.CollapseID = "order-17" })},
		{why: "longest collapse key", record: `"title":"t","collapse_key":"` + strings.Repeat("k", 64) + `"`, theirs: alert(func(n *apns2.Notification) { n.CollapseID = strings.Repeat("k", 64) })},
		{why: "a collapse key that fits no header is hashed", record: `"title":"t","collapse_key":"Größe"`,
			theirs: alert(func(n *apns2.Notification) { n.CollapseID = "Größe" }), differ: differences{"apns-collapse-id": {"rtw_gJiaZUaWJwWFKy9KSB29HkkHYGk1", "Größe"}}},
		{why: "all raw headers", record: `"title":"t","collapse_key":"x","apns":{"headers":{"apns-push-type":"voip","apns-priority":"5","apns-collapse-id":"theirs"}}`,
			theirs: with(note(apns2.PushTypeVOIP, ".voip", hello()), func(n *apns2.Notification) { n.Priority, n.CollapseID = 5, "theirs" })},
		{why: "token in capitals: one device has one path", record: `"title":"t"`, theirs: alert(func(n *apns2.Notification) { n.DeviceToken = strings.ToUpper(device) }),
			differ: differences{":path": {"/3/device/" + device, "/3/device/" + strings.ToUpper(device)}}},
		{why: "apns2's id of the notification; on the wire ours is one of the device and attempt", record: `"title":"t"`,
			theirs: alert(func(n *apns2.Notification) { n.ApnsID = "123e4567-e89b-12d3-a456-426655440000" }), differ: differences{"apns-id": {"a UUID", "a UUID"}},
			fromEdge: differences{"apns-id": {"a UUID", "a UUID"}, "body.pf_id": {`"123e4567-e89b-12d3-a456-426655440000"`, absent}}},
	}
}

func payloadSamples() []sample {
	alert := func(p any) *apns2.Notification { return note(apns2.PushTypeAlert, "", p) }
	const text = `Ünïcödé 日本 🎉 "quoted" \ / <b>&amp;</b>` + "\u2028\u2029\x7f\t\r\n\x01"
	const escaped = `Ünïcödé 日本 🎉 \"quoted\" \\ \/ <b>&amp;</b>\u2028\u2029\u007f\t\r\n\u0001`
	full := strings.Repeat("x", 4096-len(`{"aps":{"alert":{"title":""}},"pf_id":"n1"}`))
	voip := strings.Repeat("x", 5120-len(`{"aps":{"alert":{"title":""}},"pf_id":"n1"}`))
	return []sample{
		{why: "title alone", record: `"title":"t"`, theirs: alert(content().AlertTitle("t"))},
		{why: "body alone", record: `"body":"b"`, theirs: alert(content().AlertBody("b"))},
		{why: "badge", record: `"title":"t","badge":7`, theirs: alert(content().AlertTitle("t").Badge(7))},
		{why: "badge 0 removes it", record: `"title":"t","badge":0`, theirs: alert(content().AlertTitle("t").ZeroBadge())},
		{why: "no badge leaves it", record: `"title":"t"`, theirs: alert(content().AlertTitle("t").Badge(1).UnsetBadge())},
		{why: "sound", record: `"title":"t","sound":"default"`, theirs: alert(content().AlertTitle("t").Sound("default"))},
		{why: "sound of a critical alert", record: `"title":"t","sound":"x","apns":{"payload":{"aps":{"sound":{"critical":1,"name":"siren.caf","volume":0.5}}}}`,
			theirs: alert(content().AlertTitle("t").SoundName("siren.caf").SoundVolume(0.5))},
		{why: "category and thread", record: `"title":"t","category":"ORDER","thread_id":"o17"`, theirs: alert(content().AlertTitle("t").Category("ORDER").ThreadID("o17"))},
		{why: "data", record: `"title":"t","data":{"k":"v","order":"17","empty":""}`, theirs: alert(content().AlertTitle("t").Custom("k", "v").Custom("order", "17").Custom("empty", ""))},
		{why: "image and video, for a notification service extension", record: `"title":"t","image":"https://i.example/1.png","video":"https://v.example/1.mp4"`,
			theirs: alert(content().AlertTitle("t").MutableContent().Custom("image", "https://i.example/1.png").Custom("video", "https://v.example/1.mp4"))},
		{why: "silent: no text, so background by default", record: `"data":{"k":"v"},"priority":"low"`, theirs: with(note(apns2.PushTypeBackground, "", content().ContentAvailable().Custom("k", "v")),
			func(n *apns2.Notification) { n.Priority = 5 })},
		{why: "background leaves out what Apple does not allow there", record: `"push_type":"background","priority":"low","sound":"x","badge":3,"category":"c","thread_id":"h"`,
			theirs: with(note(apns2.PushTypeBackground, "", content().ContentAvailable()), func(n *apns2.Notification) { n.Priority = 5 })},
		{why: "alert that also wakes the app", record: `"title":"t","apns":{"payload":{"aps":{"content-available":1}}}`, theirs: alert(content().AlertTitle("t").ContentAvailable())},
		{why: "alert as a string", record: `"push_type":"alert","apns":{"payload":{"aps":{"alert":"text"}}}`, theirs: alert(content().Alert("text"))},
		{why: "locale, for which Apple has no field", record: `"title":"t","locale":"de-AT"`, theirs: alert(content().AlertTitle("t").Custom("locale", "de-AT"))},
		{why: "everything apns2's builder has", record: `"title":"t","body":"b","apns":{"payload":{"aps":{"alert":{"subtitle":"s","title-loc-key":"TK","title-loc-args":["1"],"loc-key":"LK","loc-args":["2","3"],"launch-image":"l.png",
			"action":"a","action-loc-key":"AK","summary-arg":"sa","summary-arg-count":2},"interruption-level":"time-sensitive","relevance-score":0.5,"url-args":["u"]},"n":17,"deep":{"a":[1,null,{"b":true}]},"nothing":null}}`,
			theirs: alert(content().AlertTitle("t").AlertBody("b").AlertSubtitle("s").AlertTitleLocKey("TK").AlertTitleLocArgs([]string{"1"}).AlertLocKey("LK").AlertLocArgs([]string{"2", "3"}).
				AlertLaunchImage("l.png").AlertAction("a").AlertActionLocKey("AK").AlertSummaryArg("sa").AlertSummaryArgCount(2).InterruptionLevel(payload.InterruptionLevelTimeSensitive).
				RelevanceScore(0.5).URLArgs([]string{"u"}).Custom("n", 17).Custom("deep", map[string]any{"a": []any{1, nil, map[string]any{"b": true}}}).Custom("nothing", nil))},
		{why: "raw payload wins, member by member", record: `"title":"t","body":"b","badge":1,"apns":{"payload":{"aps":{"alert":{"body":"theirs"},"badge":2},"k":"theirs"}},"data":{"k":"ours"}`,
			theirs: alert(content().AlertTitle("t").AlertBody("theirs").Badge(2).Custom("k", "theirs"))},
		{why: "Unicode and escapes", record: `"title":"` + escaped + `","data":{"` + escaped + `":"` + escaped + `"},"apns":{"payload":{"raw":{"` + escaped + `":["` + escaped + `"]}}}`,
			theirs: alert(content().AlertTitle(text).Custom(text, text).Custom("raw", map[string]any{text: []string{text}}))},
		{why: "largest payload", record: `"title":"` + full + `"`, theirs: alert(content().AlertTitle(full))},
		{why: "largest payload of voip", record: `"push_type":"voip","title":"` + voip + `"`, theirs: note(apns2.PushTypeVOIP, ".voip", content().AlertTitle(voip))},
	}
}

func samples(expires time.Time) []sample {
	list := append(pushTypeSamples(), headerSamples(expires)...)
	return append(list, payloadSamples()...)
}

// TestSameAsAPNS2 sends every sample through apns2's client, and through ours
// both as a producer's record and as read by FromNotification.
func TestSameAsAPNS2(t *testing.T) {
	key, p8 := signingKey(t)
	r := newRecorder(t, &key.PublicKey)
	reference := apns2.NewTokenClient(&token.Token{AuthKey: key, KeyID: "KEY1234567", TeamID: "TEAM123456"})
	reference.HTTPClient, reference.Host = r.Client(), r.URL
	client := recorded(t, r, p8)
	types := map[string]bool{}
	for _, s := range samples(time.Now().Add(24 * time.Hour).Truncate(time.Second)) {
		t.Run(s.why, func(t *testing.T) {
			if _, err := reference.PushWithContext(t.Context(), s.theirs); err != nil {
				t.Fatal(err)
			}
			theirs := r.Next()
			types[theirs["apns-push-type"]] = true
			if !strings.Contains(theirs["authorization"], "in time: true") {
				t.Fatalf("authorization of the reference: %s", theirs["authorization"])
			}

			ours := r.Sent(t, client, providertest.Decoded(t, s.record), push.APNS, device)
			providertest.Compare(ours, theirs).Expect(t, "as a producer writes it", always, s.differ)

			m, err := apns.FromNotification(s.theirs)
			if err != nil {
				t.Fatal(err)
			}
			if m.ID == "" {
				m.ID = "n1"
			}
			expected := s.fromEdge
			if expected == nil {
				expected = s.differ
			}
			ours = r.Sent(t, client, m, push.APNS, m.Device.Token)
			providertest.Compare(ours, theirs).Expect(t, "from the notification", always, expected)
		})
	}
	if len(types) != 11 {
		t.Errorf("%d push types were sent, Apple has 11", len(types))
	}
}

func signingKey(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// recorded is our client with a recorder as its server.
func recorded(t *testing.T, r *providertest.Recorder, p8 []byte) *apns.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	return newClient(t, topic, tokenSource(t, "TEAM123456", "KEY1234567", p8), h2.Options{
		URL: r.URL, TLS: &tls.Config{RootCAs: roots}, Connections: 1, Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 10}},
	})
}

// FromNotification refuses what apns2 would send although Apple cannot accept
// it.
func TestNotificationsThatAreRefused(t *testing.T) {
	good := func(change func(*apns2.Notification)) *apns2.Notification {
		return with(note(apns2.PushTypeAlert, "", content().AlertTitle("secret-looking text")), change)
	}
	for why, n := range map[string]*apns2.Notification{
		"none":                   nil,
		"push type":              good(func(n *apns2.Notification) { n.PushType = "telegram" }),
		"priority":               good(func(n *apns2.Notification) { n.Priority = 7 }),
		"collapse id":            good(func(n *apns2.Notification) { n.CollapseID = strings.Repeat("x", 65) }),
		"no payload":             good(func(n *apns2.Notification) { n.Payload = nil }),
		"an array":               good(func(n *apns2.Notification) { n.Payload = `["secret-looking text"]` }),
		"broken JSON":            good(func(n *apns2.Notification) { n.Payload = `{"secret-looking text"` }),
		"a channel":              good(func(n *apns2.Notification) { n.Payload = make(chan int) }),
		"aps that is no object":  good(func(n *apns2.Notification) { n.Payload = `{"aps":"secret-looking text"}` }),
		"pf_id that is no id":    good(func(n *apns2.Notification) { n.Payload = `{"pf_id":17}` }),
		"pf_id that is an empty": good(func(n *apns2.Notification) { n.Payload = `{"pf_id":""}` }),
	} {
		if m, err := apns.FromNotification(n); err == nil {
			t.Errorf("%s: read as %+v", why, m)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error repeats the notification: %v", why, err)
		}
	}
}
