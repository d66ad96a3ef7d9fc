package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
)

// idLine is the word with which a line of the secret begins that has a key of ids.
const idLine = "ids"

// idKey is a key from which ids are derived.
type idKey struct {
	from time.Time // it counts from then on, until that of a later one
	key  []byte
}

// idKeys are those of ids, the latest first. They are not those that sign receipts: these
// are exchanged now and then, and a repeat across that would be another notification.
// Each counts from a moment that all replicas know before it comes, so that they do not
// differ while they are restarted one by one. Before the first of them ids are plain
// hashes, which whoever knows what goes in can reckon, and take.
type idKeys []idKey

// parseIDKey reads "ids TIME KEY". The error has nothing of the key.
func parseIDKey(line string) (idKey, error) {
	words := strings.Fields(line)
	if len(words) != 3 {
		return idKey{}, errors.New("want ids, a time and a key, such as ids 2026-12-01T00:00:00Z followed by what openssl rand -base64 32 prints")
	}
	from, err := time.Parse(time.RFC3339, words[1])
	switch {
	case err != nil:
		return idKey{}, errors.New("the second word is no time, such as 2026-12-01T00:00:00Z")
	case len(words[2]) < MinKey:
		return idKey{}, fmt.Errorf("the key has %d characters, want at least %d (openssl rand -base64 32)", len(words[2]), MinKey)
	}
	return idKey{from, []byte(words[2])}, nil
}

// add puts a key in its place.
func (ks *idKeys) add(k idKey) error {
	at, found := slices.BinarySearchFunc(*ks, k, func(a, b idKey) int { return b.from.Compare(a.from) })
	if found {
		return errors.New("two keys of ids count from the same time")
	}
	*ks = slices.Insert(*ks, at, k)
	return nil
}

// at is the key that counts at a time; nil = none.
func (ks idKeys) at(t time.Time) []byte {
	for _, k := range ks {
		if !k.from.After(t) {
			return k.key
		}
	}
	return nil
}

// derive is the id that an Idempotency-Key stands for: the same for the same sender, app,
// receiver and key, at every replica, and another one if any of them differs. A key that
// is a UUIDv7 gives one with its time, by the secret that counted then: the same for
// ever. Any other gives an id without a time, which workers always confirm
// (push.DerivedID), by the secret that counts now.
func (ks idKeys) derive(sender, app string, o owner, key string, now time.Time) string {
	minted, timed := push.MintedAt(key)
	if timed {
		now = minted
	}
	var h hash.Hash
	label := "pushfleet id 1"
	if secret := ks.at(now); secret != nil {
		h, label = hmac.New(sha256.New, secret), "pushfleet id 2"
	} else {
		h = sha256.New()
	}
	for _, part := range []string{label, sender, app, o.user, o.device, key} {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	sum := h.Sum(nil)
	if timed {
		u := uuid.UUID(sum[:16])
		stamp(&u, minted)
		return u.String()
	}
	return push.DerivedPrefix + base64.RawURLEncoding.EncodeToString(sum[:push.DerivedBytes])
}
