package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/push"
)

// FuzzMessage compares Message with a second, slow implementation of the
// contract, on top of encoding/json. Both accept the same records, with equal
// values, and refuse the same records, with the same reason and field.
func FuzzMessage(f *testing.F) {
	for _, record := range seeds() {
		f.Add([]byte(record))
	}
	f.Fuzz(agrees)
}

// TestMessageAgreesOnMutants makes the same comparison in every test run, with
// mutants that know JSON's tokens and the contract's words.
func TestMessageAgreesOnMutants(t *testing.T) {
	t.Parallel()
	words := strings.Fields(`{ } [ ] , : " \ \" \u00 \ud800 \udc00 \n null true 0 -1 1.5 1e9 {} [] "" "x" "id":"n2", "app":"a",
		"title":"t", "badge":3, "data":{}, "k":"v", "apns":{ "headers":{ "payload":{ "aps":{ "fcm":{ "apns-topic":"x", "pf_id":"x", "live_activity_token":"x", "expires_at":"2027-01-01T00:00:00Z",
		"push_type":"alert", "priority":"low", "user_id":null, ü`)
	words = append(words, "\x00", "\xff", "\xed\xa0\x80", " ", "\n")
	r := rand.New(rand.NewPCG(3, 14))
	all := seeds()
	accepted := 0
	for range 15_000 {
		value := []byte(all[r.IntN(len(all))])
		for range r.IntN(3) {
			at := r.IntN(len(value) + 1)
			cut := min(len(value), at+[]int{0, 0, 1, 2, 6}[r.IntN(5)])
			value = slices.Replace(value, at, cut, []byte(words[r.IntN(len(words))])...)
		}
		agrees(t, value)
		if Message(value, new(push.Message)) == nil {
			accepted++
		}
	}
	if accepted < 1000 {
		t.Errorf("only %d mutants were accepted: the values are hardly compared", accepted)
	}
}

func seeds() []string {
	records := []string{typicalRecord, ``, `[]`, `null`, `{"id":"n1"`, `{"id":1,"id":2}`, `{}`}
	for _, member := range []string{
		`"title":"\u00dc\ud83d\ude00\ud83d\n","body":"ü","badge":7,"x":[1,-2.5e+3,true,false,null,{}]`,
		`"device":{"platform":"apns","token":"ab","environment":"sandbox"},"data":{"k":"v","k":"w"}`,
		`"data":{"aps":"x","n":1}`, `"device":{"platform":"fcm"}`, `"badge":-1`, `"badge":1.0`,
		`"apns":{"headers":{"apns-priority":"5","apns-push-type":"voip"},"payload":{"aps":{"x":1},"pf_id":"n"}}`,
		`"apns":{"headers":{"apns-expiration":"0","apns-collapse-id":"a b"},"payload":{"aps":{"x":1}}},"fcm":{"android":{"ttl":"1s"}}`,
		`"apns":{"headers":{"apns-topic":"x"}},"fcm":{"android":null,"token":"t"}`,
		`"fcm":{"apns":{"headers":{"apns-priority":"5","apns-push-type":"alert","apns-topic":"x"},"payload":{"aps":{"x":1},"pf_id":"n"},"live_activity_token":"x"}}`,
		`"push_type":"alert","fcm":{"data":{"k":"v"},"android":{"data":{"pf_id":"x"}},"webpush":{"data":{}},"apns":{"headers":{"apns-push-type":"alert"}}}`,
		`"expires_at":"2026-11-21T10:00:00.25+01:00","collapse_key":"a\r\n","priority":"low","push_type":"mdm","campaign":"a\u0000"`,
		`"x":` + nested(15), `"x":` + nested(16), "\"x\":\"\xff\"", `"type":null,"priority":"","push_type":""`,
		`"x":{` + manyKeys(40) + `}`,
	} {
		records = append(records, with(member))
	}
	return records
}

