package records

import (
	"bytes"
	"strings"
)

// texts are values that are odd and none the less good.
var texts = []kind{
	{name: "fields that nobody knows", weight: 2, change: func(d *draft) {
		d.fields["Title"], d.fields["unknown"], d.fields["ID"] = 5, []any{1e300, nil, true, map[string]any{"id": 1}}, "other"
	}},
	{name: "a number that no float holds", weight: 2, change: func(d *draft) { d.with(`"x":1e999,"y":-0.0E-999`) }},
	{name: "null and empty for what is absent", weight: 2, change: func(d *draft) {
		for _, name := range []string{"sound", "image", "badge", "data", "collapse_key", "priority", "push_type", "device", "apns", "fcm", "locale"} {
			d.fields[name] = nil
		}
		d.fields["sender_id"], d.fields["category"] = "", ""
	}},
	{name: "as deep as it may be", weight: 2, change: func(d *draft) { d.with(`"x":` + nested(15)) }},
	{name: "half an emoji", weight: 2, change: func(d *draft) { d.with(`"locale":"\ud83d","data":{"k":"\ude00"}`) }},
	{name: "names in escapes", weight: 2, change: func(d *draft) { d.with(`"\u0073ound":"default"`) }},
	{name: "blanks everywhere", weight: 2, change: func(d *draft) {
		d.Value = append(append([]byte(" \t\r\n"), bytes.ReplaceAll(d.json(), []byte(`,"`), []byte("\n\t, \r\""))...), "\n \n"...)
	}},
	{name: "characters of all planes", weight: 2, change: func(d *draft) { d.fields["thread_id"] = "ü漢😀\u200d\u202e\ufeff\u0000\u007f" }},
	{name: "data with 100 keys", weight: 1, change: func(d *draft) {
		data := map[string]string{}
		for range 100 {
			data[d.word(4)] = ""
		}
		d.fields["data"], d.fields["push_type"] = data, "alert"
	}},
	{name: "the longest names", weight: 2, change: func(d *draft) {
		d.fields["type"], d.fields["sender_id"], d.fields["collapse_key"] = d.word(64), d.word(128), d.word(64)
	}},
	{name: "a text over what providers take", weight: 2, change: func(d *draft) {
		d.fields["body"] = strings.Repeat("b", 6000)
		d.Want.Outcome, d.Want.Reason, d.unkept = Failed, "payload_too_large", true
	}},
	{name: "critical", weight: 1, change: func(d *draft) { d.fields["priority"] = "critical" }},
	{name: "in the background", weight: 2, change: func(d *draft) {
		delete(d.fields, "title")
		delete(d.fields, "body")
		d.fields["data"] = map[string]string{"refresh": d.word(5)}
		d.Want.Textless = true
	}},
}

