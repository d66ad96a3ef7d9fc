package dedupe

import (
	"strings"
	"time"
)

// MintedAt is the time that a UUIDv7 carries; false for every other id.
func MintedAt(id string) (at time.Time, ok bool) {
	ms, ok := mintedAt(id)
	return time.UnixMilli(ms), ok
}

// mintedAt is the Unix ms that a UUIDv7 carries; false for every other id.
func mintedAt(id string) (ms int64, ok bool) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[14] != '7' || id[18] != '-' || id[23] != '-' ||
		!strings.ContainsRune("89abAB", rune(id[19])) {
		return 0, false
	}
	for i := range id {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			continue
		}
		d, ok := hexDigit(id[i])
		if !ok {
			return 0, false
		}
		if i < 13 {
			ms = ms<<4 | d
		}
	}
	return ms, true
}

func hexDigit(c byte) (int64, bool) {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0'), true
	case c >= 'a' && c <= 'f':
		return int64(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return int64(c-'A') + 10, true
	}
	return 0, false
}
