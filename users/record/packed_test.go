package record

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/push"
)

const apnsToken = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

func deviceOf(p push.Platform, token string, at int64) push.Device {
	d := push.Device{
		Platform: p, App: "shop", Token: token, Locale: "en-GB",
		Hash: push.DeviceHash(p, token), RegisteredAt: time.UnixMilli(at).UTC(),
	}
	if p == push.APNS {
		d.Environment = push.Sandbox
	}
	return d
}

func sampleUser() *push.User {
	return &push.User{
		Devices: []push.Device{
			deviceOf(push.APNS, apnsToken, 1_700_000_000_123),
			deviceOf(push.FCM, "fcm:token_1-2%", 1_700_000_000_456),
		},
		Preferences: push.Preferences{OptOutAll: true, Channels: []string{"push"}, Types: []string{"promo", "digest"}},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	want := sampleUser()
	raw := Encode(nil, want, 0xfeedbeef)
	got := push.User{Limiter: []byte("kept"), Devices: make([]push.Device, 5)}
	build, err := decode(raw, &got, nil)
	if err != nil || build != 0xfeedbeef {
		t.Fatalf("Decode: build %x, error %v", build, err)
	}
	if string(got.Limiter) != "kept" {
		t.Errorf("Limiter was touched: %q", got.Limiter)
	}
	got.Limiter = nil
	if !reflect.DeepEqual(&got, want) {
		t.Errorf("got %+v\nwant %+v", got, *want)
	}
}

func TestDecodeReusedUserForgetsTheLastOne(t *testing.T) {
	u := *sampleUser()
	if _, err := decode(Encode(nil, &push.User{}, 1), &u, nil); err != nil {
		t.Fatal(err)
	}
	if len(u.Devices) != 0 || !noPreferences(&u.Preferences) {
		t.Errorf("left over: %+v", u)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := Encode(nil, sampleUser(), 7)
	head := append([]byte{recordVersion}, make([]byte, 8)...)
	with := func(tail ...byte) []byte { return append(append([]byte(nil), head...), tail...) }
	for _, tt := range []struct {
		name string
		raw  []byte
		want error
	}{
		{"empty is not an empty user", nil, ErrCorrupt},
		{"newer version", append([]byte{2}, good[1:]...), ErrVersion},
		{"version zero", append([]byte{0}, good[1:]...), ErrVersion},
		{"cut in the head", good[:5], ErrCorrupt},
		{"cut in a section", good[:len(good)-1], ErrCorrupt},
		{"section a reader must know", with(4, 0), ErrVersion},
		{"unread parts that do not fit", with(unreadSection, 2, 1, 0), ErrCorrupt},
		{"unknown flag of an unread part", with(unreadSection, 5, 1, 8, 0, 0, 0), ErrCorrupt},
		{"section longer than the record", with(devicesSection, 9), ErrCorrupt},
		{"more devices than fit", with(devicesSection, 1, 200), ErrCorrupt},
		{"rest behind the devices", with(devicesSection, 2, 0, 0), ErrCorrupt},
		{"unknown flag", with(preferencesSection, 3, 2, 0, 0), ErrCorrupt},
		{"no platform", with(devicesSection, 8, 1, 0, 0, 0, 0, 0, 0, 0), ErrCorrupt},
		{"a cut device of an unknown platform", with(devicesSection, 7, 1, 9, 0, 0, 0, 0, 0), ErrCorrupt},
	} {
		if _, err := decode(tt.raw, new(push.User), nil); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestOptionalSectionsAreSkippedAndKept(t *testing.T) {
	raw := append(Encode(nil, sampleUser(), 7), optionalSection+5, 3, 'x', 'y', 'z')
	var s User
	if _, err := decode(raw, &s.User, &s.kept); err != nil || len(s.Devices) != 2 {
		t.Fatalf("%d devices, error %v", len(s.Devices), err)
	}
	if got := s.Encode(7); !bytes.Equal(got, raw) {
		t.Errorf("written back as\n%x, was\n%x", got, raw)
	}
}

func TestWhatIsKeptRoundTrips(t *testing.T) {
	want := User{User: *sampleUser(), kept: kept{prefsSet: true, unread: []unreadPart{
		{version: true, partition: 3, offset: 1 << 40},
		{hash: "0123456789abcdef", stands: true, partition: 17},
	}, dropped: dropped{devices: 7, upTo: time.UnixMilli(1_700_000_000_123).UTC()}}}
	want.Quarantine = quarantine(want.unread)
	var got User
	if build, err := decode(want.Encode(7), &got.User, &got.kept); err != nil || build != 7 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, build %d, error %v\nwant %+v", got, build, err, want)
	}
	if got.Quarantine != push.PreferencesUnknown {
		t.Errorf("quarantine is %b", got.Quarantine)
	}
}

func genUser(t *rapid.T) *push.User {
	text := rapid.StringN(0, 20, 60)
	u := new(push.User)
	for range rapid.IntRange(0, 4).Draw(t, "devices") {
		platform := rapid.SampledFrom(slices.Collect(push.Platforms)).Draw(t, "platform")
		u.Devices = append(u.Devices, push.Device{
			Platform:     platform,
			Environment:  rapid.SampledFrom(append([]string{""}, platform.Environments()...)).Draw(t, "environment"),
			App:          text.Draw(t, "app"),
			Token:        text.Draw(t, "token"),
			Hash:         text.Draw(t, "hash"),
			Locale:       text.Draw(t, "locale"),
			RegisteredAt: time.UnixMilli(rapid.Int64Range(-1<<50, 1<<50).Draw(t, "at")).UTC(),
		})
	}
	u.Preferences.OptOutAll = rapid.Bool().Draw(t, "all")
	for range rapid.IntRange(0, 3).Draw(t, "channels") {
		u.Preferences.Channels = append(u.Preferences.Channels, text.Draw(t, "channel"))
	}
	for range rapid.IntRange(0, 3).Draw(t, "types") {
		u.Preferences.Types = append(u.Preferences.Types, text.Draw(t, "type"))
	}
	return u
}

// A section that ends anywhere before its end is no section, also where its
// length agrees.
func TestSectionsCutAnywhereAreRefused(t *testing.T) {
	devices, preferences := sampleUser(), sampleUser()
	devices.Preferences, preferences.Devices = push.Preferences{}, nil
	parts := kept{unread: []unreadPart{{version: true, partition: 3, offset: 300}, {hash: "hash", stands: true, offset: 1}}}
	left := kept{dropped: dropped{devices: 300, upTo: time.UnixMilli(1e12)}}
	for name, raw := range map[string][]byte{
		"devices": appendRecord(nil, devices, &kept{}, 1), "preferences": appendRecord(nil, preferences, &kept{prefsSet: true}, 1),
		"unread": appendRecord(nil, &push.User{}, &parts, 1), "dropped": appendRecord(nil, &push.User{}, &left, 1),
	} {
		all := cursor{rest: raw[headLen+1:]}
		body := all.bytes()
		if all.bad || len(all.rest) > 0 || len(body) < 4 {
			t.Fatalf("%s: %x is not one section", name, raw)
		}
		for n := range len(body) + 1 {
			cut := appendSection(bytes.Clone(raw[:headLen]), raw[headLen], func([]byte) []byte { return body[:n] })
			var u push.User
			var k kept
			if _, err := decode(cut, &u, &k); (err == nil) != (n == len(body)) {
				t.Errorf("%s, %d of %d bytes: %v", name, n, len(body), err)
			}
		}
	}
}

func TestRecordRoundTripOfAnyUser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, build := genUser(t), rapid.Uint64().Draw(t, "build")
		got := new(push.User)
		gotBuild, err := decode(Encode(nil, want, build), got, nil)
		if err != nil || gotBuild != build || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v (build %x), error %v\nwant %+v (build %x)", got, gotBuild, err, want, build)
		}
	})
}

