package sim

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"
)

const (
	fcmLimit      = 4096 // bytes of keys and values
	fcmTopicLimit = 2048
	fcmTokenLimit = 4096
	fcmTTLLimit   = 4 * 7 * 24 * time.Hour
)

// errFault ends the walk over a body; the fault says why.
var errFault = errors.New("invalid message")

// fcmMessage is what the policy wants to know of a body. Its slices are parts
// of the body.
type fcmMessage struct {
	id           []byte // data.pf_id
	token        []byte
	topic        []byte
	target       string // the name of the first target field
	validateOnly bool
	size         int
	fault        fault
}

// parse walks over a body once and stops at its first fault.
func (m *fcmMessage) parse(schema *fcmField, body []byte) fault {
	s := scanner{b: body}
	if !utf8.Valid(body) {
		return fault{reply: FCMInvalidValue, description: "Invalid JSON payload received. Invalid UTF-8."}
	}
	err := m.message(&s, schema)
	switch {
	case m.fault.reply != NoReply:
		return m.fault
	case err != nil || !s.end():
		return fault{reply: FCMInvalidValue, description: "Invalid JSON payload received. Syntax error at offset " + strconv.Itoa(s.i) + "."}
	}
	return m.checkTarget()
}

func (m *fcmMessage) checkTarget() fault {
	limit := fcmLimit
	switch m.target {
	case "":
		return fault{reply: FCMNoRecipient}
	case "token":
		if !isFCMToken(m.token) {
			return fault{reply: FCMInvalidToken}
		}
	case "topic", "condition":
		limit = fcmTopicLimit
	}
	if m.target == "topic" && !isTopicName(m.topic) {
		return fault{reply: FCMInvalidArgument, field: "message.topic", description: "Invalid topic name."}
	}
	if m.size > limit {
		return fault{reply: FCMTooLarge}
	}
	return fault{}
}

func (m *fcmMessage) refuse(f fault) error {
	m.fault = f
	return errFault
}

func (m *fcmMessage) message(s *scanner, f *fcmField) error {
	if s.peek() != kindObject {
		return m.wrong(s, f)
	}
	return s.object(func(key []byte) error {
		sub := f.sub[string(key)]
		if sub == nil {
			return m.refuse(unknownName(f.path, key))
		}
		if s.peek() == kindNull { // an unset field
			return s.word()
		}
		return m.field(s, sub)
	})
}

// wrong complains about the value at hand.
func (m *fcmMessage) wrong(s *scanner, f *fcmField) error {
	v, err := s.value()
	if err != nil {
		return err
	}
	return m.refuse(wrongValue(f.path, f.proto, v))
}

func (m *fcmMessage) field(s *scanner, f *fcmField) error {
	switch f.typ {
	case typeMessage:
		return m.message(s, f)
	case typeStringMap:
		return m.stringMap(s, f)
	case typeStruct:
		return m.object(s, f)
	case typeStringList, typeDurationList:
		if s.peek() != kindArray {
			return m.wrong(s, f)
		}
		return s.array(func() error { return m.scalar(s, f) })
	}
	return m.scalar(s, f)
}

func (m *fcmMessage) object(s *scanner, f *fcmField) error {
	if s.peek() != kindObject {
		return m.wrong(s, f)
	}
	v, err := s.value()
	if err == nil && f.use == useAPNS && len(v) > payloadLimitVoIP {
		return m.refuse(fault{reply: FCMTooLarge})
	}
	return err
}

func (m *fcmMessage) stringMap(s *scanner, f *fcmField) error {
	if s.peek() != kindObject {
		return m.wrong(s, f)
	}
	n := 0
	return s.object(func(key []byte) error {
		if s.peek() != kindString {
			v, err := s.value()
			if err != nil {
				return err
			}
			return m.refuse(wrongValue(f.path+"["+strconv.Itoa(n)+"].value", f.proto, v))
		}
		n++
		v, err := s.text()
		if err != nil || f.use != useData {
			return err
		}
		v = unquote(v)
		m.size += len(key) + len(v)
		if string(key) == "pf_id" && m.id == nil {
			m.id = v
		}
		if isReserved(key) {
			return m.refuse(fault{reply: FCMInvalidArgument, field: f.path, description: "Invalid data payload key: " + string(key)})
		}
		return nil
	})
}

