package sim

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func background(fields ...string) func(*stand, *Request) {
	return all(set("apns-push-type", "background", "apns-priority", "5"), set(fields...), content(`{"aps":{"content-available":1},"pf_id":"n1"}`))
}

func TestAPNSAnswers(t *testing.T) {
	mark := func(m Mark) func(*stand, *Request) {
		return func(s *stand, _ *Request) { s.policy.devices.Set(APNS, goodToken, m) }
	}
	kind := func(typ, suffix string) func(*stand, *Request) {
		return set("apns-push-type", typ, "apns-topic", "com.example.shop"+suffix)
	}
	voip := kind("voip", ".voip")
	for _, tt := range []struct {
		why   string
		spoil func(*stand, *Request)
		want  Reply
	}{
		{"as it should be", set(), APNSAccepted},
		{"only what is required", set("apns-id", "", "apns-push-type", "", "apns-priority", "", "apns-expiration", "", "apns-collapse-id", ""), APNSAccepted},
		{"priority 5", set("apns-priority", "5"), APNSAccepted},
		{"priority 1", set("apns-priority", "1"), APNSAccepted},
		{"expiration 0: one attempt", set("apns-expiration", "0"), APNSAccepted},
		{"collapse id of 64 bytes", set("apns-collapse-id", strings.Repeat("c", 64)), APNSAccepted},
		{"upper-case and long token", path("/3/device/" + strings.ToUpper(goodToken+goodToken)), APNSAccepted},
		{"payload of 4,096 bytes", content(padded(4096)), APNSAccepted},
		{"voip payload of 5,120 bytes", all(voip, content(padded(5120))), APNSAccepted},
		{"background", background(), APNSAccepted},
		{"location", kind("location", ".location-query"), APNSAccepted},
		{"complication", kind("complication", ".complication"), APNSAccepted},
		{"complication as Apple misprints it", kind("complication", "h.complication"), APNSAccepted},
		{"fileprovider", kind("fileprovider", ".pushkit.fileprovider"), APNSAccepted},
		{"mdm", kind("mdm", ""), APNSAccepted},
		{"liveactivity", kind("liveactivity", ".push-type.liveactivity"), APNSAccepted},
		{"pushtotalk", kind("pushtotalk", ".voip-ptt"), APNSAccepted},
		{"widgets", kind("widgets", ".push-type.widgets"), APNSAccepted},
		{"controls", kind("controls", ".push-type.controls"), APNSAccepted},
		{"no type, any suffix", set("apns-push-type", "", "apns-topic", "com.example.shop.voip"), APNSAccepted},
		{"scheme in capitals", func(s *stand, r *Request) {
			r.Fields[0].Value = strings.Replace(r.Fields[0].Value, "bearer", "Bearer", 1)
		}, APNSAccepted},
		{"token almost an hour old", func(s *stand, r *Request) {
			r.Fields[0].Value = s.providerToken(s.shop, s.clock.Add(-time.Hour))
		}, APNSAccepted},

		{"other path under /3", path("/3/devices/" + goodToken), APNSBadPath},
		{"path goes on", path("/3/device/" + goodToken + "/x"), APNSBadPath},
		{"path has a query", path("/3/device/" + goodToken + "?x"), APNSBadPath},
		{"GET", method("GET"), APNSMethodNotAllowed},
		{"topic twice", func(_ *stand, r *Request) {
			r.Fields = append(r.Fields, Field{Name: "apns-topic", Value: "com.example.shop"})
		}, APNSDuplicateHeaders},
		{"authorization twice", func(_ *stand, r *Request) { r.Fields = append(r.Fields, r.Fields[0]) }, APNSDuplicateHeaders},
		{"id is no UUID", set("apns-id", "n1"), APNSBadMessageID},
		{"id in upper case", set("apns-id", "123E4567-E89B-12D3-A456-426655440000"), APNSBadMessageID},
		{"id with a digit too many", set("apns-id", "123e4567-e89b-12d3-a456-4266554400000"), APNSBadMessageID},
		{"id with misplaced dashes", set("apns-id", "123e4567e-89b-12d3-a456-42665544000-"), APNSBadMessageID},
		{"no topic", set("apns-topic", ""), APNSMissingTopic},
		{"topic with a slash", set("apns-topic", "com.example/shop"), APNSBadTopic},
		{"endless topic", set("apns-topic", strings.Repeat("a", 256)), APNSBadTopic},
		{"unknown topic", set("apns-topic", "com.example.nobody"), APNSBadTopic},
		{"another team's topic", set("apns-topic", "com.example.news"), APNSTopicDisallowed},
		{"voip without its suffix", set("apns-push-type", "voip"), APNSBadTopic},
		{"alert with a suffix", set("apns-topic", "com.example.shop.voip"), APNSBadTopic},
		{"expiration in words", set("apns-expiration", "tomorrow"), APNSBadExpirationDate},
		{"expiration negative", set("apns-expiration", "-1"), APNSBadExpirationDate},
		{"expiration with a sign", set("apns-expiration", "+1"), APNSBadExpirationDate},
		{"priority 7", set("apns-priority", "7"), APNSBadPriority},
		{"background at 10", background("apns-priority", "10"), APNSBadPriority},
		{"background at the default, 10", background("apns-priority", ""), APNSBadPriority},
		{"collapse id of 65 bytes", set("apns-collapse-id", strings.Repeat("c", 65)), APNSBadCollapseID},
		{"unknown push type", set("apns-push-type", "shout"), APNSInvalidPushType},
		{"background with an alert", all(background(), content(`{"aps":{"content-available":1,"alert":"x"}}`)), APNSInvalidPushType},
		{"background without content-available", all(background(), content(`{"aps":{}}`)), APNSInvalidPushType},

		{"no authorization", set("authorization", ""), APNSMissingProviderToken},
		{"basic authorization", set("authorization", "Basic eDp5"), APNSMissingProviderToken},
		{"not a JWT", set("authorization", "bearer a.b"), APNSInvalidProviderToken},
		{"unknown key id", func(s *stand, r *Request) {
			r.Fields[0].Value = "bearer " + sign(s.t, map[string]any{"alg": "ES256", "kid": "NOSUCHKEY0"}, map[string]any{"iss": s.shop.TeamID, "iat": s.clock.Unix()}, s.shop.key)
		}, APNSInvalidProviderToken},
		{"another team in iss", func(s *stand, r *Request) {
			r.Fields[0].Value = "bearer " + sign(s.t, map[string]any{"alg": "ES256", "kid": s.shop.KeyID}, map[string]any{"iss": s.other.TeamID, "iat": s.clock.Unix()}, s.shop.key)
		}, APNSInvalidProviderToken},
		{"signed by another key", func(s *stand, r *Request) {
			k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				s.t.Fatal(err)
			}
			r.Fields[0].Value = "bearer " + sign(s.t, map[string]any{"alg": "ES256", "kid": s.shop.KeyID}, map[string]any{"iss": s.shop.TeamID, "iat": s.clock.Unix()}, k)
		}, APNSInvalidProviderToken},
		{"alg none", func(s *stand, r *Request) {
			r.Fields[0].Value = "bearer " + sign(s.t, map[string]any{"alg": "none", "kid": s.shop.KeyID}, map[string]any{"iss": s.shop.TeamID, "iat": s.clock.Unix()}, s.shop.key)
		}, APNSInvalidProviderToken},
		{"iat as a string of milliseconds", func(s *stand, r *Request) {
			r.Fields[0].Value = "bearer " + sign(s.t, map[string]any{"alg": "ES256", "kid": s.shop.KeyID}, map[string]any{"iss": s.shop.TeamID, "iat": "1800000000000"}, s.shop.key)
		}, APNSInvalidProviderToken},
		{"no iat", func(s *stand, r *Request) {
			r.Fields[0].Value = "bearer " + sign(s.t, map[string]any{"alg": "ES256", "kid": s.shop.KeyID}, map[string]any{"iss": s.shop.TeamID}, s.shop.key)
		}, APNSInvalidProviderToken},
		{"minted over an hour ahead", func(s *stand, r *Request) {
			r.Fields[0].Value = s.providerToken(s.shop, s.clock.Add(time.Hour+time.Second))
		}, APNSInvalidProviderToken},
		{"minted over an hour ago", func(s *stand, r *Request) {
			r.Fields[0].Value = s.providerToken(s.shop, s.clock.Add(-time.Hour-time.Second))
		}, APNSExpiredProviderToken},

		{"no token", path("/3/device/"), APNSMissingDeviceToken},
		{"odd number of digits", path("/3/device/abc"), APNSBadDeviceToken},
		{"not hexadecimal", path("/3/device/zz" + goodToken), APNSBadDeviceToken},
		{"514 digits", path("/3/device/" + strings.Repeat("ab", 257)), APNSBadDeviceToken},
		{"never issued", mark(Mark{Reply: APNSBadDeviceToken}), APNSBadDeviceToken},
		{"dead", mark(Mark{Reply: APNSUnregistered, Since: time.Unix(1_700_000_000, 0)}), APNSUnregistered},
		{"expired", mark(Mark{Reply: APNSExpiredToken, Since: time.Unix(1_700_000_000, 0)}), APNSExpiredToken},
		{"will die later", mark(Mark{Reply: APNSUnregistered, Since: time.Unix(1_900_000_000, 0)}), APNSAccepted},
		{"another app's", mark(Mark{Home: "com.example.news"}), APNSDeviceTokenNotForTopic},
		{"this app's", mark(Mark{Home: "com.example.shop"}), APNSAccepted},
		{"throttled", mark(Mark{Reply: APNSTooManyRequests}), APNSTooManyRequests},
		{"empty payload", content(""), APNSPayloadEmpty},
		{"payload {}", content("{}"), APNSPayloadEmpty},
		{"payload is no JSON", content("hello"), APNSPayloadEmpty},
		{"payload of 4,097 bytes", content(padded(4097)), APNSPayloadTooLarge},
		{"voip payload of 5,121 bytes", all(voip, content(padded(5121))), APNSPayloadTooLarge},
		{"500", func(s *stand, _ *Request) { s.policy.setFaults(APNS, Faults{Internal: 1}) }, APNSInternalServerError},
		{"503", func(s *stand, _ *Request) { s.policy.setFaults(APNS, Faults{Unavailable: 1}) }, APNSServiceUnavailable},
		{"429", func(s *stand, _ *Request) { s.policy.setFaults(APNS, Faults{TooMany: 1}) }, APNSTooManyRequests},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s := newStand(t, nil)
			req := s.push()
			tt.spoil(s, req)
			ans := s.do(req)
			if ans.Reply != tt.want {
				t.Fatalf("got %s, want %s", ans.Reply, tt.want)
			}
			s.checkAPNSForm(ans)
			totals := s.policy.ledger.Totals().Providers["apns"]
			if totals.Received != 1 || totals.Replies[tt.want.String()] != 1 {
				t.Errorf("ledger: got %+v, want one %s", totals, tt.want)
			}
		})
	}
}

