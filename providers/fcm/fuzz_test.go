package fcm

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/payload"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// FuzzBodies encodes any record that the decoder accepts. The body is JSON
// without duplicate keys, for our token alone, and with our id.
func FuzzBodies(f *testing.F) {
	for _, members := range []string{
		`"title":"t","collapse_key":"a \"b\"","badge":1,"data":{"k":"\u0413\ud83d"}`,
		`"data":{"image":"x"},"image":"y","locale":"de","fcm":{"data":{"k":"v"},"apns":{"headers":{"apns-priority":"5"},"payload":{"aps":{"alert":"x"}}},"webpush":{"headers":{"TTL":"1"},"notification":{"tag":"x"}}}`,
		`"push_type":"background","collapse_key":"ü","fcm":{"android":{"collapse_key":"z","notification":{"\u0074ag":"x"}},"\u0061pns":{"payload":{"\u0061ps":{"badge":2}}}}`,
	} {
		f.Add(members, false)
	}
	f.Fuzz(func(t *testing.T, members string, derived bool) {
		d := delivery(push.Message{})
		if decode.Message([]byte(`{"id":"n1","app":"shop","user_id":"u1",`+members+`}`), &d.Item.Message) != nil {
			return
		}
		d.Item.Derived, d.Expires = derived, push.At(time.Now().Add(time.Hour))
		r := &exchange.Draft{}
		if _, ok := testCodec().Encode(d, r); !ok {
			return
		}
		// The decoder checks for duplicate keys, and that a message is JSON.
		message := strings.TrimSuffix(strings.TrimPrefix(string(r.Body), `{"message":`), "}")
		if defect := decode.Message([]byte(`{"id":"n1","app":"shop","user_id":"u1","x":`+message+`}`), new(push.Message)); defect != nil && defect.Reason != push.TooLarge {
			t.Fatalf("%v: %s", defect, r.Body)
		}
		find := func(path string) string { return string(payload.Find([]byte(message), strings.Fields(path)...)) }
		for _, path := range []string{"topic", "condition", "fid", "name", "android data pf_id", "webpush data pf_id", "apns payload pf_id", "apns live_activity_token", "apns liveActivityToken"} {
			if find(path) != "" {
				t.Errorf("%s: %s", path, r.Body)
			}
		}
		if find("token") != `"`+registration+`"` || find("data pf_id") != `"n1"` {
			t.Errorf("%s", r.Body)
		}
	})
}

// FuzzRetryAfter makes an answer say when to come back, and what its server's
// clock shows. A pause is neither shorter than Google asks for nor longer than
// one bad header may stop a project. A number means seconds, and an unreadable
// value is no pause.
func FuzzRetryAfter(f *testing.F) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, value := range []string{"30", "0", "-1", "99999999999999999999", " 7 ", "1e3", "1.5", "soon",
		now.Add(time.Minute).Format(http.TimeFormat), "Fri, 31 Dec 9999 23:59:59 GMT", "Monday, 22-Nov-26 12:00:30 GMT", "Sun Nov 22 12:00:30 2026"} {
		f.Add(value, now.Format(http.TimeFormat), 429)
		f.Add(value, "Mon, 01 Jan 0001 00:00:00 GMT", 503)
	}
	digits := regexp.MustCompile(`^[0-9]{1,9}$`)
	f.Fuzz(func(t *testing.T, value, date string, status int) {
		asked, ok := calls.RetryAfter(value, date, now)
		if asked < 0 || !ok && asked != 0 {
			t.Fatalf("%q at %q: %v, %v", value, date, asked, ok)
		}
		if n := strings.TrimSpace(value); digits.MatchString(n) {
			seconds, _ := strconv.Atoi(n)
			if want := min(time.Duration(seconds)*time.Second, longest); !ok || asked != want {
				t.Errorf("%q: %v, %v; want %v", value, asked, ok, want)
			}
		}
		if status = 400 + (status%200+200)%200; status == 401 {
			return // asks for another access token, and is parked
		}
		r := answered(status, "", value)
		r.Answer.Header[1] = []byte(date)
		result, _ := testCodec().Read(delivery(push.Message{}), r)
		if result.Class == push.Again && result.After != quotaDelay && (result.After < shortest || result.After > longest) {
			t.Errorf("status %d, %q at %q: come back after %v", status, value, date, result.After)
		}
		if status == 503 && result.Pause != ok {
			t.Errorf("503, %q at %q: %+v", value, date, result)
		}
	})
}

// FuzzToken sends to any registration token. Its grammar is written
// independently of the encoder's. A valid token is sent unchanged, and to
// nobody else.
func FuzzToken(f *testing.F) {
	for _, token := range []string{registration, "", `a"b`, "a\u0041", "a,b", "../x", "é", strings.Repeat("x", 4096), strings.Repeat("x", 4097), "a\n"} {
		f.Add(token)
	}
	grammar := regexp.MustCompile(`^[A-Za-z0-9_:%-]+\z`)
	f.Fuzz(func(t *testing.T, token string) {
		d := delivery(push.Message{Title: "t"})
		d.Device.Token = token
		r := &exchange.Draft{}
		result, ok := testCodec().Encode(d, r)
		if want := grammar.MatchString(token) && len(token) <= 4096; ok != want {
			t.Fatalf("%q: sent %v (%+v), want %v", token, ok, result, want)
		}
		if !ok {
			if result.Class != push.Refused || result.Reason != string(push.InvalidToken) || len(r.Body) != 0 {
				t.Errorf("%q: %+v, body %q", token, result, r.Body)
			}
			return
		}
		var sent struct {
			Message struct{ Token string }
		}
		if err := json.Unmarshal(r.Body, &sent); err != nil || sent.Message.Token != token {
			t.Errorf("%q: sent to %q, %v", token, sent.Message.Token, err)
		}
	})
}
