package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// knownByNow is a record as a version writes it that does not know FCM.
func knownByNow(t *testing.T, token string) foreign {
	t.Helper()
	value := fmt.Appendf(nil, `{"platform":"fcm","app":"shop","token":%q,"registered_at":"2026-11-21T10:00:00Z"}`, token)
	return foreign{hash: push.DeviceHash(push.FCM, token), value: value, partition: 2, offset: 300}
}

// unknown is one of a platform that this version does not know.
func unknown(hash string) foreign {
	return foreign{hash: hash, at: time.UnixMilli(1_700_000_000_000).UTC(), partition: 1, offset: 7,
		value: []byte(`{"registered_at":"2023-11-14T22:13:20Z",  "platform":"hologram"}`)}
}

// What this version does not know goes through it unchanged, byte for byte, from
// before, between and after what it knows.
func TestForeignDevicesAreKeptByteForByte(t *testing.T) {
	var all []push.Device
	for i, p := range []push.Platform{200, push.APNS, 3, push.FCM, 255} {
		all = append(all, push.Device{Platform: p, App: "shop", Token: "t", Hash: fmt.Sprint("hash-", i), Locale: "de",
			RegisteredAt: time.UnixMilli(int64(i)).UTC()})
	}
	raw := appendRecord(nil, &push.User{Devices: all}, &kept{prefsSet: true, foreign: []foreign{unknown("hash-9")}}, 7)
	environment := bytes.Index(raw, []byte{200, 0}) + 1
	raw[environment] = 77 // of which nobody knows the name
	var s User
	if err := s.Decode(raw, 7); err != nil || len(s.Devices) != 2 || len(s.foreign) != 4 || s.Quarantine != push.DeviceUnread {
		t.Fatalf("%+v, error %v", s, err)
	}
	if again := s.Encode(7); !bytes.Equal(again, raw) {
		t.Errorf("written back as\n%q, was\n%q", again, raw)
	}
	if at := s.registeredAt("hash-4"); at.UnixMilli() != 4 {
		t.Errorf("registered at %v", at)
	}
	var u push.User
	if _, err := decode(raw, &u, nil, nil); err != nil || len(u.Devices) != 2 || u.Quarantine != push.DeviceUnread {
		t.Errorf("the pipeline reads %+v, error %v", u, err)
	}

	raw = appendRecord(nil, &push.User{Devices: []push.Device{{Platform: push.FCM, Hash: "h"}}}, &kept{}, 7)
	raw[bytes.Index(raw, []byte{byte(push.FCM), 0})+1] = 3
	var of push.User
	whose := appendRecord(nil, &push.User{}, &kept{foreign: []foreign{unknown("zz")}}, 7)
	if err := new(Decoder).Decode(whose, 7, &of); err != nil || of.Quarantine != push.DeviceUnread {
		t.Errorf("of one whose record is kept the pipeline knows %+v, error %v", of, err)
	}
	if err := s.Decode(raw, 7); err != nil || len(s.foreign) != 1 || s.Quarantine != push.DeviceUnread || !bytes.Equal(s.Encode(7), raw) {
		t.Errorf("an environment that is not known: %+v, error %v", s, err)
	}
}

// Whoever knows the platform reads the device as one of the user's.
func TestAForeignDeviceThatIsKnownByNow(t *testing.T) {
	f := knownByNow(t, "token-1")
	var s User
	err := s.Decode(appendRecord(nil, sampleUser(), &kept{foreign: []foreign{f, unknown("zz")}}, 7), 7)
	if d := DeviceOf(&s.User, f.hash); err != nil || len(s.Devices) != 3 || d == nil || d.Platform != push.FCM || len(s.foreign) != 1 || s.foreign[0].hash != "zz" {
		t.Fatalf("%+v, error %v", s, err)
	}
	raw := appendRecord(nil, &push.User{}, &kept{foreign: []foreign{unknown("zz")}}, 7)
	for n := headLen + 2; n < len(raw); n++ {
		cut := appendSection(bytes.Clone(raw[:headLen]), raw[headLen], func([]byte) []byte { return raw[headLen+2 : n] })
		if err := s.Decode(cut, 7); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v", n, len(raw), err)
		}
	}
}

// The longest foreign record that is kept, and one that push.users alone keeps.
func TestLengthsOfForeignRecords(t *testing.T) {
	hash := push.DeviceHash(push.NoPlatform, "h-1")
	for n, kept := range map[int]bool{maxForeignValue: true, maxForeignValue + 1: false} {
		value := []byte(`{"platform":"hologram","token":"h-1","registered_at":"2026-11-21T10:00:00Z"}`)
		value = append(value, bytes.Repeat([]byte(" "), n-len(value))...)
		var c Change
		err := c.Read(DeviceKey("ada", hash), value, time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC))
		if c.Foreign() != kept || (c.unread == nil) != kept || !kept && !errors.Is(err, ErrVersion) || kept && err != nil {
			t.Errorf("%d bytes: kept %v, %v", n, c.Foreign(), err)
		}
	}
}