// hostile are values that must end as dead letters.
var hostile = []kind{
	text("no value", "empty_value", "", func(d *draft) { d.empty = true }),
	text("a value of no bytes", "empty_value", "", func(d *draft) { d.Value = []byte{} }),
	text("cut off", "bad_json", "*", func(d *draft) { v := d.json(); d.Value = v[:1+d.g.r.IntN(len(v)-1)] }),
	text("two texts", "bad_json", "*", func(d *draft) { d.Value = append(d.json(), "{}"...) }),
	text("a byte order mark", "bad_json", "*", func(d *draft) { d.Value = append([]byte("\xef\xbb\xbf"), d.json()...) }),
	text("one comma too many", "bad_json", "*", func(d *draft) { d.Value = bytes.Replace(d.json(), []byte("}"), []byte(",}"), 1) }),
	text("blanks", "bad_json", "*", func(d *draft) { d.Value = []byte(" \n ") }),
	text("a word that is none", "bad_json", "*", func(d *draft) { d.with(`"x":NaN`) }),
	text("a control character in a text", "bad_json", "*", func(d *draft) { d.with("\"x\":\"\n\"") }),
	text("a number with a zero in front", "bad_json", "*", func(d *draft) { d.with(`"x":01`) }),
	text("no UTF-8", "bad_utf8", "*", func(d *draft) { d.with("\"x\":\"\xff\xfe\"") }),
	text("half of a surrogate pair as UTF-8", "bad_utf8", "*", func(d *draft) { d.with("\"x\":\"\xed\xa0\x80\"") }),
	text("too deep", "too_deep", "*", func(d *draft) { d.with(`"x":` + nested(16)) }),
	text("10,000 deep", "too_deep", "*", func(d *draft) { d.with(`"x":` + nested(10_000)) }),
	text("an id twice", "duplicate_key", "*", func(d *draft) { d.with(`"id":"other"`) }),
	text("a name twice, once in escapes", "duplicate_key", "*", func(d *draft) { d.with(`"\u0069\u0064":"other"`) }),
	text("a name twice in a place that nobody reads", "duplicate_key", "*", func(d *draft) { d.with(`"x":[{"a":{"k":1,"\u006b":2}}]`) }),
	text("a list", "wrong_type", "*", func(d *draft) { d.Value = append(append([]byte("["), d.json()...), ']') }),
	text("null", "wrong_type", "*", func(d *draft) { d.Value = []byte("null") }),
	text("no id", "missing_field", "id", func(d *draft) { delete(d.fields, "id") }),
	text("an empty id", "missing_field", "id", func(d *draft) { d.fields["id"] = "" }),
	text("an id that is a number", "wrong_type", "id", func(d *draft) { d.fields["id"] = 17 }),
	text("an id of 65 characters", "field_too_long", "id", func(d *draft) { d.fields["id"] = d.word(65) }),
	text("an id beyond ASCII", "bad_value", "id", func(d *draft) { d.fields["id"] = "ü" + d.word(8) }),
	text("an id with a line's end", "bad_value", "id", func(d *draft) { d.fields["id"] = d.word(8) + "\r\n" }),

	field("no app", "missing_field", "app", func(d *draft) { delete(d.fields, "app") }),
	field("an app of 129 bytes", "field_too_long", "app", func(d *draft) { d.fields["app"] = d.word(129) }),
	field("neither user nor device", "missing_field", "user_id", func(d *draft) { delete(d.fields, "user_id") }),
	field("a user of 129 bytes", "field_too_long", "user_id", func(d *draft) { d.fields["user_id"] = d.word(129) }),
	field("a user that is a list", "wrong_type", "user_id", func(d *draft) { d.fields["user_id"] = []string{"u1"} }),
	field("a device without a token", "missing_field", "device.token", func(d *draft) { d.fields["device"] = map[string]any{"platform": "fcm"} }),
	field("a title that is an object", "wrong_type", "title", func(d *draft) { d.fields["title"] = map[string]any{} }),
	field("a badge with a point", "wrong_type", "badge", func(d *draft) { d.with(`"badge":1.0`) }),
	field("a badge below zero", "bad_value", "badge", func(d *draft) { d.fields["badge"] = -1 }),
	field("a badge of 33 bits", "bad_value", "badge", func(d *draft) { d.fields["badge"] = 1 << 32 }),
	field("data that is no object of strings", "wrong_type", "*", func(d *draft) { d.fields["data"] = map[string]any{"k": 1} }),
	field("data that takes the id's place", "bad_value", "data.pf_id", func(d *draft) { d.fields["data"] = map[string]any{"pf_id": "x"} }),
	field("data that takes Apple's place", "bad_value", "data.aps", func(d *draft) { d.fields["data"] = map[string]any{"\u0061ps": "x"} }),
	field("a collapse key with a line's end", "bad_value", "collapse_key", func(d *draft) { d.fields["collapse_key"] = "a\nb" }),
	field("a campaign of 65 bytes", "field_too_long", "campaign", func(d *draft) { d.fields["campaign"] = d.word(65) }),
	field("a priority that is none", "bad_value", "priority", func(d *draft) { d.fields["priority"] = "URGENT" }),
	field("a header of Apple's that is ours", "bad_value", "*", func(d *draft) {
		d.fields["apns"] = map[string]any{"headers": map[string]any{"apns-topic": "com.example.other"}}
	}),
	field("a recipient among the raw parts", "bad_value", "fcm.token", func(d *draft) { d.fields["fcm"] = map[string]any{"token": "x"} }),
	{name: "an app that nobody knows", weight: 2, change: func(d *draft) {
		d.fields["app"] = "no-such-app"
		d.dead("unknown_app", "*")
		d.Want.Decoded = true
	}},
}

// text is a value that cannot be read, or has no usable id.
func text(name, reason, detail string, change func(*draft)) kind {
	return kind{name: name, weight: 1, change: func(d *draft) {
		d.nameless(reason, detail)
		change(d)
	}}
}

// field is a value that can be read, with one field that cannot be used: its
// rows stand under its own id.
func field(name, reason, detail string, change func(*draft)) kind {
	return kind{name: name, weight: 1, change: func(d *draft) {
		d.dead(reason, detail)
		change(d)
	}}
}

// with adds members to the value as they are written here.
func (d *draft) with(members string) {
	d.Value = append(append(bytes.TrimSuffix(d.json(), []byte("}")), ","+members...), '}')
}

// nested is a text of n levels.
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
