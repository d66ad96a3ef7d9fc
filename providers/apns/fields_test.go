package apns

import (
	"strings"
	"testing"

	"github.com/sideshow/apns2"

	"github.com/pushfleet/pushfleet/push"
)

// What a notification shows becomes the message's own fields, so that Google's
// devices show it too. Only what has no field remains in the payload.
func TestShownPartsBecomeFields(t *testing.T) {
	for _, row := range []struct {
		payload string
		want    push.Message
		left    string
	}{
		{`{"aps":{"alert":{"title":"T","body":"B"},"sound":"s","category":"c","thread-id":"th","badge":3},"pf_id":"n7","k":"v"}`,
			push.Message{ID: "n7", Title: "T", Body: "B", Sound: "s", Category: "c", ThreadID: "th", Badge: 3, HasBadge: true, Data: []byte(`{"k":"v"}`)}, ""},
		{`{"aps":{"alert":{"title":"T","body":"B","subtitle":"S"},"badge":0}}`,
			push.Message{Title: "T", Body: "B", HasBadge: true}, `{"aps":{"alert":{"subtitle":"S"}}}`},
		{`{"aps":{"alert":"only text","badge":-1}}`, push.Message{}, `{"aps":{"alert":"only text","badge":-1}}`},
		{`{"aps":{"alert":{},"badge":3}}`, push.Message{Badge: 3, HasBadge: true}, `{"aps":{"alert":{}}}`},
		{`{"aps":{"alert":{"title":"T"},"sound":{"critical":1}},"k":5}`, push.Message{Title: "T"}, `{"aps":{"sound":{"critical":1}},"k":5}`},
	} {
		m, err := FromNotification(&apns2.Notification{DeviceToken: "aa", Topic: "t", PushType: apns2.PushTypeAlert, Payload: []byte(row.payload)})
		if err != nil {
			t.Fatal(err)
		}
		w := row.want
		if m.ID != w.ID || m.Title != w.Title || m.Body != w.Body || m.Sound != w.Sound || m.Category != w.Category || m.ThreadID != w.ThreadID ||
			m.Badge != w.Badge || m.HasBadge != w.HasBadge || string(m.Data) != string(w.Data) || string(m.APNSPayload) != row.left {
			t.Errorf("%s is read as %+v, with %s left", row.payload, m, m.APNSPayload)
		}
	}
}

// Apple's priorities are ours. One that is not given is the one between.
func TestPrioritiesOfNotifications(t *testing.T) {
	for given, want := range map[int]push.Priority{0: push.Medium, 1: push.Bulk, apns2.PriorityLow: push.Low, apns2.PriorityHigh: push.High} {
		m, err := FromNotification(&apns2.Notification{DeviceToken: "aa", Priority: given, Payload: []byte(`{}`)})
		if err != nil || m.Priority != want {
			t.Errorf("%d: got %v (error %v), want %v", given, m.Priority, err, want)
		}
	}
}

// A topic and a key id are copied unchanged into headers and into a token's
// JSON.
func TestTopicsAndIdentifiers(t *testing.T) {
	for topic, good := range map[string]bool{
		"com.example.shop": true, "azAZ09.-_": true, strings.Repeat("x", 255): true,
		"": false, strings.Repeat("x", 256): false, "a b": false, "a\r\nb": false, "a/b": false, `a"`: false, "a:b": false, "a@b": false, "a[b": false, "a`b": false, "a{b": false,
	} {
		if _, err := newCodec(topic, &TokenSource{}); (err == nil) != good {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
	for id, good := range map[string]bool{
		"azAZ09": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "a.b": false, "a/": false, "a:": false, "a@": false, "a[": false, "a`": false, "a{": false,
	} {
		if isIdentifier(id) != good {
			t.Errorf("identifier %q: %v", id, !good)
		}
	}
}

// Two attempts have the same apns-id only for the same notification, device and
// step: the boundaries between these parts count.
func TestIDsOfPushesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, push := range []struct {
		id, device string
		step       int16
	}{
		{"n", "d", 0}, {"n", "d", 1}, {"n", "d", 256}, {"nd", "", 0}, {"", "nd", 0}, {"n", "dd", 0}, {"nd", "d", 0}, {"n\x00", "d", 0},
	} {
		id := string(appendID(nil, push.id, push.device, push.step))
		what := strings.Join([]string{push.id, push.device}, "|")
		if other, has := seen[id]; has {
			t.Errorf("%q and %q have one id, %s", what, other, id)
		}
		seen[id] = what
		if again := string(appendID(nil, push.id, push.device, push.step)); again != id {
			t.Errorf("%q has two ids", what)
		}
	}
}
