package apns

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/payload"
	"github.com/pushfleet/pushfleet/push"
)

// action is what a reason asks for.
type action uint8

const (
	failMessage    action = iota // this message will never be accepted
	dropToken                    // the token is dead, Apple says since when
	dropGuarded                  // the token is dead, unless the route is set up wrongly
	haltRoute                    // key or environment are wrong
	haltTopic                    // the topic is wrong
	reauthorize                  // the token has aged, and the connection with it
	checkClock                   // the token is wrong: by our clock, or altogether
	reconnect                    // this connection cannot be used any more
	retryDevice                  // this device has had too much
	retryRoute                   // Apple has a problem
	calmTokens                   // too many different provider tokens
	retryElsewhere               // this server goes away
)

// reasons is Apple's whole list and what we do about each (reference:
// providers 1.7).
var reasons = map[string]action{
	"BadCollapseId":               failMessage,
	"BadDeviceToken":              dropGuarded,
	"BadExpirationDate":           failMessage,
	"BadMessageId":                failMessage,
	"BadPriority":                 failMessage,
	"BadTopic":                    haltTopic,
	"DeviceTokenNotForTopic":      dropGuarded,
	"DuplicateHeaders":            failMessage,
	"IdleTimeout":                 reconnect,
	"InvalidPushType":             failMessage,
	"MissingDeviceToken":          failMessage,
	"MissingTopic":                haltTopic,
	"PayloadEmpty":                failMessage,
	"TopicDisallowed":             haltTopic,
	"BadCertificate":              haltRoute,
	"BadCertificateEnvironment":   haltRoute,
	"ExpiredProviderToken":        reauthorize,
	"Forbidden":                   failMessage,
	"InvalidProviderToken":        checkClock, // also of a token from the future
	"MissingProviderToken":        haltRoute,
	"UnrelatedKeyIdInToken":       reconnect,
	"BadEnvironmentKeyIdInToken":  haltRoute,
	"BadEnvironmentKeyInToken":    haltRoute, // as it is really spelled on the wire
	"BadPath":                     failMessage,
	"MethodNotAllowed":            failMessage,
	"Unregistered":                dropToken,
	"ExpiredToken":                dropToken,
	"PayloadTooLarge":             failMessage,
	"TooManyProviderTokenUpdates": calmTokens,
	"TooManyRequests":             retryDevice,
	"InternalServerError":         retryRoute,
	"ServiceUnavailable":          retryRoute,
	"Shutdown":                    retryElsewhere,
}

// unauthenticated reports whether an answer leaves its connection at the one
// stream that Apple grants to those it does not know. Of the answers with
// status 403 only Forbidden is about the message.
func unauthenticated(a *h2.Answer) bool {
	if a.Status != 403 {
		return false
	}
	reason, _ := readBody(a.Body)
	return reason != "Forbidden"
}

// maxID is the longest apns-id that is kept. Apple's are UUIDs of 36 bytes.
const maxID = 64

// Reasons are all known reasons in Apple's answers.
func Reasons() []string {
	return slices.AppendSeq(calls.StatusReasons(), maps.Keys(reasons))
}

// deviceDelay is how long nothing is sent to a device that has had too many.
const deviceDelay = time.Minute

// Read implements exchange.Codec.
func (c *codec) Read(d *pipeline.Delivery, r *exchange.Draft) (push.Result, exchange.Next) {
	a := &r.Answer
	c.limits.Heard(a.Header[answerLimits:], a.Header[answerDate])
	id := r.IDs.Keep(a.Header[answerID], maxID)
	if a.Status == 200 {
		fault := c.accepted(&d.Item.Message)
		if id == "" {
			id = ownID(r)
		}
		return push.Result{Class: push.Delivered, Certainty: push.Accepted, ProviderID: id, Culprit: fault}, exchange.Settled
	}
	reason, since := readBody(a.Body)
	act, known := reasons[reason]
	if !known {
		act, reason = byStatus(a.Status), cmp.Or(calls.Word(reason), calls.StatusReason(a.Status))
	}
	result := push.Result{Class: push.Again, Reason: reason, ProviderID: id}
	if a.Status < 400 || a.Status >= 500 && a.Status != 503 {
		result.Certainty = push.Ambiguous // it may have been queued before it broke
	}
	if word, own := ownWords(&d.Item.Message, act, reason); own {
		result.Class, result.Reason = push.Refused, word
		return result, exchange.Settled
	}
	if act == dropGuarded {
		return c.guard.Dead(&d.Item.Message, result, time.Now()), exchange.Settled
	}
	c.guard.Other()
	return c.apply(act, result, since, r)
}

