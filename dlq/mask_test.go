package dlq

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

func header(key, value string) pipeline.RecordHeader {
	return pipeline.RecordHeader{Key: key, Value: []byte(value)}
}

// Of a value only what says who it is for is seen, whatever it is made of.
func TestMaskedFields(t *testing.T) {
	token := strings.Repeat("abcdef", 10)
	for _, tt := range []struct{ why, value, want string }{
		{"in their order", `{"app":"shop","id":"n","badge":3}`, "[{app shop} {id n} {badge 3}]"},
		{"text by its characters", `{"title":"Grüße","body":"b"}`, "[{title <5 characters>} {body <1 characters>}]"},
		{"fields that nobody knows", `{"x":"secret","y":true,"z":null}`, "[{x <6 characters>} {y <a value>} {z null}]"},
		{"objects and lists by their size", `{"data":{"otp":"4711"},"l":[1,2]}`, "[{data <object of 14 bytes>} {l <list of 5 bytes>}]"},
		{"a plain field that hides an object", `{"id":{"x":"secret"}}`, "[{id <object of 14 bytes>}]"},
		{"a plain field that is too long", `{"type":"` + strings.Repeat("s", 127) + `"}`, "[{type <127 characters>}]"},
		{"a device by the hash of its token", `{"device":{"platform":"apns","environment":"sandbox","token":"` + token + `"}}`, "[{device apns sandbox " + push.DeviceHash(push.APNS, token) + "}]"},
		{"an environment that is none", `{"device":{"platform":"fcm","environment":"secret","token":"` + token + `"}}`, "[{device fcm " + push.DeviceHash(push.FCM, token) + "}]"},
		{"a device that is none", `{"device":{"token":"` + token + `"}}`, "[{device <object of 72 bytes>}]"},
		{"a device that is a token", `{"device":"` + token + `"}`, "[{device <60 characters>}]"},
		{"a name that is a text", `{"` + strings.Repeat("s", 129) + `":1}`, "[{<name of 129 bytes> <a value>}]"},
		{"a key twice", `{"id":"a","id":"b"}`, "[{id b}]"},
		{"no object", `["secret"]`, "[{ <10 bytes that are not a JSON object>}]"},
		{"no JSON", `{"id":"secret`, "[{ <13 bytes that are not a JSON object>}]"},
		{"null", `null`, "[{ <4 bytes that are not a JSON object>}]"},
		{"empty", `{}`, "[]"},
	} {
		if got := fmt.Sprint(maskedFields([]byte(tt.value))); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
		}
	}
}
