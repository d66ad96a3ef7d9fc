package apns

import (
	"github.com/pushfleet/pushfleet/push"
)

// ownWords reports whether a refusal of a token or a topic may be about what
// the message itself says, and returns the reason to give. Such an answer is no
// news of the token or the route, and not counted by the guard: a message must
// be able to remove no token of others, and to stop no route.
func ownWords(m *push.Message, act action, reason string) (string, bool) {
	switch act {
	case dropToken, dropGuarded, haltTopic:
	default:
		return reason, false
	}
	switch {
	case !appsTopic(m), reason == "DeviceTokenNotForTopic" && len(m.APNSHeaders) > 0:
		return reason, true
	case act == dropGuarded && m.Device.Token != "":
		return string(push.InvalidToken), true // the message names the token
	}
	return reason, false
}

// appsTopic reports whether a message goes to the topic that the app's tokens
// are registered for: neither its push type nor a header asks for another.
func appsTopic(m *push.Message) bool {
	if _, raw := rawHeader(m, headerTopic); raw {
		return false
	}
	switch pushTypeOf(m) {
	case "alert", "background":
		return true
	}
	return false
}