// outdated reports whether a GOAWAY with this reason is about our credentials:
// the same request over the next connection would end it, too.
func outdated(reason string) bool {
	switch reasons[reason] {
	case haltRoute, checkClock, reauthorize:
		return true
	}
	return false
}

// Left implements exchange.Codec. Apple ends connections that it does not know
// or must not serve; the next one would be ended too, unless a newer token
// helps.
func (c *codec) Left(reason string, result push.Result, r *exchange.Draft) (push.Result, exchange.Next) {
	switch reasons[reason] {
	case haltRoute, checkClock:
		result.Reason = reason
		if c.formerKey(r) {
			if r.Outcome == h2.NotAccepted && r.Repeats < keyChanges && c.reauthorize(r) == nil {
				return result, exchange.Repeat
			}
			return result, exchange.Settled // it says nothing of the key in use
		}
		c.halt(&result)
	case reauthorize:
		result.Reason = reason
		if r.Outcome == h2.NotAccepted && r.Repeats == 0 && c.reauthorize(r) == nil {
			return result, exchange.Repeat
		}
		c.refused(&result, time.Now())
	}
	return result, exchange.Settled
}

// reauthorize gives a request the token that is now current. One is minted for
// that only if its half hour has none yet.
func (c *codec) reauthorize(r *exchange.Draft) error {
	auth, identity, err := c.tokens.authorization(time.Now())
	if err == nil {
		r.Header[0].Value, r.Identity = auth, identity
	}
	return err
}

// authorize is h2.Options.Authorize. A key whose token cannot be signed leaves the
// request as it is: Encode halts the route.
func (c *codec) authorize(r *h2.Request, identity uint64) {
	if auth, of, err := c.tokens.authorizationOf(identity, time.Now()); err == nil {
		r.Header[0].Value, r.Identity = auth, of
	}
}

// keyChanges is how often a request is sent again because the key was exchanged while
// it was under way.
const keyChanges = 3

// formerKey reports whether a request was sent with a key that is no longer in use:
// then its refusal says nothing of the one that is.
func (c *codec) formerKey(r *exchange.Draft) bool { return r.Identity != c.tokens.identity() }

// halt stops the route because Apple refuses our key, and says so.
func (c *codec) halt(result *push.Result) {
	result.Scope, result.Halt = push.ScopeRoute, true
	remedy, known := remedies[result.Reason]
	if !known {
		remedy = remedies["InvalidProviderToken"]
	}
	c.refusal.Note(result.Reason, c.tokens.KeyID(), remedy)
}

// remedies are what to do about refusals of the key. pushctl providers check tries them
// one by one.
var remedies = map[string]string{
	"InvalidProviderToken":       "key_file, key_id and team_id must belong together, and the key must not be revoked: put a key that Apple lists into the file, with its id in a line Key-Id",
	"ExpiredProviderToken":       "compare this machine's clock with Apple's",
	"MissingProviderToken":       "a proxy removes the authorization header: reach Apple without it",
	"BadEnvironmentKeyInToken":   "the key is for Apple's other environment: put one for this into the file",
	"BadEnvironmentKeyIdInToken": "the key is for Apple's other environment: put one for this into the file",
	"BadCertificate":             "tls of a proxy: Apple was shown a client certificate, which we do not use",
	"BadCertificateEnvironment":  "tls of a proxy: Apple was shown a client certificate, which we do not use",
}

// patience is how long tokens may be refused as too old even when renewed and
// sent over a new connection: it may take that long until the last connection
// that saw the old token is closed.
const patience = 5 * time.Second

// refused turns a refusal into a halt when new connections do not help.
func (c *codec) refused(result *push.Result, now time.Time) {
	since := c.refusedSince.Load()
	if since == 0 {
		c.refusedSince.CompareAndSwap(0, now.UnixNano())
	} else if now.Sub(time.Unix(0, since)) >= patience {
		c.halt(result)
	}
}

// accepted forgets refusals. It returns whose fault is proven by it.
func (c *codec) accepted(m *push.Message) (fault *push.Culprit) {
	fault = c.guard.Success(m)
	c.refusal.Clear()
	if c.refusedSince.Load() != 0 {
		c.refusedSince.Store(0)
	}
	return fault
}

