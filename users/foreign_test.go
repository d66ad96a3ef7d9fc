package users_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// later is a device of a platform that only a later version knows, with a field
// and spaces as this one would not write them.
func later(at int) string {
	return fmt.Sprintf(`{"platform": "hologram", "room": 7, "app":"shop", "token":"h-1", "registered_at":%q}`,
		userstest.Epoch.Add(time.Duration(at)*time.Second).Format(time.RFC3339))
}

var laterHash = push.DeviceHash(push.NoPlatform, "h-1")

// recordOf is what the topic holds of a part; nil = a removal, or nothing.
func (w *world) recordOf(key string) []byte {
	for _, r := range w.Topic.Latest() {
		if r.Key == key {
			return r.Value
		}
	}
	return nil
}

// value is the stored record of a user, without its build.
func (w *world) value(user string) []byte {
	w.T.Helper()
	raw, err := w.Redis.Get(w.Ctx, shards.UserKey(shards.UserShard(user), user)).Bytes()
	w.Must(err)
	return raw[9:]
}

func (w *world) told1(key string) users.Quarantined {
	w.T.Helper()
	q := w.Told()[key]
	q.Partition, q.Offset = 0, 0
	return q
}

// A platform that is not known makes one device unusable. Its record stays as it
// is, whatever becomes of the others.
func TestADeviceOfAnUnknownPlatform(t *testing.T) {
	key := record.DeviceKey("ada", laterHash)
	eachRedis(t, func(w *world) {
		stop := w.Run(userstest.RegistryOptions())
		w.Register("ada", 1, 1)
		w.Raw(key, later(100))
		w.Register("ada", 2, 2)
		usable := func(why string, devices int, mark push.Quarantine) {
			t.Helper()
			w.Settle()
			if u := w.Look("ada"); len(u.Devices) != devices || u.Quarantine != mark {
				t.Errorf("%s: ada has %d devices and the marks %b: %+v", why, len(u.Devices), u.Quarantine, u)
			}
			if got := w.recordOf(key); string(got) != later(100) {
				t.Errorf("%s: push.users has %s", why, got)
			}
		}
		usable("registered", 2, push.DeviceUnread)
		if got := w.told1(key); got != (users.Quarantined{User: "ada", Device: laterHash, Reason: record.UnknownPlatform}) {
			t.Errorf("told: %+v", got)
		}

		// What is older does not count, and does not stay the latest record.
		w.Raw(key, later(50))
		usable("an older registration", 2, push.DeviceUnread)
		w.Must(w.Topic.Append(w.Ctx, []users.Record{{Key: key, IfNotAfter: userstest.Epoch.Add(99 * time.Second)}}))
		usable("a removal of an older one", 2, push.DeviceUnread)
		w.OptOut("ada", "promo")
		w.Register("ada", 3, 3)
		usable("others come", 3, push.DeviceUnread)

		before := w.value("ada")
		w.Topic.Compact()
		stop()
		o := userstest.RegistryOptions()
		o.Rebuild = true
		stop = w.Run(o)
		usable("compacted and rebuilt", 3, push.DeviceUnread)
		if after := w.value("ada"); !bytes.Contains(after, []byte(later(100))) || len(after) != len(before) {
			t.Errorf("the record is\n%q, was\n%q", after, before)
		}
		w.spoil("ada")
		w.Look("ada")
		usable("repaired", 3, push.DeviceUnread)

		// Somebody else registers the token later.
		w.Raw(record.DeviceKey("cy", laterHash), later(200))
		w.Settle()
		if got := w.recordOf(key); got != nil || w.Look("ada").Quarantine != 0 {
			t.Errorf("ada has the token of cy: %s", got)
		}
		w.Must(w.Client.RemoveDevice(w.Ctx, "cy", laterHash))
		w.Settle()
		if got := w.Told(); len(got) != 0 {
			t.Errorf("told still: %+v", got)
		}
		if now, err := users.InQuarantine(w.Ctx, w.Redis); err != nil || len(now) != 0 {
			t.Errorf("in quarantine still: %v, %v", now, err)
		}
		stop()
	})
}

// A later version has packed the device among the others.
func TestADevicePackedByALaterVersion(t *testing.T) {
	key := record.DeviceKey("ada", laterHash)
	virtual(t, func(w *world) {
		w.Run(userstest.RegistryOptions())
		w.Register("ada", 1, 1)
		w.Raw(key, later(100))
		w.Settle()
		u := w.Look("ada")
		one := push.Device{Platform: 200, App: "shop", Token: "h-1", Hash: laterHash, RegisteredAt: userstest.Epoch.Add(100 * time.Second)}
		u.Devices = append(u.Devices, one)
		if u.Devices[0].Hash > one.Hash {
			u.Devices[0], u.Devices[1] = u.Devices[1], u.Devices[0]
		}
		place := shards.UserKey(shards.UserShard("ada"), "ada")
		raw, err := w.Redis.Get(w.Ctx, place).Bytes()
		w.Must(err)
		packed := record.Encode(nil, u, 0)
		w.Must(w.Redis.Set(w.Ctx, place, append(raw[:9:9], packed[9:]...), 0).Err())
		if u := w.Look("ada"); len(u.Devices) != 1 || u.Quarantine != push.DeviceUnread {
			t.Errorf("ada has %+v", u)
		}

		w.OptOut("ada", "promo")
		w.Settle()
		if got := w.value("ada"); !bytes.HasPrefix(got, packed[9:]) {
			t.Errorf("written back as\n%x, was\n%x", got, packed[9:])
		}
		// What must be repeated is read again in push.users.
		w.Must(w.Topic.Append(w.Ctx, []users.Record{{Key: key, IfNotAfter: userstest.Epoch.Add(99 * time.Second)}}))
		w.Settle()
		if got := w.recordOf(key); string(got) != later(100) {
			t.Errorf("push.users has %s", got)
		}
		w.Must(w.Client.RemoveDevice(w.Ctx, "ada", laterHash))
		w.Settle()
		if u := w.Look("ada"); len(u.Devices) != 1 || u.Quarantine != 0 {
			t.Errorf("ada has %+v", u)
		}
	})
}

