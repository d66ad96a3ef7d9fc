package sim

import (
	"encoding/json"
	"strconv"
)

// Google's envelope of an error (google.rpc.Status), with the detail types FCM
// uses.
type fcmError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []any  `json:"details,omitempty"`
}

type fcmCode struct {
	Type      string `json:"@type"`
	ErrorCode string `json:"errorCode"`
}

type apnsCode struct {
	Type       string `json:"@type"`
	StatusCode int    `json:"statusCode"`
	Reason     string `json:"reason"`
}

type badRequest struct {
	Type            string      `json:"@type"`
	FieldViolations []violation `json:"fieldViolations"`
}

type violation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

type quotaFailure struct {
	Type       string           `json:"@type"`
	Violations []quotaViolation `json:"violations"`
}

type quotaViolation struct {
	Subject     string `json:"subject"`
	Description string `json:"description"`
}

type errorInfo struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata"`
}

type help struct {
	Type  string     `json:"@type"`
	Links []helpLink `json:"links"`
}

type helpLink struct {
	Description string `json:"description"`
	URL         string `json:"url"`
}

const (
	invalidArgument = "INVALID_ARGUMENT"
	needCredential  = "Request is missing required authentication credential. Expected OAuth 2 access token, login cookie or other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project."
	genericArgument = "Request contains an invalid argument."
	invalidToken    = "The registration token is not a valid FCM registration token"
	noRecipient     = "Recipient of the message is not set."
)

func code(c string) fcmCode {
	return fcmCode{"type.googleapis.com/google.firebase.fcm.v1.FcmError", c}
}

func appleSaid(status int, reason string) apnsCode {
	return apnsCode{"type.googleapis.com/google.firebase.fcm.v1.ApnsError", status, reason}
}

func badField(field, description string) badRequest {
	return badRequest{"type.googleapis.com/google.rpc.BadRequest", []violation{{field, description}}}
}

func overQuota(subject, description string) quotaFailure {
	return quotaFailure{"type.googleapis.com/google.rpc.QuotaFailure", []quotaViolation{{subject, description}}}
}

// fcmErrors are the bodies that do not depend on the request.
var fcmErrors = map[Reply]fcmError{
	FCMInvalidToken:           {400, invalidToken, invalidArgument, []any{code(invalidArgument)}},
	FCMInvalidTokenField:      {400, genericArgument, invalidArgument, []any{code(invalidArgument), badField("message.token", "Invalid registration token")}},
	FCMInvalidValue:           {400, genericArgument, invalidArgument, []any{badField("message", genericArgument)}},
	FCMInvalidArgument:        {400, genericArgument, invalidArgument, []any{code(invalidArgument), badField("message", genericArgument)}},
	FCMTooLarge:               {400, genericArgument, invalidArgument, nil},
	FCMNoRecipient:            {400, noRecipient, invalidArgument, []any{badField("message", noRecipient), code(invalidArgument)}},
	FCMDisabledToken:          {400, "APNs device token is disabled.", invalidArgument, []any{code(invalidArgument), appleSaid(410, "Unregistered")}},
	FCMUnauthenticated:        {401, needCredential, "UNAUTHENTICATED", nil},
	FCMThirdPartyAuth:         {401, "Auth error from APNS or Web Push Service", "UNAUTHENTICATED", []any{code("THIRD_PARTY_AUTH_ERROR"), appleSaid(403, "InvalidProviderToken")}},
	FCMThirdPartyAuthSameText: {401, needCredential, "UNAUTHENTICATED", []any{code("THIRD_PARTY_AUTH_ERROR"), appleSaid(403, "BadEnvironmentKeyInToken")}},
	FCMSenderIDMismatch:       {403, "SenderId mismatch", "PERMISSION_DENIED", []any{code("SENDER_ID_MISMATCH")}},
	FCMPermissionDenied:       {403, "Permission 'cloudmessaging.messages.create' denied on resource", "PERMISSION_DENIED", nil},
	FCMUnregistered:           {404, "Requested entity was not found.", "NOT_FOUND", []any{code("UNREGISTERED")}},
	FCMUnregisteredAPNS:       {404, "Requested entity was not found.", "NOT_FOUND", []any{code("UNREGISTERED"), appleSaid(410, "Unregistered")}},
	FCMNotFound:               {404, "Requested entity was not found.", "NOT_FOUND", nil},
	FCMProjectQuota: {429, "Quota exceeded for quota metric 'Send requests' and limit 'Send requests per minute' of service 'fcm.googleapis.com' for consumer 'project_number:1'.", "RESOURCE_EXHAUSTED", []any{
		errorInfo{"type.googleapis.com/google.rpc.ErrorInfo", "RATE_LIMIT_EXCEEDED", "googleapis.com", map[string]string{
			"service": "fcm.googleapis.com", "quota_metric": "fcm.googleapis.com/send_requests",
			"quota_limit": "SendsPerMinutePerProject", "quota_unit": "1/min/{project}",
			"quota_limit_value": "600000", "quota_location": "global", "consumer": "projects/1",
		}},
		help{"type.googleapis.com/google.rpc.Help", []helpLink{{"Request a higher quota limit.", "https://cloud.google.com/docs/quotas/help/request_increase"}}},
	}},
	FCMDeviceQuota: {429, "Device quota exceeded.", "RESOURCE_EXHAUSTED", []any{code("QUOTA_EXCEEDED"), overQuota("token", "Device message rate exceeded.")}},
	FCMTopicQuota:  {429, "Topic quota exceeded.", "RESOURCE_EXHAUSTED", []any{code("QUOTA_EXCEEDED"), overQuota("topic", "Topic quota exceeded.")}},
	FCMInternal:    {500, "Internal error encountered.", "INTERNAL", []any{code("INTERNAL")}},
	FCMUnavailable: {503, "The service is currently unavailable.", "UNAVAILABLE", []any{code("UNAVAILABLE")}},
	FCMUnspecified: {500, "An unknown error occurred.", "UNKNOWN", []any{code("UNSPECIFIED_ERROR")}},
}

