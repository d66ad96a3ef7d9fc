package record

import (
	"errors"
	"fmt"
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
		{"", nil}, {`"v":1,`, nil}, {`"v":2,`, ErrVersion}, {`"v":3,`, ErrVersion}, {`"v":0,`, ErrVersion}, {`"v":"1",`, errPart},
	} {
		device := "{" + tt.version + `"platform":"fcm","app":"shop","token":"tok","registered_at":"2026-11-21T10:00:00Z"}`
		d, err := parseDevice([]byte(device), hash, time.Now().AddDate(100, 0, 0))
		if !errors.Is(err, tt.want) || (d.Hash == hash) != (tt.want == nil) {
			t.Errorf("device %s: %+v, %v, want %v", tt.version, d, err, tt.want)
		}
		profile, err := parseProfile([]byte("{"+tt.version+`"country":"NL"}`), time.Now())
		if !errors.Is(err, tt.want) || (profile.Country != "") != (tt.want == nil) {
			t.Errorf("profile %s: %+v, %v, want %v", tt.version, profile, err, tt.want)
		}
		limits, err := parseLimits([]byte("{" + tt.version + `"limits":{"a":1}}`))
		if !errors.Is(err, tt.want) || (len(limits) > 0) != (tt.want == nil) {
			t.Errorf("limits %s: %+v, %v, want %v", tt.version, limits, err, tt.want)
		}
		if tt.version == `"v":2,` {
			tt.want = nil
		}
		p, err := parsePreferences([]byte("{" + tt.version + `"opt_out_all":true}`))
		if !errors.Is(err, tt.want) || p.OptOutAll != (tt.want == nil) {
			t.Errorf("preferences %s: %+v, %v, want %v", tt.version, p, err, tt.want)
		}
	}
}

// Why a device is refused is said, by its field and the rule.
func TestWhyADeviceIsRefused(t *testing.T) {
	hash, now := push.DeviceHash(push.FCM, "tok"), time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ device, field string }{
		{`"platform":"fcm","app":"","token":"tok","registered_at":"2026-11-21T10:00:00Z"`, "app"},
		{`"platform":"fcm","app":"shop","token":"a token","registered_at":"2026-11-21T10:00:00Z"`, "token"},
		{`"platform":"fcm","app":"shop","token":"tok","registered_at":"2026-11-24T10:00:00Z"`, "registered_at"},
		{`"platform":"fcm","app":"shop","token":"tok"`, "registered_at"},
		{`"app":"shop","token":"tok","registered_at":"2026-11-21T10:00:00Z"`, "platform"},
	} {
		d, err := parseDevice([]byte("{"+tt.device+"}"), hash, now)
		if !errors.Is(err, errPart) || !errors.Is(err, ErrInvalid) || !strings.Contains(fmt.Sprint(err), "invalid "+tt.field+": ") || d != (push.Device{}) {
			t.Errorf("%s: %+v, %v; want one for its %s", tt.device, d, err, tt.field)
		}
	}
}

// A key names a user and a part, and nothing else is a key.
func TestKeysOfParts(t *testing.T) {
	hash, long := strings.Repeat("aZ09-_", 3)[:hashLen], strings.Repeat("u", maxUser)
	for _, tt := range []struct {
		key, user string // no user: it is refused
		part      Part
	}{
		{"ada/prefs", "ada", PreferencesPart},
		{"ada/profile", "ada", ProfilePart},
		{"ada/limits", "ada", LimitsPart},
		{"ada/device:" + hash, "ada", DevicePart(hash)},
		{"with/slash/device:" + hash, "with/slash", DevicePart(hash)},
		{long + "/prefs", long, PreferencesPart},
		{long + "u/prefs", "", ""},
		{"/prefs", "", ""},
		{"ada", "", ""},
		{"", "", ""},
		{"ada/", "", ""},
		{"ada/note", "", ""},
		{"ada/Prefs", "", ""},
		{"ada/prefs:" + hash, "", ""},
		{"ada/" + hash, "", ""},
		{"ada/device:", "", ""},
		{"ada/device:" + hash[1:], "", ""},
		{"ada/device:" + hash + "a", "", ""},
		{"ada/device:" + hash[1:] + "+", "", ""},
		{"ada/device:+" + hash[1:], "", ""},
	} {
		user, part, err := PartOf(tt.key)
		if user != tt.user || part != tt.part || (err == nil) != (tt.user != "") {
			t.Errorf("%q: %q, %q, %v", tt.key, user, part, err)
		}
		c := Change{} // of a removal there is only the key to read
		if err := c.Read(tt.key, nil, time.Now()); c.User != tt.user || c.Part != tt.part || c.unread != nil || errors.Is(err, errPart) == (tt.user != "") {
			t.Errorf("%q: as a record %+v, %v", tt.key, c, err)
		}
		if err == nil && (Key(user, part) != tt.key || (part.Hash() == hash) != strings.Contains(tt.key, "device:")) {
			t.Errorf("%q: back to %q, a device %q", tt.key, Key(user, part), part.Hash())
		}
	}
}