// checkAPNSForm compares status, fields and body with Apple's page about
// answers.
func (s *stand) checkAPNSForm(ans *Answer) {
	s.t.Helper()
	if ans.Status != ans.Reply.Status() || len(ans.value("apns-id")) != 36 {
		s.t.Errorf("got status %d and apns-id %q", ans.Status, ans.value("apns-id"))
	}
	if ans.Reply == APNSAccepted {
		if len(ans.Body) != 0 || ans.Status != 200 {
			s.t.Errorf("got %d %s, want 200 without a body", ans.Status, ans.Body)
		}
		return
	}
	var body map[string]any
	if err := json.Unmarshal(ans.Body, &body); err != nil {
		s.t.Fatalf("body %s: %v", ans.Body, err)
	}
	want := 1
	if ans.Status == 410 {
		want = 2
		if body["timestamp"] != 1.7e12 {
			s.t.Errorf("got timestamp %v, want milliseconds", body["timestamp"])
		}
	}
	if body["reason"] != ans.Reply.String() || len(body) != want || ans.value("content-type") != "application/json" {
		s.t.Errorf("got %s as %s", ans.Body, ans.value("content-type"))
	}
}

// Reasons that only a marked token or connection state can bring about are all
// spelled as Apple does.
func TestAPNSCannedAnswers(t *testing.T) {
	s := newStand(t, nil)
	for r := APNSBadCollapseID; r <= APNSShutdown; r++ {
		s.policy.devices.Set(APNS, goodToken, Mark{Reply: r, Since: time.Unix(1_700_000_000, 0)})
		ans := s.do(s.push())
		if ans.Reply != r {
			t.Errorf("got %s, want %s", ans.Reply, r)
		}
		s.checkAPNSForm(ans)
	}
}

