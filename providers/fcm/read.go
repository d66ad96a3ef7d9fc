package fcm

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/payload"
	"github.com/pushfleet/pushfleet/push"
)

// action is what an error asks for.
type action uint8

const (
	undecided     action = iota
	failMessage          // this message will never be accepted
	dropToken            // the token is dead
	dropGuarded          // the token is dead, unless the route is set up wrongly
	haltRoute            // project, permissions or account are wrong
	haltApple            // the project's own key for Apple or web push is wrong
	reauthorize          // our access token was not taken
	retryDevice          // this device has had too much
	retryQuota           // the project has had too much
	retryRoute           // Google has a problem
	checkArgument        // INVALID_ARGUMENT: token or message, the details tell
	byHTTP               // it says nothing: the HTTP status decides
)

// The tables in the order in which they are asked (reference: providers 2.3).
// An unknown word is passed over.
var (
	fcmCodes = map[string]action{
		"UNREGISTERED":           dropToken,
		"SENDER_ID_MISMATCH":     dropGuarded,
		"INVALID_ARGUMENT":       checkArgument,
		"THIRD_PARTY_AUTH_ERROR": haltApple,
		"APNS_AUTH_ERROR":        haltApple,
		"QUOTA_EXCEEDED":         retryDevice,
		"UNAVAILABLE":            retryRoute,
		"INTERNAL":               retryRoute,
		"UNSPECIFIED_ERROR":      byHTTP,
	}
	appleReasons = map[string]action{
		"Unregistered":               dropToken,
		"ExpiredToken":               dropToken,
		"BadDeviceToken":             dropGuarded,
		"DeviceTokenNotForTopic":     dropGuarded,
		"InvalidProviderToken":       haltApple,
		"ExpiredProviderToken":       haltApple,
		"MissingProviderToken":       haltApple,
		"BadEnvironmentKeyInToken":   haltApple,
		"BadEnvironmentKeyIdInToken": haltApple,
		"BadCertificate":             haltApple,
		"BadCertificateEnvironment":  haltApple,
		"TopicDisallowed":            haltApple,
		"PayloadTooLarge":            failMessage,
		"TooManyRequests":            retryDevice,
	}
	infoReasons = map[string]action{
		"RATE_LIMIT_EXCEEDED":             retryQuota,
		"ACCESS_TOKEN_EXPIRED":            reauthorize,
		"CREDENTIALS_MISSING":             reauthorize,
		"SERVICE_DISABLED":                haltRoute,
		"IAM_PERMISSION_DENIED":           haltRoute,
		"ACCESS_TOKEN_SCOPE_INSUFFICIENT": haltRoute,
	}
	statuses = map[string]action{
		"INVALID_ARGUMENT":   failMessage,
		"UNAUTHENTICATED":    reauthorize,
		"PERMISSION_DENIED":  haltRoute,
		"NOT_FOUND":          haltRoute, // a wrong project: never the token's fault
		"RESOURCE_EXHAUSTED": retryQuota,
		"INTERNAL":           retryRoute,
		"UNAVAILABLE":        retryRoute,
		"ABORTED":            retryRoute,
		"CANCELLED":          retryRoute,
		"DEADLINE_EXCEEDED":  retryRoute,
	}
)

// Reasons are the words that an answer of Google's can end with.
func Reasons() []string {
	words := append(calls.StatusReasons(), calls.StatusReason(statusCanceled))
	for _, table := range []map[string]action{fcmCodes, appleReasons, infoReasons, statuses} {
		words = slices.AppendSeq(words, maps.Keys(table))
	}
	return words
}

// statusCanceled is Google's status for a call that was cancelled.
const statusCanceled = 499

// shortest is the least that Google wants a retry to wait, quotaDelay the wait
// that it documents for a 429 without Retry-After, and longest the most that a
// header can ask for.
const (
	shortest   = 10 * time.Second
	quotaDelay = time.Minute
	longest    = calls.LongestWait
)

// lenient is a JSON value that stays zero if its type is not the expected one:
// one such value must not invalidate the others.
type lenient[T any] struct{ v T }