const badGatewayPage = `<!DOCTYPE html>
<html lang=en>
  <meta charset=utf-8>
  <title>Error 502 (Server Error)!!1</title>
  <p><b>502.</b> <ins>That’s an error.</ins>
  <p>The server encountered a temporary error and could not complete your request.<p>Please try again in 30 seconds.  <ins>That’s all we know.</ins>
`

// body is the envelope as Google prints it, indented by two.
func (e fcmError) body() []byte {
	b, err := json.MarshalIndent(struct {
		Error fcmError `json:"error"`
	}{e}, "", "  ")
	if err != nil {
		panic("sim: a table of strings did not encode: " + err.Error())
	}
	return append(b, '\n')
}

// fcmBodies encodes all fixed bodies once.
func fcmBodies() (bodies [replyCount][]byte) {
	for r, e := range fcmErrors {
		bodies[r] = e.body()
	}
	bodies[FCMBadGateway] = []byte(badGatewayPage)
	return bodies
}

// fault is what the validation of a message found. Its zero value is none.
type fault struct {
	reply       Reply
	field       string // the path of the field at fault
	description string
	message     string // of the envelope; empty = the description
}

func (f *fault) body() []byte {
	e := fcmError{Code: f.reply.Status(), Message: f.message, Status: invalidArgument}
	if e.Message == "" {
		e.Message = f.description
	}
	if f.reply == FCMInvalidArgument {
		e.Details = append(e.Details, code(invalidArgument))
	}
	if f.field != "" || f.reply == FCMInvalidValue {
		e.Details = append(e.Details, badField(f.field, f.description))
	}
	return e.body()
}

// wrongValue is the parser's complaint about a value of the wrong type.
func wrongValue(path, typ string, value []byte) fault {
	d := "Invalid value at '" + path + "' (" + typ + "), " + string(value)
	return fault{reply: FCMInvalidValue, field: path, description: d}
}

func unknownName(path string, key []byte) fault {
	d := "Invalid JSON payload received. Unknown name " + strconv.Quote(string(key))
	if path != "" {
		d += " at '" + path + "'"
	}
	return fault{reply: FCMInvalidValue, field: path, description: d + ": Cannot find field."}
}
