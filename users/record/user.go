package record

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// User is a user as the registry keeps it: what the pipeline reads of it, and what
// is kept beside that. The zero value is a user without anything.
type User struct {
	push.User
	kept
}

// kept is what a record holds beside what the pipeline reads of it.
type kept struct {
	// prefsSet: preferences are set, if only to nothing.
	prefsSet bool
	// unread are the parts whose latest record cannot be read, in their order.
	unread  []unreadPart
	dropped dropped
	// foreign are the devices of platforms that this version does not know, in
	// the order of their hashes.
	foreign []foreign
	// extra are optional sections of a newer registry, kept as they are.
	extra []byte
}

// dropped are devices of a user that were left out as too many.
type dropped struct {
	devices uint64    // how often that was done
	upTo    time.Time // the latest registration of them
}

// Empty reports whether there is nothing to keep of the user.
func (s *User) Empty() bool {
	return len(s.Devices) == 0 && !s.prefsSet && s.Profile == push.Profile{} && len(s.Limits) == 0 &&
		len(s.unread) == 0 && len(s.foreign) == 0 && len(s.extra) == 0
}

// Parts are the parts of which there is something, also where nothing of it can be
// read.
func (s *User) Parts() (parts []Part) {
	for _, part := range []Part{PreferencesPart, ProfilePart, LimitsPart} {
		if s.has(part) || s.aside(part) {
			parts = append(parts, part)
		}
	}
	of := make(map[string]bool)
	for i := range s.Devices {
		of[s.Devices[i].Hash] = true
	}
	for i := range s.foreign {
		of[s.foreign[i].hash] = true
	}
	for i := range s.unread {
		of[s.unread[i].part.Hash()] = true
	}
	delete(of, "") // the other parts
	for _, hash := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, DevicePart(hash))
	}
	return parts
}

func appendDropped(b []byte, d dropped) []byte {
	return binary.AppendVarint(binary.AppendUvarint(b, d.devices), d.upTo.UnixMilli())
}

func (c *cursor) dropped() dropped {
	return dropped{devices: c.uvarint(), upTo: time.UnixMilli(c.varint()).UTC()}
}

// Decode reads a record that counts only if it is of this build; nil = none. Its
// strings share raw's memory. After an error, which is that of
// Decoder.Decode, s is empty.
func (s *User) Decode(raw []byte, build uint64) error {
	*s = User{}
	if raw == nil {
		return nil
	}
	got, err := decodeHead(raw)
	if err == nil && got == build {
		_, err = decode(raw, &s.User, &s.kept, nil)
	}
	if err != nil {
		*s = User{}
	}
	return err
}

// Dropped is how many devices were left out because the user had too many, since
// the shard was built, and when the latest of them was registered.
func (s *User) Dropped() (devices int, upTo time.Time) {
	return int(s.dropped.devices), s.dropped.upTo
}

// registeredAt returns the zero time if s has no such device.
func (s *User) registeredAt(hash string) time.Time {
	if f := s.foreignAt(hash); f != nil {
		return f.at
	}
	if d := DeviceOf(&s.User, hash); d != nil {
		return d.RegisteredAt
	}
	return time.Time{}
}

// lacks reports whether the user certainly has no device of this hash, and had none
// that was registered then and left out as one too many.
func (s *User) lacks(hash string, registered time.Time) bool {
	return s.registeredAt(hash).IsZero() && s.unreadAt(DevicePart(hash)) < 0 && len(s.unread) < maxUnread && registered.After(s.dropped.upTo)
}

// ErrPacked says that the record of a device is not at hand: a later version packed
// it, and this one does not know its platform.
var ErrPacked = errors.New("device of an unknown platform, without its record")

// Value is the value of the record in push.users that holds of a device; nil when
// the user has none of this hash. The error is ErrPacked, or says that the device
// cannot be written.
func (s *User) Value(hash string) ([]byte, error) {
	if f := s.foreignAt(hash); f != nil {
		if f.value == nil {
			return nil, ErrPacked
		}
		return f.value, nil
	}
	if d := DeviceOf(&s.User, hash); d != nil {
		return DeviceValue(d)
	}
	return nil, nil
}

// applyDevice applies one record of a device to its user. Devices are kept in
// the order of their hashes, so that equal users have equal records.
func applyDevice(u *push.User, hash string, d *push.Device) {
	i, found := slices.BinarySearchFunc(u.Devices, hash, func(d push.Device, hash string) int {
		return strings.Compare(d.Hash, hash)
	})
	switch {
	case found && d != nil:
		u.Devices[i] = *d
	case found:
		u.Devices = slices.Delete(u.Devices, i, i+1)
	case d != nil:
		u.Devices = slices.Insert(u.Devices, i, *d)
	}
}

// DeviceOf is the device of u with this hash; nil = there is none.
func DeviceOf(u *push.User, hash string) *push.Device {
	for i := range u.Devices {
		if u.Devices[i].Hash == hash {
			return &u.Devices[i]
		}
	}
	return nil
}