// UnmarshalJSON implements json.Unmarshaler.
func (l *lenient[T]) UnmarshalJSON(raw []byte) error {
	var v T
	if json.Unmarshal(raw, &v) == nil {
		l.v = v
	}
	return nil
}

// answer is Google's error envelope, as far as it decides anything.
type answer struct {
	Error lenient[struct {
		Message lenient[string]            `json:"message"`
		Status  lenient[string]            `json:"status"`
		Details lenient[[]lenient[detail]] `json:"details"`
	}] `json:"error"`
}

type detail struct {
	Type       lenient[string] `json:"@type"`
	ErrorCode  lenient[string] `json:"errorCode"`
	Reason     lenient[string] `json:"reason"`
	Violations lenient[[]lenient[struct {
		Field lenient[string] `json:"field"`
	}]] `json:"fieldViolations"`
}

// fault is an error answer in short.
type fault struct {
	http                     int
	code, apple, info, state string
	aboutToken               bool // the registration token is what is invalid
}

func readFault(status int, body []byte) fault {
	f := fault{http: status}
	var a answer
	if json.Unmarshal(body, &a) != nil {
		return f // a front end's HTML page: the HTTP status is all there is
	}
	e := &a.Error.v
	f.state = e.Status.v
	f.aboutToken = strings.Contains(e.Message.v, "registration token")
	for i := range e.Details.v {
		d := &e.Details.v[i].v
		switch {
		case strings.HasSuffix(d.Type.v, ".FcmError"):
			f.code = d.ErrorCode.v
		case strings.HasSuffix(d.Type.v, ".ApnsError"):
			f.apple = d.Reason.v
		case strings.HasSuffix(d.Type.v, ".ErrorInfo"):
			f.info = d.Reason.v
		}
		for _, v := range d.Violations.v {
			f.aboutToken = f.aboutToken || v.v.Field.v == "message.token"
		}
	}
	return f
}

// action decides, and names the word that decided.
func (f *fault) action() (action, string) {
	code := fcmCodes[f.code]
	apple := appleReasons[f.apple]
	switch code {
	case undecided, byHTTP:
	case checkArgument:
		switch {
		case apple != undecided:
			return apple, f.apple
		case f.aboutToken:
			return dropGuarded, f.code
		}
		return failMessage, f.code
	default:
		return code, f.code
	}
	if apple != undecided {
		return apple, f.apple
	}
	if code != byHTTP {
		if a := infoReasons[f.info]; a != undecided {
			return a, f.info
		}
		if a := statuses[f.state]; a != undecided {
			return a, f.state
		}
	}
	return f.byHTTP(), calls.StatusReason(f.http)
}

func (f *fault) byHTTP() action {
	switch {
	case f.http == 401:
		return reauthorize
	case f.http == 403, f.http == 404:
		return haltRoute
	case f.http == 429:
		return retryQuota
	case f.http == 408, f.http == statusCanceled:
		return retryRoute
	case f.http >= 400 && f.http < 500:
		return failMessage
	}
	return retryRoute
}

// Left implements exchange.Codec. Google's words there are about the
// connection.
func (c *codec) Left(_ string, result push.Result, _ *exchange.Draft) (push.Result, exchange.Next) {
	return result, exchange.Settled
}

// Read implements exchange.Codec.
func (c *codec) Read(d *pipeline.Delivery, r *exchange.Draft) (push.Result, exchange.Next) {
	a := &r.Answer
	c.limits.Heard(a.Header[answerLimits:], a.Header[answerDate])
	if a.Status == 200 {
		fault := c.guard.Success(&d.Item.Message)
		c.refusal.Clear()
		return push.Result{Class: push.Delivered, Certainty: push.Accepted, ProviderID: messageName(a.Body, r.IDs), Culprit: fault}, exchange.Settled
	}
	f := readFault(a.Status, a.Body)
	act, word := f.action()
	result := push.Result{Class: push.Again, Reason: word}
	if a.Status < 400 || a.Status == statusCanceled || a.Status >= 500 && a.Status != 503 {
		result.Certainty = push.Ambiguous // it may have been queued before it broke
	}
	if act == dropGuarded {
		if word, own := ownWords(&d.Item.Message, word); own {
			result.Class, result.Reason = push.Refused, word
			return result, exchange.Settled
		}
		if result = c.guard.Dead(&d.Item.Message, result, time.Now()); result.Halt {
			result.After = shortest
		}
		return result, exchange.Settled
	}
	c.guard.Other()
	return c.apply(act, result, r)
}

