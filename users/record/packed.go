package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/pushfleet/pushfleet/push"
)

// ErrVersion says that something stored was written by a newer version of the
// fleet. It must never be read as empty: what depends on it waits until the
// reader is upgraded. A newer form of all records comes with a newer form of
// the shards' markers, which older processes refuse; so a single record of an
// unknown version concerns its user alone.
var ErrVersion = errors.New("unknown version of a stored record")

// ErrCorrupt says that a stored record cannot be read although its version is
// known.
var ErrCorrupt = errors.New("corrupt record")

const recordVersion = 1

// Sections of a record: tag byte, length as uvarint, body. Tags from
// optionalSection on may be skipped by a reader that does not know them; below
// it they may not, because what a user forbade must not be overlooked.
const (
	devicesSection     = 1
	preferencesSection = 2
	unreadSection      = 3
	optionalSection    = 0x80
	droppedSection     = 0x81
	foreignSection     = 0x82
)

const headLen = 1 + 8 // version, build

// Encode appends the packed record of u, in this build of its shard, to dst.
//
//	version (1 byte = 1), build (8 bytes, little-endian), then sections:
//	1 devices:     count, and per device: platform, environment (1 byte each;
//	               0 = none, else its place among the platform's, from 1),
//	               registered_at (varint, Unix ms), hash, app, token, locale
//	2 preferences: flags (1 = everything), channels, types (count, strings)
//	3 unread:      count, and per part in quarantine: flags (1 = of an unknown
//	               version, 2 = what was there before stands), hash (empty =
//	               preferences), partition, offset
//	129 dropped:   devices left out as too many: count, and registered_at of
//	               the latest (varint, Unix ms)
//	130 foreign:   count, and per device of a platform that whoever wrote this
//	               did not know: hash, partition, offset, value in push.users
//
// Counts and lengths are uvarints, strings are preceded by their length. A
// section without content is left out; preferences that were set to nothing
// have a section of zeros. u.Limiter is not part of it, and u.Quarantine only
// says what section 3 says.
// It panics on an environment that is neither empty nor one of its platform's.
func Encode(dst []byte, u *push.User, build uint64) []byte {
	return appendRecord(dst, u, &kept{prefsSet: !noPreferences(&u.Preferences)}, build)
}

// Encode is the packed record of s, as the function Encode describes it.
func (s *User) Encode(build uint64) []byte { return appendRecord(nil, &s.User, &s.kept, build) }

func appendRecord(dst []byte, u *push.User, k *kept, build uint64) []byte {
	dst = append(dst, recordVersion)
	dst = binary.LittleEndian.AppendUint64(dst, build)
	if len(u.Devices) > 0 || slices.ContainsFunc(k.foreign, func(f foreign) bool { return f.packed != nil }) {
		dst = appendSection(dst, devicesSection, func(b []byte) []byte { return appendDevices(b, u.Devices, k.foreign) })
	}
	if p := &u.Preferences; k.prefsSet {
		dst = appendSection(dst, preferencesSection, func(b []byte) []byte {
			flags := byte(0)
			if p.OptOutAll {
				flags = 1
			}
			b = append(b, flags)
			return appendStrings(appendStrings(b, p.Channels), p.Types)
		})
	}
	if len(k.unread) > 0 {
		dst = appendSection(dst, unreadSection, func(b []byte) []byte { return appendUnread(b, k.unread) })
	}
	if k.dropped.devices > 0 {
		dst = appendSection(dst, droppedSection, func(b []byte) []byte { return appendDropped(b, k.dropped) })
	}
	return append(appendForeign(dst, k.foreign), k.extra...)
}

func noPreferences(p *push.Preferences) bool {
	return !p.OptOutAll && len(p.Channels) == 0 && len(p.Types) == 0
}