// Whoever writes the record of a device has its token: else a token could be taken
// from its user by a platform that nobody here can check.
func TestForeignRecordsAreOfTheirTokens(t *testing.T) {
	for _, tt := range []struct {
		why, key, token string // key: the token of which the key's hash is
		good            bool
	}{
		{"its own", "h-1", "h-1", true},
		{"its own, of a platform to which upper and lower case are one", "aabb", "AaBb", true},
		{"its own, of one to which they are not", "AaBb", "AaBb", true},
		{"another one's", "h-1", "h-2", false},
		{"another one's in upper case", "AABB", "aabb", false},
		{"a known platform's", push.DeviceHash(push.FCM, "h-1"), "h-1", false},
		{"none", "h-1", "", false},
	} {
		value := fmt.Appendf(nil, `{"platform":"hologram","token":%q,"registered_at":"2026-11-21T10:00:00Z"}`, tt.token)
		var c Change
		err := c.Read(DeviceKey("ada", push.DeviceHash(push.NoPlatform, tt.key)), value, time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
		if c.Foreign() != tt.good || (c.unread == nil) != tt.good || errors.Is(err, errPart) == tt.good {
			t.Errorf("%s: kept %v, %v", tt.why, c.Foreign(), err)
		}
	}
}

// What needs no platform holds for foreign devices too.
func TestForeignRecordsThatBreakARule(t *testing.T) {
	for _, tt := range []struct {
		why, platform, at string
		good              bool
	}{
		{"as a later version writes it", "hologram", "2026-11-21T10:00:00Z", true},
		{"in a day", "hologram", "2026-11-23T12:00:00Z", true},
		{"in more than a day", "hologram", "2026-11-23T12:00:01Z", false},
		{"before 1970", "hologram", "1969-11-23T12:00:01Z", false},
		{"a platform without end", strings.Repeat("h", maxName+1), "2026-11-21T10:00:00Z", false},
	} {
		value := fmt.Appendf(nil, `{"platform":%q,"token":"h-1","registered_at":%q}`, tt.platform, tt.at)
		var c Change
		err := c.Read(DeviceKey("ada", push.DeviceHash(push.NoPlatform, "h-1")), value, time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
		if c.Foreign() != tt.good || (c.unread == nil) != tt.good || errors.Is(err, errPart) == tt.good {
			t.Errorf("%s: kept %v, %v", tt.why, c.Foreign(), err)
		}
	}
}

// The quarantine's topic is told when a device of an unknown platform comes, and when
// a known one takes its place; of a device that was never aside it is told nothing.
func TestForeignDevicesAreTold(t *testing.T) {
	var u User
	d := deviceOf(push.FCM, "token-1", 1_800_000_000_000)
	part, f := DevicePart(d.Hash), unknown(d.Hash)
	for _, tt := range []struct {
		why          string
		change       *Change
		told, unread bool
	}{
		{"a device", &Change{User: "ada", Part: part, device: &d}, false, false},
		{"its removal", &Change{User: "ada", Part: part}, false, false},
		{"one of an unknown platform", &Change{User: "ada", Part: part, foreign: &f}, true, true},
		{"a known one in its place", &Change{User: "ada", Part: part, device: &d}, true, false},
		{"the same again", &Change{User: "ada", Part: part, device: &d}, false, false},
	} {
		m := &Merging{Ready: true, Most: DeviceLimits{User: 10, App: 10}, Cases: map[string]bool{}, Unread: map[string]bool{}}
		m.User(&u, tt.change)
		unread, told := m.Unread[DeviceKey("ada", d.Hash)]
		if told != tt.told || unread != tt.unread || m.Cases[Quarantined+DeviceKey("ada", d.Hash)] != tt.told {
			t.Errorf("%s: told %v, unread %v, cases %v", tt.why, told, unread, m.Cases)
		}
	}
}

// The record of a device is at hand, or is said not to be.
func TestValueOfADevice(t *testing.T) {
	known, f := deviceOf(push.FCM, "token-1", 1000), unknown("zz")
	s := User{User: push.User{Devices: []push.Device{known}}, kept: kept{foreign: []foreign{{hash: "packed", packed: []byte{9}}, f}}}
	written, err := DeviceValue(&known)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why, hash string
		want      []byte
		err       error
	}{
		{"a known one", known.Hash, written, nil},
		{"one of an unknown platform", "zz", f.value, nil},
		{"one that a later version has packed", "packed", nil, ErrPacked},
		{"one that nobody has", "other", nil, nil},
	} {
		if got, err := s.Value(tt.hash); !bytes.Equal(got, tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%s: %s, %v; want %s, %v", tt.why, got, err, tt.want, tt.err)
		}
	}
}

// The records of so many foreign devices are kept, and one more is in quarantine; a
// later record of one that is kept takes its place however many there are.
func TestNumberOfForeignRecords(t *testing.T) {
	m := &Merging{Ready: true, Most: DeviceLimits{User: 100, App: 100}, Cases: map[string]bool{}, Unread: map[string]bool{}}
	var u User
	register := func(i, day int) Part {
		t.Helper()
		token := fmt.Sprint("h-", i)
		value := fmt.Appendf(nil, `{"platform":"hologram","token":%q,"registered_at":"2026-11-%02dT10:00:00Z"}`, token, day)
		c := Change{Partition: 1, Offset: int64(100*day + i)}
		if err := c.Read(DeviceKey("ada", push.DeviceHash(push.NoPlatform, token)), value, time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)); err != nil {
			t.Fatal(err)
		}
		m.User(&u, &c)
		return c.Part
	}
	for i := range maxForeign {
		register(i, 20)
		if len(u.foreign) != i+1 || len(u.unread) != 0 {
			t.Fatalf("of %d devices %d are kept, %d are in quarantine", i+1, len(u.foreign), len(u.unread))
		}
	}
	late := register(maxForeign, 20)
	if i := u.unreadAt(late); len(u.foreign) != maxForeign || len(u.unread) != 1 || i < 0 || !u.unread[i].version || u.unread[i].offset != 2000+maxForeign {
		t.Errorf("one more: %d are kept, in quarantine %+v", len(u.foreign), u.unread)
	}
	again := register(0, 21)
	if f := u.foreignAt(again.Hash()); len(u.foreign) != maxForeign || len(u.unread) != 1 || f.offset != 2100 {
		t.Errorf("a later record of one that is kept: %+v, in quarantine %+v", f, u.unread)
	}
	register(0, 19)
	if f := u.foreignAt(again.Hash()); f.offset != 2100 || !m.Cases[Overtaken+Key("ada", again)] {
		t.Errorf("an earlier one took its place: %+v, cases %v", f, m.Cases)
	}
}

