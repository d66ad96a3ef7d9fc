package dlq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/push"
)

// plainFields are the fields of a message that say who it is for and how it is
// to be sent, not what it says. All others are masked, unknown ones too.
var plainFields = []string{"id", "app", "user_id", "type", "priority", "push_type", "sender_id", "campaign", "expires_at", "badge", "locale"}

// plainLongest is the longest value that is shown for a plain field.
const plainLongest = 128

// Field is one field or header of a message for people: masked, or as it is.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// maskedFields are the fields of a dead letter's value in their order, without
// text and tokens. A value that is no JSON object is only measured.
func maskedFields(value []byte) []Field {
	raw, names := objectOf(value)
	if names == nil {
		return []Field{{"", fmt.Sprintf("<%d bytes that are not a JSON object>", len(value))}}
	}
	fields := make([]Field, 0, len(names))
	for _, name := range names {
		f := Field{name, measured(raw[name])}
		switch {
		case name == "device":
			f.Value = maskedDevice(raw[name])
		case slices.Contains(plainFields, name) && scalar(raw[name]) && len(raw[name]) <= plainLongest:
			f.Value = unquoted(raw[name])
		case len(name) > plainLongest || !utf8.ValidString(name):
			f.Name = fmt.Sprintf("<name of %d bytes>", len(name))
		}
		fields = append(fields, f)
	}
	return fields
}

// objectOf splits a JSON object into its fields; names is nil if it is no
// object.
func objectOf(value []byte) (raw map[string]json.RawMessage, names []string) {
	if json.Unmarshal(value, &raw) != nil || raw == nil {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	names = []string{}
	for depth := 0; ; {
		tok, err := dec.Token()
		if err != nil {
			return raw, names
		}
		if d, ok := tok.(json.Delim); ok {
			if d == '{' || d == '[' {
				depth++
			} else {
				depth--
			}
			continue
		}
		// At depth 1 names and values alternate; the value is read whole.
		if name, ok := tok.(string); ok && depth == 1 {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			var skip json.RawMessage
			if dec.Decode(&skip) != nil {
				return raw, names
			}
		}
	}
}

func scalar(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] != '{' && raw[0] != '[' }

// unquoted is a scalar's text.
func unquoted(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && raw[0] == '"' {
		return s
	}
	return string(raw)
}

// measured gives the kind and size of a value, and nothing else.
func measured(raw json.RawMessage) string {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "null"
	case raw[0] == '"':
		return fmt.Sprintf("<%d characters>", utf8.RuneCountInString(unquoted(raw)))
	case raw[0] == '{':
		return fmt.Sprintf("<object of %d bytes>", len(raw))
	case raw[0] == '[':
		return fmt.Sprintf("<list of %d bytes>", len(raw))
	}
	return "<a value>"
}

// maskedDevice shows a bare device by the hash of its token.
func maskedDevice(raw json.RawMessage) string {
	var d struct {
		Platform, Environment string
		Token                 string
	}
	if json.Unmarshal(raw, &d) != nil {
		return measured(raw)
	}
	p, ok := push.ParsePlatform(d.Platform)
	if !ok || d.Token == "" {
		return measured(raw)
	}
	words := []string{p.String()}
	if push.IsEnvironment(d.Environment) {
		words = append(words, d.Environment)
	}
	return strings.Join(append(words, push.DeviceHash(p, d.Token)), " ")
}