// Whatever bytes Redis answers: no panic, and what is accepted is what a
// record says.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(Encode(nil, sampleUser(), 1))
	f.Add(Encode(nil, &push.User{}, 1))
	f.Add(appendRecord(nil, sampleUser(), &kept{foreign: []foreign{unknown("zz"), {hash: "a", packed: []byte{200, 9, 0, 1, 'a', 0, 0, 0}}}}, 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var u push.User
		build, err := decode(raw, &u, nil)
		if err != nil {
			return
		}
		var again push.User
		gotBuild, err := decode(Encode(nil, &u, build), &again, nil)
		if err != nil || gotBuild != build || len(again.Devices) != len(u.Devices) {
			t.Fatalf("%+v does not survive: %+v, error %v", u, again, err)
		}
		for i := range u.Devices {
			if u.Devices[i] != again.Devices[i] {
				t.Fatalf("device %d: %+v, then %+v", i, u.Devices[i], again.Devices[i])
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	raw := Encode(nil, sampleUser(), 7)
	var u push.User
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(raw, &u, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// A record has no section without content: what is stored of a million users is
// no longer than it must be.
func TestRecordsAreNoLongerThanTheyMustBe(t *testing.T) {
	head := []byte{recordVersion, 7, 0, 0, 0, 0, 0, 0, 0}
	var u User
	if got := u.Encode(7); !bytes.Equal(got, head) {
		t.Errorf("nobody is %x", got)
	}
	u.prefsSet = true
	if got := u.Encode(7); !bytes.Equal(got, append(bytes.Clone(head), preferencesSection, 3, 0, 0, 0)) {
		t.Errorf("preferences that were set to nothing are %x", got)
	}
	plain := &push.User{Preferences: push.Preferences{OptOutAll: true, Types: []string{"ad"}}}
	if got := Encode(nil, plain, 7); !bytes.Equal(got, append(bytes.Clone(head), preferencesSection, 6, 1, 0, 1, 2, 'a', 'd')) {
		t.Errorf("preferences are %x", got)
	}
	if got := Encode([]byte("before"), new(push.User), 7); !bytes.Equal(got, append([]byte("before"), head...)) {
		t.Errorf("appended: %x", got)
	}
}
