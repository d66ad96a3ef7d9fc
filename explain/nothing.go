package explain

import (
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// fresh is the age below which a notification without a state is nothing
// unusual: workers may not have read it yet.
const fresh = time.Minute

// nothing says why a notification may have no state. The time in a UUIDv7
// narrows it down.
func nothing(id string, ttl time.Duration, now time.Time) string {
	const never = "never produced to a lane's topic, or produced under another id, or not read by a worker yet (pushctl lag)"
	minted, ok := push.MintedAt(id)
	if !ok {
		return fmt.Sprintf("%s, or older than the %s that the status store keeps", never, days(ttl))
	}
	age := now.Sub(minted)
	at := "its id was made at " + minted.UTC().Format(time.RFC3339)
	switch {
	case age > ttl:
		return fmt.Sprintf("%s, and the status store keeps only %s: its outcome is no longer known", at, days(ttl))
	case age < -fresh:
		return at + ", which is in the future: " + never
	case age < fresh:
		return fmt.Sprintf("%s, %v ago: most likely not read by a worker yet; ask again, or look at pushctl lag", at, max(0, age).Round(time.Second))
	}
	return at + ", and the status store would still have its states: " + never
}

// days is a duration, in days if it is a whole number of at least two.
func days(d time.Duration) string {
	if d >= 48*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.String()
}
