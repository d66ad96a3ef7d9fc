package fcm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// envelope writes Google's error body. Details are "Fcm:CODE", "Apns:REASON",
// "Info:REASON" or "Field:name".
func envelope(status string, message string, details ...string) string {
	var list []string
	for _, d := range details {
		kind, value, _ := strings.Cut(d, ":")
		list = append(list, map[string]string{
			"Fcm":   `{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"` + value + `"}`,
			"Apns":  `{"@type":"type.googleapis.com/google.firebase.fcm.v1.ApnsError","statusCode":410,"reason":"` + value + `"}`,
			"Info":  `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` + value + `","domain":"googleapis.com","metadata":{"quota_limit":"SendsPerMinutePerProject"}}`,
			"Field": `{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"` + value + `","description":"x"}]}`,
		}[kind])
	}
	return fmt.Sprintf(`{"error":{"code":400,"message":%q,"status":%q,"details":[%s]}}`, message, status, strings.Join(list, ","))
}

func answered(status int, body, retryAfter string) *exchange.Draft {
	r := &exchange.Draft{}
	r.Outcome = h2.Answered
	r.Header = []h2.Field{{Name: "authorization", Value: []byte("Bearer abc")}}
	r.Answer = h2.Answer{Status: status, Header: [][]byte{[]byte(retryAfter), nil}, Body: []byte(body)}
	return r
}

