package users

import (
	"bytes"
	"context"
	"time"
)

// HeaderIfNotAfter is the Kafka header that carries Record.IfNotAfter, as Unix
// milliseconds in decimal.
const HeaderIfNotAfter = "pf-if-not-after"

// HeaderRepeats is the Kafka header that carries Record.Repeats: "1".
const HeaderRepeats = "pf-repeats"

// Record is one record of push.users: it replaces the part that Key names
// (see users/record).
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
