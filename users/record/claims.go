package record

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

const claimsVersion = 1

// Claim says that a user has a device registered.
type Claim struct {
	User string
	At   int64 // registered_at, Unix ms
}

// later orders claims of different users: the later registration wins, and
// between two of the same millisecond the greater user id, so that all
// registries agree.
func (c Claim) later(than Claim) bool {
	return c.At > than.At || c.At == than.At && c.User > than.User
}

// Claims are all users who have one token registered. More than one is an open
// case.
type Claims []Claim

// Owner is the latest claim on the token of this hash by a user who has the device;
// the zero Claim if nobody has it. A user of whom that is not certain, because a device
// above the limit was dropped or a part cannot be read, counts as having it. A repeat that came too late leaves a claim
// without a device when only the token's shard was being built: if that one owned
// the token, nobody had it. users are the claimants' records; known is false when
// one is missing that matters.
func (cs Claims) Owner(hash string, users map[string]*User) (owner Claim, known bool) {
	for left := slices.Clone(cs); len(left) > 0; left = left.without(owner.User) {
		owner = left.Latest()
		u := users[owner.User]
		if u == nil {
			return Claim{}, false
		}
		if !u.lacks(hash, time.UnixMilli(owner.At)) {
			return owner, true
		}
	}
	return Claim{}, true
}

// Latest is that of the claims, of which there is one at least.
func (cs Claims) Latest() Claim {
	latest := cs[0]
	for _, c := range cs[1:] {
		if c.later(latest) {
			latest = c
		}
	}
	return latest
}

func (cs Claims) without(user string) Claims {
	for i := range cs {
		if cs[i].User == user {
			return append(cs[:i], cs[i+1:]...)
		}
	}
	return cs
}

// Encode is the value of a t: key: version, build (8 bytes, little-endian),
// count, and per claim registered_at (varint) and user (length, bytes).
func (cs Claims) Encode(build uint64) []byte {
	b := []byte{claimsVersion}
	b = binary.LittleEndian.AppendUint64(b, build)
	b = binary.AppendUvarint(b, uint64(len(cs)))
	for _, c := range cs {
		b = binary.AppendVarint(b, c.At)
		b = appendString(b, c.User)
	}
	return b
}

// DecodeClaims returns no claims for a missing value, and for one of another
// build. The users share raw's memory. The error is ErrVersion or ErrCorrupt,
// wrapped.
func DecodeClaims(raw []byte, build uint64) (Claims, error) {
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
	var cs Claims
	for range c.count(2) {
		at := c.varint()
		cs = append(cs, Claim{User: c.string(), At: at})
	}
	if c.bad || len(c.rest) > 0 {
		return nil, fmt.Errorf("token index: %w", ErrCorrupt)
	}
	return cs, nil
}
