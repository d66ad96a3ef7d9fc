package webhooks

import (
	"strings"
	"testing"
	"time"
)

// The vector of the specification's own libraries.
func TestSign(t *testing.T) {
	key, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	id, at, body := "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)
	if got := Sign([][]byte{key}, id, at, body); got != want {
		t.Errorf("signed %s, want %s", got, want)
	}
	next := []byte(strings.Repeat("k", minSecret))
	if got := Sign([][]byte{next, key}, id, at, body); !strings.HasSuffix(got, " "+want) || len(got) != 2*len(want)+1 {
		t.Errorf("signed by two secrets: %s", got)
	}
}

func TestParseSecret(t *testing.T) {
	for text, ok := range map[string]bool{
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw":       true,
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw":             false,
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa":         false, // 23 bytes
		"whsec_" + strings.Repeat("AAAA", 21) + "AA==": true,  // 64
		"whsec_" + strings.Repeat("AAAA", 21) + "AAA=": false, // 65
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!":       false,
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n":     false,
		"whsec_": false,
	} {
		_, err := ParseSecret(text)
		if (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && len(text) > 10 && strings.Contains(err.Error(), text[6:]) {
			t.Errorf("the error has the secret: %v", err)
		}
	}
}
