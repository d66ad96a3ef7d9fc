package push

import (
	"math"
	"time"
)

// MintedAt is the time that a UUIDv7 carries, in ms (RFC 9562, section 5.7). ok is false for
// anything that is not one in its usual form of 36 characters; hex digits may be of either case.
func MintedAt(id string) (at time.Time, ok bool) {
	ms, ok := MintedMillis(id)
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(ms), true
}

// MintedMillis is what MintedAt is, in ms since 1970: 0 to 2^48 - 1. A worker asks several
// times for each notification, so no step depends on what a digit is, which nobody can predict.
func MintedMillis(id string) (ms int64, ok bool) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' || id[14] != '7' {
		return 0, false
	}
	if hexValues[id[19]]>>2 != 2 { // the variant: binary 10xx
		return 0, false
	}
	var seen byte
	for _, part := range [...]string{id[:8], id[9:13]} {
		for i := range len(part) {
			v := hexValues[part[i]]
			seen |= v
			ms = ms<<4 | int64(v&0xf)
		}
	}
	for _, part := range [...]string{id[15:18], id[20:23], id[24:]} {
		for i := range len(part) {
			seen |= hexValues[part[i]]
		}
	}
	return ms, seen != notHex
}

// notHex marks a byte that is no hex digit. Its bits cannot come from or-ing digits together.
const notHex = math.MaxUint8

// hexValues maps a byte to its value as a hex digit.
var hexValues = func() (t [256]byte) {
	for i := range t {
		t[i] = notHex
	}
	for i := range 10 {
		t['0'+i] = byte(i)
	}
	for i := range 6 {
		t['a'+i], t['A'+i] = byte(10+i), byte(10+i)
	}
	return t
}()
