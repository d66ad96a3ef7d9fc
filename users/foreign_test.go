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
)

// later is a device of a platform that only a later version knows, with a field
// and spaces as this one would not write them.
func later(at int) string {
	return fmt.Sprintf(`{"platform": "hologram", "room": 7, "app":"shop", "token":"h-1", "registered_at":%q}`,
		epoch.Add(time.Duration(at)*time.Second).Format(time.RFC3339))
}

var laterHash = push.DeviceHash(push.NoPlatform, "h-1")

// recordOf is what the topic holds of a part; nil = a removal, or nothing.
func (w *world) recordOf(key string) []byte {
	for _, r := range w.topic.Latest() {
		if r.Key == key {
			return r.Value
		}
	}
	return nil
}

// value is the stored record of a user, without its build.
func (w *world) value(user string) []byte {
	w.t.Helper()
	raw, err := w.redis.Get(w.ctx, shards.UserKey(shards.UserShard(user), user)).Bytes()
	w.must(err)
	return raw[9:]
}

func (w *world) told1(key string) users.Quarantined {
	w.t.Helper()
	q := w.told()[key]
	q.Partition, q.Offset = 0, 0
	return q
}

// A platform that is not known makes one device unusable. Its record stays as it
// is, whatever becomes of the others.
func TestADeviceOfAnUnknownPlatform(t *testing.T) {
	key := record.DeviceKey("ada", laterHash)
	eachRedis(t, func(w *world) {
		stop := w.run(options())
		w.register("ada", 1, 1)
		w.raw(key, later(100))
		w.register("ada", 2, 2)
		usable := func(why string, devices int, mark push.Quarantine) {
			t.Helper()
			w.settle()
			if u := w.look("ada"); len(u.Devices) != devices || u.Quarantine != mark {
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
		w.raw(key, later(50))
		usable("an older registration", 2, push.DeviceUnread)
		w.must(w.topic.Append(w.ctx, []users.Record{{Key: key, IfNotAfter: epoch.Add(99 * time.Second)}}))
		usable("a removal of an older one", 2, push.DeviceUnread)
		w.optOut("ada", "promo")
		w.register("ada", 3, 3)
		usable("others come", 3, push.DeviceUnread)

		before := w.value("ada")
		w.topic.Compact()
		stop()
		o := options()
		o.Rebuild = true
		stop = w.run(o)
		usable("compacted and rebuilt", 3, push.DeviceUnread)
		if after := w.value("ada"); !bytes.Contains(after, []byte(later(100))) || len(after) != len(before) {
			t.Errorf("the record is\n%q, was\n%q", after, before)
		}
		w.spoil("ada")
		w.look("ada")
		usable("repaired", 3, push.DeviceUnread)

		// Somebody else registers the token later.
		w.raw(record.DeviceKey("cy", laterHash), later(200))
		w.settle()
		if got := w.recordOf(key); got != nil || w.look("ada").Quarantine != 0 {
			t.Errorf("ada has the token of cy: %s", got)
		}
		w.must(w.client.RemoveDevice(w.ctx, "cy", laterHash))
		w.settle()
		if got := w.told(); len(got) != 0 {
			t.Errorf("told still: %+v", got)
		}
		if now, err := users.InQuarantine(w.ctx, w.redis); err != nil || len(now) != 0 {
			t.Errorf("in quarantine still: %v, %v", now, err)
		}
		stop()
	})
}

// A later version has packed the device among the others.
func TestADevicePackedByALaterVersion(t *testing.T) {
	key := record.DeviceKey("ada", laterHash)
	virtual(t, func(w *world) {
		w.run(options())
		w.register("ada", 1, 1)
		w.raw(key, later(100))
		w.settle()
		u := w.look("ada")
		one := push.Device{Platform: 200, App: "shop", Token: "h-1", Hash: laterHash, RegisteredAt: epoch.Add(100 * time.Second)}
		u.Devices = append(u.Devices, one)
		if u.Devices[0].Hash > one.Hash {
			u.Devices[0], u.Devices[1] = u.Devices[1], u.Devices[0]
		}
		place := shards.UserKey(shards.UserShard("ada"), "ada")
		raw, err := w.redis.Get(w.ctx, place).Bytes()
		w.must(err)
		packed := record.Encode(nil, u, 0)
		w.must(w.redis.Set(w.ctx, place, append(raw[:9:9], packed[9:]...), 0).Err())
		if u := w.look("ada"); len(u.Devices) != 1 || u.Quarantine != push.DeviceUnread {
			t.Errorf("ada has %+v", u)
		}

		w.optOut("ada", "promo")
		w.settle()
		if got := w.value("ada"); !bytes.HasPrefix(got, packed[9:]) {
			t.Errorf("written back as\n%x, was\n%x", got, packed[9:])
		}
		// What must be repeated is read again in push.users.
		w.must(w.topic.Append(w.ctx, []users.Record{{Key: key, IfNotAfter: epoch.Add(99 * time.Second)}}))
		w.settle()
		if got := w.recordOf(key); string(got) != later(100) {
			t.Errorf("push.users has %s", got)
		}
		w.must(w.client.RemoveDevice(w.ctx, "ada", laterHash))
		w.settle()
		if u := w.look("ada"); len(u.Devices) != 1 || u.Quarantine != 0 {
			t.Errorf("ada has %+v", u)
		}
	})
}

// A known device of the same token stands, and what is known replaces both.
func TestAKnownDeviceStandsBesideAnUnknownOne(t *testing.T) {
	virtual(t, func(w *world) {
		w.run(options())
		w.register("ada", 1, 1)
		key := record.DeviceKey("ada", hash(1))
		w.raw(key, strings.ReplaceAll(later(100), "h-1", token(1)))
		w.settle()
		if u := w.look("ada"); len(u.Devices) != 1 || u.Quarantine != 0 {
			t.Errorf("ada has %+v", u)
		}
		if got := w.told1(key); !got.Stands || got.Reason != record.UnknownPlatform {
			t.Errorf("told: %+v", got)
		}
		w.register("ada", 1, 200)
		w.agree()
		if got := w.told(); len(got) != 0 {
			t.Errorf("told still: %+v", got)
		}
	})
}

// Beyond some devices, and some length, push.users alone keeps them.
func TestManyDevicesOfUnknownPlatforms(t *testing.T) {
	virtual(t, func(w *world) {
		w.run(options())
		w.register("ada", 1, 1)
		long := strings.Replace(strings.ReplaceAll(later(1), "h-1", token(2)), `"room": 7`, `"room": "`+strings.Repeat("x", 8<<10)+`"`, 1)
		w.raw(record.DeviceKey("ada", hash(2)), long)
		for i := range 25 {
			tok := fmt.Sprint("h-", i)
			w.raw(record.DeviceKey("ada", push.DeviceHash(push.NoPlatform, tok)), strings.ReplaceAll(later(i), "h-1", tok))
		}
		w.settle()
		if u := w.look("ada"); len(u.Devices) != 1 || u.Quarantine != push.DeviceUnread {
			t.Errorf("ada has %+v", u)
		}
		reasons := map[string]int{}
		for _, q := range w.told() {
			reasons[q.Reason]++
		}
		if reasons[record.UnknownPlatform] != 20 || reasons[record.UnknownVersion] != 6 {
			t.Errorf("told: %v", reasons)
		}
		if got := w.value("ada"); len(got) > 20*1024 || string(w.recordOf(record.DeviceKey("ada", hash(2)))) != long {
			t.Errorf("the record has %d bytes", len(got))
		}
		// One of those that are kept comes again: it needs no more room.
		again := strings.ReplaceAll(later(30), "h-1", "h-0")
		w.raw(record.DeviceKey("ada", push.DeviceHash(push.NoPlatform, "h-0")), again)
		w.settle()
		if got := w.value("ada"); !bytes.Contains(got, []byte(again)) {
			t.Error("a record that is kept was not replaced by a newer one")
		}
	})
}

// A record of an unknown platform under the key of a token that it does not have
// leaves that token with its user.
func TestAForeignRecordOfAnotherTokenTakesNothing(t *testing.T) {
	virtual(t, func(w *world) {
		w.run(options())
		w.register("ada", 1, 1)
		w.raw(record.DeviceKey("eve", hash(1)), later(100))
		w.settle()
		if got := w.owners(1); !slices.Equal(got, []string{"ada"}) {
			t.Errorf("owners %q, want ada; topic has %q", got, w.recordOf(record.DeviceKey("ada", hash(1))))
		}
	})
}

// A known device, an older foreign registration of its token, and no room: the
// older one stays the latest record, and a rebuild loses the device.
func TestAnOlderForeignRecordIsOvertakenWhereThereIsNoRoom(t *testing.T) {
	virtual(t, func(w *world) {
		stop := w.run(options())
		w.register("ada", 1, 100)
		for i := range 20 {
			tok := fmt.Sprint("h-", i)
			w.raw(record.DeviceKey("ada", push.DeviceHash(push.NoPlatform, tok)), strings.ReplaceAll(later(100), "h-1", tok))
		}
		w.settle()
		w.raw(record.DeviceKey("ada", hash(1)), strings.ReplaceAll(later(50), "h-1", token(1)))
		w.settle()
		if n := len(w.look("ada").Devices); n != 1 {
			t.Errorf("%d devices before", n)
		}
		stop()
		w.topic.Compact()
		o := options()
		o.Rebuild = true
		w.run(o)
		w.settle()
		if n := len(w.look("ada").Devices); n != 1 {
			t.Errorf("%d devices after a rebuild", n)
		}
	})
}