func TestEveryError(t *testing.T) {
	const oauth = "Request is missing required authentication credential. Expected OAuth 2 access token, login cookie or other valid authentication credential."
	fail, gone := push.Result{Class: push.Refused}, push.Result{Class: push.Gone}
	again := func(s push.Scope, after time.Duration, sure push.Certainty, halt bool) push.Result {
		return push.Result{Class: push.Again, Scope: s, After: after, Certainty: sure, Halt: halt}
	}
	paused := func(r push.Result) push.Result {
		r.Pause = true
		return r
	}
	const (
		device, route = push.ScopeDevice, push.ScopeRoute
		not, unsure   = push.NotAccepted, push.Ambiguous
		s             = time.Second
	)
	for _, row := range []struct {
		why        string
		status     int
		body       string
		retryAfter string
		want       push.Result
		word       string
	}{
		{"bad token, FcmError alone", 400, envelope("INVALID_ARGUMENT", "The registration token is not a valid FCM registration token", "Fcm:INVALID_ARGUMENT"), "", gone, "INVALID_ARGUMENT"},
		{"bad token, by field", 400, envelope("INVALID_ARGUMENT", "Request contains an invalid argument.", "Fcm:INVALID_ARGUMENT", "Field:message.token"), "", gone, "INVALID_ARGUMENT"},
		{"bad data value", 400, envelope("INVALID_ARGUMENT", "Invalid value at 'message.data[0].value'", "Field:message.data[0].value"), "", fail, "INVALID_ARGUMENT"},
		{"oversize, no details", 400, envelope("INVALID_ARGUMENT", "Request contains an invalid argument."), "", fail, "INVALID_ARGUMENT"},
		{"no target", 400, envelope("INVALID_ARGUMENT", "Recipient of the message is not set.", "Fcm:INVALID_ARGUMENT", "Field:message"), "", fail, "INVALID_ARGUMENT"},
		{"dead iOS token as 400", 400, envelope("INVALID_ARGUMENT", "APNs device token is disabled.", "Fcm:INVALID_ARGUMENT", "Apns:Unregistered"), "", gone, "Unregistered"},
		{"Apple's key is wrong", 401, envelope("UNAUTHENTICATED", oauth, "Fcm:THIRD_PARTY_AUTH_ERROR", "Apns:InvalidProviderToken"), "", again(device, 10*s, not, true), "THIRD_PARTY_AUTH_ERROR"},
		{"Apple's key is for the other environment", 401, envelope("UNAUTHENTICATED", "Auth error from APNS or Web Push Service", "Fcm:THIRD_PARTY_AUTH_ERROR", "Apns:BadEnvironmentKeyInToken"), "", again(device, 10*s, not, true), "THIRD_PARTY_AUTH_ERROR"},
		{"token of another sender", 403, envelope("PERMISSION_DENIED", "SenderId mismatch", "Fcm:SENDER_ID_MISMATCH"), "", gone, "SENDER_ID_MISMATCH"},
		{"no permission", 403, envelope("PERMISSION_DENIED", "Permission 'cloudmessaging.messages.create' denied"), "", again(route, 10*s, not, true), "PERMISSION_DENIED"},
		{"service off", 403, envelope("PERMISSION_DENIED", "x", "Info:SERVICE_DISABLED"), "", again(route, 10*s, not, true), "SERVICE_DISABLED"},
		{"unregistered", 404, envelope("NOT_FOUND", "Requested entity was not found.", "Fcm:UNREGISTERED"), "", gone, "UNREGISTERED"},
		{"unregistered at Apple", 404, envelope("NOT_FOUND", "Requested entity was not found.", "Fcm:UNREGISTERED", "Apns:Unregistered"), "", gone, "UNREGISTERED"},
		{"wrong project: never the token", 404, envelope("NOT_FOUND", "Requested entity was not found."), "", again(route, 10*s, not, true), "NOT_FOUND"},
		{"bare 404", 404, ``, "", again(route, 10*s, not, true), "http_404"},
		{"project quota, no Retry-After", 429, envelope("RESOURCE_EXHAUSTED", "Quota exceeded", "Info:RATE_LIMIT_EXCEEDED"), "", paused(again(route, 60*s, not, false)), "RATE_LIMIT_EXCEEDED"},
		{"project quota, Retry-After", 429, envelope("RESOURCE_EXHAUSTED", "Quota exceeded", "Info:RATE_LIMIT_EXCEEDED"), "37", paused(again(route, 37*s, not, false)), "RATE_LIMIT_EXCEEDED"},
		{"quota without details", 429, envelope("RESOURCE_EXHAUSTED", "Quota exceeded"), "", paused(again(route, 60*s, not, false)), "RESOURCE_EXHAUSTED"},
		{"device quota", 429, envelope("RESOURCE_EXHAUSTED", "x", "Fcm:QUOTA_EXCEEDED"), "", again(device, 60*s, not, false), "QUOTA_EXCEEDED"},
		{"internal", 500, envelope("INTERNAL", "Internal error encountered.", "Fcm:INTERNAL"), "", again(route, 10*s, unsure, false), "INTERNAL"},
		{"502 in HTML", 502, `<!DOCTYPE html><title>Error 502</title> try again in 30 seconds`, "", again(route, 10*s, unsure, false), "http_502"},
		{"unavailable", 503, envelope("UNAVAILABLE", "The service is currently unavailable.", "Fcm:UNAVAILABLE"), "", again(route, 10*s, not, false), "UNAVAILABLE"},
		{"never sooner than 10 s", 503, envelope("UNAVAILABLE", "x", "Fcm:UNAVAILABLE"), "1", paused(again(route, 10*s, not, false)), "UNAVAILABLE"},
		{"never later than an hour", 503, envelope("UNAVAILABLE", "x", "Fcm:UNAVAILABLE"), "999999999", paused(again(route, time.Hour, not, false)), "UNAVAILABLE"},
		{"never later than an hour, by a date", 503, envelope("UNAVAILABLE", "x", "Fcm:UNAVAILABLE"), "Fri, 31 Dec 2100 23:59:59 GMT", paused(again(route, time.Hour, not, false)), "UNAVAILABLE"},
		{"never later than an hour, of a device", 429, envelope("RESOURCE_EXHAUSTED", "x", "Fcm:QUOTA_EXCEEDED"), "Fri, 31 Dec 2100 23:59:59 GMT", again(device, time.Hour, not, false), "QUOTA_EXCEEDED"},
		{"never later than an hour, of a project", 429, envelope("RESOURCE_EXHAUSTED", "x", "Info:RATE_LIMIT_EXCEEDED"), "Fri, 31 Dec 2100 23:59:59 GMT", paused(again(route, time.Hour, not, false)), "RATE_LIMIT_EXCEEDED"},
		{"a date that is over: never sooner than 10 s", 503, envelope("UNAVAILABLE", "x", "Fcm:UNAVAILABLE"), "Fri, 31 Dec 1999 23:59:59 GMT", paused(again(route, 10*s, not, false)), "UNAVAILABLE"},
		{"no information: by HTTP", 400, envelope("INVALID_ARGUMENT", "x", "Fcm:UNSPECIFIED_ERROR"), "", fail, "http_400"},
		{"no information: by HTTP", 503, envelope("", "", "Fcm:UNSPECIFIED_ERROR"), "", again(route, 10*s, not, false), "http_503"},
		{"request timed out at Google", 408, ``, "", again(route, 10*s, not, false), "http_408"},
		{"aborted", 409, envelope("ABORTED", "x"), "", again(route, 10*s, not, false), "ABORTED"},
		{"canceled", 499, envelope("CANCELLED", "x"), "", again(route, 10*s, unsure, false), "CANCELLED"},
		{"canceled, without an envelope", 499, ``, "", again(route, 10*s, unsure, false), "http_499"},
		{"too late at Google", 504, envelope("DEADLINE_EXCEEDED", "x"), "", again(route, 10*s, unsure, false), "DEADLINE_EXCEEDED"},
		{"unknown words: by HTTP", 400, envelope("NEW", "x", "Fcm:NEW", "Info:NEW"), "", fail, "http_400"},
		{"unknown words: by status", 503, envelope("UNAVAILABLE", "x", "Fcm:NEW"), "", again(route, 10*s, not, false), "UNAVAILABLE"},
	} {
		row.want.Reason = row.word
		if w := &row.want; w.Class == push.Again && w.Scope == route && !w.Halt {
			w.Pressure = map[int]push.Pressure{429: push.OverQuota, 500: push.Failing, 502: push.Failing, 503: push.Failing}[row.status]
		}
		got, next := testCodec().Read(plain(), answered(row.status, row.body, row.retryAfter))
		if got != row.want || next != exchange.Settled {
			t.Errorf("%s: %+v, %v; want %+v", row.why, got, next, row.want)
		}
	}
}

