package main

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// fresh is how young an id is whose notification may not have been taken up
// yet without anything being wrong.
const fresh = time.Minute

// explainNothing says what it may mean that a notification has no state. A
// UUIDv7 tells when it was minted, and so which it is.
func explainNothing(id string, ttl time.Duration, now time.Time) string {
	const never = "never produced to a lane's topic, or under another id, or not taken up yet (pushctl lag)"
	minted, ok := mintedAt(id)
	if !ok {
		return fmt.Sprintf("%s, or older than the %s that the status store keeps", never, days(ttl))
	}
	age := now.Sub(minted)
	at := "its id was minted at " + minted.UTC().Format(time.RFC3339)
	switch {
	case age > ttl:
		return fmt.Sprintf("%s, and the status store keeps %s: what became of it is not known any more", at, days(ttl))
	case age < -fresh:
		return at + ", which lies ahead: " + never
	case age < fresh:
		return fmt.Sprintf("%s, %v ago: most likely not taken up yet; ask again, or look at pushctl lag", at, max(0, age).Round(time.Second))
	}
	return at + ", which the status store would know: " + never
}

// mintedAt is the time in a UUIDv7.
func mintedAt(id string) (time.Time, bool) {
	u, err := uuid.Parse(id)
	if err != nil || len(id) != 36 || u.Version() != 7 {
		return time.Time{}, false
	}
	return time.Unix(u.Time().UnixTime()), true
}

// days is a time of storage as people say it.
func days(d time.Duration) string {
	if d >= 48*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.String()
}