// isReserved knows the keys of data that Google keeps for itself.
func isReserved(key []byte) bool {
	return string(key) == "from" || string(key) == "message_type" ||
		bytes.HasPrefix(key, []byte("google")) || bytes.HasPrefix(key, []byte("gcm"))
}

func (m *fcmMessage) scalar(s *scanner, f *fcmField) error {
	start, k := s.i, s.peek()
	var v []byte
	var err error
	switch k {
	case kindString:
		v, err = s.text()
		v = unquote(v)
	case kindObject, kindArray, kindNull:
		return m.wrong(s, f)
	default:
		v, err = s.value()
	}
	if err != nil {
		return err
	}
	if !f.takes(k, v) {
		return m.refuse(wrongValue(f.path, f.proto, bytes.TrimSpace(s.b[start:s.i])))
	}
	return m.apply(f, v)
}

// takes reports whether a field can hold a value: proto3's JSON mapping.
func (f *fcmField) takes(k kind, v []byte) bool {
	switch f.typ {
	case typeString, typeStringList:
		return k == kindString
	case typeBool:
		return k == kindBool
	case typeInt:
		_, err := strconv.ParseInt(string(v), 10, 32)
		return (k == kindNumber || k == kindString) && err == nil
	case typeFloat:
		_, err := strconv.ParseFloat(string(v), 32)
		return (k == kindNumber || k == kindString) && err == nil
	case typeDuration, typeDurationList:
		_, ok := parseDuration(v)
		return k == kindString && ok
	case typeTimestamp:
		_, err := time.Parse(time.RFC3339Nano, string(v))
		return k == kindString && err == nil
	case typeEnum:
		if k == kindNumber {
			n, err := strconv.Atoi(string(v))
			return err == nil && n >= 0 && n < len(f.values)
		}
		for _, name := range f.values {
			if k == kindString && strings.EqualFold(name, view(v)) {
				return true
			}
		}
	}
	return false
}

// apply does what the field is there for.
func (m *fcmMessage) apply(f *fcmField, v []byte) error {
	switch f.use {
	case useSize:
		m.size += len(v)
	case useToken:
		m.token = v
		return m.aim(f, "token")
	case useFid:
		m.token = v
		return m.aim(f, "fid")
	case useTopic:
		m.topic = v
		return m.aim(f, "topic")
	case useCondition:
		return m.aim(f, "condition")
	case useValidateOnly:
		m.validateOnly = string(v) == "true"
	case useTTL:
		if d, _ := parseDuration(v); d < 0 || d > fcmTTLLimit {
			return m.refuse(fault{reply: FCMInvalidArgument, field: f.path, description: "TTL must be between 0 and 2419200 seconds."})
		}
	case useHTTPSLink:
		if !bytes.HasPrefix(v, []byte("https://")) {
			return m.refuse(fault{reply: FCMInvalidArgument, field: f.path, description: "The link must be an HTTPS URL."})
		}
	}
	return nil
}

// aim notes a target field; a second one is refused.
func (m *fcmMessage) aim(f *fcmField, name string) error {
	if m.target != "" {
		d := "Invalid value at 'message' (oneof), oneof field 'target' is already set. Cannot set '" + name + "'"
		return m.refuse(fault{reply: FCMInvalidValue, field: "message", description: d})
	}
	m.target = name
	return nil
}

// find looks for the notification id and the token of a body that was refused
// before it was read to its end, so that the ledger can name it.
func (m *fcmMessage) find(body []byte) {
	s := scanner{b: body}
	leaf := func(dst *[]byte) error {
		if s.peek() != kindString {
			_, err := s.value()
			return err
		}
		v, err := s.text()
		*dst = unquote(v)
		return err
	}
	other := func([]byte) error { _, err := s.value(); return err }
	data := func(key []byte) error {
		if string(key) == "pf_id" {
			return leaf(&m.id)
		}
		return other(key)
	}
	message := func(key []byte) error {
		switch {
		case string(key) == "token":
			return leaf(&m.token)
		case string(key) == "data" && s.peek() == kindObject:
			return s.object(data)
		}
		return other(key)
	}
	// A body that breaks off in the middle has told what it could.
	_ = s.object(func(key []byte) error {
		if string(key) == "message" && s.peek() == kindObject {
			return s.object(message)
		}
		return other(key)
	})
}

// view is a string of the same memory, for the time that b does not change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