func agrees(t *testing.T, value []byte) {
	before := bytes.Clone(value)
	var got push.Message
	d := Message(value, &got)
	if !bytes.Equal(before, value) {
		t.Fatal("Message changed the record")
	}
	if reasons := unreadable(value); len(reasons) > 0 {
		if d == nil || !slices.Contains(reasons, d.Reason) {
			t.Fatalf("%q: got %v, want one of %v", value, d, reasons)
		}
		if !reflect.DeepEqual(got, push.Message{}) {
			t.Fatalf("%q: a text that cannot be read left %+v", value, got)
		}
		return
	}
	want, defects := readSlowly(value)
	if d != nil {
		field, _, _ := strings.Cut(d.Field, "@")
		if !slices.Contains(defects, push.Defect{Reason: d.Reason, Field: field}) {
			t.Fatalf("%q: refused with %v, want one of %v", value, d, defects)
		}
		return
	}
	if len(defects) > 0 {
		t.Fatalf("%q: accepted, want one of %v", value, defects)
	}
	if !got.ExpiresAt.Equal(want.ExpiresAt) {
		t.Fatalf("%q: expires_at %v, want %v", value, got.ExpiresAt, want.ExpiresAt)
	}
	got.ExpiresAt, want.ExpiresAt = time.Time{}, time.Time{}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q:\ngot  %+v\nwant %+v", value, got, want)
	}
}

// unreadable returns the reasons for which a text may be called unreadable.
func unreadable(value []byte) (reasons []push.Reason) {
	switch {
	case len(value) == 0:
		return []push.Reason{push.EmptyValue}
	case len(value) > MaxValue:
		return []push.Reason{push.TooLarge}
	}
	if !utf8.Valid(value) {
		reasons = append(reasons, push.BadUTF8)
	}
	if !json.Valid(value) {
		reasons = append(reasons, push.BadJSON)
	}
	type level struct {
		keys  map[string]bool
		isKey bool
	}
	var open []level
	var deep, twice bool
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			break
		}
		if n := len(open); n > 0 && open[n-1].keys != nil {
			top := &open[n-1]
			if key, ok := token.(string); ok && top.isKey {
				twice = twice || top.keys[key]
				top.keys[key], top.isKey = true, false
				continue
			}
			top.isKey = true // what follows this value is a key
		}
		switch token {
		case json.Delim('{'):
			open = append(open, level{keys: map[string]bool{}, isKey: true})
		case json.Delim('['):
			open = append(open, level{})
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		deep = deep || len(open) > maxDepth
	}
	if deep || bytes.Count(value, []byte("["))+bytes.Count(value, []byte("{")) > maxDepth && !json.Valid(value) {
		reasons = append(reasons, push.TooDeep)
	}
	if twice || len(reasons) > 0 && !json.Valid(value) {
		// In a broken text, the decoder above may stop before Message does.
		reasons = append(reasons, push.DuplicateKey)
	}
	return reasons
}

// slow decodes a record that encoding/json can read.
type slow struct {
	m       push.Message
	defects []push.Defect
}

func (s *slow) refuse(r push.Reason, field string) {
	s.defects = append(s.defects, push.Defect{Reason: r, Field: field})
}

