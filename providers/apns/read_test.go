package apns

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

func answered(status int, body string) *exchange.Draft {
	r := &exchange.Draft{}
	r.Header = []h2.Field{{Name: "authorization", Value: []byte("bearer old")}, {Name: "apns-id", Value: []byte("ours")}}
	r.Outcome = h2.Answered
	r.Answer = h2.Answer{Status: status, Header: [][]byte{answerID: []byte("theirs"), answerDate: nil, answerRetryAfter: nil}, Body: []byte(body)}
	return r
}

func TestEveryReason(t *testing.T) {
	const (
		device, route, connection = push.ScopeDevice, push.ScopeRoute, push.ScopeConnection
		not, ambiguous            = push.NotAccepted, push.Ambiguous
	)
	fail := push.Result{Class: push.Refused}
	gone := push.Result{Class: push.Gone}
	halt := push.Result{Class: push.Again, Scope: route, Halt: true}
	elsewhere := push.Result{Class: push.Again, Scope: connection}
	dead := push.Result{Class: push.Gone, DeadSince: push.At(time.UnixMilli(1700000000123))}
	table := []struct {
		status int
		reason string
		want   push.Result
		next   exchange.Next
	}{
		{400, "BadCollapseId", fail, 0}, {400, "BadDeviceToken", gone, 0}, {400, "BadExpirationDate", fail, 0},
		{400, "BadMessageId", fail, 0}, {400, "BadPriority", fail, 0}, {400, "BadTopic", halt, 0},
		{400, "DeviceTokenNotForTopic", gone, 0}, {400, "DuplicateHeaders", fail, 0},
		{400, "IdleTimeout", elsewhere, exchange.RepeatElsewhere}, {400, "InvalidPushType", fail, 0},
		{400, "MissingDeviceToken", fail, 0}, {400, "MissingTopic", halt, 0}, {400, "PayloadEmpty", fail, 0},
		{400, "TopicDisallowed", halt, 0}, {403, "BadCertificate", halt, 0}, {403, "BadCertificateEnvironment", halt, 0},
		{403, "ExpiredProviderToken", elsewhere, exchange.RepeatElsewhere}, {403, "Forbidden", fail, 0},
		{403, "InvalidProviderToken", halt, 0}, {403, "MissingProviderToken", halt, 0},
		{403, "UnrelatedKeyIdInToken", elsewhere, exchange.RepeatElsewhere},
		{403, "BadEnvironmentKeyIdInToken", halt, 0}, {403, "BadEnvironmentKeyInToken", halt, 0},
		{404, "BadPath", fail, 0}, {405, "MethodNotAllowed", fail, 0},
		{410, "Unregistered", dead, 0}, {410, "ExpiredToken", dead, 0}, {413, "PayloadTooLarge", fail, 0},
		{429, "TooManyProviderTokenUpdates", push.Result{Class: push.Again, Scope: route, After: time.Minute, Pause: true}, exchange.SettledCalm},
		{429, "TooManyRequests", push.Result{Class: push.Again, Scope: device, After: time.Minute}, 0},
		{500, "InternalServerError", push.Result{Class: push.Again, Scope: route, Certainty: ambiguous, Pressure: push.Failing}, 0},
		{503, "ServiceUnavailable", push.Result{Class: push.Again, Scope: route, Certainty: not, Pressure: push.Failing}, 0},
		{503, "Shutdown", elsewhere, exchange.RepeatElsewhere},
	}
	seen := map[string]bool{}
	for _, row := range table {
		seen[row.reason] = true
		c := testCodec(t)
		row.want.Reason, row.want.ProviderID = row.reason, "theirs"
		r := answered(row.status, fmt.Sprintf(`{"reason":%q,"timestamp":1700000000123}`, row.reason))
		r.Header[0].Value = []byte(authorize(t, c.tokens, time.Now()))
		got, next := c.Read(plain(), r)
		if got != row.want || next != row.next {
			t.Errorf("%d %s: %+v, %v; want %+v, %v", row.status, row.reason, got, next, row.want, row.next)
		}
	}
	for reason := range reasons {
		if !seen[reason] {
			t.Errorf("%s has no row in this test", reason)
		}
	}
}

