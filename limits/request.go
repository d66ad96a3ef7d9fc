package limits

import "time"

// Request asks whether a user may get one more notification.
type Request struct {
	Owner string // user id, or the device hash of a bare device
	ID    string // of the notification
	Type  string
	// State is the limiter state of the owner as it was read with the user
	// record; nil = none, or not read. It is only read, and may be stale.
	State []byte
	At    time.Time

	// The answer. Rule names the first rule, in the configured order, that
	// denies; it is empty when Allowed.
	Allowed bool
	Rule    string
}
