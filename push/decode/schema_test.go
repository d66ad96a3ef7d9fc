package decode

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/pushfleet/pushfleet/push"
)

// The schema for producers agrees with the decoder, on the records of the other
// tests and on more of its own.
func TestSchemaAgreesWithTheDecoder(t *testing.T) {
	t.Parallel()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile("../../docs/message.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	accepted, refused := 0, 0
	for _, record := range schemaRecords() {
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(record))
		if err != nil {
			t.Fatalf("%s is no JSON: %v", record, err)
		}
		var m push.Message
		defect, invalid := Message([]byte(record), &m), schema.Validate(document)
		switch {
		case (defect == nil) != (invalid == nil):
			t.Errorf("%s\nDecode: %v\nschema: %v", record, defect, invalid)
		case defect == nil:
			accepted++
		default:
			refused++
		}
	}
	if accepted < 50 || refused < 80 {
		t.Errorf("%d accepted and %d refused are too few to tell", accepted, refused)
	}
}

// What only the decoder checks, because a schema cannot express it.
func TestWhatTheMessageSchemaCannotSay(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("../../docs/message.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, record := range map[string]string{
		"bytes, where it counts characters": `{"id":"n1","app":"shop","user_id":"` + strings.Repeat("ü", 65) + `"}`,
		"a key twice":                       with(`"title":"a","title":"b"`),
		"depth":                             with(`"x":` + nested(16)),
		"an integer written as 1.0":         with(`"badge":1.0`),
		"agreement of two fields":           with(`"push_type":"voip","apns":{"headers":{"apns-push-type":"alert"}}`),
		"agreement with fcm's part":         with(`"push_type":"voip","fcm":{"apns":{"headers":{"apns-push-type":"alert"}}}`),
		"the size of the whole":             with(`"x":"` + strings.Repeat("x", MaxValue) + `"`),
	} {
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(record))
		if err != nil {
			t.Fatal(name, err)
		}
		if err := schema.Validate(document); err != nil {
			t.Errorf("%s: the schema can say it after all (%v): move it to the table above", name, err)
		}
		if Message([]byte(record), new(push.Message)) == nil {
			t.Errorf("%s: Message accepts it", name)
		}
	}
}

// schemaRecords puts every value of a table into every field.
func schemaRecords() []string {
	values := []string{`null`, `true`, `1`, `-1`, `1.5`, `2147483648`, `[]`, `{}`, `""`, `"x"`, `"a b"`, `"ü"`, `"a\n"`, `"\u007f"`,
		`"` + strings.Repeat("x", 64) + `"`, `"` + strings.Repeat("x", 65) + `"`, `"` + strings.Repeat("x", 129) + `"`, `"` + strings.Repeat("x", 4097) + `"`,
		`"high"`, `"critical"`, `"voip"`, `"HIGH"`, `"2026-11-21T10:00:00Z"`, `"2026-11-21T10:00:00.5+01:00"`, `"2026-11-21"`, `"2026-02-30T10:00:00Z"`,
		`"2026-11-21t10:00:00z"`, `{"k":"v"}`, `{"k":1}`, `{"k":null}`, `{"aps":"x"}`, `{"pf_id":"x"}`, `{"aps":{}}`, `{"platform":"fcm","token":"t"}`,
		`{"platform":"apns","token":"t","environment":"sandbox"}`, `{"platform":"apns","token":"t","environment":"x"}`, `{"platform":"hms","token":"t"}`,
		`{"platform":"fcm","token":""}`, `{"token":"t"}`, `{"headers":{}}`, `{"payload":[]}`}
	var records []string
	for _, field := range []string{"type", "sender_id", "campaign", "priority", "push_type", "title", "body", "image", "video", "sound", "category",
		"thread_id", "locale", "badge", "data", "collapse_key", "expires_at", "apns", "fcm", "device", "unknown"} {
		for _, v := range values {
			records = append(records, with(`"`+field+`":`+v))
		}
	}
	for _, v := range values {
		records = append(records, `{"id":`+v+`,"app":"a","user_id":"u"}`, `{"id":"n","app":`+v+`,"user_id":"u"}`,
			`{"id":"n","app":"a","user_id":`+v+`}`, `{"id":"n","app":"a","device":`+v+`}`, `{"id":"n","app":"a","user_id":"","device":`+v+`}`,
			with(`"apns":{"headers":`+v+`}`), with(`"apns":{"payload":`+v+`}`), with(`"apns":{"payload":{"aps":`+v+`}}`))
		for _, name := range []string{"apns-expiration", "apns-priority", "apns-push-type", "apns-collapse-id", "apns-topic", "authorization", "x"} {
			records = append(records, with(`"apns":{"headers":{"`+name+`":`+v+`}}`))
		}
		for _, name := range []string{"data", "notification", "android", "apns", "webpush", "token", "fid", "topic", "condition", "name", "x"} {
			records = append(records, with(`"fcm":{"`+name+`":`+v+`}`))
		}
		for _, name := range []string{"apns-expiration", "apns-priority", "apns-push-type", "apns-collapse-id", "apns-topic", "x"} {
			records = append(records, with(`"fcm":{"apns":{"headers":{"`+name+`":`+v+`}}}`))
		}
		for _, part := range []string{"apns", "android", "webpush"} {
			for _, name := range []string{"headers", "payload", "data", "live_activity_token", "liveActivityToken", "x"} {
				records = append(records, with(`"fcm":{"`+part+`":{"`+name+`":`+v+`}}`), with(`"fcm":{"`+part+`":{"`+name+`":{"pf_id":`+v+`,"aps":{}}}}`))
			}
		}
		records = append(records, with(`"fcm":{"data":{"pf_id":`+v+`}}`), with(`"fcm":{"apns":{"payload":{"aps":`+v+`}}}`))
	}
	for _, header := range []string{`"apns-expiration":"0"`, `"apns-expiration":"1763719200"`, `"apns-expiration":"1234567890123"`, `"apns-priority":"5"`,
		`"apns-priority":"7"`, `"apns-push-type":"mdm"`, `"apns-collapse-id":" a"`, `"apns-collapse-id":"a "`} {
		records = append(records, with(`"apns":{"headers":{`+header+`}}`))
	}
	return append(records, `[]`, `"x"`, `null`, `{}`, typicalRecord)
}
