package record

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// What counts of a device: a registration that is not older than the one that is
// there, a removal that reaches it, and what only repeats if it still holds. While
// a shard is built, repeats count as what they repeat.
func TestWhatCountsOfADevice(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	registered := func(ms int64) *Change { return &Change{device: &push.Device{RegisteredAt: at(ms)}} }
	removed := func(upTo int64) *Change { return &Change{IfNotAfter: at(upTo)} }
	repeating := func(c *Change) *Change { c.Repeats = true; return c }
	for _, tt := range []struct {
		why             string
		c               *Change
		there           time.Time
		ready, building bool // whether it counts then
	}{
		{"registered anew", registered(100), time.Time{}, true, true},
		{"registered again, later", registered(101), at(100), true, true},
		{"registered again", registered(100), at(100), true, true},
		{"registered again, earlier", registered(99), at(100), false, false},
		{"removed without a limit", &Change{}, at(100), true, true},
		{"removed up to later", removed(101), at(100), true, true},
		{"removed up to then", removed(100), at(100), true, true},
		{"removed up to earlier", removed(99), at(100), false, false},
		{"removed, and not there", removed(99), time.Time{}, true, true},
		{"repeated, and it holds", repeating(registered(100)), at(100), true, true},
		{"repeated, and a later one holds", repeating(registered(99)), at(100), false, false},
		{"repeated, and an earlier one holds", repeating(registered(101)), at(100), false, true},
		{"repeated, and not there any more", repeating(registered(100)), time.Time{}, false, true},
		{"a removal repeated, and not there", repeating(&Change{}), time.Time{}, true, true},
		{"a removal repeated, and there again", repeating(&Change{}), at(100), false, true},
	} {
		for _, ready := range []bool{true, false} {
			want := tt.building
			if ready {
				want = tt.ready
			}
			if got := (&Merging{Ready: ready}).counts(tt.c, tt.there); got != want {
				t.Errorf("%s, shard complete %v: counts %v", tt.why, ready, got)
			}
		}
	}
}

// The latest claim is that of who registered last; of two in one millisecond
// everybody takes the same.
func TestLatestClaim(t *testing.T) {
	for _, tt := range []struct {
		claims Claims
		want   string
	}{
		{Claims{{"ada", 5}}, "ada"},
		{Claims{{"ada", 5}, {"bob", 6}}, "bob"},
		{Claims{{"bob", 5}, {"ada", 6}}, "ada"},
		{Claims{{"ada", 5}, {"bob", 5}}, "bob"},
		{Claims{{"ada", 7}, {"bob", 5}, {"cy", 7}}, "cy"},
	} {
		for range tt.claims {
			if got := tt.claims.Latest().User; got != tt.want {
				t.Errorf("of %v it is %s, want %s", tt.claims, got, tt.want)
			}
			tt.claims = append(tt.claims[1:], tt.claims[0]) // in any order
		}
	}
}

// A token is Contested from its second claim on until there is one again.
func TestContestedTokens(t *testing.T) {
	m := &Merging{Ready: true, Cases: map[string]bool{}}
	var cs Claims
	for _, step := range []struct {
		user    string
		at      int64 // 0 = removed
		owner   string
		claims  int
		opened  bool
		changed bool // the case is opened or closed by this
	}{
		{"ada", 1, "ada", 1, false, false},
		{"ada", 2, "ada", 1, false, false},
		{"bob", 3, "bob", 2, true, true},
		{"cy", 1, "bob", 3, false, false},
		{"bob", 0, "ada", 2, false, false},
		{"cy", 0, "ada", 1, false, true},
		{"ada", 0, "", 0, false, false},
	} {
		clear(m.Cases)
		c := &Change{User: step.user, Part: DevicePart("h")}
		if step.at > 0 {
			c.device = &push.Device{RegisteredAt: time.UnixMilli(step.at)}
		}
		cs = m.Token(slices.Clone(cs), c)
		opened, changed := m.Cases[Contested+"h"]
		if len(cs) != step.claims || len(cs) > 0 && cs.Latest().User != step.owner || opened != step.opened || changed != step.changed {
			t.Errorf("after %s at %d: %v, case opened %v, changed %v", step.user, step.at, cs, opened, changed)
		}
	}
}