func TestAnswersWithoutAKnownReason(t *testing.T) {
	for _, row := range []struct {
		status int
		body   string
		class  push.Class
		scope  push.Scope
		sure   push.Certainty
		reason string
	}{
		{400, `{"reason":"SomethingNew"}`, push.Refused, 0, push.NotAccepted, "SomethingNew"},
		{410, `{"reason":"SomethingNew"}`, push.Refused, 0, push.NotAccepted, "SomethingNew"},
		{408, ``, push.Again, push.ScopeRoute, push.NotAccepted, "http_408"},
		{429, `{}`, push.Again, push.ScopeDevice, push.NotAccepted, "http_429"},
		{500, `not json`, push.Again, push.ScopeRoute, push.Ambiguous, "http_500"},
		{502, `<html>`, push.Again, push.ScopeRoute, push.Ambiguous, "http_502"},
		{503, ``, push.Again, push.ScopeRoute, push.NotAccepted, "http_503"},
		{302, ``, push.Again, push.ScopeRoute, push.Ambiguous, "http_302"},
		{400, `{"reason":"text with <b> and a token"}`, push.Refused, 0, push.NotAccepted, "http_400"},
		{400, `{"reason":"` + strings.Repeat("Long", 100) + `"}`, push.Refused, 0, push.NotAccepted, strings.Repeat("Long", 16)},
		{400, `{"reason":"timeout"}`, push.Refused, 0, push.NotAccepted, "http_400"}, // ours begin with a lower-case letter, theirs never do
		{400, `{"reason":5}`, push.Refused, 0, push.NotAccepted, "http_400"},
		{400, `{"reason"`, push.Refused, 0, push.NotAccepted, "http_400"},
	} {
		got, next := testCodec(t).Read(plain(), answered(row.status, row.body))
		if got.Class != row.class || got.Scope != row.scope || got.Certainty != row.sure || got.Reason != row.reason || got.Halt || next != exchange.Settled {
			t.Errorf("%d %s: %+v, %v", row.status, row.body, got, next)
		}
	}
}

func TestAccepted(t *testing.T) {
	c := testCodec(t)
	want := push.Result{Class: push.Delivered, Certainty: push.Accepted, ProviderID: "theirs"}
	if got, _ := c.Read(plain(), answered(200, "")); got != want {
		t.Errorf("%+v", got)
	}
	r := answered(200, "")
	r.Answer.Header[0] = nil
	if got, _ := c.Read(plain(), r); got.ProviderID != "ours" {
		t.Errorf("no apns-id in the answer: %+v", got)
	}
	for id, want := range map[string]string{
		strings.Repeat("x", 5000): strings.Repeat("x", 64), strings.Repeat("y", 64): strings.Repeat("y", 64),
		"a\x1b[31m": "ours", "\u202e": "ours", "a b": "ours", "\xff": "ours",
	} {
		r.Answer.Header[0] = []byte(id)
		if got, _ := c.Read(plain(), r); got.ProviderID != want {
			t.Errorf("apns-id %.20q became %q", id, got.ProviderID)
		}
	}
}

// Metrics know every word that an answer can end with, unless Apple, or a
// server in its place, invented it.
func TestReasonsAreAll(t *testing.T) {
	all := Reasons()
	for reason := range reasons {
		if !slices.Contains(all, reason) {
			t.Errorf("no %s", reason)
		}
	}
	for _, row := range []struct {
		status int
		body   string
	}{{400, ``}, {429, `{}`}, {503, `<html>`}, {302, ``}} {
		got, _ := testCodec(t).Read(plain(), answered(row.status, row.body))
		if !slices.Contains(all, got.Reason) {
			t.Errorf("no %s", got.Reason)
		}
	}
	if len(all) > 150 {
		t.Errorf("%d reasons", len(all))
	}
}

