package main

import (
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

// meanings are reasons in words, with what can be done about them. Our own
// codes are those of docs/reasons.md; the others are Apple's and Google's.
var meanings = map[string]string{
	// DEAD_LETTERED
	"bad_json":        "the value is not one JSON text",
	"bad_utf8":        "a string is not valid UTF-8",
	"too_deep":        "objects and lists are nested more than 16 deep",
	"duplicate_key":   "an object has a key twice",
	"wrong_type":      "a field has another type than the contract says",
	"missing_field":   "a required field is absent, null or empty",
	"field_too_long":  "a field is longer than it may be",
	"bad_value":       "a field has a value that is not allowed",
	"empty_value":     "the record has no value",
	"too_large":       "the value, or key and headers, are over 64 KiB, or its batch unpacks to over 64 MiB; the dead letter does not carry it",
	"unknown_app":     "the workers' configuration has no app of this name; add it, then redrive",
	"id_reused":       "the id belongs to a notification to another user; the producer must not use an id twice",
	"retries_used_up": "the provider could not take it and the last retry was used; redrive it when the provider is well",
	"panicked":        "handling it crashed the code that did it: a bug of ours; redrive it with a version that has it fixed",

	// SUPPRESSED
	"opted_out_all":          "the user wants no notifications",
	"opted_out_channel":      "the user wants none by this device's channel",
	"opted_out_type":         "the user wants none of this type",
	"preferences_unreadable": "what the user opted out of cannot be read, so all but critical is kept back: pushctl users quarantine ls",
	"user_quarantined":       "the user's record cannot be read: it is looked at again until it can be, or the notification expires (pushctl users quarantine ls)",
	"limited":                "it would have exceeded a limit of the user",
	"no_device":              "the user has no device with this app",
	"token_gone":             "the device was removed before it could be tried again",
	"superseded":             "a newer notification with the same collapse key was accepted first",

	// EXPIRED
	"past_expires_at":   "its expires_at came before it could be sent",
	"past_greatest_age": "it became older than its lane's greatest age before it could be sent",

	// FAILED, before anything was sent
	"invalid_token":     "no token of its platform looks like this, or the message names it and the provider refused it: the app registered, or the producer wrote, something else",
	"payload_too_large": "the payload is over the provider's limit",
	"no_route":          "the app is not configured for this platform or environment",
	"invalid_message":   "the message and its raw overrides together cannot be sent",

	// RETRYING
	"timeout":         "no answer came in time: it may have been delivered",
	"connection_lost": "the connection ended before the answer: it may have been delivered",
	"not_connected":   "no connection could be had",
	"unclaimed":       "a retry found no row of the record it came from, so it waits once more, lest both be sent",
	"not_due":         "its wait is longer than its retry topic's, so it waits again; that is no attempt",
	"route_stopped":   "the provider has stopped this app for a while; it is sent when that is over, and no attempt is counted",
	"retries_wait":    "so much fails at the provider that only some retries are made; this one waits for its turn, and no attempt is counted",
	"worker_stopped":  "the worker ended before it could send; another one does",
	"auth_failed":     "the provider does not accept our credentials, or none could be had",

	// UNKNOWN
	"intent_without_result": "the worker died after it noted that it would send: it may have been delivered, and is not sent again",

	// Apple's
	"BadCollapseId":               "Apple: the collapse id is too long",
	"BadDeviceToken":              "Apple: no such token in this environment; of every token of an app it means a wrong environment",
	"BadExpirationDate":           "Apple: the expiry is not a time",
	"BadMessageId":                "Apple: the apns-id is not a UUID",
	"BadPriority":                 "Apple: the priority is not allowed for this push type",
	"BadTopic":                    "Apple: the app's configured topic is wrong",
	"DeviceTokenNotForTopic":      "Apple: the token belongs to another app; of every token it means a wrong topic",
	"DuplicateHeaders":            "Apple: a header came twice",
	"IdleTimeout":                 "Apple: the connection was idle for too long",
	"InvalidPushType":             "Apple: the push type is not one of Apple's",
	"MissingDeviceToken":          "Apple: there was no token",
	"MissingTopic":                "Apple: there was no topic",
	"PayloadEmpty":                "Apple: the payload was empty",
	"TopicDisallowed":             "Apple: the key may not send to this topic",
	"BadCertificate":              "Apple: the certificate is invalid",
	"BadCertificateEnvironment":   "Apple: the certificate is for the other environment",
	"ExpiredProviderToken":        "Apple: our provider token was too old; look at the worker's clock",
	"Forbidden":                   "Apple: the action is not allowed",
	"InvalidProviderToken":        "Apple: our provider token is not valid: key, key id, team or clock",
	"MissingProviderToken":        "Apple: our provider token was missing",
	"UnrelatedKeyIdInToken":       "Apple: another key was used on this connection before",
	"BadEnvironmentKeyIdInToken":  "Apple: the key is for the other environment",
	"BadEnvironmentKeyInToken":    "Apple: the key is for the other environment",
	"BadPath":                     "Apple: the path was wrong",
	"MethodNotAllowed":            "Apple: the method was wrong",
	"Unregistered":                "Apple: the app is no longer on the device; its token is removed",
	"ExpiredToken":                "Apple: the token has expired; it is removed",
	"PayloadTooLarge":             "Apple: the payload is over 4,096 bytes (voip: 5,120)",
	"TooManyProviderTokenUpdates": "Apple: provider tokens were renewed too often",
	"TooManyRequests":             "Apple: too many notifications to this device in a short time",
	"InternalServerError":         "Apple: an error of Apple's",
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
	"INTERNAL":                        "Google: an error of Google's",
	"UNSPECIFIED_ERROR":               "Google: no information",
	"RATE_LIMIT_EXCEEDED":             "Google: the project's quota of messages a minute is used up",
	"RESOURCE_EXHAUSTED":              "Google: the project's quota of messages a minute is used up",
	"ACCESS_TOKEN_EXPIRED":            "Google: our access token had expired; look at the worker's clock",
	"CREDENTIALS_MISSING":             "Google: our access token was missing",
	"SERVICE_DISABLED":                "Google: the messaging API is switched off for this project",
	"IAM_PERMISSION_DENIED":           "Google: the service account may not send for this project",
	"ACCESS_TOKEN_SCOPE_INSUFFICIENT": "Google: the access token is for something else",
	"UNAUTHENTICATED":                 "Google: our access token is not valid",
	"PERMISSION_DENIED":               "Google: the service account may not send for this project",
	"NOT_FOUND":                       "Google: there is no such project",
	"ABORTED":                         "Google: it gave up on the request; tried again",
	"CANCELLED":                       "Google: it gave up on the request; tried again",
	"DEADLINE_EXCEEDED":               "Google: it took too long; tried again",
}

// meaning is a reason in words, with what stands behind it: the field at
// fault, the name of the limit, the provider's last word. Empty: not known.
func meaning(reason, detail string) string {
	if code, behind, ok := strings.Cut(reason, ":"); ok && detail == "" {
		reason, detail = code, behind
	}
	words := meanings[reason]
	if words == "" || detail == "" {
		return words
	}
	switch {
	case reason == string(push.Limited):
		return words + ": " + detail
	case meanings[detail] != "":
		return words + "; the last answer was " + detail + " (" + meanings[detail] + ")"
	case reason == string(push.RetriesUsed):
		return words + "; the last answer was " + detail
	}
	return words + ": " + detail
}