func TestAPNSEchoesTheID(t *testing.T) {
	s := newStand(t, func(o *Options) { o.Sandbox, o.UpperCaseIDs = true, true })
	ans := s.do(s.push())
	if got := ans.value("apns-id"); got != "123e4567-e89b-12d3-a456-426655440000" {
		t.Errorf("got %s, want the sender's own id", got)
	}
	if u := ans.value("apns-unique-id"); len(u) != 36 || u != strings.ToUpper(u) {
		t.Errorf("got %q, want an id in upper case in the sandbox", u)
	}
	req := s.push()
	set("apns-id", "")(s, req)
	first, second := s.do(req).value("apns-id"), s.do(req).value("apns-id")
	if first == second || !isUUID(strings.ToLower(first)) || first[14] != '4' {
		t.Errorf("generated %s and %s, want two version 4 UUIDs", first, second)
	}
}

func TestAPNSConnection(t *testing.T) {
	s := newStand(t, nil)
	conn := NewConn()
	send := func(c *Credentials, minted time.Time) Reply {
		req := s.push()
		req.Conn = conn
		set("authorization", s.providerToken(c, minted), "apns-topic", c.Topic)(s, req)
		return s.do(req).Reply
	}
	check := func(why string, got, want Reply) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %s, want %s", why, got, want)
		}
	}
	start := s.clock
	first := s.push()
	first.Conn = conn
	check("first token", s.do(first).Reply, APNSAccepted)
	check("another team on the same connection", send(s.other, s.clock), APNSForbidden)
	s.clock = start.Add(time.Minute)
	second := s.push()
	second.Conn = conn
	set("authorization", s.providerToken(s.shop, s.clock))(s, second)
	check("a change a minute after the first token", s.do(second).Reply, APNSAccepted)
	s.clock = start.Add(20 * time.Minute)
	check("the next one 19 minutes after that", send(s.shop, s.clock), APNSTooManyProviderTokenUpdates)
	check("back to the first one is a change too", s.do(first).Reply, APNSTooManyProviderTokenUpdates)
	check("the earlier token still works", s.do(second).Reply, APNSAccepted)
	s.clock = start.Add(21 * time.Minute)
	check("the next one 20 minutes after the last change", send(s.shop, s.clock), APNSAccepted)
	s.clock = start.Add(2 * time.Hour)
	check("expired", s.do(first).Reply, APNSExpiredProviderToken)
	check("fresh token on a wedged connection", send(s.shop, s.clock), APNSExpiredProviderToken)
	conn = NewConn()
	check("fresh token on a new connection", send(s.shop, s.clock), APNSAccepted)
}

