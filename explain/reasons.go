package explain

import (
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

// reasons are the reason codes in words, with what can be done about them. Our
// own codes are those of docs/reasons.md; the others are Apple's and Google's.
var reasons = map[string]string{
	// DEAD_LETTERED
	"bad_json":        "the value is not one JSON text",
	"bad_utf8":        "a string is not valid UTF-8",
	"too_deep":        "objects and arrays are nested more than 16 deep",
	"duplicate_key":   "an object has the same key twice",
	"wrong_type":      "a field does not have the type that the message contract gives it",
	"missing_field":   "a required field is absent, null or empty",
	"field_too_long":  "a field is longer than allowed",
	"bad_value":       "a field has a value that is not allowed",
	"empty_value":     "the record has no value",
	"too_large":       "the value, or key and headers together, exceed 64 KiB, or the record's batch unpacks to more than 64 MiB; the dead letter does not contain it",
	"unknown_app":     "no app of this name is configured; add it to the workers' configuration, then redrive",
	"id_reused":       "the id belongs to a notification to another user; producers must not use an id twice",
	"retries_used_up": "the provider could not take it and all retries were used; redrive it when the provider has recovered",
	"panicked":        "a bug of ours: the code that processed it crashed; redrive it with a version that has the fix",

	// SUPPRESSED
	"opted_out_all":          "the user wants no notifications",
	"opted_out_channel":      "the user has opted out of this device's channel",
	"opted_out_type":         "the user has opted out of this message type",
	"opted_out_sender":       "the user has opted out of what this sender sends",
	"not_opted_in":           "this message type needs the user's consent (preferences.opt_in_types), and the user has not opted in to it",
	"blocked":                "the user is blocked: nothing is sent, not even what is critical",
	"quiet_hours_dropped":    "it came in quiet hours of the user or of the user's country, and nothing of this type is kept for later (preferences.drop_types)",
	"quiet_past_expiry":      "it came in quiet hours of the user or of the user's country, and expires before they end",
	"quiet_hours":            "it came in quiet hours of the user or of the user's country, and waits until they end; no attempt is counted",
	"preferences_unreadable": "the user's preferences cannot be read, so nothing is sent: pushctl users quarantine ls",
	"campaign_quarantined":   "nearly all tokens of its campaign were bad, and it was stopped on this route; it waits until that is over or released (pushctl providers quarantined)",
	"sender_quarantined":     "nearly all tokens of its sender were bad, and it was stopped on this route; it waits until that is over or released (pushctl providers quarantined)",
	"user_quarantined":       "the user's record cannot be read; it is read again until it can be, or the notification expires (pushctl users quarantine ls)",
	"user_unavailable":       "users' records could not be read, and this lane does not let its critical notifications wait behind others; it is tried again, and no attempt is counted",
	"limited":                "it would have exceeded a limit of the user",
	"limit_waits":            "a limit of the user has no room yet; it has a place as soon as there is some",
	"no_device":              "the user has no device with this app",
	"token_gone":             "the device was removed before the next attempt",
	"superseded":             "a newer notification with the same collapse key was accepted first",

	// INBOX, as no_device
	"inactive": "the user has not used the app for so long that the lane keeps messages for when they come back (lanes[].inbox_after)",

	// SHED
	"depth":    "too much waited in its lane to be sent, so that it was dropped by its priority (lanes[].shed); pushctl replay --shed sends it later",
	"deadline": "its turn in its lane would have come after its expires_at, so that it was dropped at once (lanes[].shed)",

	// EXPIRED
	"past_expires_at":   "its expires_at passed before it could be sent",
	"past_greatest_age": "it exceeded its lane's greatest age before it could be sent",

	// FAILED, before anything was sent
	"invalid_token":     "the token cannot be one of its platform, or the message names it and the provider refused it: the app registered, or the producer wrote, something else",
	"payload_too_large": "the payload exceeds the provider's limit",
	"no_route":          "the app is not configured for this platform or environment",
	"invalid_message":   "the message combined with its raw overrides cannot be sent",

	// RETRYING
	"timeout":         "no answer arrived in time: it may have been delivered",
	"connection_lost": "the connection ended before the answer: it may have been delivered",
	"not_connected":   "no connection could be made",
	"unclaimed":       "the record that this retry came from left no row; the retry waits once more, so that not both are sent",
	"not_due":         "its wait is longer than its topic's delay, so it waits again; this does not count as an attempt",
	"route_stopped":   "the provider has stopped this app for a while; it is sent afterwards, and no attempt is counted",
	"retries_wait":    "so many sends fail at the provider that only some retries are made; this one waits for its turn, and no attempt is counted",
	"worker_stopped":  "the worker stopped before it could send; another worker sends it",
	"auth_failed":     "the provider does not accept our credentials, or none could be obtained",

	// UNKNOWN
	"intent_without_result": "the worker died after it had recorded that it would send: it may have been delivered, and is not sent again",

	// Apple's
	"BadCollapseId":               "Apple: the collapse id is too long",
	"BadDeviceToken":              "Apple: no such token in this environment; if every token of an app gets this, the environment is wrong",
	"BadExpirationDate":           "Apple: the expiration is not a valid time",
	"BadMessageId":                "Apple: the apns-id is not a UUID",
	"BadPriority":                 "Apple: the priority is not allowed for this push type",
	"BadTopic":                    "Apple: the topic configured for the app is wrong",
	"DeviceTokenNotForTopic":      "Apple: the token belongs to another app; if every token gets this, the topic is wrong",
	"DuplicateHeaders":            "Apple: a header was sent twice",
	"IdleTimeout":                 "Apple: the connection was idle for too long",
	"InvalidPushType":             "Apple: the push type is not one of Apple's",
	"MissingDeviceToken":          "Apple: there was no token",
	"MissingTopic":                "Apple: there was no topic",
	"PayloadEmpty":                "Apple: the payload was empty",
	"TopicDisallowed":             "Apple: the key may not send to this topic",
	"BadCertificate":              "Apple: the certificate is invalid",
	"BadCertificateEnvironment":   "Apple: the certificate is for the other environment",
	"ExpiredProviderToken":        "Apple: our provider token was too old; check the worker's clock",
	"Forbidden":                   "Apple: the action is not allowed",
	"InvalidProviderToken":        "Apple: our provider token is not valid; check key, key id, team and clock",
	"MissingProviderToken":        "Apple: our provider token was missing",
	"UnrelatedKeyIdInToken":       "Apple: this connection was used with another key before",
	"BadEnvironmentKeyIdInToken":  "Apple: the key is for the other environment",
	"BadEnvironmentKeyInToken":    "Apple: the key is for the other environment",
	"BadPath":                     "Apple: the path was wrong",
	"MethodNotAllowed":            "Apple: the method was wrong",
	"Unregistered":                "Apple: the app is no longer on the device; its token is removed",
	"ExpiredToken":                "Apple: the token has expired; it is removed",
	"PayloadTooLarge":             "Apple: the payload is over 4,096 bytes (voip: 5,120)",
	"TooManyProviderTokenUpdates": "Apple: the provider token was renewed too often",
	"TooManyRequests":             "Apple: too many notifications to this device in a short time",
	"InternalServerError":         "Apple: internal error",
	"ServiceUnavailable":          "Apple: the service was not available",
	"Shutdown":                    "Apple: the server was shutting down",

	// Google's
	"UNREGISTERED":                    "Google: the app is no longer on the device; its token is removed",
	"SENDER_ID_MISMATCH":              "Google: the token belongs to another project",
	"INVALID_ARGUMENT":                "Google: the token or a field of the message is invalid",
	"THIRD_PARTY_AUTH_ERROR":          "Google: Apple does not accept the credentials that the project gave to Google",
	"APNS_AUTH_ERROR":                 "Google: Apple does not accept the credentials that the project gave to Google",
	"QUOTA_EXCEEDED":                  "Google: too many notifications to this device or topic",
	"UNAVAILABLE":                     "Google: the service was not available",
	"INTERNAL":                        "Google: internal error",
	"UNSPECIFIED_ERROR":               "Google: no details given",
	"RATE_LIMIT_EXCEEDED":             "Google: the project's quota of messages a minute is used up",
	"RESOURCE_EXHAUSTED":              "Google: the project's quota of messages a minute is used up",
	"ACCESS_TOKEN_EXPIRED":            "Google: our access token had expired; check the worker's clock",
	"CREDENTIALS_MISSING":             "Google: our access token was missing",
	"SERVICE_DISABLED":                "Google: the messaging API is switched off for this project",
	"IAM_PERMISSION_DENIED":           "Google: the service account may not send for this project",
	"ACCESS_TOKEN_SCOPE_INSUFFICIENT": "Google: our access token has the wrong scope",
	"UNAUTHENTICATED":                 "Google: our access token is not valid",
	"PERMISSION_DENIED":               "Google: the service account may not send for this project",
	"NOT_FOUND":                       "Google: there is no such project",
	"ABORTED":                         "Google: it gave up on the request; tried again",
	"CANCELLED":                       "Google: it gave up on the request; tried again",
	"DEADLINE_EXCEEDED":               "Google: it took too long; tried again",
}

// Reason is a reason in words. Detail is what came with it: the field at fault,
// the name of the limit, the provider's last answer; it may be empty, or follow
// the code after a colon, as in status rows. Reason returns "" for a code that
// it does not know.
func Reason(reason, detail string) string {
	if code, behind, ok := strings.Cut(reason, ":"); ok && detail == "" {
		reason, detail = code, behind
	}
	words := reasons[reason]
	if words == "" || detail == "" {
		return words
	}
	switch {
	case reason == string(push.Limited), reason == string(push.LimitWaits):
		return words + ": " + detail
	case reasons[detail] != "":
		return words + "; the last answer was " + detail + " (" + reasons[detail] + ")"
	case reason == string(push.RetriesUsed):
		return words + "; the last answer was " + detail
	}
	return words + ": " + detail
}