func readSlowly(value []byte) (push.Message, []push.Defect) {
	var s slow
	fields, ok := s.object(value, "")
	if !ok {
		return s.m, append(s.defects, push.Defect{Reason: push.WrongType, Field: ""})
	}
	m := &s.m
	m.ID = s.str(fields["id"], "id", 64)
	if strings.ContainsFunc(m.ID, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
		s.refuse(push.BadValue, "id")
	}
	m.App = s.str(fields["app"], "app", 128)
	m.UserID = s.str(fields["user_id"], "user_id", 128)
	m.Type = s.str(fields["type"], "type", 64)
	m.SenderID = s.str(fields["sender_id"], "sender_id", 128)
	m.Campaign = s.str(fields["campaign"], "campaign", 64)
	if strings.ContainsFunc(m.Campaign, control) {
		s.refuse(push.BadValue, "campaign")
	}
	for name, to := range map[string]*string{
		"title": &m.Title, "body": &m.Body, "image": &m.Image, "video": &m.Video, "sound": &m.Sound,
		"category": &m.Category, "thread_id": &m.ThreadID, "locale": &m.Locale,
	} {
		*to = s.str(fields[name], name, MaxValue)
	}
	m.CollapseKey = s.str(fields["collapse_key"], "collapse_key", 64)
	if strings.ContainsFunc(m.CollapseKey, control) {
		s.refuse(push.BadValue, "collapse_key")
	}
	s.device(fields["device"])
	s.words(fields)
	s.content(fields)
	s.overrides(fields)
	s.complete()
	return s.m, s.defects
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func (s *slow) str(raw json.RawMessage, field string, limit int) (v string) {
	if absent(raw) {
		return ""
	}
	if json.Unmarshal(raw, &v) != nil {
		s.refuse(push.WrongType, field)
		return ""
	}
	if len(v) > limit {
		s.refuse(push.FieldTooLong, field)
	}
	return v
}

func (s *slow) object(raw json.RawMessage, field string) (o map[string]json.RawMessage, ok bool) {
	if absent(raw) {
		return nil, false
	}
	if json.Unmarshal(raw, &o) != nil {
		s.refuse(push.WrongType, field)
		return nil, false
	}
	return o, o != nil
}

func (s *slow) device(raw json.RawMessage) {
	o, ok := s.object(raw, "device")
	if !ok {
		return
	}
	d := &s.m.Device
	platform := s.str(o["platform"], "device.platform", MaxValue)
	d.Token = s.str(o["token"], "device.token", 4096)
	d.Environment = s.str(o["environment"], "device.environment", MaxValue)
	switch platform {
	case "apns":
		d.Platform = push.APNS
		if d.Environment == "" {
			d.Environment = push.Production
		}
	case "fcm":
		d.Platform = push.FCM
	case "":
		s.refuse(push.MissingField, "device.platform")
	default:
		s.refuse(push.BadValue, "device.platform")
	}
	if d.Token == "" {
		s.refuse(push.MissingField, "device.token")
	}
	if d.Environment != "" && d.Environment != push.Production && d.Environment != push.Sandbox {
		s.refuse(push.BadValue, "device.environment")
	}
	if d.Platform == push.FCM {
		d.Environment = ""
	}
}

func (s *slow) words(fields map[string]json.RawMessage) {
	if w := s.str(fields["priority"], "priority", MaxValue); w != "" {
		i := slices.Index([]string{"bulk", "low", "medium", "high", "critical"}, w)
		if s.m.Priority = push.Priority(i + 1); i < 0 {
			s.refuse(push.BadValue, "priority")
		}
	}
	s.m.PushType = s.str(fields["push_type"], "push_type", MaxValue)
	if s.m.PushType != "" && !isPushType(s.m.PushType) {
		s.refuse(push.BadValue, "push_type")
	}
	if w := s.str(fields["expires_at"], "expires_at", MaxValue); w != "" {
		quoted, _ := json.Marshal(w)
		if json.Unmarshal(quoted, &s.m.ExpiresAt) != nil {
			s.refuse(push.BadValue, "expires_at")
		} else if s.m.ExpiresAt.IsZero() {
			s.m.ExpiresAt = time.Time{}.Add(1)
		}
	}
}

func (s *slow) content(fields map[string]json.RawMessage) {
	if raw := fields["badge"]; !absent(raw) {
		var n int
		switch {
		case json.Unmarshal(raw, &n) == nil:
			s.m.Badge, s.m.HasBadge = n, true
			if n < 0 || n > 1<<31-1 {
				s.refuse(push.BadValue, "badge")
			}
		default: // not a number, not an integer, or out of range
			s.refuse(push.WrongType, "badge")
			s.refuse(push.BadValue, "badge")
		}
	}
	if o, ok := s.object(fields["data"], "data"); ok {
		s.m.Data = fields["data"]
		for k, v := range o {
			if k == "aps" || k == "pf_id" {
				s.refuse(push.BadValue, "data."+k)
			}
			if !bytes.HasPrefix(v, []byte{'"'}) {
				s.refuse(push.WrongType, "data")
			}
		}
	}
}

func (s *slow) overrides(fields map[string]json.RawMessage) {
	a, _ := s.object(fields["apns"], "apns")
	if headers, ok := s.object(a["headers"], "apns.headers"); ok {
		s.headers(headers, a["headers"], "")
	}
	if payload, ok := s.object(a["payload"], "apns.payload"); ok {
		s.m.APNSPayload = a["payload"]
		if _, ok := payload["pf_id"]; ok {
			s.refuse(push.BadValue, "apns.payload.pf_id")
		}
		s.mustBeObject(payload, "apns.payload.", "aps")
	}
	if o, ok := s.object(fields["fcm"], "fcm"); ok {
		s.m.FCM = fields["fcm"]
		for _, k := range []string{"token", "fid", "topic", "condition", "name"} {
			if _, ok := o[k]; ok {
				s.refuse(push.BadValue, "fcm."+k)
			}
		}
		s.mustBeObject(o, "fcm.", "data", "notification", "android", "apns", "webpush")
		s.fcm(o)
	}
}

// fcm reads the parts of the raw message that have rules of their own.
func (s *slow) fcm(o map[string]json.RawMessage) {
	for field, within := range map[string]string{"fcm.data": "", "fcm.android.data": "android", "fcm.webpush.data": "webpush", "fcm.apns.payload": "apns"} {
		part, last := o, field[strings.LastIndexByte(field, '.')+1:]
		if within != "" {
			part, _ = s.object(o[within], "fcm."+within)
		}
		s.mustBeObject(part, strings.TrimSuffix(field, last), last)
		inner, _ := s.object(part[last], field)
		if _, ok := inner["pf_id"]; ok {
			s.refuse(push.BadValue, field+".pf_id")
		}
		if within == "apns" {
			s.mustBeObject(inner, "fcm.apns.payload.", "aps")
		}
	}
	a, _ := s.object(o["apns"], "fcm.apns")
	for _, k := range []string{"live_activity_token", "liveActivityToken"} {
		if _, ok := a[k]; ok {
			s.refuse(push.BadValue, "fcm.apns.live_activity_token")
		}
	}
	s.mustBeObject(a, "fcm.apns.", "headers")
	if headers, ok := s.object(a["headers"], "fcm.apns.headers"); ok {
		s.headers(headers, a["headers"], "fcm.")
	}
}

func (s *slow) mustBeObject(o map[string]json.RawMessage, prefix string, keys ...string) {
	for _, k := range keys {
		if v, ok := o[k]; ok && !bytes.HasPrefix(v, []byte{'{'}) {
			s.refuse(push.WrongType, prefix+k)
		}
	}
}

func (s *slow) headers(headers map[string]json.RawMessage, raw json.RawMessage, within string) {
	for name, v := range headers {
		field := within + "apns.headers." + name
		if strings.EqualFold(name, "authorization") {
			field = within + "apns.headers.authorization"
		}
		var text string
		switch {
		case !slices.Contains([]string{"apns-expiration", "apns-priority", "apns-push-type", "apns-collapse-id"}, name):
			if !slices.Contains([]string{"apns-topic", "apns-id", "authorization"}, strings.TrimPrefix(field, within+"apns.headers.")) {
				field = within + "apns.headers"
			}
			s.refuse(push.BadValue, field)
		case v[0] != '"' || json.Unmarshal(v, &text) != nil:
			s.refuse(push.WrongType, field)
		case strings.Trim(text, " ") != text || text == "" || len(text) > 64 ||
			strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r > 0x7e }),
			name == "apns-expiration" && (strings.Trim(text, "0123456789") != "" || len(text) > 12),
			name == "apns-priority" && text != "1" && text != "5" && text != "10",
			name == "apns-push-type" && !isPushType(text):
			s.refuse(push.BadValue, field)
		case name == "apns-push-type":
			if s.m.PushType != "" && s.m.PushType != text {
				s.refuse(push.BadValue, field)
				if within == "" {
					s.refuse(push.BadValue, "push_type")
				}
			}
			if within == "" {
				s.m.PushType = text
			}
		case within == "":
			s.m.APNSHeaders = append(s.m.APNSHeaders, push.Header{Name: name, Value: text})
		}
	}
	// The record's order counts.
	slices.SortFunc(s.m.APNSHeaders, func(a, b push.Header) int {
		return keyAt(raw, a.Name) - keyAt(raw, b.Name)
	})
}

// keyAt is the position of a key among the keys of an object of strings.
func keyAt(raw json.RawMessage, key string) int {
	dec := json.NewDecoder(bytes.NewReader(raw))
	for n := 0; ; n++ {
		token, err := dec.Token()
		if err != nil {
			panic(fmt.Sprintf("%s is no key of %s", key, raw))
		}
		if n%2 == 1 && token == key {
			return n
		}
	}
}

func (s *slow) complete() {
	m := &s.m
	if m.ID == "" {
		s.refuse(push.MissingField, "id")
	}
	if m.App == "" {
		s.refuse(push.MissingField, "app")
	}
	if m.UserID == "" && m.Device.Token == "" {
		s.refuse(push.MissingField, "user_id")
	}
	if m.Type == "" {
		m.Type = "default"
	}
	if m.PushType == "" {
		m.PushType = "alert"
		if m.Title == "" && m.Body == "" {
			m.PushType = "background"
		}
	}
}

func control(r rune) bool { return r < 0x20 || r == 0x7f }
