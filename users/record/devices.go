package record

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

func appendDevice(b []byte, d *push.Device) []byte {
	env := 0
	if d.Environment != "" {
		if env = 1 + slices.Index(d.Platform.Environments(), d.Environment); env == 0 {
			panic("record: encoding a device of an environment that its platform does not have")
		}
	}
	b = append(b, byte(d.Platform), byte(env))
	b = binary.AppendVarint(b, d.RegisteredAt.UnixMilli())
	for _, s := range [...]string{d.Hash, d.App, d.Token, d.Locale} {
		b = appendString(b, s)
	}
	return b
}

// devices reads the known ones into u. Those whose platform or environment is a
// later version's go into k as they are, if it is not nil.
func (c *cursor) devices(u *push.User, k *kept) {
	const least = 7 // platform, environment, time, four empty strings
	n := c.count(least)
	if n > cap(u.Devices)-len(u.Devices) {
		u.Devices = append(c.room.ofDevices(len(u.Devices)+n), u.Devices...)
	}
	for range n {
		from := c.rest
		platform, env := push.Platform(c.byte()), c.byte()
		environment, known := environmentOf(platform, env)
		if platform == push.NoPlatform {
			c.fail()
			return
		}
		u.Devices = u.Devices[:len(u.Devices)+1]
		d := &u.Devices[len(u.Devices)-1] // filled in its place: it is large
		d.Platform, d.Environment, d.AppVersion = platform, environment, ""
		d.RegisteredAt = time.UnixMilli(c.varint()).UTC()
		d.Hash, d.App, d.Token, d.Locale = c.string(), c.string(), c.string(), c.string()
		if known && !c.bad {
			continue
		}
		u.Devices = u.Devices[:len(u.Devices)-1]
		if c.bad {
			return
		}
		u.Quarantine |= push.DeviceUnread
		if k != nil {
			k.setForeign(d.Hash, &foreign{hash: d.Hash, at: d.RegisteredAt, packed: from[:len(from)-len(c.rest)]})
		}
	}
}

// environmentOf is the environment of a packed device; ok is false when this
// version does not know the platform or has no such environment of it.
func environmentOf(p push.Platform, env byte) (environment string, ok bool) {
	if env == 0 {
		return "", p.Known()
	}
	all := p.Environments()
	if int(env) > len(all) {
		return "", false
	}
	return all[env-1], true
}

// appendVersions appends the versions of the devices' apps as a section, if any is
// known. The devices' own section has no room for them.
func appendVersions(dst []byte, devices []push.Device, others []foreign) []byte {
	n := 0
	var b []byte
	add := func(hash, version string) {
		if version != "" {
			b = appendString(appendString(b, hash), version)
			n++
		}
	}
	for i := range devices {
		add(devices[i].Hash, devices[i].AppVersion)
	}
	for i := range others {
		add(others[i].hash, others[i].version)
	}
	if n == 0 {
		return dst
	}
	return appendSection(dst, versionsSection, func(body []byte) []byte {
		return append(binary.AppendUvarint(body, uint64(n)), b...)
	})
}

// versions reads what appendVersions wrote. A device that an older registry has
// removed since may still have one: it is left out.
func (c *cursor) versions(u *push.User, k *kept) {
	const least = 2 // empty hash, empty version
	at := 0
	for range c.count(least) {
		hash, version := c.string(), c.string()
		if c.bad {
			return
		}
		for n := 0; n < len(u.Devices); n, at = n+1, at+1 { // usually the next one
			if d := &u.Devices[at%len(u.Devices)]; d.Hash == hash {
				d.AppVersion = version
				break
			}
		}
		if k == nil {
			continue
		}
		if f := k.foreignAt(hash); f != nil && f.packed != nil {
			f.version = version
		}
	}
}