// Only what is repeated by a user who does not claim the token any more is Stray:
// it may count where the user's record is.
func TestStrayRepeats(t *testing.T) {
	for _, tt := range []struct {
		why     string
		claims  Claims
		ready   bool
		repeats bool
		device  bool
		stray   bool
	}{
		{"repeated, and removed meanwhile", Claims{{"bob", 200}}, true, true, true, true},
		{"repeated, and it holds", Claims{{"ada", 100}}, true, true, true, false},
		{"repeated, and a later one holds", Claims{{"ada", 150}}, true, true, true, false},
		{"registered anew", Claims{{"bob", 200}}, true, false, true, false},
		{"a removal repeated", Claims{{"bob", 200}}, true, true, false, false},
		{"repeated while this shard is built: it counts", Claims{{"bob", 200}}, false, true, true, false},
	} {
		c := &Change{User: "ada", Part: DevicePart("h"), Repeats: tt.repeats}
		if tt.device {
			c.device = &push.Device{RegisteredAt: time.UnixMilli(100)}
		}
		m := &Merging{Ready: tt.ready, Cases: map[string]bool{}}
		m.Token(slices.Clone(tt.claims), c)
		if got := m.Cases[Stray+"100:"+DeviceKey("ada", "h")]; got != tt.stray {
			t.Errorf("%s: Stray %v, cases %v", tt.why, got, m.Cases)
		}
	}
}

// A case is closed where it may be open: by an earlier change of the same write, or
// by a write before. Of a shard without cases nothing is to be written about them.
func TestCasesThatMayBeOpenAreClosed(t *testing.T) {
	for _, tt := range []struct {
		why          string
		opened, open bool
		written      bool
	}{
		{"of a shard without cases", false, false, false},
		{"opened by this write", true, false, true},
		{"of a shard with cases", false, true, true},
		{"opened by this write and perhaps before", true, true, true},
	} {
		m := &Merging{Open: tt.open, Cases: map[string]bool{}}
		if tt.opened {
			m.Cases["case"] = true
		}
		m.close("case")
		if left, written := m.Cases["case"]; written != tt.written || left {
			t.Errorf("%s: written %v, left open %v", tt.why, written, left)
		}
	}
}

// The owner of a token is the latest who has the device, as far as that is known.
func TestOwnerOfAToken(t *testing.T) {
	cs := Claims{{"ada", 5}, {"bob", 7}, {"cy", 6}}
	has := &User{User: push.User{Devices: []push.Device{{Hash: "h", RegisteredAt: time.UnixMilli(1)}}}}
	for _, tt := range []struct {
		ada, bob, cy *User // nil = not known
		want         Claim
		known        bool
	}{
		{has, has, has, cs[1], true},
		{nil, has, nil, cs[1], true},
		{has, new(User), has, cs[2], true},
		{has, new(User), new(User), cs[0], true},
		{new(User), new(User), new(User), Claim{}, true},
		{has, nil, has, Claim{}, false},
		{has, new(User), nil, Claim{}, false},
	} {
		got, known := cs.Owner("h", map[string]*User{"ada": tt.ada, "bob": tt.bob, "cy": tt.cy})
		if got != tt.want || known != tt.known {
			t.Errorf("%+v: %+v, %v", tt, got, known)
		}
	}
	if want := (Claims{{"ada", 5}, {"bob", 7}, {"cy", 6}}); !slices.Equal(cs, want) {
		t.Errorf("the claims became %v", cs)
	}
}

// A user lacks a device only if nothing says that it may be there, and it was not
// left out as one too many.
func TestWhoLacksADevice(t *testing.T) {
	at := time.UnixMilli(100)
	parts := func(n int) []unreadPart { return make([]unreadPart, n) }
	for _, tt := range []struct {
		why   string
		user  User
		lacks bool
	}{
		{"nobody", User{}, true},
		{"of another device", User{User: push.User{Devices: []push.Device{{Hash: "other", RegisteredAt: at}}}}, true},
		{"of the device", User{User: push.User{Devices: []push.Device{{Hash: "h", RegisteredAt: at}}}}, false},
		{"of the device as of another time", User{User: push.User{Devices: []push.Device{{Hash: "h", RegisteredAt: time.UnixMilli(50)}}}}, false},
		{"of it on an unknown platform", User{kept: kept{foreign: []foreign{{hash: "h", at: at}}}}, false},
		{"whose record of it cannot be read", User{kept: kept{unread: []unreadPart{{part: DevicePart("h")}}}}, false},
		{"with other parts that cannot be read", User{kept: kept{unread: parts(maxUnread - 1)}}, true},
		{"with more of them than are remembered", User{kept: kept{unread: parts(maxUnread)}}, false},
		{"who had too many, up to before", User{kept: kept{dropped: dropped{devices: 1, upTo: time.UnixMilli(99)}}}, true},
		{"who had too many, up to then", User{kept: kept{dropped: dropped{devices: 1, upTo: at}}}, false},
	} {
		if got := tt.user.lacks("h", at); got != tt.lacks {
			t.Errorf("%s: lacks it %v", tt.why, got)
		}
	}
}

