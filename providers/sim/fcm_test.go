package sim

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// send is a good FCM request for a test to spoil.
func (s *stand) send() *Request {
	return &Request{
		Method: "POST", Path: "/v1/projects/" + s.shop.Project + "/messages:send", Conn: NewConn(),
		Fields: []Field{{Name: "authorization", Value: s.bearer}, {Name: "content-type", Value: "application/json"}},
		Body:   []byte(`{"message":{"token":"fcm:one","notification":{"title":"t","body":"b"},"data":{"pf_id":"n1","k":"v"},"android":{"priority":"HIGH","ttl":"3600s"}}}`),
	}
}

// message makes a body of fields of the message.
func message(fields string) func(*stand, *Request) { return content(`{"message":{` + fields + `}}`) }

func TestFCMAnswers(t *testing.T) {
	mark := func(m Mark) func(*stand, *Request) {
		return func(s *stand, _ *Request) { s.policy.devices.Set(FCM, "fcm:one", m) }
	}
	value := func(n int) string { return strings.Repeat("v", n) }
	for _, tt := range []struct {
		why   string
		spoil func(*stand, *Request)
		want  Reply
		field string // of the violation, where there is one
	}{
		{"as it should be", set(), FCMAccepted, ""},
		{"camel case", content(`{"validateOnly":false,"message":{"token":"x","fcmOptions":{"analyticsLabel":"a"},"android":{"collapseKey":"c","directBootOk":true,"notification":{"clickAction":"a","notificationPriority":"PRIORITY_MAX","vibrateTimings":["0.5s","1s"]}}}}`), FCMAccepted, ""},
		{"snake case", content(`{"validate_only":false,"message":{"token":"x","fcm_options":{"analytics_label":"a"},"android":{"collapse_key":"c","direct_boot_ok":true,"notification":{"click_action":"a","notification_priority":"PRIORITY_MAX","vibrate_timings":["0.5s","1s"]}}}}`), FCMAccepted, ""},
		{"validate only", content(`{"validate_only":true,"message":{"token":"x"}}`), FCMValidated, ""},
		{"to an installation", message(`"fid":"abc"`), FCMAccepted, ""},
		{"to a topic", message(`"topic":"news-1_.~%"`), FCMAccepted, ""},
		{"to a condition", message(`"condition":"'a' in topics && 'b' in topics"`), FCMAccepted, ""},
		{"null is unset", message(`"token":"x","topic":null,"android":null`), FCMAccepted, ""},
		{"priority in lower case", message(`"token":"x","android":{"priority":"normal"}`), FCMAccepted, ""},
		{"ttl 0", message(`"token":"x","android":{"ttl":"0s"}`), FCMAccepted, ""},
		{"ttl with a fraction", message(`"token":"x","android":{"ttl":"3.5s"}`), FCMAccepted, ""},
		{"ttl of four weeks", message(`"token":"x","android":{"ttl":"2419200s"}`), FCMAccepted, ""},
		{"4,096 bytes", message(`"token":"x","data":{"k":"` + value(4095) + `"}`), FCMAccepted, ""},
		{"an escape counts as what it stands for", message(`"token":"x","data":{"k":"` + strings.Repeat(`\u0061`, 4095) + `"}`), FCMAccepted, ""},
		{"anything in the APNs payload", message(`"token":"x","apns":{"headers":{"apns-priority":"5"},"payload":{"aps":{"badge":1.5e1,"x":[true,null]}}}`), FCMAccepted, ""},

		{"GET", method("GET"), FCMNotFound, ""},
		{"no access token", set("authorization", ""), FCMUnauthenticated, ""},
		{"unknown access token", set("authorization", "Bearer ya29.x"), FCMUnauthenticated, ""},
		{"access token expired", func(s *stand, _ *Request) { s.clock = s.clock.Add(time.Hour) }, FCMUnauthenticated, ""},
		{"access token revoked", func(s *stand, _ *Request) { s.policy.oauth.revoke() }, FCMUnauthenticated, ""},
		{"unknown project", path("/v1/projects/nobody/messages:send"), FCMNotFound, ""},
		{"another account's project", func(s *stand, r *Request) { r.Path = "/v1/projects/" + s.other.Project + "/messages:send" }, FCMPermissionDenied, ""},
		{"not JSON", content(`hello`), FCMInvalidValue, ""},
		{"broken off", content(`{"message":{"token":"x"`), FCMInvalidValue, ""},
		{"two values", content(`{"message":{"token":"x"}}{}`), FCMInvalidValue, ""},
		{"not UTF-8", message("\"token\":\"x\",\"data\":{\"k\":\"\xff\"}"), FCMInvalidValue, ""},
		{"deeper than it goes", message(`"token":"x","apns":{"payload":{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`), FCMInvalidValue, ""},
		{"nothing", content(`{}`), FCMNoRecipient, "message"},
		{"no recipient", message(`"data":{"k":"v"}`), FCMNoRecipient, "message"},
		{"two recipients", message(`"token":"x","topic":"y"`), FCMInvalidValue, "message"},
		{"unknown field", message(`"token":"x","colour":"red"`), FCMInvalidValue, "message"},
		{"unknown field further in", message(`"token":"x","android":{"notification":{"colour":"red"}}`), FCMInvalidValue, "message.android.notification"},
		{"data value is a number", message(`"token":"x","data":{"k":1}`), FCMInvalidValue, "message.data[0].value"},
		{"second data value is null", message(`"token":"x","data":{"k":"v","l":null}`), FCMInvalidValue, "message.data[1].value"},
		{"data is a list", message(`"token":"x","data":["k"]`), FCMInvalidValue, "message.data"},
		{"title is a number", message(`"token":"x","notification":{"title":1}`), FCMInvalidValue, "message.notification.title"},
		{"message is a string", content(`{"message":"hello"}`), FCMInvalidValue, "message"},
		{"sticky is a string", message(`"token":"x","android":{"notification":{"sticky":"yes"}}`), FCMInvalidValue, "message.android.notification.sticky"},
		{"count is a fraction", message(`"token":"x","android":{"notification":{"notification_count":1.5}}`), FCMInvalidValue, "message.android.notification.notification_count"},
		{"event time in words", message(`"token":"x","android":{"notification":{"event_time":"noon"}}`), FCMInvalidValue, "message.android.notification.event_time"},
		{"priority urgent", message(`"token":"x","android":{"priority":"urgent"}`), FCMInvalidValue, "message.android.priority"},
		{"ttl without unit", message(`"token":"x","android":{"ttl":"3600"}`), FCMInvalidValue, "message.android.ttl"},
		{"ttl is a number", message(`"token":"x","android":{"ttl":3600}`), FCMInvalidValue, "message.android.ttl"},
		{"ttl negative", message(`"token":"x","android":{"ttl":"-1s"}`), FCMInvalidArgument, "message.android.ttl"},
		{"ttl over four weeks", message(`"token":"x","android":{"ttl":"2419201s"}`), FCMInvalidArgument, "message.android.ttl"},
		{"reserved: from", message(`"token":"x","data":{"from":"v"}`), FCMInvalidArgument, "message.data"},
		{"reserved: message_type", message(`"token":"x","data":{"message_type":"v"}`), FCMInvalidArgument, "message.data"},
		{"reserved: google…", message(`"token":"x","data":{"google.a":"v"}`), FCMInvalidArgument, "message.data"},
		{"reserved: gcm…", message(`"token":"x","data":{"gcm":"v"}`), FCMInvalidArgument, "message.data"},
		{"topic with its prefix", message(`"topic":"/topics/news"`), FCMInvalidArgument, "message.topic"},
		{"link without TLS", message(`"token":"x","webpush":{"fcm_options":{"link":"http://example.com"}}`), FCMInvalidArgument, "message.webpush.fcm_options.link"},
		{"4,097 bytes", message(`"token":"x","data":{"k":"` + value(4096) + `"}`), FCMTooLarge, ""},
		{"2,049 bytes to a topic", message(`"topic":"x","data":{"k":"` + value(2048) + `"}`), FCMTooLarge, ""},
		{"token with a slash", message(`"token":"x/y"`), FCMInvalidToken, ""},
		{"empty token", message(`"token":""`), FCMInvalidToken, ""},
		{"endless token", message(`"token":"` + value(4097) + `"`), FCMInvalidToken, ""},

		{"dead token", mark(Mark{Reply: FCMUnregistered}), FCMUnregistered, ""},
		{"will die later", mark(Mark{Reply: FCMUnregistered, Since: time.Unix(1_900_000_000, 0)}), FCMAccepted, ""},
		{"another project's token", mark(Mark{Home: "other"}), FCMSenderIDMismatch, ""},
		{"500", func(s *stand, _ *Request) { s.policy.setFaults(FCM, Faults{Internal: 1}) }, FCMInternal, ""},
		{"502", func(s *stand, _ *Request) { s.policy.setFaults(FCM, Faults{BadGateway: 1}) }, FCMBadGateway, ""},
		{"503", func(s *stand, _ *Request) { s.policy.setFaults(FCM, Faults{Unavailable: 1}) }, FCMUnavailable, ""},
		{"429", func(s *stand, _ *Request) { s.policy.setFaults(FCM, Faults{TooMany: 1}) }, FCMProjectQuota, ""},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s := newStand(t, nil)
			req := s.send()
			tt.spoil(s, req)
			ans := s.do(req)
			if ans.Reply != tt.want || ans.Status != tt.want.Status() {
				t.Fatalf("got %d %s %s, want %s", ans.Status, ans.Reply, ans.Body, tt.want)
			}
			if got := violationOf(t, ans); got != tt.field {
				t.Errorf("got a violation of %q, want %q: %s", got, tt.field, ans.Body)
			}
			if got := s.policy.ledger.Totals().Providers["fcm"].Replies[tt.want.String()]; got != 1 {
				t.Errorf("ledger: got %d %s, want 1", got, tt.want)
			}
		})
	}
}

