package push

// Verdict is what has been decided about an Item before or instead of sending.
type Verdict uint8

// The verdicts. Undecided items go on to the next stage and in the end to
// their devices.
const (
	Undecided  Verdict = iota
	Duplicate          // counted only: its first copy has the outcome
	Suppressed         // opted out, limited, no device
	Expired            // past expires_at or the lane's greatest age
	Failed             // refused by us for all its devices
	Dead               // to the DLQ
	Deferred           // not now: produced again for later, which is no attempt
	Unresolved         // an intent without a result: nobody can tell whether it was sent
	Shed               // dropped under load
	Kept               // in the user's inbox, and on no device
)

var verdictNames = [...]string{"undecided", "duplicate", "suppressed", "expired", "failed", "dead", "deferred", "unresolved", "shed", "kept"}

// Verdicts is how many there are, numbered from 0.
const Verdicts = len(verdictNames)

func (v Verdict) String() string { return verdictNames[v] }

// State is the state of the row that a verdict before sending writes.
func (v Verdict) State() State {
	switch v {
	case Suppressed:
		return StateSuppressed
	case Expired:
		return StateExpired
	case Failed:
		return StateFailed
	case Deferred:
		return StateHeld
	case Unresolved:
		return StateUnknown
	case Shed:
		return StateShed
	case Kept:
		return StateInbox
	}
	return StateDeadLettered
}

// verdictOf is the inverse of Verdict's State, for final states.
func verdictOf(s State) Verdict {
	switch s {
	case StateSuppressed:
		return Suppressed
	case StateExpired:
		return Expired
	case StateFailed:
		return Failed
	case StateUnknown:
		return Unresolved
	case StateShed:
		return Shed
	case StateInbox:
		return Kept
	}
	return Dead
}
