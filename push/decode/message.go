// Package decode reads what producers write, by the message contract
// (docs/messages.md).
package decode

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// MaxValue is the greatest size of a record's value in bytes.
const MaxValue = 64 << 10

// Lengths in bytes that a record's fields may have (docs/messages.md).
const (
	maxID          = 64
	maxName        = 128 // app, user_id, sender_id
	maxType        = 64
	maxCampaign    = 64
	maxCollapseKey = 64
	maxToken       = 4096
)

// Message reads a record's value into m by the message contract
// (docs/messages.md), in one pass and mostly without allocating. A nil Defect
// means that m holds a usable message, defaults filled in.
//
// Message overwrites all of m. Strings without escapes and the raw parts share
// value's memory: value must not change while m is in use, and a string that is
// kept longer than the batch must be copied.
//
// With a Defect, m has at most ID, App, UserID and Device, each only if it is
// usable: they identify the record's status row. It has none of them when the
// text itself cannot be read (BadJSON, BadUTF8, TooDeep, DuplicateKey,
// EmptyValue, TooLarge), because then none can be trusted. A Defect about the
// text takes precedence; otherwise the first in the record's order counts, and
// missing fields last.
//
// Message agrees with encoding/json (null stands for an absent field, half a
// surrogate pair is read as U+FFFD), except for what the contract refuses, and
// that names are matched exactly, case included. The empty string also stands
// for an absent field. It is safe for concurrent use.
func Message(value []byte, m *push.Message) *push.Defect {
	*m = push.Message{}
	switch {
	case len(value) == 0:
		return &push.Defect{Reason: push.EmptyValue}
	case len(value) > MaxValue:
		return &push.Defect{Reason: push.TooLarge}
	}
	d := decoder{scanner: scanner{b: value}, m: m}
	d.record()
	switch {
	case d.reason != "":
		*m = push.Message{}
		if d.field == "" {
			return &push.Defect{Reason: d.reason, Field: d.where()}
		}
		return &push.Defect{Reason: d.reason, Field: d.field}
	case d.defect.Reason != "":
		*m = push.Message{ID: m.ID, App: m.App, UserID: m.UserID, Device: m.Device}
		return &push.Defect{Reason: d.defect.Reason, Field: d.defect.Field}
	}
	return nil
}

// decoder reads one record.
type decoder struct {
	scanner
	m      *push.Message
	seen   uint32      // the fields met so far
	field  string      // the known field that is there twice
	defect push.Defect // the first thing the contract refuses in a readable text

	fcmPushType string // of fcm.apns.headers, or empty
}

// The fields that may be there once.
const (
	fID = 1 << iota
	fApp
	fUserID
	fDevice
	fType
	fSenderID
	fCampaign
	fPriority
	fPushType
	fTitle
	fBody
	fImage
	fVideo
	fSound
	fCategory
	fThreadID
	fLocale
	fBadge
	fData
	fCollapseKey
	fExpiresAt
	fAPNS
	fFCM

	// Inside device and apns, where the bits start over.
	fPlatform    = 1
	fToken       = 2
	fEnvironment = 4
	fHeaders     = 1
	fPayload     = 2
)

// refuse notes that the readable field at path breaks the contract. Reading
// goes on, so that the record's id is found wherever it is.
func (d *decoder) refuse(r push.Reason, path string) {
	if d.defect.Reason == "" {
		d.defect = push.Defect{Reason: r, Field: path}
	}
}

// once names the field that is about to be read and fails if it was there.
func (d *decoder) once(seen *uint32, field uint32, path string) {
	d.path = path
	if *seen&field != 0 {
		d.field = path
		d.fail(push.DuplicateKey, d.i)
	}
	*seen |= field
}

func (d *decoder) record() {
	if d.next() != '{' {
		d.skip()
		d.end()
		d.refuse(push.WrongType, "")
		return
	}
	o := d.open()
	for key, ok := d.member(&o); ok; key, ok = d.member(&o) {
		d.value(&o, key)
		d.path = ""
	}
	d.end()
	if d.reason == "" {
		d.complete()
	}
}

func (d *decoder) end() {
	if d.next(); d.i < len(d.b) {
		d.fail(push.BadJSON, d.i)
	}
}