func violationOf(t *testing.T, ans *Answer) string {
	t.Helper()
	if ans.Reply == FCMBadGateway {
		return ""
	}
	var body struct {
		Error struct {
			Code    int
			Details []struct{ FieldViolations []violation }
		}
	}
	if err := json.Unmarshal(ans.Body, &body); err != nil || body.Error.Code != ans.Status && ans.Status != 200 {
		t.Fatalf("%d with body %s: %v", ans.Status, ans.Body, err)
	}
	for _, d := range body.Error.Details {
		for _, v := range d.FieldViolations {
			return v.Field
		}
	}
	return ""
}

// Every error body equals the one kept in testdata, which was written down
// from observations of the service.
func TestFCMBodies(t *testing.T) {
	s := newStand(t, nil)
	for r := FCMInvalidToken; r <= FCMUnspecified; r++ {
		s.policy.devices.Set(FCM, "fcm:one", Mark{Reply: r})
		ans := s.do(s.send())
		name := strings.ToLower(strings.NewReplacer(":", "_", ".", "_").Replace(r.String()))
		if r == FCMBadGateway {
			if !strings.HasPrefix(string(ans.Body), "<!DOCTYPE html>") || ans.value("content-type") != "text/html; charset=UTF-8" {
				t.Errorf("%s: got %s as %s, want a page", r, ans.Body, ans.value("content-type"))
			}
			continue
		}
		text, err := os.ReadFile(filepath.Join("testdata", "fcm", name+".json"))
		if err != nil {
			t.Error(err)
			continue
		}
		var got, want any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(ans.Body, &got); err != nil || !reflect.DeepEqual(got, want) || ans.Status != r.Status() {
			t.Errorf("%s: got %d %s, want %s", r, ans.Status, ans.Body, text)
		}
	}
}