// ownWords reports whether the refusal of a token may be about what the message
// itself says, and returns the reason to give. Such an answer is no news of the
// token, and not counted by the guard: a message must be able to remove no
// token of others, and to stop no route.
func ownWords(m *push.Message, word string) (string, bool) {
	switch {
	case m.Device.Token != "":
		return string(push.InvalidToken), true // the message names the token
	case len(m.FCM) > 0 && word != "SENDER_ID_MISMATCH":
		return word, true
	}
	return word, false
}

func (c *codec) apply(act action, result push.Result, r *exchange.Draft) (push.Result, exchange.Next) {
	asked, wasAsked := calls.RetryAfter(string(r.Answer.Header[answerRetryAfter]), string(r.Answer.Header[answerDate]), time.Now())
	wait := func(usual time.Duration) time.Duration {
		if wasAsked {
			return min(max(asked, shortest), longest)
		}
		return usual
	}
	switch act {
	case failMessage:
		result.Class = push.Refused
	case dropToken:
		result.Class = push.Gone
	case haltRoute:
		if status := r.Answer.Status; status != http.StatusUnauthorized && status != http.StatusForbidden {
			result.Scope, result.Halt, result.After = push.ScopeRoute, true, shortest // a project that is not there
			break
		}
		if c.formerToken(r) {
			return c.reauthorize(result, r)
		}
		c.halt(&result)
	case haltApple:
		// Devices of Apple and browsers wait; Android devices do not.
		result.Scope, result.Halt, result.After = push.ScopeDevice, true, shortest
	case retryDevice:
		result.Scope, result.After = push.ScopeDevice, wait(quotaDelay)
	case retryQuota:
		result.Scope, result.After, result.Pause, result.Pressure = push.ScopeRoute, wait(quotaDelay), true, push.OverQuota
	case retryRoute:
		result.Scope, result.After, result.Pause = push.ScopeRoute, wait(shortest), wasAsked
		result.Pressure = push.PressureOf(r.Answer.Status)
	case reauthorize:
		if r.Repeats > 0 && !c.formerToken(r) {
			c.halt(&result)
			return result, exchange.Settled
		}
		return c.reauthorize(result, r)
	}
	return result, exchange.Settled
}

// formerToken reports whether a request was sent with a token that is no longer in
// use: then its refusal says nothing of the one that is.
func (c *codec) formerToken(r *exchange.Draft) bool {
	t := c.tokens.current.Load()
	return t != nil && !bytes.Equal(t.header, r.Header[0].Value)
}

// accountChanges is how often a request is sent again because of its token: once, and
// again where the account was exchanged meanwhile.
const accountChanges = 3

// reauthorize sends a request again when there is a newer token, or none could be got.
func (c *codec) reauthorize(result push.Result, r *exchange.Draft) (push.Result, exchange.Next) {
	if r.Repeats >= accountChanges {
		result.Scope = push.ScopeConnection
		return result, exchange.Settled // it is tried later; nothing was said of the account in use
	}
	r.Park()
	c.tokens.refused(r.Header[0].Value, func() {
		if auth := c.tokens.authorization(time.Now()); auth != nil {
			r.Header[0].Value = auth
		}
		r.Resume()
	})
	return result, exchange.Parked
}

// maxName is the longest name that is kept: with a project's id of 30 bytes
// Google's have about 90.
const maxName = 256

// messageName is the name that Google gave the message, or empty.
func messageName(body []byte, ids *calls.IDs) string {
	for it := payload.Members(body); it.Next(); {
		if it.Is("name") {
			if v := it.Value; len(v) > 2 && v[0] == '"' && bytes.IndexByte(v, '\\') < 0 {
				return ids.Keep(v[1:len(v)-1], maxName)
			}
		}
	}
	return ""
}
