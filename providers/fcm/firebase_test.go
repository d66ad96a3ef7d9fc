//go:build !race

// See differential_test.go.

package fcm

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"firebase.google.com/go/v4/messaging"

	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/push"
)

func TestFirebaseReadsOurBody(t *testing.T) {
	d := delivery(push.Message{Priority: push.Low, Title: "t", Body: "b", Image: "https://i/1", Sound: "s", HasBadge: true, Badge: 2, CollapseKey: "tag", Data: json.RawMessage(`{"k":"v"}`)})
	now := time.Now()
	d.Expires = push.At(now.Add(90*time.Minute + 300*time.Millisecond))
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
	expiry := strconv.FormatInt(d.Expires.Time().Unix(), 10)
	if h := m.APNS.Headers; h["apns-priority"] != "5" || h["apns-collapse-id"] != "tag" || h["apns-expiration"] != expiry {
		t.Errorf("apns headers %v", h)
	}
	if aps := m.APNS.Payload.Aps; aps.Sound != "s" || *aps.Badge != count || !aps.MutableContent {
		t.Errorf("aps %+v", aps)
	}
	if h := m.Webpush.Headers; h["TTL"] != "5400" || h["Urgency"] != "normal" || m.Webpush.Notification.Tag != "tag" {
		t.Errorf("web push headers %v, notification %+v", h, m.Webpush.Notification)
	}
	if n := m.Android.Notification; n.Tag != "tag" || n.Sound != "s" || *n.NotificationCount != count {
		t.Errorf("android notification %+v", n)
	}
}
