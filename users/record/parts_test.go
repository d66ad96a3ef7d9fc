package record

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// What is written of a part is what is read of it.
func TestPartsRoundTrip(t *testing.T) {
	u := wholeUser()
	value, err := PreferencesValue(&u.Preferences)
	if p, also := parsePreferences(value); err != nil || also != nil || !reflect.DeepEqual(p, u.Preferences) {
		t.Errorf("preferences %s: %+v, %v, %v", value, p, err, also)
	}
	value, err = ProfileValue(&u.Profile)
	if p, also := parseProfile(value, u.Profile.LastActivity); err != nil || also != nil || p != u.Profile {
		t.Errorf("profile %s: %+v, %v, %v", value, p, err, also)
	}
	zero := push.Profile{HasNumber: true}
	value, err = ProfileValue(&zero)
	if p, also := parseProfile(value, time.Now()); err != nil || also != nil || p != zero {
		t.Errorf("user number 0 %s: %+v, %v, %v", value, p, err, also)
	}
	value, err = LimitsValue(u.Limits)
	if l, also := parseLimits(value); err != nil || also != nil || !reflect.DeepEqual(l, u.Limits) {
		t.Errorf("limits %s: %+v, %v, %v", value, l, err, also)
	}
	for what, write := range map[string]func() ([]byte, error){
		"preferences": func() ([]byte, error) { return PreferencesValue(&push.Preferences{}) },
		"profile":     func() ([]byte, error) { return ProfileValue(&push.Profile{}) },
		"limits":      func() ([]byte, error) { return LimitsValue(nil) },
	} {
		if value, err := write(); value != nil || err != nil {
			t.Errorf("no %s are not a removal: %s, %v", what, value, err)
		}
	}
}

// Each preference is worth a record, also alone: what says nothing is written as a removal.
func TestEachPreferenceAlone(t *testing.T) {
	names := []string{"a"}
	for _, p := range []push.Preferences{
		{Blocked: true}, {OptOutAll: true}, {Channels: names}, {Types: names}, {Senders: names}, {OptIns: names}, {Quiet: []push.QuietHours{{From: 1320, To: 420}}},
	} {
		value, err := PreferencesValue(&p)
		if got, also := parsePreferences(value); err != nil || also != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%+v: written as %s, read as %+v, %v, %v", p, value, got, err, also)
		}
	}
}

// What JSON has no form for is not written as something else: RFC 3339 has no year 10000.
func TestTimesThatCannotBeWritten(t *testing.T) {
	late := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	for what, write := range map[string]func(time.Time) ([]byte, error){
		"registered": func(at time.Time) ([]byte, error) { return DeviceValue(&push.Device{RegisteredAt: at}) },
		"active":     func(at time.Time) ([]byte, error) { return ProfileValue(&push.Profile{LastActivity: at}) },
	} {
		if value, err := write(late.Add(-1)); err != nil || value == nil {
			t.Errorf("%s in time: %s, %v", what, value, err)
		}
		if value, err := write(late); err == nil || value != nil {
			t.Errorf("%s too late: %s, %v", what, value, err)
		}
	}
}