func TestRepeatedOnce(t *testing.T) {
	c := testCodec(t)
	r := answered(403, `{"reason":"ExpiredProviderToken"}`)
	if _, next := c.Read(plain(), r); next != exchange.RepeatElsewhere || string(r.Header[0].Value) == "bearer old" {
		t.Errorf("first: %v with authorization %.12q", next, r.Header[0].Value)
	}
	if c.tokens.signed != 1 {
		t.Errorf("signed %d times", c.tokens.signed)
	}
	r.Repeats = 1
	got, next := c.Read(plain(), r)
	if next != exchange.SettledRetire || got.Class != push.Again || got.Scope != push.ScopeConnection || c.tokens.signed != 1 {
		t.Errorf("second: %+v, %v, signed %d times", got, next, c.tokens.signed)
	}
}

// Requests that a GOAWAY about the age of our token did not accept are sent
// again, once, with the current token. Those that it may have accepted are not.
func TestLeftForAnOldToken(t *testing.T) {
	if got := outdated("ExpiredProviderToken"); !got {
		t.Error("it would be sent again as it is")
	}
	if outdated("Shutdown") || outdated("BadDeviceToken") || outdated("SomethingNew") {
		t.Error("nothing is wrong with the requests")
	}
	for _, tc := range []struct {
		outcome h2.Outcome
		repeats int
		next    exchange.Next
	}{
		{h2.NotAccepted, 0, exchange.Repeat}, {h2.NotAccepted, 1, exchange.Settled}, {h2.Ambiguous, 0, exchange.Settled},
	} {
		c := testCodec(t)
		r := answered(0, "")
		r.Outcome, r.Repeats = tc.outcome, tc.repeats
		want := push.Result{Class: push.Again, Scope: push.ScopeConnection, Reason: "ExpiredProviderToken"}
		got, next := c.Left("ExpiredProviderToken", push.Result{Class: push.Again, Scope: push.ScopeConnection}, r)
		if next != tc.next || got != want {
			t.Errorf("%+v: %+v, %v", tc, got, next)
		}
		if renewed := string(r.Header[0].Value) == authorize(t, c.tokens, time.Now()); renewed != (tc.next == exchange.Repeat) {
			t.Errorf("%+v: authorization %.12q", tc, r.Header[0].Value)
		}
	}
}

// Apple grants more than one stream to who is known to it, whatever it says of a message.
func TestWhichAnswersLeaveUsUnknown(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   bool
	}{
		{403, `{"reason":"InvalidProviderToken"}`, true},
		{403, `{"reason":"Forbidden"}`, false},
		{403, ``, true},
		{401, ``, false}, // Apple has no such answer
		{200, ``, false},
	} {
		if got := unauthenticated(&h2.Answer{Status: tt.status, Body: []byte(tt.body)}); got != tt.want {
			t.Errorf("%d %s: got %v, want %v", tt.status, tt.body, got, tt.want)
		}
	}
}

// Without a token nothing is sent, and nothing is sent again: the route halts.
func TestAKeyThatDoesNotSign(t *testing.T) {
	c := testCodec(t)
	d := plain()
	longer, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	longer.PublicKey = c.tokens.inUse.Load().key.PublicKey // whose curve it is too long for
	c.tokens.inUse.Load().key = longer
	want := push.Result{Class: push.Again, Scope: push.ScopeRoute, Halt: true, Reason: string(push.AuthFailed)}
	if got, ok := c.Encode(d, &exchange.Draft{}); ok || got != want {
		t.Errorf("got %+v, sent: %v; want %+v", got, ok, want)
	}
	r := answered(0, "")
	r.Outcome = h2.NotAccepted
	if _, next := c.Left("ExpiredProviderToken", push.Result{Class: push.Again}, r); next != exchange.Settled {
		t.Errorf("after a GOAWAY: got %v, want that it is settled", next)
	}
	r = answered(403, `{"reason":"ExpiredProviderToken"}`)
	if got, next := c.Read(d, r); next != exchange.SettledRetire || got.Scope != push.ScopeRoute || !got.Halt {
		t.Errorf("after a refusal: got %+v, %v; want a halt", got, next)
	}
}