// A user is kept as long as there is anything to keep.
func TestWhoIsKept(t *testing.T) {
	for why, s := range map[string]User{
		"a device":           {User: push.User{Devices: make([]push.Device, 1)}},
		"preferences":        {kept: kept{prefsSet: true}},
		"a profile":          {User: push.User{Profile: push.Profile{HasNumber: true}}},
		"a personal limit":   {User: push.User{Limits: make([]push.PersonalLimit, 1)}},
		"a part unread":      {kept: kept{unread: make([]unreadPart, 1)}},
		"what nobody knows":  {kept: kept{extra: []byte{optionalSection + 5, 0}}},
		"nothing":            {},
		"memory of devices":  {User: push.User{Devices: make([]push.Device, 0, 5)}},
		"devices left out":   {kept: kept{dropped: dropped{devices: 3}}},
		"memory of unknowns": {kept: kept{extra: []byte{}}},
	} {
		want := why == "nothing" || why == "memory of devices" || why == "devices left out" || why == "memory of unknowns"
		if s.Empty() != want {
			t.Errorf("%s: empty %v", why, s.Empty())
		}
	}
}

// Parts in quarantine of one user are remembered up to a bound, those of which there
// is one in any case, and each until it can be read.
func TestPartsInQuarantineAreBounded(t *testing.T) {
	m := &Merging{Ready: true, Cases: map[string]bool{}, Unread: map[string]bool{}}
	var u User
	part := func(i int) *Change {
		names := []Part{PreferencesPart, ProfilePart, LimitsPart, DevicePart(string(rune('a' + i)))}
		name := names[min(i, len(names)-1)]
		return &Change{User: "ada", Part: name, Offset: int64(i), unread: &unreadPart{part: name, offset: int64(i)}}
	}
	for i := maxUnread + 4; i >= 0; i-- { // preferences last
		m.User(&u, part(i))
	}
	if len(u.unread) != maxUnread+3 || u.Quarantine != push.DeviceUnread|push.PreferencesBroken {
		t.Fatalf("%d parts, marks %b", len(u.unread), u.Quarantine)
	}
	if !slices.IsSortedFunc(u.unread, func(a, b unreadPart) int { return strings.Compare(string(a.part), string(b.part)) }) {
		t.Errorf("parts are not in order: %+v", u.unread)
	}
	if first := (&Change{User: "ada", Part: DevicePart("d")}).key(); m.Unread[first] || m.Cases[Quarantined+first] {
		t.Error("one that is not remembered is told")
	}
	again := part(5)
	again.unread.offset, again.unread.version = 99, true
	m.User(&u, again)
	if at := u.unreadAt(again.Part); len(u.unread) != maxUnread+3 || u.unread[at].offset != 99 || !u.unread[at].version {
		t.Errorf("a part that was replaced: %+v", u.unread)
	}
	m.User(&u, &Change{User: "ada", Part: PreferencesPart, preferences: &push.Preferences{OptOutAll: true}})
	if u.unreadAt(PreferencesPart) >= 0 || u.Quarantine != push.DeviceUnread || m.Unread[PreferencesKey("ada")] || !u.Preferences.OptOutAll {
		t.Errorf("preferences that can be read again: %+v, marks %b", u.unread, u.Quarantine)
	}
}

