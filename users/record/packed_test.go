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

// wholeUser has something of everything.
func wholeUser() *push.User {
	u := sampleUser()
	u.Devices[1].AppVersion = "12.4.1 (77)"
	u.Preferences.Blocked, u.Preferences.Senders, u.Preferences.OptIns = true, []string{"shop"}, []string{"promo", "survey"}
	u.Preferences.Quiet = []push.QuietHours{
		{From: 22 * 60, To: 7 * 60},
		{From: 13 * 60, To: 14*60 + 30, Days: 1 | 64, Types: []string{"promo", "digest"}},
	}
	u.Profile = push.Profile{Locale: "nl-BE", Zone: "Europe/Brussels", Country: "BE", Number: 1<<32 - 1, HasNumber: true,
		LastActivity: time.UnixMilli(1_790_000_000_123).UTC()}
	u.Limits = []push.PersonalLimit{{Name: "promo", Max: 2}, {Name: "user-an-hour", Max: 4096}}
	return u
}

func TestRecordRoundTrip(t *testing.T) {
	want := wholeUser()
	raw := Encode(nil, want, 0xfeedbeef)
	got := push.User{Limiter: []byte("kept"), Devices: make([]push.Device, 5)}
	build, err := decode(raw, &got, nil, nil)
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
	u := *wholeUser()
	if _, err := decode(Encode(nil, &push.User{}, 1), &u, nil, nil); err != nil {
		t.Fatal(err)
	}
	if len(u.Devices) != 0 || !noPreferences(&u.Preferences) || u.Profile != (push.Profile{}) || len(u.Limits) != 0 {
		t.Errorf("left over: %+v", u)
	}
}

// A count of more elements than the bytes behind it can be is refused before anybody
// reads so many.
func TestCountsThatCannotBe(t *testing.T) {
	for _, tt := range []struct {
		count, size, rest int
		good              bool
	}{{0, 2, 0, true}, {2, 2, 4, true}, {2, 2, 5, true}, {3, 2, 5, false}, {1, 2, 1, false}, {5, 1, 5, true}, {6, 1, 5, false}} {
		c := cursor{rest: append([]byte{byte(tt.count)}, make([]byte, tt.rest)...)}
		if n := c.count(tt.size); c.bad == tt.good || tt.good && n != tt.count || !tt.good && n != 0 {
			t.Errorf("%d of %d bytes in %d: %d, refused %v", tt.count, tt.size, tt.rest, n, c.bad)
		}
	}
}