func TestFCMNames(t *testing.T) {
	s := newStand(t, nil)
	read := func(req *Request) (name string) {
		t.Helper()
		var body struct{ Name string }
		if err := json.Unmarshal(s.do(req).Body, &body); err != nil {
			t.Fatal(err)
		}
		return body.Name
	}
	first, second := read(s.send()), read(s.send())
	if prefix := "projects/" + s.shop.Project + "/messages/0:1800000000000000%"; !strings.HasPrefix(first, prefix) || len(first) != len(prefix)+16 || first == second {
		t.Errorf("got %s and %s, want two names like %s…", first, second, prefix)
	}
	req := s.send()
	req.Body = []byte(`{"validate_only":true,"message":{"token":"x","data":{"pf_id":"n2"}}}`)
	if got := read(req); got != "projects/"+s.shop.Project+"/messages/fake_message_id" {
		t.Errorf("validate only: got %s", got)
	}
	if n := s.policy.ledger.Accepted("n2", DeviceHash(FCM, "x")); n != 0 {
		t.Errorf("validate only was accepted %d times", n)
	}
}

func TestFCMRetryAfter(t *testing.T) {
	s := newStand(t, nil)
	for _, tt := range []struct {
		why    string
		faults Faults
		want   string
	}{
		{"none asked for", Faults{Unavailable: 1}, ""},
		{"seconds, rounded up", Faults{Unavailable: 1, RetryAfter: 1500 * time.Millisecond}, "2"},
		{"on 429 too", Faults{TooMany: 1, RetryAfter: time.Minute}, "60"},
		{"not on 500", Faults{Internal: 1, RetryAfter: time.Minute}, ""},
		{"as a date", Faults{Unavailable: 1, RetryAfter: time.Minute, RetryAfterDate: true}, s.clock.Add(time.Minute).UTC().Format(http.TimeFormat)},
	} {
		s.policy.setFaults(FCM, tt.faults)
		if got := s.do(s.send()).value("retry-after"); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.why, got, tt.want)
		}
	}
}