// What only repeats a part takes it out of quarantine only while the shard is built:
// else the record that cannot be read came after it.
func TestRepeatsOfPartsInQuarantine(t *testing.T) {
	for _, tt := range []struct {
		why            string
		repeats, ready bool
		released       bool
	}{
		{"a record", false, true, true},
		{"a record while the shard is built", false, false, true},
		{"a repeat", true, true, false},
		{"a repeat while the shard is built", true, false, true},
	} {
		m := &Merging{Ready: tt.ready, Most: DeviceLimits{User: 5, App: 5}, Cases: map[string]bool{}, Unread: map[string]bool{}}
		d := deviceOf(push.FCM, "token-1", 5)
		part := DevicePart(d.Hash)
		u := User{User: push.User{Devices: []push.Device{d}}, kept: kept{unread: []unreadPart{{part: part, stands: true}}}}
		m.User(&u, &Change{User: "ada", Part: part, device: &d, Repeats: tt.repeats})
		if released := u.unreadAt(part) < 0; released != tt.released || m.Unread[Key("ada", part)] == tt.released {
			t.Errorf("%s: released %v, unread %v", tt.why, released, m.Unread)
		}
	}
}

// A registration that is not earlier takes the place of the one of the same token.
func TestALaterRegistrationReplaces(t *testing.T) {
	m := &Merging{Ready: true, Most: DeviceLimits{User: 5, App: 5}, Cases: map[string]bool{}, Unread: map[string]bool{}}
	var u User
	for _, tt := range []struct {
		app, want string
		at        int64
	}{{"first", "first", 5}, {"later", "later", 6}, {"same time", "same time", 6}, {"earlier", "same time", 5}} {
		d := deviceOf(push.FCM, "token-1", tt.at)
		d.App = tt.app
		m.User(&u, &Change{User: "ada", Part: DevicePart(d.Hash), device: &d})
		if len(u.Devices) != 1 || u.Devices[0].App != tt.want {
			t.Errorf("after %q there is %+v, want %q", tt.app, u.Devices, tt.want)
		}
	}
}

// What is too many goes with the write that brings it: whoever registers without
// end must not make a record that grows until somebody has looked.
func TestTooManyDevicesGoAtOnce(t *testing.T) {
	m := &Merging{Ready: true, Most: DeviceLimits{User: 5, App: 3}, Cases: map[string]bool{}, Unread: map[string]bool{}}
	var u User
	for i := range 20 {
		d := deviceOf(push.FCM, fmt.Sprint("token-", i), int64(i)*1000)
		d.App = fmt.Sprint("app-", i%2)
		m.User(&u, &Change{User: "ada", Part: DevicePart(d.Hash), device: &d})
		if want := min(i+1, 5); len(u.Devices) != want {
			t.Fatalf("after %d devices there are %d, want %d", i+1, len(u.Devices), want)
		}
	}
	if u.dropped.devices != 15 || u.dropped.upTo.UnixMilli() != 14_000 {
		t.Errorf("%d were dropped up to %v", u.dropped.devices, u.dropped.upTo)
	}
	for i := range 20 {
		d := deviceOf(push.FCM, fmt.Sprint("token-", i), int64(i)*1000)
		if there := DeviceOf(&u.User, d.Hash) != nil; there != (i >= 15) {
			t.Errorf("device %d is there: %v", i, there)
		}
		if removed := m.Cases[fmt.Sprint(Evicted, i*1000, ":", DeviceKey("ada", d.Hash))]; removed != (i < 15) {
			t.Errorf("device %d is to be removed from the topic: %v", i, removed)
		}
	}
}

// Of devices that were registered in the same millisecond the greater hash is the later
// one, in whatever order their records come: all registries evict the same one.
func TestDevicesOfOneMillisecond(t *testing.T) {
	var devices []push.Device
	for i := range 4 {
		devices = append(devices, deviceOf(push.FCM, fmt.Sprint("token-", i), 1000))
	}
	least := slices.MinFunc(devices, func(a, b push.Device) int { return strings.Compare(a.Hash, b.Hash) })
	for first := range devices {
		m := &Merging{Ready: true, Most: DeviceLimits{User: 3, App: 3}, Cases: map[string]bool{}, Unread: map[string]bool{}}
		var u User
		for i := range devices {
			d := devices[(first+i)%len(devices)]
			m.User(&u, &Change{User: "ada", Part: DevicePart(d.Hash), device: &d})
		}
		if len(u.Devices) != 3 || DeviceOf(&u.User, least.Hash) != nil {
			t.Errorf("beginning with %d: %d devices are left, and the one of the least hash: %v", first, len(u.Devices), DeviceOf(&u.User, least.Hash) != nil)
		}
	}
}