// value reads the value of one member of the record.
func (d *decoder) value(o *object, key string) {
	m, seen := d.m, &d.seen
	switch key {
	case "id":
		d.once(seen, fID, "id")
		if m.ID = d.str(maxID); !printable(m.ID) {
			m.ID = ""
			d.refuse(push.BadValue, "id")
		}
	case "app":
		d.once(seen, fApp, "app")
		m.App = d.str(maxName)
	case "user_id":
		d.once(seen, fUserID, "user_id")
		m.UserID = d.str(maxName)
	case "device":
		d.once(seen, fDevice, "device")
		d.device()
	case "type":
		d.once(seen, fType, "type")
		m.Type = d.str(maxType)
	case "sender_id":
		d.once(seen, fSenderID, "sender_id")
		m.SenderID = d.str(maxName)
	case "campaign":
		d.once(seen, fCampaign, "campaign")
		if m.Campaign = d.str(maxCampaign); hasControls(m.Campaign) {
			d.refuse(push.BadValue, "campaign")
		}
	case "priority":
		d.once(seen, fPriority, "priority")
		m.Priority = d.priority()
	case "push_type":
		d.once(seen, fPushType, "push_type")
		d.pushType()
	case "title":
		d.once(seen, fTitle, "title")
		m.Title = d.str(MaxValue)
	case "body":
		d.once(seen, fBody, "body")
		m.Body = d.str(MaxValue)
	case "image":
		d.once(seen, fImage, "image")
		m.Image = d.str(MaxValue)
	case "video":
		d.once(seen, fVideo, "video")
		m.Video = d.str(MaxValue)
	case "sound":
		d.once(seen, fSound, "sound")
		m.Sound = d.str(MaxValue)
	case "category":
		d.once(seen, fCategory, "category")
		m.Category = d.str(MaxValue)
	case "thread_id":
		d.once(seen, fThreadID, "thread_id")
		m.ThreadID = d.str(MaxValue)
	case "locale":
		d.once(seen, fLocale, "locale")
		m.Locale = d.str(MaxValue)
	case "badge":
		d.once(seen, fBadge, "badge")
		d.badge()
	case "data":
		d.once(seen, fData, "data")
		d.data()
	case "collapse_key":
		d.once(seen, fCollapseKey, "collapse_key")
		if m.CollapseKey = d.str(maxCollapseKey); hasControls(m.CollapseKey) {
			d.refuse(push.BadValue, "collapse_key")
		}
	case "expires_at":
		d.once(seen, fExpiresAt, "expires_at")
		d.expiresAt()
	case "apns":
		d.once(seen, fAPNS, "apns")
		d.apns()
	case "fcm":
		d.once(seen, fFCM, "fcm")
		m.FCM = d.raw(fcmMessage)
	default:
		d.unique(o, key)
		d.skip()
	}
}

// complete checks the required fields and fills in the defaults.
func (d *decoder) complete() {
	m := d.m
	if m.ID == "" {
		d.refuse(push.MissingField, "id")
	}
	if m.App == "" {
		d.refuse(push.MissingField, "app")
	}
	if m.UserID == "" && m.Device.Token == "" {
		d.refuse(push.MissingField, "user_id")
	}
	if m.Type == "" {
		m.Type = "default"
	}
	if d.fcmPushType != "" && m.PushType != "" && d.fcmPushType != m.PushType {
		d.refuse(push.BadValue, "fcm.apns.headers.apns-push-type")
	}
	if m.PushType == "" {
		m.PushType = "alert"
		if m.Title == "" && m.Body == "" {
			m.PushType = "background"
		}
	}
}

// str reads a string of at most limit bytes; null is the empty string.
func (d *decoder) str(limit int) string {
	switch d.next() {
	case '"':
		s := d.text()
		if len(s) > limit {
			d.refuse(push.FieldTooLong, d.path)
			return ""
		}
		return s
	case 'n':
		d.literal("null")
	default:
		d.wrongType()
	}
	return ""
}

// wrongType refuses a value because of its type, and reads over it.
func (d *decoder) wrongType() {
	path := d.path
	d.skip()
	d.refuse(push.WrongType, path)
}

// enter enters the object that is next. ok is false if there is none: null, or
// refused because it is something else.
func (d *decoder) enter() (o object, ok bool) {
	switch d.next() {
	case '{':
		return d.open(), true
	case 'n':
		d.literal("null")
	default:
		d.wrongType()
	}
	return object{}, false
}

func (d *decoder) priority() push.Priority {
	switch d.str(MaxValue) {
	case "":
		return 0
	case "critical":
		return push.Critical
	case "high":
		return push.High
	case "medium":
		return push.Medium
	case "low":
		return push.Low
	case "bulk":
		return push.Bulk
	}
	d.refuse(push.BadValue, "priority")
	return 0
}