// A field of an unexpected type does not hide the others: UNREGISTERED must not
// become a bare 404, which halts the route.
func TestIllTypedFieldsDropNothingElse(t *testing.T) {
	const good = `{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"UNREGISTERED"}`
	details := func(list string) string {
		return `{"error":{"code":404,"message":"x","status":"NOT_FOUND","details":[` + list + `]}}`
	}
	for why, body := range map[string]string{
		"another detail is a number":             details(`5,` + good),
		"another detail is null":                 details(`null,` + good),
		"another detail is a list":               details(good + `,[[]]`),
		"another detail's type is a number":      details(`{"@type":5},` + good),
		"another detail's reason is an object":   details(good + `,{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":{"a":1}}`),
		"violations are no list":                 details(good + `,{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":"x"}`),
		"a violation is no object":               details(`{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":["x",{"field":5}]},` + good),
		"a field of the same detail":             details(strings.Replace(good, `{`, `{"reason":7,"fieldViolations":{},`, 1)),
		"the code is a text":                     strings.Replace(details(good), `404`, `"404"`, 1),
		"the message is an object":               strings.Replace(details(good), `"x"`, `{"a":"b"}`, 1),
		"the status is a number":                 strings.Replace(details(good), `"NOT_FOUND"`, `5`, 1),
		"a second envelope's words stand behind": strings.Replace(details(good), `{"error"`, `{"errors":[1],"error"`, 1),
	} {
		if got, _ := testCodec().Read(plain(), answered(404, body, "")); got.Class != push.Gone || got.Reason != "UNREGISTERED" {
			t.Errorf("%s: %+v", why, got)
		}
	}
	// And none invents a word.
	for why, body := range map[string]string{
		"details are no list": `{"error":{"status":"NOT_FOUND","details":{"errorCode":"UNREGISTERED"}}}`,
		"the error is a text": `{"error":"UNREGISTERED"}`, "no object": `["UNREGISTERED"]`, "cut off": details(good)[:90],
		"the code is a list": details(`{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":["UNREGISTERED"]}`),
	} {
		if got, _ := testCodec().Read(plain(), answered(404, body, "")); got.Class != push.Again || !got.Halt {
			t.Errorf("%s: %+v", why, got)
		}
	}
	token := `{"error":{"status":"INVALID_ARGUMENT","message":7,"details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"INVALID_ARGUMENT"},
		{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[3,{"field":"message.token","description":[]}]}]}}`
	if got, _ := testCodec().Read(plain(), answered(400, token, "")); got.Class != push.Gone {
		t.Errorf("a violation behind an ill-typed one: %+v", got)
	}
}

