package apns

import (
	"fmt"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/push"
)

// plain is a delivery with only the fleet's own words to a device of a user.
func plain() *pipeline.Delivery { return delivery(push.Message{PushType: "alert", Title: "t"}) }

// refusal reads the same refusal of a message over and over: the first result
// must hold for a thousand.
func refusal(t *testing.T, d *pipeline.Delivery, status int, reason string) push.Result {
	t.Helper()
	c := testCodec(t)
	read := func() (push.Result, exchange.Next) {
		return c.Read(d, answered(status, fmt.Sprintf(`{"reason":%q,"timestamp":1700000000123}`, reason)))
	}
	first, _ := read()
	for range 1000 {
		if got, next := read(); got != first || next != exchange.Settled {
			t.Errorf("%s: first %+v, later %+v, %v", reason, first, got, next)
			break
		}
	}
	if got, _ := c.Read(plain(), answered(400, `{"reason":"BadDeviceToken"}`)); got.Class != push.Gone {
		t.Errorf("%s: the guard has counted them: %+v", reason, got)
	}
	return first
}

// With a push type that has a topic of its own, or a topic in a raw header,
// Apple refuses tokens that are valid for the app's topic, and topics that are
// not the route's.
func TestAMessageWithATopicOfItsOwnRemovesNoTokenAndHaltsNoRoute(t *testing.T) {
	messages := map[string]push.Message{
		"raw topic":     {PushType: "alert", Title: "t", APNSHeaders: []push.Header{{Name: "apns-topic", Value: "com.other"}}},
		"raw push type": {PushType: "alert", Title: "t", APNSHeaders: []push.Header{{Name: "apns-push-type", Value: "voip"}}},
	}
	for pushType := range pushTypes {
		if pushType != "alert" && pushType != "background" {
			messages[pushType] = push.Message{PushType: pushType, Title: "t"}
		}
	}
	if len(messages) != 11 {
		t.Fatalf("%d messages", len(messages))
	}
	for why, m := range messages {
		for reason, status := range map[string]int{"DeviceTokenNotForTopic": 400, "BadDeviceToken": 400, "Unregistered": 410, "ExpiredToken": 410,
			"BadTopic": 400, "MissingTopic": 400, "TopicDisallowed": 400} {
			want := push.Result{Class: push.Refused, Reason: reason, ProviderID: "theirs"}
			if got := refusal(t, delivery(m), status, reason); got != want {
				t.Errorf("%s: %s: %+v", why, reason, got)
			}
		}
	}
}

// Whatever headers a producer set, Apple's refusal may be about them instead of
// the token.
func TestRawHeadersRemoveNoTokenByItsTopic(t *testing.T) {
	m := push.Message{PushType: "alert", Title: "t", APNSHeaders: []push.Header{{Name: "apns-priority", Value: "5"}}}
	if got := refusal(t, delivery(m), 400, "DeviceTokenNotForTopic"); got.Class != push.Refused {
		t.Errorf("%+v", got)
	}
	// What no header can cause still counts.
	for reason, status := range map[string]int{"Unregistered": 410, "BadDeviceToken": 400} {
		if got, _ := testCodec(t).Read(delivery(m), answered(status, fmt.Sprintf(`{"reason":%q}`, reason))); got.Class != push.Gone {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}

// Whoever can write a message can name any token. Bad ones are that message's
// fault, and must not stop the route for others.
func TestBadTokensNamedByMessagesHaltNoRoute(t *testing.T) {
	m := push.Message{PushType: "alert", Title: "t", Device: push.Target{Platform: push.APNS, Token: deviceToken, Environment: push.Production}}
	for _, reason := range []string{"BadDeviceToken", "DeviceTokenNotForTopic"} {
		want := push.Result{Class: push.Refused, Reason: string(push.InvalidToken), ProviderID: "theirs"}
		if got := refusal(t, delivery(m), 400, reason); got != want {
			t.Errorf("%s: %+v", reason, got)
		}
	}
	if got, _ := testCodec(t).Read(delivery(m), answered(410, `{"reason":"Unregistered","timestamp":1}`)); got.Class != push.Gone {
		t.Errorf("%+v", got)
	}
	if got, _ := testCodec(t).Read(delivery(m), answered(400, `{"reason":"TopicDisallowed"}`)); !got.Halt {
		t.Errorf("the route's own topic: %+v", got)
	}
}
