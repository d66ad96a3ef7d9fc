package users

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

const claimsVersion = 1

// claim says that a user has a device registered.
type claim struct {
	user string
	at   int64 // registered_at, Unix ms
}

// later orders claims of different users: the later registration wins, and
// between two of the same millisecond the greater user id, so that all
// registries agree.
func (c claim) later(than claim) bool {
	return c.at > than.at || c.at == than.at && c.user > than.user
}

// claims are all users who have one token registered. More than one is an open
// case; the owner is the latest.
type claims []claim

func (cs claims) owner() claim {
	owner := cs[0]
	for _, c := range cs[1:] {
		if c.later(owner) {
			owner = c
		}
	}
	return owner
}

func (cs claims) without(user string) claims {
	for i := range cs {
		if cs[i].user == user {
			return append(cs[:i], cs[i+1:]...)
		}
	}
	return cs
}

// encode is the value of a t: key: version, build (8 bytes, little-endian),
// count, and per claim registered_at (varint) and user (length, bytes).
func (cs claims) encode(build uint64) []byte {
	b := []byte{claimsVersion}
	b = binary.LittleEndian.AppendUint64(b, build)
	b = binary.AppendUvarint(b, uint64(len(cs)))
	for _, c := range cs {
		b = binary.AppendVarint(b, c.at)
		b = appendString(b, c.user)
	}
	return b
}

// decodeClaims returns no claims for a missing value, and for one of another
// build.
func decodeClaims(raw []byte, build uint64) (claims, error) {
	if raw == nil {
		return nil, nil
	}
	if len(raw) == 0 || raw[0] != claimsVersion {
		return nil, fmt.Errorf("token index: %w", ErrVersion)
	}
	if len(raw) < headLen {
		return nil, fmt.Errorf("token index: %w", ErrCorrupt)
	}
	if binary.LittleEndian.Uint64(raw[1:]) != build {
		return nil, nil
	}
	c := cursor{rest: raw[headLen:]}
	var cs claims
	for range c.count(2) {
		at := c.varint()
		cs = append(cs, claim{user: c.string(), at: at})
	}
	if c.bad || len(c.rest) > 0 {
		return nil, fmt.Errorf("token index: %w", ErrCorrupt)
	}
	return cs, nil
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

// deviceByHash returns nil when u has no such device.
func deviceByHash(u *push.User, hash string) *push.Device {
	for i := range u.Devices {
		if u.Devices[i].Hash == hash {
			return &u.Devices[i]
		}
	}
	return nil
}