func (c *codec) apply(act action, result push.Result, since time.Time, r *exchange.Draft) (push.Result, exchange.Next) {
	switch act {
	case failMessage:
		result.Class = push.Refused
	case dropToken:
		result.Class, result.DeadSince = push.Gone, push.At(since)
	case haltRoute:
		if c.formerKey(r) {
			return c.exchanged(result, r)
		}
		c.halt(&result)
	case haltTopic:
		result.Scope, result.Halt = push.ScopeRoute, true
	case retryRoute:
		result.Scope, result.Pressure = push.ScopeRoute, push.PressureOf(r.Answer.Status)
		result.After, result.Pause = later(r, 0)
	case retryDevice:
		result.Scope = push.ScopeDevice
		result.After, _ = later(r, deviceDelay)
	case calmTokens:
		now := time.Now()
		if c.formerKey(r) {
			return c.exchanged(result, r)
		}
		if c.tokens.Settling(now) {
			return c.renewed(result, r) // the connection is older than the clock's correction
		}
		c.tokens.TooManyUpdates(now)
		after, _ := later(r, deviceDelay)
		result.Scope, result.After, result.Pause = push.ScopeRoute, max(after, deviceDelay), true
		return result, exchange.SettledCalm
	case reauthorize:
		// The connection stays bound to the old token, whatever comes after
		// it; so a new connection either way.
		if c.formerKey(r) {
			return c.exchanged(result, r)
		}
		c.tokens.Correct(r.Answer.Header[answerDate], time.Now())
		return c.renewed(result, r)
	case checkClock:
		now := time.Now()
		if c.formerKey(r) {
			return c.exchanged(result, r)
		}
		c.tokens.Correct(r.Answer.Header[answerDate], now)
		auth, err := c.tokens.Authorization(now)
		if err != nil || r.Repeats > 0 || bytes.Equal(auth, r.Header[0].Value) {
			c.halt(&result) // the same one again would be as wrong
			return result, exchange.Settled
		}
		return c.renewed(result, r)
	case reconnect, retryElsewhere:
		result.Scope = push.ScopeConnection
		if r.Repeats > 0 {
			return result, exchange.SettledRetire
		}
		return result, exchange.RepeatElsewhere
	}
	return result, exchange.Settled
}

// later is when Apple wants to be asked again, if it says so, or else usual.
func later(r *exchange.Draft, usual time.Duration) (wait time.Duration, asked bool) {
	h := r.Answer.Header
	if len(h[answerRetryAfter]) == 0 {
		return usual, false // as a rule: Apple documents none
	}
	if wait, asked = calls.RetryAfter(string(h[answerRetryAfter]), string(h[answerDate]), time.Now()); !asked {
		return usual, false
	}
	return wait, true
}

// renewed sends the request again, once, with the token that is now current
// and over another connection.
func (c *codec) renewed(result push.Result, r *exchange.Draft) (push.Result, exchange.Next) {
	result.Scope = push.ScopeConnection
	if r.Repeats > 0 {
		c.refused(&result, time.Now())
		return result, exchange.SettledRetire
	}
	if c.reauthorize(r) != nil {
		c.halt(&result)
		return result, exchange.SettledRetire
	}
	return result, exchange.RepeatElsewhere
}

// exchanged sends a request again that was refused for a key which is no longer in
// use, with the one that is. When keys change faster than that, it is tried later:
// no halt, because nothing was said of the key in use.
func (c *codec) exchanged(result push.Result, r *exchange.Draft) (push.Result, exchange.Next) {
	result.Scope = push.ScopeConnection
	if r.Repeats >= keyChanges || c.reauthorize(r) != nil {
		return result, exchange.SettledRetire
	}
	return result, exchange.RepeatElsewhere
}

// byStatus reads an answer whose reason we do not know. A token is never
// dropped for that.
func byStatus(status int) action {
	switch {
	case status == 429:
		return retryDevice
	case status == 408:
		return retryRoute
	case status >= 400 && status < 500:
		return failMessage
	}
	return retryRoute
}

// readBody cuts reason and timestamp (milliseconds since 1970) from an answer;
// whatever is not there is empty.
func readBody(body []byte) (reason string, since time.Time) {
	for it := payload.Members(body); it.Next(); {
		v := it.Value
		switch {
		case it.Is("reason") && len(v) > 2 && v[0] == '"':
			reason = knownReason(v[1 : len(v)-1])
		case it.Is("timestamp"):
			if ms, err := strconv.ParseInt(string(v), 10, 64); err == nil && ms > 0 {
				since = time.UnixMilli(ms)
			}
		}
	}
	return reason, since
}

// knownReason is the reason as a string that lives on, for known ones the
// table's own.
func knownReason(raw []byte) string {
	if canonical, ok := reasonNames[string(raw)]; ok {
		return canonical
	}
	return string(raw)
}

var reasonNames = func() map[string]string {
	names := make(map[string]string, len(reasons))
	for name := range reasons {
		names[name] = name
	}
	return names
}()

// ownID is the apns-id that we sent.
func ownID(r *exchange.Draft) string {
	for i := range r.Header {
		if r.Header[i].Name == headerID {
			return string(r.Header[i].Value)
		}
	}
	return ""
}