// A refused message is still named in the ledger, whatever it was refused for
// and wherever its id stands.
func TestFCMRefusedIsNamed(t *testing.T) {
	s := newStand(t, nil)
	for i, spoil := range []func(*stand, *Request){
		set("authorization", ""),
		content(`{"message":{"colour":"red","token":"fcm:one","data":{"pf_id":"n1"}}}`),
		content(`{"message":{"data":{"x":1,"pf_id":"n1"},"token":"fcm:one"}}`),
	} {
		req := s.send()
		spoil(s, req)
		s.do(req)
		if e, _ := s.policy.ledger.Entry("n1", DeviceHash(FCM, "fcm:one")); e.Refused != i+1 {
			t.Errorf("request %d: got %+v, want %d refusals", i, e, i+1)
		}
	}
}

func TestOAuthAnswers(t *testing.T) {
	form := func(s *stand, assertion string) string { return "grant_type=" + grantType + "&assertion=" + assertion }
	claim := func(name string, value any) func(*stand) string {
		return func(s *stand) string {
			return form(s, s.assertion(s.shop, func(c map[string]any) { c[name] = value }))
		}
	}
	const now = 1_800_000_000
	for _, tt := range []struct {
		why  string
		form func(*stand) string
		want Reply
		text string // somewhere in the answer
	}{
		{"as it should be", func(s *stand) string { return form(s, s.assertion(s.shop, nil)) }, OAuthGranted, `"expires_in":3599`},
		{"other grant", func(*stand) string { return "grant_type=password" }, OAuthUnsupportedGrantType, "unsupported_grant_type"},
		{"no form", func(*stand) string { return "%zz" }, OAuthInvalidRequest, "invalid_request"},
		{"no assertion", func(s *stand) string { return form(s, "") }, OAuthInvalidGrant, "Bad Request"},
		{"unknown account", claim("iss", "nobody@example.com"), OAuthInvalidGrant, "account not found"},
		{"another account's signature", claim("iss", twoApps()[1].Account), OAuthInvalidGrant, "Invalid JWT Signature."},
		{"audience elsewhere", claim("aud", "https://example.com/token"), OAuthInvalidGrant, "audience"},
		{"expired", claim("exp", now-1), OAuthInvalidGrant, "short-lived"},
		{"longer than an hour", claim("exp", now+3601), OAuthInvalidGrant, "short-lived"},
		{"clock far ahead", claim("iat", now+301), OAuthInvalidGrant, "short-lived"},
		{"500", func(s *stand) string { s.policy.setFaults(OAuth, Faults{Internal: 1}); return "" }, OAuthInternal, "internal_failure"},
		{"503", func(s *stand) string { s.policy.setFaults(OAuth, Faults{Unavailable: 1}); return "" }, OAuthUnavailable, ""},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s := newStand(t, nil)
			ans := s.token("POST", tt.form(s))
			if ans.Reply != tt.want || ans.Status != tt.want.Status() || !strings.Contains(string(ans.Body), tt.text) || !json.Valid(ans.Body) {
				t.Errorf("got %d %s %s, want %s with %q", ans.Status, ans.Reply, ans.Body, tt.want, tt.text)
			}
		})
	}
	s := newStand(t, nil)
	if ans := s.token("GET", ""); ans.Status != 405 {
		t.Errorf("GET: got %d, want 405", ans.Status)
	}
}

// A token that was granted for something else, or to an account without the
// right, is good but may not send.
func TestFCMPermissions(t *testing.T) {
	s := newStand(t, nil)
	ans := s.token("POST", "grant_type="+grantType+"&assertion="+s.assertion(s.shop, func(c map[string]any) { c["scope"] = "email" }))
	var granted struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal(ans.Body, &granted); err != nil {
		t.Fatal(err)
	}
	s.bearer = "Bearer " + granted.Token
	if got := s.do(s.send()).Reply; got != FCMPermissionDenied {
		t.Errorf("without scope: got %s", got)
	}
	s = newStand(t, func(o *Options) { o.Apps[0].AccountDenied = true })
	if got := s.do(s.send()).Reply; got != FCMPermissionDenied {
		t.Errorf("without right: got %s", got)
	}
}

func TestUnknownPath(t *testing.T) {
	s := newStand(t, nil)
	for _, p := range []string{"/", "/v1/projects//messages:send", "/v1/projects/a/b/messages:send", "/tokens"} {
		if ans := s.do(&Request{Method: "POST", Path: p, Conn: NewConn()}); ans.Status != 404 {
			t.Errorf("%s: got %s", p, strconv.Itoa(ans.Status))
		}
	}
}