// After our clock was corrected, the token on an older connection is one too many. That
// is no reason to pause: a new connection has the new one.
func TestTooManyTokensAfterACorrection(t *testing.T) {
	c := testCodec(t)
	now := time.Now()
	c.tokens.Correct([]byte(now.Add(2*time.Hour).UTC().Format(http.TimeFormat)), now)
	r := answered(429, `{"reason":"TooManyProviderTokenUpdates"}`)
	got, next := c.Read(plain(), r)
	if next != exchange.RepeatElsewhere || got.Pause || string(r.Header[0].Value) != authorize(t, c.tokens, now) {
		t.Errorf("got %+v, %v, authorization %.12q; want it sent again with the corrected token", got, next, r.Header[0].Value)
	}
}

func TestMassOfBadTokensHaltsTheRoute(t *testing.T) {
	c := testCodec(t)
	removed, halted := 0, 0
	for i := range 1000 {
		reason := "BadDeviceToken"
		if i%2 == 0 {
			reason = "DeviceTokenNotForTopic"
		}
		switch got, _ := c.Read(plain(), answered(400, `{"reason":"`+reason+`"}`)); {
		case got.Class == push.Gone:
			removed++
		case got.Class == push.Again && got.Halt && got.Scope == push.ScopeRoute:
			halted++
		default:
			t.Fatalf("%+v", got)
		}
	}
	if removed > 50 || removed+halted != 1000 {
		t.Errorf("%d tokens removed, %d halted", removed, halted)
	}
	// 410 is not such a reason: it is certain, and a burst of them is normal.
	if got, _ := c.Read(plain(), answered(410, `{"reason":"Unregistered","timestamp":1}`)); got.Class != push.Gone {
		t.Errorf("%+v", got)
	}
}

func FuzzReadBody(f *testing.F) {
	f.Add(`{"reason":"BadDeviceToken"}`)
	f.Add(`{"reason":"Unregistered","timestamp":1700000000123}`)
	f.Fuzz(func(t *testing.T, body string) {
		reason, _ := readBody([]byte(body))
		if got := calls.Word(reason); len(got) > 64 {
			t.Errorf("reason of %d bytes", len(got))
		}
	})
}

// What Apple says of when to come back counts: for the route where it has a problem, for
// the device where that has had too much. Nothing is waited for longer than an hour.
func TestAppleSaysWhenToComeBack(t *testing.T) {
	date := time.Now().Add(time.Minute).UTC().Truncate(time.Second)
	for _, tt := range []struct {
		status      int
		reason      string
		value, date string
		scope       push.Scope
		after       time.Duration
		pause       bool
	}{
		{503, "ServiceUnavailable", "", "", push.ScopeRoute, 0, false},
		{503, "ServiceUnavailable", "30", "", push.ScopeRoute, 30 * time.Second, true},
		{503, "ServiceUnavailable", date.Add(45 * time.Second).Format(http.TimeFormat), date.Format(http.TimeFormat), push.ScopeRoute, 45 * time.Second, true},
		{503, "ServiceUnavailable", "-5", "", push.ScopeRoute, 0, false},
		{503, "ServiceUnavailable", "99999999", "", push.ScopeRoute, time.Hour, true},
		{500, "InternalServerError", "7", "", push.ScopeRoute, 7 * time.Second, true},
		{429, "TooManyRequests", "", "", push.ScopeDevice, deviceDelay, false},
		{429, "TooManyRequests", "300", "", push.ScopeDevice, 5 * time.Minute, false},
		{429, "TooManyRequests", "soon", "", push.ScopeDevice, deviceDelay, false},
		{400, "PayloadTooLarge", "300", "", push.ScopeDevice, 0, false},
	} {
		r := answered(tt.status, `{"reason":"`+tt.reason+`"}`)
		r.Answer.Header[answerRetryAfter], r.Answer.Header[answerDate] = []byte(tt.value), []byte(tt.date)
		got, _ := testCodec(t).Read(plain(), r)
		if got.Scope != tt.scope || got.After != tt.after || got.Pause != tt.pause {
			t.Errorf("%d %s, Retry-After %q: %+v", tt.status, tt.reason, tt.value, got)
		}
	}
}
