package fcm

import (
	"encoding/json"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/push"
)

// plain is a delivery with only the fleet's own words to a device of a user.
func plain() *pipeline.Delivery { return delivery(push.Message{Title: "t"}) }

const badToken = "The registration token is not a valid FCM registration token"

// refusal reads the same refusal of a message over and over: the first result
// must hold for a thousand.
func refusal(t *testing.T, d *pipeline.Delivery, status int, body string) push.Result {
	t.Helper()
	c := testCodec()
	first, _ := c.Read(d, answered(status, body, ""))
	for range 1000 {
		if got, next := c.Read(d, answered(status, body, "")); got != first || next != exchange.Settled {
			t.Errorf("first %+v, later %+v, %v", first, got, next)
			break
		}
	}
	if got, _ := c.Read(plain(), answered(403, envelope("PERMISSION_DENIED", "x", "Fcm:SENDER_ID_MISMATCH"), "")); got.Class != push.Gone {
		t.Errorf("the guard has counted them: %+v", got)
	}
	return first
}

// With raw parts in the message, Google's "invalid argument" may be about them,
// and Apple's words about a token may be about the producer's headers.
func TestRawPartsRemoveNoToken(t *testing.T) {
	d := delivery(push.Message{Title: "t", FCM: json.RawMessage(`{"android":{"restricted_package_name":"com.other"}}`)})
	for word, body := range map[string]string{
		"INVALID_ARGUMENT":       envelope("INVALID_ARGUMENT", badToken, "Fcm:INVALID_ARGUMENT"),
		"DeviceTokenNotForTopic": envelope("INVALID_ARGUMENT", "x", "Fcm:INVALID_ARGUMENT", "Apns:DeviceTokenNotForTopic"),
		"BadDeviceToken":         envelope("INVALID_ARGUMENT", "x", "Apns:BadDeviceToken"),
	} {
		if got, want := refusal(t, d, 400, body), (push.Result{Class: push.Refused, Reason: word}); got != want {
			t.Errorf("%s: %+v", word, got)
		}
	}
	// No raw part can cause these.
	for word, k := range map[string]struct {
		status int
		body   string
	}{
		"UNREGISTERED":       {404, envelope("NOT_FOUND", "x", "Fcm:UNREGISTERED")},
		"SENDER_ID_MISMATCH": {403, envelope("PERMISSION_DENIED", "x", "Fcm:SENDER_ID_MISMATCH")},
	} {
		if got, _ := testCodec().Read(d, answered(k.status, k.body, "")); got.Class != push.Gone {
			t.Errorf("%s: %+v", word, got)
		}
	}
}

// Whoever can write a message can name any token. Bad ones are that message's
// fault, and must not stop the route for others.
func TestBadTokensNamedByMessagesHaltNoRoute(t *testing.T) {
	d := delivery(push.Message{Title: "t", Device: push.Target{Platform: push.FCM, Token: registration}})
	for _, k := range []struct {
		status int
		body   string
	}{
		{400, envelope("INVALID_ARGUMENT", badToken, "Fcm:INVALID_ARGUMENT")},
		{403, envelope("PERMISSION_DENIED", "x", "Fcm:SENDER_ID_MISMATCH")},
		{400, envelope("INVALID_ARGUMENT", "x", "Apns:BadDeviceToken")},
	} {
		if got, want := refusal(t, d, k.status, k.body), (push.Result{Class: push.Refused, Reason: string(push.InvalidToken)}); got != want {
			t.Errorf("%s: %+v", k.body, got)
		}
	}
	if got, _ := testCodec().Read(d, answered(404, envelope("NOT_FOUND", "x", "Fcm:UNREGISTERED"), "")); got.Class != push.Gone {
		t.Errorf("%+v", got)
	}
}
