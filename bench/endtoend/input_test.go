//go:build unix

package endtoend

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// bad is one thing a producer may do wrong, and what becomes of it.
type bad struct {
	name    string
	value   []byte
	outcome push.Outcome
	reason  push.Reason
	detail  string // the field at fault, as the status row and the dead letter name it
}

// fields make a message; nil removes one.
type fields map[string]any

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// message is a good one for the user, but for what is changed.
func message(user string, changed fields) []byte {
	m := fields{"id": newID(), "app": fleet.App, "user_id": user, "type": "order_update", "title": "Your order", "body": "is on its way"}
	for k, v := range changed {
		if m[k] = v; v == nil {
			delete(m, k)
		}
	}
	value, err := json.Marshal(m)
	if err != nil {
		panic(err) // of this file's own making
	}
	return value
}

// badInput is all that a producer may do wrong.
func badInput(user string) []bad {
	dead := func(name string, reason push.Reason, detail string, value []byte) bad {
		return bad{name, value, push.OutcomeDeadLettered, reason, detail}
	}
	field := func(name string, reason push.Reason, detail string, changed fields) bad {
		return dead(name, reason, detail, message(user, changed))
	}
	device := func(name, platform, token string) bad {
		return bad{name, message(user, fields{"user_id": nil, "device": fields{"platform": platform, "token": token}}),
			push.OutcomeFailed, push.InvalidToken, ""}
	}
	tooLarge := func(name, platform, token string) bad {
		return bad{name, message(user, fields{
			"user_id": nil, "device": fields{"platform": platform, "token": token}, "body": strings.Repeat("b", 2000),
			"data": fields{"k": strings.Repeat("d", 1000)},
			"apns": fields{"payload": fields{"more": strings.Repeat("p", 1500)}},
			"fcm":  fields{"data": fields{"more": strings.Repeat("p", 1500)}},
		}), push.OutcomeFailed, push.PayloadTooLarge, ""}
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	apple, google := strings.Repeat("ab", 32), "fcmtoken:APA91b"+long(100)
	list := []bad{
		dead("empty value", push.EmptyValue, "", nil),
		dead("value of no bytes", push.EmptyValue, "", []byte{}),
		dead("broken JSON", push.BadJSON, "@10", []byte(`{"id":"a",}`)),
		dead("cut off", push.BadJSON, "", message(user, nil)[:40]),
		dead("two texts", push.BadJSON, "", append(message(user, nil), "{}"...)),
		dead("not JSON at all", push.BadJSON, "", []byte("hello\x00\r\n")),
		dead("no object", push.WrongType, "", []byte(`[1,2,3]`)),
		dead("invalid UTF-8", push.BadUTF8, "", bytes.Replace(message(user, nil), []byte("Your"), []byte("\xff\xfe"), 1)),
		dead("a key twice", push.DuplicateKey, "title", bytes.Replace(message(user, nil), []byte("{"), []byte(`{"title":"first",`), 1)),
		dead("10,000 deep", push.TooDeep, "", bytes.Replace(message(user, nil), []byte("{"),
			[]byte(`{"x":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)+","), 1)),
		dead("1 MiB", push.TooLarge, "", message(user, fields{"body": long(1 << 20)})),
		dead("64 KiB and a byte", push.TooLarge, "", padded(message(user, nil), decode.MaxValue+1)),
		field("no id", push.MissingField, "id", fields{"id": nil}),
		field("empty id", push.MissingField, "id", fields{"id": ""}),
		field("no app", push.MissingField, "app", fields{"app": nil}),
		field("neither user nor device", push.MissingField, "user_id", fields{"user_id": nil}),
		field("device without token", push.MissingField, "device.token", fields{"device": fields{"platform": "fcm"}}),
		field("id of 65 bytes", push.FieldTooLong, "id", fields{"id": long(65)}),
		field("app of 129 bytes", push.FieldTooLong, "app", fields{"app": long(129)}),
		field("user of 129 bytes", push.FieldTooLong, "user_id", fields{"user_id": long(129)}),
		field("type of 65 bytes", push.FieldTooLong, "type", fields{"type": long(65)}),
		field("campaign of 65 bytes", push.FieldTooLong, "campaign", fields{"campaign": long(65)}),
		field("collapse key of 65 bytes", push.FieldTooLong, "collapse_key", fields{"collapse_key": long(65)}),
		field("token of 4,097 bytes", push.FieldTooLong, "device.token", fields{"device": fields{"platform": "fcm", "token": long(4097)}}),
		field("id that is a number", push.WrongType, "id", fields{"id": 17}),
		field("title that is a number", push.WrongType, "title", fields{"title": 5}),
		field("data that is a list", push.WrongType, "data", fields{"data": []int{1}}),
		field("badge with a fraction", push.WrongType, "badge", fields{"badge": 1.5}),
		field("expires_at that is a number", push.WrongType, "expires_at", fields{"expires_at": 1700000000}),
		field("id with a control character", push.BadValue, "id", fields{"id": "a\r\nb"}),
		field("priority of no name", push.BadValue, "priority", fields{"priority": "urgent"}),
		field("expires_at without zone", push.BadValue, "expires_at", fields{"expires_at": "2026-11-21 10:00"}),
		field("raw header that is the worker's", push.BadValue, "apns.headers.authorization",
			fields{"apns": fields{"headers": fields{"authorization": "bearer x"}}}),
		field("raw header with CR and LF", push.BadValue, "apns.headers.apns-collapse-id",
			fields{"apns": fields{"headers": fields{"apns-collapse-id": "a\r\nx: y"}}}),
		field("unknown app", push.UnknownApp, "", fields{"app": "no-such-app"}),
		{"expired", message(user, fields{"expires_at": "2020-01-01T00:00:00Z"}), push.OutcomeExpired, push.PastExpiry, ""},
		device("token with a slash", "apns", "../../"+apple[6:]),
		device("token with CR and LF", "apns", "\r\n"+apple[2:]),
		device("token with a letter that is no digit", "apns", "g"+apple[1:]),
		device("token of 63 digits", "apns", apple[1:]),
		device("token with a NUL", "apns", "\x00"+apple[1:]),
		device("Google token with a slash", "fcm", google+"/../x"),
		device("Google token with LF", "fcm", google+"\n"),
		device("Google token with a space", "fcm", "a b"),
		device("Google token beyond ASCII", "fcm", google+"é"),
		tooLarge("payload too large for Apple", "apns", apple),
		tooLarge("payload too large for Google", "fcm", google),
	}
	return list
}

// padded makes a message longer by blanks, which JSON allows.
func padded(value []byte, n int) []byte {
	return append(value, bytes.Repeat([]byte(" "), n-len(value))...)
}

// Whatever a producer writes ends with its own reason code, its neighbours are
// delivered, and the partition moves on.
func TestBadInput(t *testing.T) {
	people := newCrowd(t, 200)
	w := newWorld(t, setup{configure: func(c *configs.Config) {
		c.Kafka.Topics.Partitions = 1
		c.Lanes[0].CriticalSenders = []string{"otp"}
	}})
	w.populate(people)
	user := someUser(t, people, crowd.Plain)
	good := func() fleet.Record {
		return fleet.Record{Key: []byte(user), Value: message(user, nil), Want: fleet.WantOf(crowd.Reaches)}
	}
	list := badInput(user)
	records := []fleet.Record{good()}
	for _, b := range list {
		records = append(records, fleet.Record{Key: []byte(user), Value: b.value, Want: fleet.Want{
			Outcomes: []push.Outcome{b.outcome}, Reason: b.reason, Detail: b.detail, Unsent: true}}, good())
	}
	// An id that belongs to another user: of an open one, and of one that is done.
	other := someOther(t, people, user)
	taken := good()
	var m push.Message
	if decode.Message(taken.Value, &m) != nil {
		t.Fatal("a good message cannot be decoded")
	}
	reused := fleet.Record{Key: []byte(user), Value: message(other, fields{"id": m.ID}), Want: fleet.Want{
		Outcomes: []push.Outcome{push.OutcomeDeadLettered}, Reason: push.IDReused, Unsent: true}}
	// The largest that is allowed, and priority critical from one who may and
	// from one who may not: it goes with high, and is not lost for a word.
	largest := good()
	largest.Value = padded(largest.Value, decode.MaxValue)
	critical := good()
	critical.Value = message(user, fields{"priority": "critical", "sender_id": "otp"})
	lowered := good()
	lowered.Value = message(user, fields{"priority": "critical", "sender_id": "marketing"})
	records = append(records, taken, reused, largest, critical, lowered)

	worker := w.worker()
	check(t, w.Produce(waiting(t), records))
	check(t, w.AwaitDone(waiting(t)))
	check(t, w.Produce(waiting(t), []fleet.Record{reused, good()}))
	r := w.clean(fleet.AccountOptions{})
	if r.Resent > 0 {
		t.Errorf("%d pushes were accepted twice", r.Resent)
	}
	if log := worker.Log(); strings.Contains(log, "Your order") || strings.Contains(log, "abababab") {
		t.Error("a message's text or a token is in the log")
	}
}

// Every thing on that list has a name, so that a failure can be told.
func TestBadInputIsBad(t *testing.T) {
	for _, b := range badInput("u1") {
		var m push.Message
		defect := decode.Message(b.value, &m)
		early := b.reason == push.UnknownApp || b.outcome != push.OutcomeDeadLettered
		switch {
		case early && defect != nil:
			t.Errorf("%s: does not even decode: %v", b.name, defect)
		case !early && defect == nil:
			t.Errorf("%s: decodes", b.name)
		case !early && (defect.Reason != b.reason || b.detail != "" && defect.Field != b.detail):
			t.Errorf("%s: %v, want %s: %s", b.name, defect, b.reason, b.detail)
		case b.outcome == push.OutcomeExpired && !m.ExpiresAt.Before(time.Now()):
			t.Errorf("%s: has not expired", b.name)
		}
	}
}

func someUser(t *testing.T, people *crowd.Crowd, kind crowd.Kind) string {
	t.Helper()
	for i := range people.Users {
		if u := people.User(i); u.Kind == kind {
			return u.ID
		}
	}
	t.Fatalf("no user is %s", kind)
	return ""
}

func someOther(t *testing.T, people *crowd.Crowd, than string) string {
	t.Helper()
	for i := range people.Users {
		if u := people.User(i); u.Kind == crowd.Plain && u.ID != than {
			return u.ID
		}
	}
	t.Fatal("there is one plain user only")
	return ""
}