// What the pipeline reads is all of a record of its build, and nothing of any other:
// no user keeps what was read before.
func TestDecodeOfItsBuildOnly(t *testing.T) {
	good := Encode(nil, sampleUser(), 7)
	for _, tt := range []struct {
		why   string
		raw   []byte
		build uint64
		there bool
		err   error
	}{
		{"of its build", good, 7, true, nil},
		{"of its build, with what only a registry keeps", appendRecord(nil, sampleUser(),
			&kept{prefsSet: true, dropped: dropped{devices: 3, upTo: time.UnixMilli(5)}, unread: []unreadPart{{part: ProfilePart, offset: 9}}}, 7), 7, true, nil},
		{"of another", good, 8, false, nil},
		{"nothing", nil, 7, false, nil},
		{"empty", []byte{}, 0, false, ErrCorrupt},
		{"cut short", good[:len(good)-1], 7, false, ErrCorrupt},
		{"cut short, of another", good[:len(good)-1], 8, false, nil},
		{"of a later version", append([]byte{9}, good[1:]...), 7, false, ErrVersion},
	} {
		u := wholeUser()
		if err := new(Decoder).Decode(tt.raw, tt.build, u); !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", tt.why, err, tt.err)
		}
		want := new(push.User)
		if tt.there {
			want = sampleUser()
		}
		if got := Encode(nil, u, 7); !bytes.Equal(got, Encode(nil, want, 7)) {
			t.Errorf("%s: left of the user is %+v", tt.why, u)
		}
		s := User{User: *wholeUser(), kept: kept{prefsSet: true}}
		if err := s.Decode(tt.raw, tt.build); !errors.Is(err, tt.err) || s.Empty() == tt.there {
			t.Errorf("%s: the registry keeps %+v, %v", tt.why, s, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := Encode(nil, sampleUser(), 7)
	head := append([]byte{recordVersion}, make([]byte, 8)...)
	with := func(tail ...byte) []byte { return append(append([]byte(nil), head...), tail...) }
	one := deviceOf(push.FCM, "token-1", 1)
	long := appendDevice(nil, &one)
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
		{"section a reader must know", with(5, 0), ErrVersion},
		{"the last one that it must", with(optionalSection-1, 0), ErrVersion},
		{"the first one that it need not", with(optionalSection, 0), nil},
		{"unread parts that do not fit", with(unreadSection, 2, 1, 0), ErrCorrupt},
		{"unknown flag of an unread part", with(unreadSection, 5, 1, 8, 0, 0, 0), ErrCorrupt},
		{"section longer than the record", with(devicesSection, 9), ErrCorrupt},
		{"more devices than fit", with(devicesSection, 1, 200), ErrCorrupt},
		{"rest behind the devices", with(devicesSection, 2, 0, 0), ErrCorrupt},
		{"unknown flag", with(preferencesSection, 3, 2, 0, 0), ErrCorrupt},
		{"unknown flag of what is forbidden", with(forbiddenSection, 3, 2, 0, 0), ErrCorrupt},
		{"quiet from 24:00 on", with(forbiddenSection, 8, 0, 0, 1, 0xa0, 0x0b, 0, 0, 0), ErrCorrupt},
		{"quiet until 24:00", with(forbiddenSection, 8, 0, 0, 1, 0, 0xa0, 0x0b, 0, 0), ErrCorrupt},
		{"quiet on an eighth day", with(forbiddenSection, 7, 0, 0, 1, 0, 0, 128, 0), ErrCorrupt},
		{"more quiet hours than fit", with(forbiddenSection, 4, 0, 0, 200, 1), ErrCorrupt},
		{"a user number above 32 bits", with(profileSection, 9, 0, 0, 0, 0x81, 0x80, 0x80, 0x80, 0x10, 0), ErrCorrupt},
		{"a limit above 31 bits", with(limitsSection, 7, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x08), ErrCorrupt},
		{"a limit of 31 bits", with(limitsSection, 7, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x07), nil},
		{"rest behind the limits", with(limitsSection, 2, 0, 0), ErrCorrupt},
		{"no platform", with(devicesSection, 8, 1, 0, 0, 0, 0, 0, 0, 0), ErrCorrupt},
		{"no platform, in what is left behind a device", append(append(with(devicesSection, byte(len(long)+3), 2), long...), 0, 0), ErrCorrupt},
		{"a cut device of an unknown platform", with(devicesSection, 7, 1, 9, 0, 0, 0, 0, 0), ErrCorrupt},
	} {
		if _, err := decode(tt.raw, new(push.User), nil, nil); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestOptionalSectionsAreSkippedAndKept(t *testing.T) {
	raw := append(Encode(nil, sampleUser(), 7), optionalSection+50, 3, 'x', 'y', 'z', optionalSection+51, 1, '!')
	var s User
	if _, err := decode(raw, &s.User, &s.kept, nil); err != nil || len(s.Devices) != 2 {
		t.Fatalf("%d devices, error %v", len(s.Devices), err)
	}
	if got := s.Encode(7); !bytes.Equal(got, raw) {
		t.Errorf("written back as\n%x, was\n%x", got, raw)
	}
}

// reader3 reads a record as the version does that knew sections 1 to 3 and 129 and 130.
func reader3(raw []byte) error {
	c := cursor{rest: raw[headLen:]}
	for len(c.rest) > 0 {
		switch tag, body := c.byte(), c.bytes(); {
		case tag > 3 && tag < optionalSection:
			return ErrVersion
		case tag == preferencesSection && body[0] > 1:
			return ErrCorrupt
		}
	}
	return nil
}

// An older reader waits where it would overlook that something is forbidden, and
// only there.
func TestOlderReadersOverlookNothingForbidden(t *testing.T) {
	for why, tt := range map[string]struct {
		change func(*push.User)
		waits  bool
	}{
		"as it was":       {func(*push.User) {}, false},
		"blocked":         {func(u *push.User) { u.Preferences.Blocked = true }, true},
		"a sender":        {func(u *push.User) { u.Preferences.Senders = []string{"s"} }, true},
		"quiet hours":     {func(u *push.User) { u.Preferences.Quiet = make([]push.QuietHours, 1) }, true},
		"an opt-in":       {func(u *push.User) { u.Preferences.OptIns = []string{"s"} }, false},
		"a profile":       {func(u *push.User) { u.Profile.Zone = "Europe/Berlin" }, false},
		"limits":          {func(u *push.User) { u.Limits = []push.PersonalLimit{{Name: "a", Max: 1}} }, false},
		"an app version":  {func(u *push.User) { u.Devices[0].AppVersion = "1" }, false},
		"an app, nothing": {func(u *push.User) { u.Devices[0].App = "" }, false},
	} {
		u := sampleUser()
		tt.change(u)
		if err := reader3(Encode(nil, u, 7)); errors.Is(err, ErrVersion) != tt.waits || err != nil && !tt.waits {
			t.Errorf("%s: %v", why, err)
		}
		value, err := PreferencesValue(&u.Preferences)
		if newer := tt.waits || len(u.Preferences.OptIns) > 0; err != nil || bytes.Contains(value, []byte(`"v":2`)) != newer {
			t.Errorf("%s: in push.users %s, %v", why, value, err)
		}
	}
	facts := User{kept: kept{unread: []unreadPart{{part: ProfilePart}, {part: LimitsPart, version: true}}}}
	if err := reader3(facts.Encode(7)); err != nil || facts.Encode(7)[headLen] != unreadFactsSection {
		t.Errorf("facts in quarantine: %v", err)
	}
}

// The version of an app stays with its device: also of a platform that is not known,
// and not with one that took its place.
func TestVersionsOfAppsStayWithTheirDevices(t *testing.T) {
	u := sampleUser()
	u.Devices = append(u.Devices, push.Device{Platform: 200, Hash: "h", App: "shop"})
	raw := appendVersions(Encode(nil, u, 7), []push.Device{{Hash: "h", AppVersion: "3"}, {Hash: u.Devices[1].Hash, AppVersion: "1"}, {Hash: "gone", AppVersion: "9"}}, nil)
	var s User
	if err := s.Decode(raw, 7); err != nil || s.Devices[0].AppVersion != "" || s.Devices[1].AppVersion != "1" {
		t.Fatalf("%+v, %v", s.Devices, err)
	}
	again := s.Encode(7)
	if err := s.Decode(again, 7); err != nil || s.foreignAt("h").version != "3" || bytes.Contains(again, []byte("gone")) {
		t.Errorf("%+v, %v", s.foreign, err)
	}
}

func TestWhatIsKeptRoundTrips(t *testing.T) {
	want := User{User: *sampleUser(), kept: kept{prefsSet: true, unread: []unreadPart{
		{part: DevicePart("0123456789abcdef"), stands: true, partition: 17},
		{part: LimitsPart, version: true, offset: 5},
		{part: PreferencesPart, version: true, partition: 3, offset: 1 << 40},
		{part: ProfilePart, stands: true, offset: 6},
	}, dropped: dropped{devices: 7, upTo: time.UnixMilli(1_700_000_000_123).UTC()}}}
	want.Quarantine = quarantine(want.unread)
	var got User
	if build, err := decode(want.Encode(7), &got.User, &got.kept, nil); err != nil || build != 7 || !reflect.DeepEqual(got, want) {
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
	for _, list := range []*[]string{&u.Preferences.Senders, &u.Preferences.OptIns} {
		for range rapid.IntRange(0, 3).Draw(t, "names") {
			*list = append(*list, text.Draw(t, "name"))
		}
	}
	clock := rapid.Map(rapid.IntRange(0, push.MinutesOfDay-1), func(n int) push.Clock { return push.Clock(n) })
	for range rapid.IntRange(0, 3).Draw(t, "quiet hours") {
		q := push.QuietHours{From: clock.Draw(t, "from"), To: clock.Draw(t, "to"), Days: push.Weekdays(rapid.IntRange(0, 127).Draw(t, "days"))}
		for range rapid.IntRange(0, 2).Draw(t, "quiet types") {
			q.Types = append(q.Types, text.Draw(t, "quiet type"))
		}
		u.Preferences.Quiet = append(u.Preferences.Quiet, q)
	}
	for i := range u.Devices {
		if len(u.Devices) == 1 || rapid.Bool().Draw(t, "versioned") && !slices.ContainsFunc(u.Devices[:i], func(d push.Device) bool { return d.Hash == u.Devices[i].Hash }) {
			u.Devices[i].AppVersion = text.Draw(t, "version")
		}
	}
	u.Profile = push.Profile{Locale: text.Draw(t, "locale"), Zone: text.Draw(t, "zone"), Country: text.Draw(t, "country"), HasNumber: rapid.Bool().Draw(t, "numbered")}
	if u.Profile.HasNumber {
		u.Profile.Number = rapid.Uint32().Draw(t, "number")
	}
	if ms := rapid.Int64Range(0, 1<<50).Draw(t, "activity"); ms != 0 {
		u.Profile.LastActivity = time.UnixMilli(ms).UTC()
	}
	for range rapid.IntRange(0, 3).Draw(t, "limits") {
		u.Limits = append(u.Limits, push.PersonalLimit{Name: text.Draw(t, "limit"), Max: rapid.IntRange(0, 4096).Draw(t, "most")})
	}
	return u
}

// A section that ends anywhere before its end is no section, also where its
// length agrees.
func TestSectionsCutAnywhereAreRefused(t *testing.T) {
	devices, preferences := sampleUser(), sampleUser()
	devices.Preferences, preferences.Devices = push.Preferences{}, nil
	whole := wholeUser()
	facts := kept{unread: []unreadPart{{part: LimitsPart, offset: 300}, {part: ProfilePart, version: true}}}
	parts := kept{unread: []unreadPart{{part: PreferencesPart, version: true, partition: 3, offset: 300}, {part: DevicePart("hash"), stands: true, offset: 1}}}
	left := kept{dropped: dropped{devices: 300, upTo: time.UnixMilli(1e12)}}
	for name, raw := range map[string][]byte{
		"devices": appendRecord(nil, devices, &kept{}, 1), "preferences": appendRecord(nil, preferences, &kept{prefsSet: true}, 1),
		"unread": appendRecord(nil, &push.User{}, &parts, 1), "dropped": appendRecord(nil, &push.User{}, &left, 1),
		"opt-ins":      appendRecord(nil, &push.User{Preferences: push.Preferences{OptIns: whole.Preferences.OptIns}}, &kept{prefsSet: true}, 1),
		"forbidden":    appendRecord(nil, &push.User{Preferences: push.Preferences{Quiet: whole.Preferences.Quiet}}, &kept{prefsSet: true}, 1),
		"profile":      appendRecord(nil, &push.User{Profile: whole.Profile}, &kept{}, 1),
		"limits":       appendRecord(nil, &push.User{Limits: whole.Limits}, &kept{}, 1),
		"versions":     appendVersions(Encode(nil, &push.User{}, 1), whole.Devices, nil),
		"unread facts": appendRecord(nil, &push.User{}, &facts, 1),
	} {
		raw = bytes.Replace(raw, []byte{preferencesSection, 3, 0, 0, 0}, nil, 1) // of those that are in other sections only
		all := cursor{rest: raw[headLen+1:]}
		body := all.bytes()
		if all.bad || len(all.rest) > 0 || len(body) < 4 {
			t.Fatalf("%s: %x is not one section", name, raw)
		}
		for n := range len(body) + 1 {
			cut := appendSection(bytes.Clone(raw[:headLen]), raw[headLen], func([]byte) []byte { return body[:n] })
			var u push.User
			var k kept
			if _, err := decode(cut, &u, &k, nil); (err == nil) != (n == len(body)) {
				t.Errorf("%s, %d of %d bytes: %v", name, n, len(body), err)
			}
		}
	}
}

func TestRecordRoundTripOfAnyUser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, build := genUser(t), rapid.Uint64().Draw(t, "build")
		got := new(push.User)
		gotBuild, err := decode(Encode(nil, want, build), got, nil, nil)
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
	f.Add(Encode(nil, wholeUser(), 1))
	f.Add(appendRecord(nil, sampleUser(), &kept{foreign: []foreign{unknown("zz"), {hash: "a", packed: []byte{200, 9, 0, 1, 'a', 0, 0, 0}}}}, 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var u push.User
		build, err := decode(raw, &u, nil, nil)
		if err != nil {
			return
		}
		var again push.User
		gotBuild, err := decode(Encode(nil, &u, build), &again, nil, nil)
		if err != nil || gotBuild != build || len(again.Devices) != len(u.Devices) {
			t.Fatalf("%+v does not survive: %+v, error %v", u, again, err)
		}
		for i := range u.Devices {
			if u.Devices[i] != again.Devices[i] {
				t.Fatalf("device %d: %+v, then %+v", i, u.Devices[i], again.Devices[i])
			}
		}
		if u.Profile != again.Profile || !slices.Equal(u.Limits, again.Limits) || u.Preferences.Blocked != again.Preferences.Blocked ||
			!slices.Equal(u.Preferences.Senders, again.Preferences.Senders) || !slices.Equal(u.Preferences.OptIns, again.Preferences.OptIns) ||
			len(u.Preferences.Quiet) != len(again.Preferences.Quiet) {
			t.Fatalf("%+v does not survive: %+v", u, again)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	raw := Encode(nil, sampleUser(), 7)
	var u push.User
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(raw, &u, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeWhole(b *testing.B) {
	raw := Encode(nil, wholeUser(), 7)
	var u push.User
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(raw, &u, nil, nil); err != nil {
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
