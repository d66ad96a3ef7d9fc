package users

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
)

// HeaderIfNotAfter is the Kafka header that carries Record.IfNotAfter, as Unix
// milliseconds in decimal.
const HeaderIfNotAfter = "pf-if-not-after"

// HeaderRepeats is the Kafka header that carries Record.Repeats: "1".
const HeaderRepeats = "pf-repeats"

// Record is one record of push.users: it replaces the part that Key names.
type Record struct {
	Key   string
	Value []byte // JSON; nil = a tombstone, which removes the part
	// IfNotAfter, with a tombstone of a device, limits it to registrations that
	// are not later; zero = it removes any. It travels as HeaderIfNotAfter.
	IfNotAfter time.Time
	// Repeats, of a device, marks what the registry appends once more only so
	// that compaction keeps it: a registration that counts if it is still what
	// holds, or a tombstone of a device that is still not there. It travels as
	// HeaderRepeats.
	Repeats bool
}

// Log appends to push.users. Append returns nil when every record is
// acknowledged by all in-sync replicas, in this order per key; after an error
// any of them may be there, and appending all again does no harm. A record's
// partition is chosen by PartitionKey(Key) alone. It is safe for concurrent
// use and keeps nothing of the slice after it returned.
type Log interface {
	Append(ctx context.Context, records []Record) error
}

// PartitionKey is the part of a record's key that chooses its partition: the
// user. All parts of a user share a partition, so that they have one order.
func PartitionKey(key []byte) []byte {
	if i := bytes.LastIndexByte(key, '/'); i >= 0 {
		return key[:i]
	}
	return key
}

const (
	prefsPart  = "prefs"
	devicePart = "device:"
)

// PreferencesKey is the key of a user's preferences in push.users.
func PreferencesKey(user string) string { return user + "/" + prefsPart }

// DeviceKey is the key of a user's device in push.users; hash is
// push.DeviceHash of its token.
func DeviceKey(user, hash string) string { return user + "/" + devicePart + hash }

// splitKey is the inverse of both. hash is empty for preferences.
func splitKey(key string) (user, hash string, err error) {
	i := strings.LastIndexByte(key, '/')
	if i <= 0 || i > maxUser {
		return "", "", fmt.Errorf("key: %w", errPart)
	}
	user, part := key[:i], key[i+1:]
	if part == prefsPart {
		return user, "", nil
	}
	hash, ok := strings.CutPrefix(part, devicePart)
	if !ok || checkHash(hash) != nil {
		return "", "", fmt.Errorf("key: %w", errPart)
	}
	return user, hash, nil
}

// PartOf is the user and, of a device, the hash that a record's key names; both
// are empty when the key cannot be read.
func PartOf(key string) (user, hash string) {
	user, hash, _ = splitKey(key)
	return user, hash
}
