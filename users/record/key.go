package record

import (
	"fmt"
	"strings"
)

const (
	prefsPart  = "prefs"
	devicePart = "device:"
)

// PreferencesKey is the key of a user's preferences in push.users.
func PreferencesKey(user string) string { return user + "/" + prefsPart }

// DeviceKey is the key of a user's device in push.users; hash is
// push.DeviceHash of its token.
func DeviceKey(user, hash string) string { return user + "/" + devicePart + hash }

// Key is that of a part: of the preferences if hash is empty.
func Key(user, hash string) string {
	if hash == "" {
		return PreferencesKey(user)
	}
	return DeviceKey(user, hash)
}

// PartOf is the inverse of Key: the user and, of a device, the hash. Both are empty
// when the key cannot be read.
func PartOf(key string) (user, hash string, err error) {
	i := strings.LastIndexByte(key, '/')
	if i <= 0 || i > maxUser {
		return "", "", fmt.Errorf("key: %w", errPart)
	}
	user, part := key[:i], key[i+1:]
	if part == prefsPart {
		return user, "", nil
	}
	hash, ok := strings.CutPrefix(part, devicePart)
	if !ok || CheckHash(hash) != nil {
		return "", "", fmt.Errorf("key: %w", errPart)
	}
	return user, hash, nil
}
