package push

// Reason is a stable code for why a notification ended as it did. It is what
// status rows, DLQ headers, metrics and events carry; a provider's own word
// (BadDeviceToken, UNREGISTERED) takes the same place.
type Reason string

// The reason codes. docs/reasons.md lists them; a test compares.
const (
	// DEAD_LETTERED: the record cannot be used.
	BadJSON      Reason = "bad_json"
	BadUTF8      Reason = "bad_utf8"
	TooDeep      Reason = "too_deep"
	DuplicateKey Reason = "duplicate_key"
	WrongType    Reason = "wrong_type"
	MissingField Reason = "missing_field"
	FieldTooLong Reason = "field_too_long"
	BadValue     Reason = "bad_value"
	EmptyValue   Reason = "empty_value"
	TooLarge     Reason = "too_large"
	UnknownApp   Reason = "unknown_app"
	IDReused     Reason = "id_reused"
	RetriesUsed  Reason = "retries_used_up"
	Panicked     Reason = "panicked"

	// SUPPRESSED.
	OptedOutAll     Reason = "opted_out_all"
	OptedOutChannel Reason = "opted_out_channel"
	OptedOutType    Reason = "opted_out_type"
	OptedOutSender  Reason = "opted_out_sender"
	NotOptedIn      Reason = "not_opted_in"
	Blocked         Reason = "blocked"
	QuietDropped    Reason = "quiet_hours_dropped"
	QuietTooLong    Reason = "quiet_past_expiry"
	// PreferencesUnread: what the user opted out of cannot be read.
	PreferencesUnread Reason = "preferences_unreadable"
	Limited           Reason = "limited" // followed by ":" and the rule's name
	NoDevice          Reason = "no_device"
	TokenGone         Reason = "token_gone"
	Superseded        Reason = "superseded"

	// INBOX; NoDevice stands there, too.
	Inactive Reason = "inactive"

	// HELD.
	NotDue          Reason = "not_due"
	RouteStopped    Reason = "route_stopped"
	RetriesWait     Reason = "retries_wait"
	Unclaimed       Reason = "unclaimed"
	WorkerStopped   Reason = "worker_stopped"
	UserQuarantined Reason = "user_quarantined"
	LimitWaits      Reason = "limit_waits" // followed by ":" and the rule's name
	UserUnavailable Reason = "user_unavailable"
	// CampaignQuarantined and SenderQuarantined: nearly all its tokens were bad.
	CampaignQuarantined Reason = "campaign_quarantined"
	SenderQuarantined   Reason = "sender_quarantined"
	Quiet               Reason = "quiet_hours"

	// UNKNOWN.
	IntentLost Reason = "intent_without_result"

	// EXPIRED.
	PastExpiry Reason = "past_expires_at"
	TooOld     Reason = "past_greatest_age"

	// SHED: each is followed by ":" and the class, the depth and what was exceeded.
	ShedDepth    Reason = "depth"
	ShedDeadline Reason = "deadline"

	// FAILED, decided by us before anything was sent.
	InvalidToken    Reason = "invalid_token"
	PayloadTooLarge Reason = "payload_too_large"
	NoRoute         Reason = "no_route"
	InvalidMessage  Reason = "invalid_message"

	// RETRYING, where the provider gave no word of its own.
	Timeout        Reason = "timeout"
	ConnectionLost Reason = "connection_lost"
	NotConnected   Reason = "not_connected"
	AuthFailed     Reason = "auth_failed"
)

// Defect is why a record cannot be decoded. Field is the JSON path at fault,
// never its content.
type Defect struct {
	Reason Reason
	Field  string
}

func (d *Defect) Error() string {
	if d.Field == "" {
		return string(d.Reason)
	}
	return string(d.Reason) + ": " + d.Field
}