// A known device of the same token stands, and what is known replaces both.
func TestAKnownDeviceStandsBesideAnUnknownOne(t *testing.T) {
	virtual(t, func(w *world) {
		w.Run(userstest.RegistryOptions())
		w.Register("ada", 1, 1)
		key := record.DeviceKey("ada", userstest.Hash(1))
		w.Raw(key, strings.ReplaceAll(later(100), "h-1", userstest.Token(1)))
		w.Settle()
		if u := w.Look("ada"); len(u.Devices) != 1 || u.Quarantine != 0 {
			t.Errorf("ada has %+v", u)
		}
		if got := w.told1(key); !got.Stands || got.Reason != record.UnknownPlatform {
			t.Errorf("told: %+v", got)
		}
		w.Register("ada", 1, 200)
		w.agree()
		if got := w.Told(); len(got) != 0 {
			t.Errorf("told still: %+v", got)
		}
	})
}

// Beyond some devices, and some length, push.users alone keeps them.
func TestManyDevicesOfUnknownPlatforms(t *testing.T) {
	virtual(t, func(w *world) {
		w.Run(userstest.RegistryOptions())
		w.Register("ada", 1, 1)
		long := strings.Replace(strings.ReplaceAll(later(1), "h-1", userstest.Token(2)), `"room": 7`, `"room": "`+strings.Repeat("x", 8<<10)+`"`, 1)
		w.Raw(record.DeviceKey("ada", userstest.Hash(2)), long)
		for i := range 25 {
			tok := fmt.Sprint("h-", i)
			w.Raw(record.DeviceKey("ada", push.DeviceHash(push.NoPlatform, tok)), strings.ReplaceAll(later(i), "h-1", tok))
		}
		w.Settle()
		if u := w.Look("ada"); len(u.Devices) != 1 || u.Quarantine != push.DeviceUnread {
			t.Errorf("ada has %+v", u)
		}
		reasons := map[string]int{}
		for _, q := range w.Told() {
			reasons[q.Reason]++
		}
		if reasons[record.UnknownPlatform] != 20 || reasons[record.UnknownVersion] != 6 {
			t.Errorf("told: %v", reasons)
		}
		if got := w.value("ada"); len(got) > 20*1024 || string(w.recordOf(record.DeviceKey("ada", userstest.Hash(2)))) != long {
			t.Errorf("the record has %d bytes", len(got))
		}
		// One of those that are kept comes again: it needs no more room.
		again := strings.ReplaceAll(later(30), "h-1", "h-0")
		w.Raw(record.DeviceKey("ada", push.DeviceHash(push.NoPlatform, "h-0")), again)
		w.Settle()
		if got := w.value("ada"); !bytes.Contains(got, []byte(again)) {
			t.Error("a record that is kept was not replaced by a newer one")
		}
	})
}

// A record of an unknown platform under the key of a token that it does not have
// leaves that token with its user.
func TestAForeignRecordOfAnotherTokenTakesNothing(t *testing.T) {
	virtual(t, func(w *world) {
		w.Run(userstest.RegistryOptions())
		w.Register("ada", 1, 1)
		w.Raw(record.DeviceKey("eve", userstest.Hash(1)), later(100))
		w.Settle()
		if got := w.owners(1); !slices.Equal(got, []string{"ada"}) {
			t.Errorf("owners %q, want ada; topic has %q", got, w.recordOf(record.DeviceKey("ada", userstest.Hash(1))))
		}
	})
}

// A known device, an older foreign registration of its token, and no room: the
// older one stays the latest record, and a rebuild loses the device.
func TestAnOlderForeignRecordIsOvertakenWhereThereIsNoRoom(t *testing.T) {
	virtual(t, func(w *world) {
		stop := w.Run(userstest.RegistryOptions())
		w.Register("ada", 1, 100)
		for i := range 20 {
			tok := fmt.Sprint("h-", i)
			w.Raw(record.DeviceKey("ada", push.DeviceHash(push.NoPlatform, tok)), strings.ReplaceAll(later(100), "h-1", tok))
		}
		w.Settle()
		w.Raw(record.DeviceKey("ada", userstest.Hash(1)), strings.ReplaceAll(later(50), "h-1", userstest.Token(1)))
		w.Settle()
		if n := len(w.Look("ada").Devices); n != 1 {
			t.Errorf("%d devices before", n)
		}
		stop()
		w.Topic.Compact()
		o := userstest.RegistryOptions()
		o.Rebuild = true
		w.Run(o)
		w.Settle()
		if n := len(w.Look("ada").Devices); n != 1 {
			t.Errorf("%d devices after a rebuild", n)
		}
	})
}