// A place in push.users that cannot be is not believed, whether of a foreign record or
// of a part in quarantine.
func TestPlacesOfForeignRecords(t *testing.T) {
	far := uint64(1) << 63 // negative as a partition or an offset
	for _, tt := range []struct {
		partition, offset uint64
		good              bool
	}{{1, 7, true}, {0, 0, true}, {far, 7, false}, {1, far, false}} {
		raw := appendSection(Encode(nil, new(push.User), 7), foreignSection, func(b []byte) []byte {
			b = appendString(append(b, 1), "h-1")
			b = binary.AppendUvarint(binary.AppendUvarint(b, tt.partition), tt.offset)
			return appendString(b, string(unknown("h-1").value))
		})
		var s User
		if err := s.Decode(raw, 7); errors.Is(err, ErrCorrupt) == tt.good || (len(s.foreign) == 1) != tt.good {
			t.Errorf("partition %d, offset %d: %+v, %v", tt.partition, tt.offset, s.foreign, err)
		}
		raw = appendSection(Encode(nil, new(push.User), 7), unreadFactsSection, func(b []byte) []byte {
			b = appendString(append(b, 1, 0), string(ProfilePart))
			return binary.AppendUvarint(binary.AppendUvarint(b, tt.partition), tt.offset)
		})
		if err := s.Decode(raw, 7); errors.Is(err, ErrCorrupt) == tt.good || (len(s.unread) == 1) != tt.good {
			t.Errorf("partition %d, offset %d of a part in quarantine: %+v, %v", tt.partition, tt.offset, s.unread, err)
		}
	}
}

// What stands aside, and is told, is a part that cannot be read, or whose record is
// kept for a later version. Of a device that a later version has packed there is
// nothing to tell: it has read the record.
func TestWhatStandsAside(t *testing.T) {
	packed := foreign{hash: "h", packed: []byte{200}}
	unread := func(p unreadPart) kept { p.part = DevicePart("h"); return kept{unread: []unreadPart{p}} }
	known := push.User{Devices: []push.Device{{Hash: "h"}}}
	for _, tt := range []struct {
		why  string
		user User
		want Aside // without a reason: it does not
	}{
		{"nothing there", User{}, Aside{}},
		{"a known device", User{User: known}, Aside{}},
		{"of a broken rule", User{kept: unread(unreadPart{partition: 3, offset: 4})}, Aside{BrokenRule, 3, 4, false}},
		{"of an unknown version, and what was there stands", User{kept: unread(unreadPart{version: true, stands: true, offset: 4})}, Aside{UnknownVersion, 0, 4, true}},
		{"of an unknown platform", User{kept: kept{foreign: []foreign{unknown("h")}}}, Aside{UnknownPlatform, 1, 7, false}},
		{"of an unknown platform, beside a known one", User{User: known, kept: kept{foreign: []foreign{unknown("h")}}}, Aside{UnknownPlatform, 1, 7, true}},
		{"packed by a later version", User{kept: kept{foreign: []foreign{packed}}}, Aside{}},
		{"packed by a later version, and its next record cannot be read", User{kept: kept{foreign: []foreign{packed}, unread: unread(unreadPart{offset: 9}).unread}}, Aside{BrokenRule, 0, 9, false}},
	} {
		if got, ok := tt.user.Aside(DevicePart("h")); got != tt.want || ok != (tt.want.Reason != "") || tt.user.aside(DevicePart("h")) != ok {
			t.Errorf("%s: %+v, %v", tt.why, got, ok)
		}
		if got, ok := tt.user.Aside(DevicePart("other")); ok || got != (Aside{}) {
			t.Errorf("%s: another device is %+v", tt.why, got)
		}
	}
}
