package sim

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// DeviceHash is the name of a device in the ledger: the first 12 bytes of
// SHA-256(token) in base64url, 16 characters. An APNs token is lower-cased
// first. It is the device hash of the status table.
func DeviceHash(p Provider, token string) string {
	var buf [16]byte
	return string(deviceHash(buf[:0], p, token))
}

func deviceHash(dst []byte, p Provider, token string) []byte {
	var buf [256]byte // longer tokens are rare
	sum := sha256.Sum256(appendToken(buf[:0], p, token))
	return base64.RawURLEncoding.AppendEncode(dst, sum[:12])
}

// tokenKey is the 64-bit name of a token where only the simulator itself looks
// it up.
func tokenKey(p Provider, token string) uint64 {
	var buf [256]byte
	return xxhash.Sum64(appendToken(buf[:0], p, token)) + uint64(p)
}

// appendToken appends a token as it is hashed: one of APNs in lower case, eight
// bytes at a time.
func appendToken(b []byte, p Provider, token string) []byte {
	start := len(b)
	b = append(b, token...)
	if p != APNS {
		return b
	}
	rest := b[start:]
	for ; len(rest) >= 8; rest = rest[8:] {
		w := binary.LittleEndian.Uint64(rest)
		if w&topBits != 0 {
			return append(b[:start], strings.ToLower(token)...) // no token of Apple's
		}
		// Of both sums only the first reaches the top bit for A to Z.
		capital := (w + (0x80-'A')*eachByte) &^ (w + (0x80-'Z'-1)*eachByte) & topBits
		binary.LittleEndian.PutUint64(rest, w|capital>>2)
	}
	for i, c := range rest {
		if c >= 0x80 {
			return append(b[:start], strings.ToLower(token)...)
		}
		if c >= 'A' && c <= 'Z' {
			rest[i] = c | 0x20
		}
	}
	return b
}

// entryKey is the 64-bit name of a notification on a device.
func entryKey(id, device []byte) uint64 {
	var buf [128]byte
	b := append(buf[:0], id...)
	b = append(b, 0)
	return xxhash.Sum64(append(b, device...))
}
