package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

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
// it they may not, because what a user forbade must not be overlooked. The package
// says why each stands where it does.
const (
	devicesSection     = 1
	preferencesSection = 2
	unreadSection      = 3
	forbiddenSection   = 4
	optionalSection    = 0x80
	droppedSection     = 0x81
	foreignSection     = 0x82
	optInsSection      = 0x83
	profileSection     = 0x84
	limitsSection      = 0x85
	versionsSection    = 0x86
	unreadFactsSection = 0x87
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
//	4 forbidden:   flags (1 = blocked), senders (count, strings), quiet hours
//	               (count, and per entry: from, to in minutes (uvarint), days
//	               (1 byte, Sunday = 1), types)
//	129 dropped:   devices left out as too many: count, and registered_at of
//	               the latest (varint, Unix ms)
//	130 foreign:   count, and per device of a platform that whoever wrote this
//	               did not know: hash, partition, offset, value in push.users
//	131 opt-ins:   types (count, strings)
//	132 profile:   locale, zone, country, user number + 1 (uvarint; 0 = none),
//	               last activity (varint, Unix ms; 0 = not known)
//	133 limits:    count, and per personal limit: name, most (uvarint)
//	134 versions:  count, and per device whose app's version is known: hash,
//	               version
//	135 unread:    as 3, of profile and limits: the part instead of a hash
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
	if k.prefsSet {
		dst = appendPreferences(dst, &u.Preferences)
	}
	if parts := k.byHash(); len(parts) > 0 {
		dst = appendSection(dst, unreadSection, func(b []byte) []byte { return appendUnread(b, parts, Part.Hash) })
	}
	if k.dropped.devices > 0 {
		dst = appendSection(dst, droppedSection, func(b []byte) []byte { return appendDropped(b, k.dropped) })
	}
	dst = appendForeign(dst, k.foreign)
	dst = appendVersions(appendLimits(appendProfile(dst, &u.Profile), u.Limits), u.Devices, k.foreign)
	if parts := k.byName(); len(parts) > 0 {
		dst = appendSection(dst, unreadFactsSection, func(b []byte) []byte {
			return appendUnread(b, parts, func(p Part) string { return string(p) })
		})
	}
	return append(dst, k.extra...)
}

func appendSection(dst []byte, tag byte, body func([]byte) []byte) []byte {
	b := body(nil)
	dst = append(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// decode reads a packed record into u and returns the build it belongs to; what is
// kept beside the user it reads into k, unless that is nil. Lists are cut from room,
// unless that is nil. After an error u is half filled.
func decode(raw []byte, u *push.User, k *kept, room *Decoder) (build uint64, err error) {
	forget(u)
	if build, err = decodeHead(raw); err != nil {
		return 0, err
	}
	c := cursor{rest: raw[headLen:]}
	for len(c.rest) > 0 && !c.bad {
		section := c.rest
		tag := c.byte()
		body := cursor{rest: c.bytes(), room: room}
		switch known := body.section(tag, u, k); {
		case c.bad:
		case known:
			c.bad = body.bad || len(body.rest) > 0
		case tag < optionalSection:
			return 0, fmt.Errorf("user record: %w: section %d", ErrVersion, tag)
		case k != nil:
			k.extra = append(k.extra, section[:len(section)-len(c.rest)]...)
		}
	}
	if c.bad {
		return 0, fmt.Errorf("user record: %w", ErrCorrupt)
	}
	if k != nil {
		slices.SortFunc(k.unread, func(a, b unreadPart) int { return cmp.Compare(a.part, b.part) })
	}
	return build, nil
}

// section reads one, unless it is not known. What is only kept is not read if k is nil.
func (c *cursor) section(tag byte, u *push.User, k *kept) (known bool) {
	switch tag {
	case devicesSection:
		c.devices(u, k)
	case preferencesSection:
		c.preferences(&u.Preferences)
		if k != nil {
			k.prefsSet = true
		}
	case unreadSection:
		u.Quarantine |= c.unread(k, partOfHash)
	case forbiddenSection:
		c.forbidden(&u.Preferences)
	case foreignSection:
		c.foreign(u, k)
	case optInsSection:
		u.Preferences.OptIns = c.strings(u.Preferences.OptIns)
	case profileSection:
		c.profile(&u.Profile)
	case limitsSection:
		u.Limits = c.limits(u.Limits)
	case versionsSection:
		c.versions(u, k)
	case droppedSection, unreadFactsSection:
		switch {
		case k == nil:
			c.rest = nil
		case tag == droppedSection:
			k.dropped = c.dropped()
		default:
			c.unread(k, func(name string) Part { return Part(name) })
		}
	default:
		return false
	}
	return true
}

// BuildOf is the build of which a packed record, or an entry of the token index, is;
// 0 if it is too short to say. With it, Decode and DecodeClaims read also what
// an earlier build left behind, and counts for nobody.
func BuildOf(raw []byte) uint64 {
	if len(raw) < headLen {
		return 0
	}
	return binary.LittleEndian.Uint64(raw[1:])
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
