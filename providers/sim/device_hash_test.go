package sim

import (
	"strings"
	"testing"
)

// Tokens that differ only in case are one device of Apple's, and two of
// Google's, whatever is around the letters.
func TestDeviceHashCase(t *testing.T) {
	for c := range 256 {
		for _, around := range []string{"", "0123456", "0123456789abcdef"} {
			token := around + string([]byte{byte(c)}) + around
			if got, want := string(appendToken([]byte("x"), APNS, token)), "x"+strings.ToLower(token); got != want {
				t.Errorf("%q: got %q, want %q", token, got, want)
			}
			if got := string(appendToken(nil, FCM, token)); got != token {
				t.Errorf("%q of FCM became %q", token, got)
			}
		}
	}
	upper := strings.ToUpper(goodToken)
	if DeviceHash(APNS, upper) != DeviceHash(APNS, goodToken) || tokenKey(APNS, upper) != tokenKey(APNS, goodToken) {
		t.Error("a token in capitals is another device")
	}
	if DeviceHash(FCM, "aB") == DeviceHash(FCM, "ab") || tokenKey(FCM, "ab") == tokenKey(APNS, "ab") {
		t.Error("two devices are one")
	}
	// As the status table has it (computed with other tools).
	if got, want := DeviceHash(APNS, "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"), "Cf-CXEpI1GC0HIvG"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