func TestSuccess(t *testing.T) {
	got, _ := testCodec().Read(plain(), answered(200, `{ "name": "projects/shop-1/messages/0:1500415314455276%31bd1c9631bd1c96" }`, ""))
	want := push.Result{Class: push.Delivered, Certainty: push.Accepted, ProviderID: "projects/shop-1/messages/0:1500415314455276%31bd1c9631bd1c96"}
	if got != want {
		t.Errorf("%+v", got)
	}
}

func TestMessageNames(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"projects/p/messages/1"}`: "projects/p/messages/1", `{"name":""}`: "", `{"name":5}`: "", `{}`: "", `{"name":"a`: "",
		"{\"name\":\"a\x1b[31m\"}": "", `{"name":"a\u001b"}`: "", "{\"name\":\"\u202e\"}": "", `{"name":"a b"}`: "",
		`{"name":"` + strings.Repeat("x", 5000) + `"}`: strings.Repeat("x", 256), `{"name":"` + strings.Repeat("y", 256) + `"}`: strings.Repeat("y", 256),
	} {
		got, _ := testCodec().Read(plain(), answered(200, body, ""))
		if got.ProviderID != want || got.Class != push.Delivered {
			t.Errorf("%.40s became %+v", body, got)
		}
	}
}

// Metrics know every word that an answer can end with.
func TestReasonsAreAll(t *testing.T) {
	all := Reasons()
	for _, table := range []map[string]action{fcmCodes, appleReasons, infoReasons, statuses} {
		for word := range table {
			if !slices.Contains(all, word) {
				t.Errorf("no %s", word)
			}
		}
	}
	for _, status := range []int{302, 400, 404, 408, 418, 429, 499, 500, 502, 503} {
		got, _ := testCodec().Read(plain(), answered(status, "<html>", ""))
		if !slices.Contains(all, got.Reason) {
			t.Errorf("no %s", got.Reason)
		}
	}
	if len(all) > 200 {
		t.Errorf("%d reasons", len(all))
	}
}

// Why Google ends a connection says nothing of the requests on it.
func TestLeftResultsStand(t *testing.T) {
	want := push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: push.Ambiguous, Reason: string(push.ConnectionLost)}
	if got, next := testCodec().Left("session_timed_out", want, answered(0, "", "")); got != want || next != exchange.Settled {
		t.Errorf("got %+v, %v; want it as it was, settled", got, next)
	}
}

func TestOurTokenRefused(t *testing.T) {
	for _, body := range []string{
		envelope("UNAUTHENTICATED", "Request is missing required authentication credential."),
		envelope("UNAUTHENTICATED", "x", "Info:ACCESS_TOKEN_EXPIRED"), ``,
	} {
		c := testCodec()
		r := answered(401, body, "")
		if _, next := c.Read(plain(), r); next != exchange.Parked || r.Repeats != 1 || len(c.tokens.parked) != 1 {
			t.Errorf("first: %v, %d repeats", next, r.Repeats)
		}
		got, next := c.Read(plain(), r)
		if next != exchange.Settled || got.Class != push.Again || got.Scope != push.ScopeRoute || !got.Halt {
			t.Errorf("second: %+v, %v", got, next)
		}
	}
}

func TestMassOfForeignTokensHaltsTheRoute(t *testing.T) {
	c := testCodec()
	removed := 0
	for range 500 {
		got, _ := c.Read(plain(), answered(403, envelope("PERMISSION_DENIED", "SenderId mismatch", "Fcm:SENDER_ID_MISMATCH"), ""))
		if got.Class == push.Gone {
			removed++
		} else if got.Class != push.Again || !got.Halt || got.Scope != push.ScopeRoute {
			t.Fatalf("%+v", got)
		}
	}
	if removed > 50 {
		t.Errorf("%d tokens removed", removed)
	}
}

func FuzzReadFault(f *testing.F) {
	f.Add(429, envelope("RESOURCE_EXHAUSTED", "x", "Info:RATE_LIMIT_EXCEEDED"))
	f.Add(502, "<html>")
	f.Fuzz(func(t *testing.T, status int, body string) {
		fault := readFault(status, []byte(body))
		if act, word := fault.action(); act == undecided || act == byHTTP || act == checkArgument || len(word) > 40 {
			t.Errorf("%v, %q", act, word)
		}
	})
}
