package record

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// A value of a newer version is not read by what it has in common with ours, and
// is not called broken either: who knows it will read it.
func TestVersionsOfParts(t *testing.T) {
	hash := push.DeviceHash(push.FCM, "tok")
	for _, tt := range []struct {
		version string
		want    error
	}{
		{"", nil}, {`"v":1,`, nil}, {`"v":2,`, ErrVersion}, {`"v":0,`, ErrVersion}, {`"v":"1",`, errPart},
	} {
		device := "{" + tt.version + `"platform":"fcm","app":"shop","token":"tok","registered_at":"2026-11-21T10:00:00Z"}`
		d, err := parseDevice([]byte(device), hash, time.Now().AddDate(100, 0, 0))
		if !errors.Is(err, tt.want) || (d.Hash == hash) != (tt.want == nil) {
			t.Errorf("device %s: %+v, %v, want %v", tt.version, d, err, tt.want)
		}
		p, err := parsePreferences([]byte("{" + tt.version + `"opt_out_all":true}`))
		if !errors.Is(err, tt.want) || p.OptOutAll != (tt.want == nil) {
			t.Errorf("preferences %s: %+v, %v, want %v", tt.version, p, err, tt.want)
		}
	}
}

// A key names a user and a part, and nothing else is a key.
func TestKeysOfParts(t *testing.T) {
	hash, long := strings.Repeat("aZ09-_", 3)[:hashLen], strings.Repeat("u", maxUser)
	for _, tt := range []struct{ key, user, hash string }{ // no user: it is refused
		{"ada/prefs", "ada", ""},
		{"ada/device:" + hash, "ada", hash},
		{"with/slash/device:" + hash, "with/slash", hash},
		{long + "/prefs", long, ""},
		{long + "u/prefs", "", ""},
		{"/prefs", "", ""},
		{"ada", "", ""},
		{"", "", ""},
		{"ada/note", "", ""},
		{"ada/device:", "", ""},
		{"ada/device:" + hash[1:], "", ""},
		{"ada/device:" + hash + "a", "", ""},
		{"ada/device:" + hash[1:] + "+", "", ""},
		{"ada/device:+" + hash[1:], "", ""},
	} {
		user, hash, err := PartOf(tt.key)
		if user != tt.user || hash != tt.hash || (err == nil) != (tt.user != "") {
			t.Errorf("%q: %q, %q, %v", tt.key, user, hash, err)
		}
	}
}
