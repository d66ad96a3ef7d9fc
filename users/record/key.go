package record

import (
	"fmt"
	"strings"
)

// Part names a part of a user, as it stands in the keys of push.users: one of these,
// or a device (DevicePart).
type Part string

// The parts of which a user has one each.
const (
	PreferencesPart Part = "prefs"
	ProfilePart     Part = "profile"
	LimitsPart      Part = "limits"
)

const devicePart = "device:"

// DevicePart is the part of a device; hash is push.DeviceHash of its token.
func DevicePart(hash string) Part { return Part(devicePart + hash) }

// Hash is the one of a device's token; empty if the part is no device.
func (p Part) Hash() string {
	hash, _ := strings.CutPrefix(string(p), devicePart)
	if len(hash) == len(p) {
		return ""
	}
	return hash
}

// PreferencesKey is the key of a user's preferences in push.users.
func PreferencesKey(user string) string { return Key(user, PreferencesPart) }

// ProfileKey is the key of a user's profile in push.users.
func ProfileKey(user string) string { return Key(user, ProfilePart) }

// DeviceKey is the key of a user's device in push.users; hash is
// push.DeviceHash of its token.
func DeviceKey(user, hash string) string { return user + "/" + devicePart + hash }

// Key is that of a part.
func Key(user string, part Part) string { return user + "/" + string(part) }

// PartOf is the inverse of Key. Both are empty when the key cannot be read.
func PartOf(key string) (user string, part Part, err error) {
	i := strings.LastIndexByte(key, '/')
	if i <= 0 || i > maxUser {
		return "", "", fmt.Errorf("key: %w", errPart)
	}
	switch user, part = key[:i], Part(key[i+1:]); part {
	case PreferencesPart, ProfilePart, LimitsPart:
		return user, part, nil
	}
	if hash := part.Hash(); CheckHash(hash) != nil {
		return "", "", fmt.Errorf("key: %w", errPart)
	}
	return user, part, nil
}
