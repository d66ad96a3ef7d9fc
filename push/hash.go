package push

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// DeviceHash is the name of a device wherever its token must not be: the first
// 12 bytes of SHA-256(token) in base64url, 16 characters. An APNs token is
// lower-cased first, because Apple's hex digits have no case (see the table).
func DeviceHash(p Platform, token string) string {
	if p.traits().foldsTokens {
		token = strings.ToLower(token)
	}
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// DerivedCollapseKey is the collapse key of a notification that has none, where
// a repeated push is to replace the first: base64url of the first 24 bytes of
// SHA-256(id), 32 characters (Apple allows 64 bytes).
func DerivedCollapseKey(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum[:24])
}

// UserHash identifies a user in the status table.
func UserHash(userID string) uint64 { return xxhash.Sum64String(userID) }

// PlaceID is the id of a record that has no usable one of its own: "kafka:"
// and a hash of its place, the same at every redelivery.
func PlaceID(topic string, partition int32, offset int64) string {
	h := sha256.Sum256([]byte(topic + "/" + strconv.Itoa(int(partition)) + "/" + strconv.FormatInt(offset, 10)))
	return "kafka:" + base64.RawURLEncoding.EncodeToString(h[:18])
}