func (d *decoder) pushType() {
	switch s := d.str(MaxValue); {
	case s == "":
	case isPushType(s):
		d.setPushType(s, "push_type")
	default:
		d.refuse(push.BadValue, "push_type")
	}
}

// setPushType takes a push type from its field or from the raw header. Both
// may be there if they agree: the topic's suffix depends on it, so there is
// one truth.
func (d *decoder) setPushType(s, path string) {
	if d.m.PushType != "" && d.m.PushType != s {
		d.refuse(push.BadValue, path)
		return
	}
	d.m.PushType = s
}

func isPushType(s string) bool {
	switch s {
	case "alert", "background", "location", "voip", "complication", "fileprovider", "mdm",
		"liveactivity", "pushtotalk", "widgets", "controls":
		return true
	}
	return false
}

// badge is what an iOS icon can show; more than 32 bits is a mistake.
func (d *decoder) badge() {
	switch c := d.next(); {
	case c == 'n':
		d.literal("null")
	case c == '-' || isDigit(c):
		text, integer := d.number()
		if d.reason != "" {
			return
		}
		if !integer {
			d.refuse(push.WrongType, "badge")
			return
		}
		n, err := strconv.Atoi(string(text))
		if err != nil || n < 0 || n > math.MaxInt32 {
			d.refuse(push.BadValue, "badge")
			return
		}
		d.m.Badge, d.m.HasBadge = n, true
	default:
		d.wrongType()
	}
}

func (d *decoder) expiresAt() {
	s := d.str(MaxValue)
	if s == "" {
		return
	}
	// Unlike time.Parse, UnmarshalText takes nothing but RFC 3339.
	if err := d.m.ExpiresAt.UnmarshalText([]byte(s)); err != nil {
		d.m.ExpiresAt = time.Time{}
		d.refuse(push.BadValue, "expires_at")
		return
	}
	if d.m.ExpiresAt.IsZero() {
		// Somebody's unset time, but given: it is past, and zero would say that
		// there is none.
		d.m.ExpiresAt = time.Time{}.Add(1)
	}
}

func (d *decoder) device() {
	o, ok := d.enter()
	if !ok {
		return
	}
	var (
		t    push.Target
		seen uint32
	)
	for key, ok := d.member(&o); ok; key, ok = d.member(&o) {
		switch key {
		case "platform":
			d.once(&seen, fPlatform, "device.platform")
			if s := d.str(MaxValue); s != "" {
				if t.Platform, ok = push.ParsePlatform(s); !ok {
					d.refuse(push.BadValue, "device.platform")
				}
			}
		case "token":
			// Its alphabet is up to the provider: a wrong one is FAILED for this
			// device, not a broken record.
			d.once(&seen, fToken, "device.token")
			t.Token = d.str(maxToken)
		case "environment":
			d.once(&seen, fEnvironment, "device.environment")
			t.Environment = d.str(MaxValue)
		default:
			d.unique(&o, key)
			d.skip()
		}
		d.path = "device"
	}
	if t.Platform == push.NoPlatform {
		d.refuse(push.MissingField, "device.platform")
		return
	}
	if t.Token == "" {
		d.refuse(push.MissingField, "device.token")
		return
	}
	environment, ok := t.Platform.Environment(t.Environment)
	switch {
	case ok:
		t.Environment = environment
	case len(t.Platform.Environments()) == 0 && push.IsEnvironment(t.Environment): // has one only
		t.Environment = ""
	default:
		d.refuse(push.BadValue, "device.environment")
		return
	}
	d.m.Device = t
}

// data reads the object of strings that goes to the app.
func (d *decoder) data() {
	o, ok := d.enter()
	if !ok {
		return
	}
	start := d.i - 1
	for key, ok := d.member(&o); ok; key, ok = d.member(&o) {
		d.unique(&o, key)
		switch key {
		case "aps":
			d.refuse(push.BadValue, "data.aps")
		case "pf_id":
			d.refuse(push.BadValue, "data.pf_id")
		}
		if d.next() == '"' {
			d.quoted()
			continue
		}
		at := d.i
		d.skip()
		if d.reason == "" {
			d.refuse(push.WrongType, "data@"+strconv.Itoa(at))
		}
	}
	d.m.Data = d.cut(start)
}

// cut is the text from start up to here, with no room to append into.
func (d *decoder) cut(start int) json.RawMessage {
	if d.reason != "" {
		return nil
	}
	return json.RawMessage(d.b[start:d.i:d.i])
}