func appendSection(dst []byte, tag byte, body func([]byte) []byte) []byte {
	b := body(nil)
	dst = append(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

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

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

// Decode reads into u what the pipeline needs of a packed record, if that is of
// this build: one of another build, or nil, is nobody's, and u is empty. It reuses
// u's slices and leaves u.Limiter alone. The strings are cut from raw: raw must
// not be changed afterwards. The error is ErrVersion or ErrCorrupt, wrapped; then
// u is empty, too.
func Decode(raw []byte, build uint64, u *push.User) error {
	if raw == nil {
		forget(u)
		return nil
	}
	got, err := decodeHead(raw)
	if err == nil && got == build {
		_, err = decode(raw, u, nil)
	}
	if err != nil || got != build {
		forget(u)
	}
	return err
}

// decode reads a packed record into u and returns the build it belongs to; what is
// kept beside the user it reads into k, unless that is nil. After an error u is
// half filled.
func decode(raw []byte, u *push.User, k *kept) (build uint64, err error) {
	forget(u)
	if build, err = decodeHead(raw); err != nil {
		return 0, err
	}
	c := cursor{rest: raw[headLen:]}
	for len(c.rest) > 0 && !c.bad {
		section := c.rest
		tag := c.byte()
		body := cursor{rest: c.bytes()}
		switch {
		case c.bad:
		case tag == devicesSection:
			body.devices(u, k)
			c.bad = body.bad || len(body.rest) > 0
		case tag == preferencesSection:
			flags := body.byte()
			u.Preferences.OptOutAll = flags&1 != 0
			u.Preferences.Channels = body.strings(u.Preferences.Channels)
			u.Preferences.Types = body.strings(u.Preferences.Types)
			c.bad = body.bad || len(body.rest) > 0 || flags > 1
			if k != nil {
				k.prefsSet = true
			}
		case tag == unreadSection:
			u.Quarantine |= body.unread(k)
			c.bad = body.bad || len(body.rest) > 0
		case tag == droppedSection && k != nil:
			k.dropped = body.dropped()
			c.bad = body.bad || len(body.rest) > 0
		case tag == foreignSection:
			body.foreign(u, k)
			c.bad = body.bad || len(body.rest) > 0
		case tag >= optionalSection:
			if k != nil {
				k.extra = append(k.extra, section[:len(section)-len(c.rest)]...)
			}
		default:
			return 0, fmt.Errorf("user record: %w: section %d", ErrVersion, tag)
		}
	}
	if c.bad {
		return 0, fmt.Errorf("user record: %w", ErrCorrupt)
	}
	return build, nil
}

// forget empties u but for its limiter state, and keeps its memory.
func forget(u *push.User) {
	u.Devices = u.Devices[:0]
	u.Preferences.OptOutAll = false
	u.Preferences.Channels = u.Preferences.Channels[:0]
	u.Preferences.Types = u.Preferences.Types[:0]
	u.Quarantine = 0
}

// decodeHead reads the build that a record belongs to.
func decodeHead(raw []byte) (build uint64, err error) {
	switch {
	case len(raw) == 0:
		return 0, fmt.Errorf("user record: %w: empty", ErrCorrupt)
	case raw[0] != recordVersion:
		return 0, fmt.Errorf("user record: %w: %d", ErrVersion, raw[0])
	case len(raw) < headLen:
		return 0, fmt.Errorf("user record: %w: cut short", ErrCorrupt)
	}
	return binary.LittleEndian.Uint64(raw[1:]), nil
}

// cursor cuts values off the front of a record. After the first that does not
// fit it is bad and yields zeros.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) fail() {
	c.bad, c.rest = true, nil
}

func (c *cursor) byte() byte {
	if len(c.rest) == 0 {
		c.fail()
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.rest)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) bytes() []byte {
	n := c.uvarint()
	if n > uint64(len(c.rest)) {
		c.fail()
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) string() string {
	b := c.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// count reads how many elements of at least size bytes follow, and refuses
// what cannot fit, so that a corrupt count never makes a huge loop.
func (c *cursor) count(size int) int {
	n := c.uvarint()
	if n > uint64(len(c.rest)/size) {
		c.fail()
		return 0
	}
	return int(n)
}

func (c *cursor) strings(list []string) []string {
	for range c.count(1) {
		list = append(list, c.string())
	}
	return list
}

// devices reads the known ones into u. Those whose platform or environment is a
// later version's go into k as they are, if it is not nil.
func (c *cursor) devices(u *push.User, k *kept) {
	const least = 7 // platform, environment, time, four empty strings
	for range c.count(least) {
		from := c.rest
		platform, env := push.Platform(c.byte()), c.byte()
		environment, known := environmentOf(platform, env)
		if platform == push.NoPlatform {
			c.fail()
			return
		}
		d := push.Device{
			Platform: platform, Environment: environment,
			RegisteredAt: time.UnixMilli(c.varint()).UTC(),
			Hash:         c.string(), App: c.string(), Token: c.string(), Locale: c.string(),
		}
		switch {
		case c.bad:
			return
		case known:
			u.Devices = append(u.Devices, d)
		default:
			u.Quarantine |= push.DeviceUnread
			if k != nil {
				k.setForeign(d.Hash, &foreign{hash: d.Hash, at: d.RegisteredAt, packed: from[:len(from)-len(c.rest)]})
			}
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
