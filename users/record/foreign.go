package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// foreign is a device whose platform this version does not know (of a packed one
// also its environment): a later one does. Nothing can be sent to it here. It is
// kept byte for byte, and in all that needs no platform it is a device like the others: the
// latest registration holds, owns the token, and is what gets repeated.
type foreign struct {
	hash string
	at   time.Time // registered_at
	// packed is the device as a later version packed it among the others; nil
	// when this one has read its record, which is value, at its place in
	// push.users.
	packed    []byte
	version   string // of its app; of a packed one only
	value     []byte
	partition int
	offset    int64
}

const (
	// maxForeign bounds the foreign devices of a user whose records are kept.
	// What comes beyond is in quarantine: push.users alone has it.
	maxForeign = 20
	// maxForeignValue is the longest record of one in bytes: twice what a known
	// platform's needs.
	maxForeignValue = 8 << 10
)

// errForeign says that a record registers a device of a platform that is not
// known.
var errForeign = errors.New("device of an unknown platform")

// parseForeign reads what of a device needs no platform.
func parseForeign(value []byte, hash string, now time.Time) (*foreign, error) {
	var p devicePartJSON
	if err := parsePart(value, &p, &p.V, partVersion); err != nil {
		return nil, err
	}
	if err := checkText("platform", p.Platform, maxName); err != nil {
		return nil, fmt.Errorf("%w: %w", errPart, err)
	}
	if err := checkRegisteredAt(p.RegisteredAt, now); err != nil {
		return nil, fmt.Errorf("%w: %w", errPart, err)
	}
	if len(value) > maxForeignValue {
		return nil, fmt.Errorf("%w: a device of %d bytes", ErrVersion, len(value))
	}
	return &foreign{hash: hash, at: p.RegisteredAt.UTC().Truncate(time.Millisecond), value: value}, nil
}

// ofItsToken checks that the key's hash is that of the record's token, whether its
// platform tells upper case from lower case or not. Else whoever writes a record
// could take a token from its user without having it.
func ofItsToken(value []byte, hash string) error {
	var p devicePartJSON
	if err := parsePart(value, &p, &p.V, partVersion); err != nil {
		return err
	}
	if hash != push.DeviceHash(push.NoPlatform, p.Token) && hash != push.DeviceHash(push.NoPlatform, strings.ToLower(p.Token)) {
		return fmt.Errorf("%w: the key is not that of its token", errPart)
	}
	return nil
}

func (k *kept) searchForeign(hash string) (i int, found bool) {
	return slices.BinarySearchFunc(k.foreign, hash, func(f foreign, hash string) int { return cmp.Compare(f.hash, hash) })
}

// foreignAt is the foreign device of this hash; nil = there is none.
func (k *kept) foreignAt(hash string) *foreign {
	if i, found := k.searchForeign(hash); found {
		return &k.foreign[i]
	}
	return nil
}

// setForeign puts a foreign device in its place, by the order of the hashes; nil
// takes it away.
func (k *kept) setForeign(hash string, f *foreign) {
	i, found := k.searchForeign(hash)
	switch {
	case found && f != nil:
		k.foreign[i] = *f
	case found:
		k.foreign = slices.Delete(k.foreign, i, i+1)
	case f != nil:
		k.foreign = slices.Insert(k.foreign, i, *f)
	}
}

// hasRoom reports whether the record of one more foreign device may be kept.
func (k *kept) hasRoom(hash string) bool {
	return len(k.foreign) < maxForeign || k.foreignAt(hash) != nil
}

// appendDevices appends known and packed ones in the order of their hashes, as
// whoever knows all of them does.
func appendDevices(b []byte, devices []push.Device, others []foreign) []byte {
	packed := slices.DeleteFunc(slices.Clone(others), func(f foreign) bool { return f.packed == nil })
	b = binary.AppendUvarint(b, uint64(len(devices)+len(packed)))
	for i := range devices {
		for len(packed) > 0 && strings.Compare(packed[0].hash, devices[i].Hash) < 0 {
			b, packed = append(b, packed[0].packed...), packed[1:]
		}
		b = appendDevice(b, &devices[i])
	}
	for i := range packed {
		b = append(b, packed[i].packed...)
	}
	return b
}

// appendForeign appends those whose records are kept, if any, as a section.
func appendForeign(dst []byte, others []foreign) []byte {
	others = slices.DeleteFunc(slices.Clone(others), func(f foreign) bool { return f.value == nil })
	if len(others) == 0 {
		return dst
	}
	return appendSection(dst, foreignSection, func(b []byte) []byte {
		b = binary.AppendUvarint(b, uint64(len(others)))
		for i := range others {
			f := &others[i]
			b = appendString(b, f.hash)
			b = binary.AppendUvarint(b, uint64(f.partition))
			b = binary.AppendUvarint(b, uint64(f.offset))
			b = appendString(b, string(f.value))
		}
		return b
	})
}

// foreign reads what appendForeign wrote. A device whose platform is known by
// now is one of u's like the others.
func (c *cursor) foreign(u *push.User, k *kept) {
	const least = 4 // empty hash, partition, offset, empty value
	for range c.count(least) {
		hash, partition, offset, value := c.string(), int(c.uvarint()), int64(c.uvarint()), c.bytes()
		if c.bad || partition < 0 || offset < 0 {
			c.fail()
			return
		}
		// How far ahead it may be was asked when it came.
		if d, err := parseDevice(value, hash, endOfTime); err == nil {
			applyDevice(u, hash, &d)
			continue
		}
		f, err := parseForeign(value, hash, endOfTime)
		if err != nil {
			c.fail()
			return
		}
		if DeviceOf(u, hash) == nil {
			u.Quarantine |= push.DeviceUnread
		}
		if k != nil {
			f.partition, f.offset = partition, offset
			k.setForeign(hash, f)
		}
	}
}

// endOfTime is later than any registration.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