func TestAPNSKeys(t *testing.T) {
	second, err := NewCredentials("shop2", "com.example.shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why    string
		change func(*Options)
		want   Reply
	}{
		{"key of both environments", func(*Options) {}, APNSAccepted},
		{"key of this environment", func(o *Options) { o.Apps[0].KeyEnvironment = "production" }, APNSAccepted},
		{"key of the other environment", func(o *Options) { o.Apps[0].KeyEnvironment = "sandbox" }, APNSBadEnvironmentKeyInToken},
		{"the same as documented", func(o *Options) {
			o.Apps[0].KeyEnvironment, o.DocumentedSpelling = "sandbox", true
		}, APNSBadEnvironmentKeyIDInToken},
		{"production key in the sandbox", func(o *Options) {
			o.Apps[0].KeyEnvironment, o.Sandbox = "production", true
		}, APNSBadEnvironmentKeyInToken},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s := newStand(t, tt.change)
			if got := s.do(s.push()).Reply; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	second.TeamID = twoApps()[0].TeamID
	s := newStand(t, func(o *Options) {
		app := second.App()
		app.KeyTopicsOnly = true
		o.Apps = append(o.Apps, app)
	})
	req := s.push()
	s.do(req)
	s.clock = s.clock.Add(30 * time.Minute)
	set("authorization", s.providerToken(second, s.clock))(s, req)
	if got := s.do(req).Reply; got != APNSUnrelatedKeyIDInToken {
		t.Errorf("topic-specific key on a bound connection: got %s", got)
	}
}

func TestAPNSMalformedIsAKnob(t *testing.T) {
	s := newStand(t, func(o *Options) { o.Malformed = APNSAccepted })
	req := s.push()
	req.Body = []byte(`{"aps":`)
	if got := s.do(req).Reply; got != APNSAccepted {
		t.Errorf("got %s, want it accepted", got)
	}
}
