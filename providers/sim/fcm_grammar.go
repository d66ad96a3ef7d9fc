package sim

import (
	"bytes"
	"strings"
	"time"
)

// parseDuration reads "3.5s". Durations too long for the type are not ok.
func parseDuration(v []byte) (time.Duration, bool) {
	number, ok := bytes.CutSuffix(v, []byte("s"))
	whole, part, dot := bytes.Cut(number, []byte("."))
	negative := bytes.HasPrefix(whole, []byte("-"))
	if negative {
		whole = whole[1:]
	}
	if !ok || !allDigits(whole) || len(whole) > 9 || dot && (!allDigits(part) || len(part) > 9) {
		return 0, false
	}
	var d time.Duration
	for _, c := range whole {
		d = d*10 + time.Duration(c-'0')
	}
	unit := time.Second / 10
	d *= time.Second
	for _, c := range part {
		d += time.Duration(c-'0') * unit
		unit /= 10
	}
	if negative {
		d = -d
	}
	return d, true
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

func isFCMToken(b []byte) bool {
	for _, c := range b {
		if !isAlphanumeric(c) && c != '_' && c != ':' && c != '%' && c != '-' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= fcmTokenLimit
}

func isTopicName(b []byte) bool {
	for _, c := range b {
		if !isAlphanumeric(c) && !strings.ContainsRune("-_.~%", rune(c)) {
			return false
		}
	}
	return len(b) > 0
}