// Whatever else stands in the topic breaks a rule, and is bounded.
func TestPartsThatBreakARule(t *testing.T) {
	names := func(n int) string { return strings.TrimSuffix(strings.Repeat(`"n",`, n), ",") }
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	limits := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"l%d":1,`, i)
		}
		return `{"limits":{` + strings.TrimSuffix(b.String(), ",") + `}}`
	}
	night := `{"from":"22:00","to":"07:00"}`
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		part  Part
		value string
		good  bool
	}{
		{PreferencesPart, `{"opt_out_senders":[` + names(200) + `]}`, true},
		{PreferencesPart, `{"opt_out_senders":[` + names(201) + `]}`, false},
		{PreferencesPart, `{"opt_in_types":[` + names(200) + `]}`, true},
		{PreferencesPart, `{"opt_in_types":[` + names(201) + `]}`, false},
		{PreferencesPart, `{"opt_out_senders":[""]}`, false},
		{PreferencesPart, `{"blocked":1}`, false},
		{PreferencesPart, `{"quiet_hours":[` + many(20, night) + `]}`, true},
		{PreferencesPart, `{"quiet_hours":[` + many(21, night) + `]}`, false},
		{PreferencesPart, `{"quiet_hours":[` + many(100_000, "{}") + `]}`, false},
		{PreferencesPart, `{"quiet_hours":[{"from":"22:00","to":"22:00","types":[` + names(200) + `]}]}`, true},
		{PreferencesPart, `{"quiet_hours":[{"from":"22:00","to":"22:00","types":[` + names(199) + `]},{"from":"1:00","to":"02:00"}]}`, false},
		{PreferencesPart, `{"quiet_hours":[{"from":"22:00","to":"22:00","types":[` + names(199) + `]},{"from":"00:00","to":"23:59","types":["a","b"]}]}`, false},
		{PreferencesPart, `{"quiet_hours":[{"from":"24:00","to":"07:00"}]}`, false},
		{PreferencesPart, `{"quiet_hours":[{"from":"22:00"}]}`, false},
		{PreferencesPart, `{"quiet_hours":[{"from":"22:00","to":"07:60"}]}`, false},
		{PreferencesPart, `{"quiet_hours":[{"from":"-1:00","to":"07:00"}]}`, false},
		{PreferencesPart, `{"quiet_hours":[{"from":"22:00","to":"07:00","days":["sun","sat"]}]}`, true},
		{PreferencesPart, `{"quiet_hours":[{"from":"22:00","to":"07:00","days":["Sun"]}]}`, false},
		{PreferencesPart, `{"quiet_hours":{"from":"22:00","to":"07:00"}}`, false},
		{ProfilePart, `{}`, true},
		{ProfilePart, `{"time_zone":"Europe/Berlin","locale":"de","country":"DE","user_number":0,"last_activity":"2026-11-22T11:00:00+01:00"}`, true},
		{ProfilePart, `{"time_zone":"Mars/Olympus_Mons"}`, true}, // perhaps of a later database
		{ProfilePart, `{"time_zone":"Local"}`, false},
		{ProfilePart, `{"time_zone":"../../etc/passwd"}`, false},
		{ProfilePart, `{"time_zone":"right/UTC"}`, false},
		{ProfilePart, `{"time_zone":"Europe/` + strings.Repeat("x", 60) + `"}`, false},
		{ProfilePart, `{"country":"de"}`, false},
		{ProfilePart, `{"country":"DEU"}`, false},
		{ProfilePart, `{"user_number":4294967295}`, true},
		{ProfilePart, `{"user_number":4294967296}`, false},
		{ProfilePart, `{"user_number":-1}`, false},
		{ProfilePart, `{"locale":"` + strings.Repeat("x", 36) + `"}`, false},
		{ProfilePart, `{"last_activity":"2026-11-23T12:00:00Z"}`, true},
		{ProfilePart, `{"last_activity":"2026-11-23T12:00:01Z"}`, false},
		{ProfilePart, `{"last_activity":"1969-11-23T12:00:01Z"}`, false},
		{LimitsPart, limits(100), true},
		{LimitsPart, limits(101), false},
		{LimitsPart, limits(50_000), false},
		{LimitsPart, `{"limits":{"a":0}}`, false},
		{LimitsPart, `{"limits":{"a":4096}}`, true},
		{LimitsPart, `{"limits":{"a":4097}}`, false},
		{LimitsPart, `{"limits":{"a":1.5}}`, false},
		{LimitsPart, `{"limits":{"":1}}`, false},
		{LimitsPart, `{"limits":[]}`, false},
		{LimitsPart, `{}`, true},
	} {
		c := Change{}
		err := c.Read(Key("ada", tt.part), []byte(tt.value), now)
		if (err == nil) != tt.good || (c.unread == nil) != tt.good || err != nil && !errors.Is(err, errPart) {
			t.Errorf("%s %.80s: %v", tt.part, tt.value, err)
		}
	}
}

// What a program writes has a zone that it knows.
func TestCheckedProfiles(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for zone, good := range map[string]bool{"": true, "Europe/Berlin": true, "UTC": true, "America/Argentina/Buenos_Aires": true, "Etc/GMT+5": true,
		"Mars/Olympus_Mons": false, "Local": false, "localtime": false, "Europe": false, "europe/berlin": false, "/Europe/Berlin": false} {
		p := push.Profile{Zone: zone, LastActivity: now.Add(999_999)}
		if err := CheckProfile(&p, now); (err == nil) != good || err != nil && (!errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "Mars")) {
			t.Errorf("zone %q: %v", zone, err)
		} else if good && !p.LastActivity.Equal(now) {
			t.Errorf("zone %q: last activity %v", zone, p.LastActivity)
		}
	}
	if p := (push.Profile{Number: 3}); CheckProfile(&p, now) == nil {
		t.Error("a number that is not marked as set is taken")
	}
	if err := CheckLimits([]push.PersonalLimit{{Name: "b", Max: 1}, {Name: "a", Max: 1}, {Name: "b", Max: 2}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("the same limit twice: %v", err)
	}
}

// Profile and limits that cannot be read hold up nothing: what was there before
// stands, else the user is one without them. Preferences that cannot be read do.
func TestFactsThatCannotBeRead(t *testing.T) {
	m := &Merging{Ready: true, Cases: map[string]bool{}, Unread: map[string]bool{}}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var u User
	step := func(part Part, value string, stands bool, marks push.Quarantine) {
		t.Helper()
		c := Change{Partition: 2, Offset: 7}
		var raw []byte
		if value != "" {
			raw = []byte(value)
		}
		err := c.Read(Key("ada", part), raw, now)
		m.User(&u, &c)
		if raw = u.Encode(1); u.Decode(raw, 1) != nil { // as the next write finds it
			t.Fatalf("%s %s: %x cannot be read", part, value, raw)
		}
		why, aside := u.Aside(part)
		if aside != (err != nil) || u.Quarantine != marks || aside && (why.Stands != stands || why.Offset != 7 || why.Partition != 2) || m.Unread[Key("ada", part)] != aside {
			t.Errorf("%s %s: %+v, aside %v, marks %b, %v", part, value, why, aside, u.Quarantine, err)
		}
	}
	step(ProfilePart, `{"country":1}`, false, 0)
	step(LimitsPart, `{"v":2}`, false, 0)
	if u.Empty() {
		t.Error("what is to be told is forgotten")
	}
	step(ProfilePart, `{"country":"NL"}`, false, 0)
	step(LimitsPart, `{"limits":{"promo":3}}`, false, 0)
	step(ProfilePart, `{"v":2}`, true, 0)
	step(LimitsPart, `[]`, true, 0)
	if u.Profile.Country != "NL" || len(u.Limits) != 1 {
		t.Errorf("what was there does not stand: %+v", u.User)
	}
	step(PreferencesPart, `{"v":3}`, false, push.PreferencesUnknown)
	step(PreferencesPart, `{"quiet_hours":[{}]}`, false, push.PreferencesBroken)
	step(PreferencesPart, `{"blocked":true}`, false, 0)
	step(PreferencesPart, `{"v":3}`, true, 0)
	step(LimitsPart, "", false, 0)
	step(ProfilePart, "", false, 0)
	step(PreferencesPart, "", false, 0)
	if !u.Empty() {
		t.Errorf("left over: %+v", u)
	}
}

// All that a packed record names, whatever can be done with it, and of whatever build.
func TestPartsOfAUser(t *testing.T) {
	const build = 7
	var u User
	m := Merging{Ready: true, Most: DeviceLimits{User: 10, App: 10}, Cases: map[string]bool{}, Unread: map[string]bool{}}
	apply := func(part Part, value string) {
		t.Helper()
		c := Change{}
		_ = c.Read(Key("zoe", part), []byte(value), time.Now()) // what cannot be read is a case here
		m.User(&u, &c)
	}
	want := []Part{PreferencesPart, ProfilePart, LimitsPart}
	for _, token := range []string{"a", "b", "c"} {
		want = append(want, DevicePart(push.DeviceHash(push.FCM, token)))
	}
	slices.Sort(want[3:])
	apply(PreferencesPart, `{"opt_out_all":true}`)
	apply(ProfilePart, `{"country":"NL"}`)
	apply(LimitsPart, `{"v":9}`)
	apply(DevicePart(push.DeviceHash(push.FCM, "a")), `{"platform":"fcm","app":"shop","token":"a","registered_at":"2026-01-01T00:00:00Z"}`)
	apply(DevicePart(push.DeviceHash(push.FCM, "b")), `{"platform":"hologram","app":"shop","token":"b","registered_at":"2026-01-01T00:00:00Z"}`)
	apply(DevicePart(push.DeviceHash(push.FCM, "c")), `{"v":9}`)

	raw := u.Encode(build)
	if got := BuildOf(raw); got != build {
		t.Errorf("of build %d, want %d", got, build)
	}
	var again User
	if err := again.Decode(raw, BuildOf(raw)); err != nil {
		t.Fatal(err)
	}
	if got := again.Parts(); !slices.Equal(got, want) {
		t.Errorf("parts %q, want %q", got, want)
	}
	if got := new(User).Parts(); len(got) > 0 || BuildOf(nil) != 0 {
		t.Errorf("of nothing: %q", got)
	}
}

// The shortest record there can be has a build, and what is shorter has none.
func TestBuildOf(t *testing.T) {
	raw := Encode(nil, new(push.User), 0x0102030405060708)
	if len(raw) != headLen {
		t.Fatalf("a record of nothing has %d bytes, its head %d", len(raw), headLen)
	}
	for n := range raw {
		if got := BuildOf(raw[:n]); got != 0 {
			t.Errorf("%d bytes are of build %x", n, got)
		}
	}
	if got := BuildOf(raw); got != 0x0102030405060708 {
		t.Errorf("a record of nothing is of build %x", got)
	}
}

func TestCaseNames(t *testing.T) {
	device := DeviceKey("zoe", "aaaaaaaaaaaaaaaa")
	for c, want := range map[string]bool{
		Overtaken + device: true, Quarantined + PreferencesKey("zoe"): true, Doubted + "zoe": true, LostUser + "zoe": true,
		dated(Evicted, time.Now(), device): true, dated(Stray, time.Now(), device): true,
		Contested + "aaaaaaaaaaaaaaaa": false, LostToken + "zoe": false, Doubted + "zoe/x": false, Quarantined + PreferencesKey("zoe/x"): false,
		dated(Evicted, time.Now(), DeviceKey("x/zoe", "aaaaaaaaaaaaaaaa")): false, "e:": false, "": false,
	} {
		if got := CaseNames(c, "zoe"); got != want {
			t.Errorf("%q: %v, want %v", c, got, want)
		}
	}
}
