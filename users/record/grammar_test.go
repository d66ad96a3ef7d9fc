package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Which bytes a token, a hash and a text may have: all are tried.
func TestCharacters(t *testing.T) {
	const digits, small, capitals = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for name, of := range map[string]struct {
		check func(string) error
		good  string
		least int
	}{
		"APNs token": {func(s string) error { return checkToken(push.APNS, s) }, digits + small[:6] + capitals[:6], 64},
		"FCM token":  {func(s string) error { return checkToken(push.FCM, s) }, digits + small + capitals + "_:%-", 1},
		"hash":       {CheckHash, digits + small + capitals + "_-", hashLen},
	} {
		for c := range 256 {
			s := string([]byte{byte(c)}) + strings.Repeat("0", of.least-1)
			if err := of.check(s); (err == nil) != strings.Contains(of.good, s[:1]) || err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("%s with byte %#x: %v", name, c, err)
			}
		}
	}
	for c := range rune(0x180) {
		if err := CheckUser(string(c)); (err == nil) != (c >= ' ' && c != 0x7f) {
			t.Errorf("user %q: %v", c, err)
		}
	}
	for _, text := range []string{"\xff", "a\xc3", "\xed\xa0\x80"} { // no rune, half of one, a surrogate
		if err := CheckUser(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("user %q, which is not UTF-8: %v", text, err)
		}
	}
}

// The shortest and the longest of everything is taken, and one less or more is
// not.
func TestLengths(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	device := func(change func(*push.Device)) func() error {
		d := push.Device{Platform: push.FCM, App: "a", Token: "t", RegisteredAt: now}
		change(&d)
		return func() error { return CheckDevice(&d, now) }
	}
	token := func(p push.Platform, n int) func() error {
		return func() error { return checkToken(p, strings.Repeat("a", n)) }
	}
	at := func(t time.Time) func() error { return device(func(d *push.Device) { d.RegisteredAt = t }) }
	opted := func(p push.Preferences) func() error { return func() error { return CheckPreferences(&p) } }
	names := func(n int) []string { return slices.Repeat([]string{"n"}, n) }
	for _, tt := range []struct {
		what  string
		check func() error
		good  bool
	}{
		{"APNs token of 62", token(push.APNS, 62), false},
		{"APNs token of 63", token(push.APNS, 63), false},
		{"APNs token of 64", token(push.APNS, 64), true},
		{"APNs token of 65", token(push.APNS, 65), false},
		{"APNs token of 512", token(push.APNS, 512), true},
		{"APNs token of 514", token(push.APNS, 514), false},
		{"FCM token of 0", token(push.FCM, 0), false},
		{"FCM token of 1", token(push.FCM, 1), true},
		{"FCM token of 4096", token(push.FCM, 4096), true},
		{"FCM token of 4097", token(push.FCM, 4097), false},
		{"app of 0", device(func(d *push.Device) { d.App = "" }), false},
		{"app of 64", device(func(d *push.Device) { d.App = strings.Repeat("a", 64) }), true},
		{"app of 65", device(func(d *push.Device) { d.App = strings.Repeat("a", 65) }), false},
		{"locale of 0", device(func(d *push.Device) { d.Locale = "" }), true},
		{"locale of 35", device(func(d *push.Device) { d.Locale = strings.Repeat("a", 35) }), true},
		{"locale of 36", device(func(d *push.Device) { d.Locale = strings.Repeat("a", 36) }), false},
		{"registered at the end of 1969", at(time.Unix(0, -1).UTC()), false},
		{"registered at the beginning of 1970", at(time.Unix(0, 0).UTC()), true},
		{"registered in a day", at(now.Add(maxAhead)), true},
		{"registered in more than a day", at(now.Add(maxAhead + 1)), false},
		{"200 channels", opted(push.Preferences{Channels: names(200)}), true},
		{"201 channels", opted(push.Preferences{Channels: names(201)}), false},
		{"200 types", opted(push.Preferences{Types: names(200)}), true},
		{"201 types", opted(push.Preferences{Types: names(201)}), false},
		{"a type of 64", opted(push.Preferences{Types: []string{"t", strings.Repeat("t", 64)}}), true},
		{"a type of 65", opted(push.Preferences{Types: []string{"t", strings.Repeat("t", 65)}}), false},
		{"20 quiet hours", opted(push.Preferences{Quiet: make([]push.QuietHours, 20)}), true},
		{"quiet at 23:59", opted(push.Preferences{Quiet: []push.QuietHours{{From: push.MinutesOfDay - 1, To: push.MinutesOfDay - 1}}}), true},
		{"quiet from 24:00", opted(push.Preferences{Quiet: []push.QuietHours{{From: push.MinutesOfDay}}}), false},
		{"quiet until 24:00", opted(push.Preferences{Quiet: []push.QuietHours{{To: push.MinutesOfDay}}}), false},
		{"quiet on every day", opted(push.Preferences{Quiet: []push.QuietHours{{Days: push.EveryDay}}}), true},
		{"quiet on an eighth day", opted(push.Preferences{Quiet: []push.QuietHours{{Days: push.EveryDay + 1}}}), false},
		{"21 quiet hours", opted(push.Preferences{Quiet: make([]push.QuietHours, 21)}), false},
		{"a channel of 65", opted(push.Preferences{Channels: []string{strings.Repeat("c", 65)}}), false},
	} {
		if err := tt.check(); (err == nil) != tt.good || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}

// A device has the environment of its platform, a time in whole milliseconds of
// UTC, and the hash of its token.
func TestCheckedDeviceIsComplete(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 123_999_999, time.FixedZone("", 3600))
	for _, tt := range []struct {
		platform  push.Platform
		env, want string
		good      bool
	}{
		{push.APNS, "", push.Production, true},
		{push.APNS, push.Production, push.Production, true},
		{push.APNS, push.Sandbox, push.Sandbox, true},
		{push.APNS, "test", "", false},
		{push.FCM, "", "", true},
		{push.FCM, push.Production, "", false},
		{push.NoPlatform, "", "", false},
	} {
		d := push.Device{Platform: tt.platform, Environment: tt.env, App: "a", Token: strings.Repeat("a", 64), RegisteredAt: now}
		err := CheckDevice(&d, now)
		if (err == nil) != tt.good {
			t.Errorf("%v %q: %v", tt.platform, tt.env, err)
		}
		fault := map[push.Platform]string{push.APNS: "environment: neither production nor sandbox", push.FCM: "environment: FCM has none"}[tt.platform]
		if !tt.platform.Known() {
			fault = "platform: "
		}
		if err != nil && (!errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "invalid "+fault)) {
			t.Errorf("%v %q: %v, want invalid %s", tt.platform, tt.env, err, fault)
		}
		if want := time.Date(2026, 11, 22, 11, 0, 0, 123_000_000, time.UTC); tt.good && (d.Environment != tt.want || d.RegisteredAt != want || d.Hash != push.DeviceHash(d.Platform, d.Token)) {
			t.Errorf("%v %q: became %s", tt.platform, tt.env, fmt.Sprintf("%+v", d))
		}
	}
}
