package pipeline

import (
	"encoding/json"
	"strings"
)

// apns reads the raw overrides for Apple.
func (d *decoder) apns() {
	o, ok := d.enter()
	if !ok {
		return
	}
	var seen uint32
	for key, ok := d.member(&o); ok; key, ok = d.member(&o) {
		switch key {
		case "headers":
			d.once(&seen, fHeaders, "apns.headers")
			d.apnsHeaders()
		case "payload":
			d.once(&seen, fPayload, "apns.payload")
			d.m.APNSPayload = d.raw(checkAPNSPayload)
		default:
			d.unique(&o, key)
			d.skip()
		}
		d.path = "apns"
	}
}

// apnsHeaders reads the headers of Apple's list that a producer may set.
// Authorization, apns-topic and apns-id are the worker's: the first two would
// stop the whole route when they are wrong, and the last is one per device.
func (d *decoder) apnsHeaders() {
	o, ok := d.enter()
	if !ok {
		return
	}
	for name, ok := d.member(&o); ok; name, ok = d.member(&o) {
		d.unique(&o, name)
		path, valid := apnsHeader(name)
		if valid == nil {
			d.refuse(BadValue, path)
			d.skip()
			continue
		}
		if d.path = path; d.next() != '"' {
			d.wrongType()
			d.path = "apns.headers"
			continue
		}
		v := d.text()
		d.path = "apns.headers"
		switch {
		case d.reason != "":
		case !valid(v):
			d.refuse(BadValue, path)
		case path == "apns.headers.apns-push-type":
			d.setPushType(v, path)
		default:
			d.m.APNSHeaders = append(d.m.APNSHeaders, Header{name, v})
		}
	}
}

// apnsHeader returns the path of a header in a Defect, and what its value must
// satisfy; valid is nil if a producer may not set it.
func apnsHeader(name string) (path string, valid func(string) bool) {
	switch name {
	case "apns-expiration":
		return "apns.headers.apns-expiration", isEpoch
	case "apns-priority":
		return "apns.headers.apns-priority", isAPNSPriority
	case "apns-push-type":
		return "apns.headers.apns-push-type", isPushType
	case "apns-collapse-id":
		return "apns.headers.apns-collapse-id", isCollapseID
	case "apns-topic":
		return "apns.headers.apns-topic", nil
	case "apns-id":
		return "apns.headers.apns-id", nil
	}
	if strings.EqualFold(name, "authorization") {
		return "apns.headers.authorization", nil
	}
	return "apns.headers", nil
}

// isEpoch accepts seconds since 1970 up to the year 33658; 0 means one attempt.
func isEpoch(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 12
}

func isAPNSPriority(s string) bool { return s == "10" || s == "5" || s == "1" }

// isCollapseID accepts what can stand in an HTTP/2 header as it is: printable
// ASCII without spaces at either end.
func isCollapseID(s string) bool {
	return s != "" && len(s) <= maxCollapseKey && printable(s) && s[0] != ' ' && s[len(s)-1] != ' '
}

// printable reports whether s is all printable ASCII, the space included.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// hasControls reports whether s has an ASCII control character.
func hasControls(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}

// rawCheck says whether a member of a raw object is refused: always, or unless
// it is an object. path is its name in the Defect.
type rawCheck func(key string) (path string, never, mustBeObject bool)

// raw reads an object that is merged into the provider's body as it is.
func (d *decoder) raw(check rawCheck) json.RawMessage {
	o, ok := d.enter()
	if !ok {
		return nil
	}
	start := d.i - 1
	for key, ok := d.member(&o); ok; key, ok = d.member(&o) {
		d.unique(&o, key)
		path, never, mustBeObject := check(key)
		if never {
			d.refuse(BadValue, path)
		}
		if mustBeObject && d.next() != '{' {
			d.skip()
			d.refuse(WrongType, path)
			continue
		}
		d.skip()
	}
	return d.cut(start)
}

// checkAPNSPayload: pf_id is the notification's id, and aps is merged member
// by member.
func checkAPNSPayload(key string) (path string, never, mustBeObject bool) {
	switch key {
	case "aps":
		return "apns.payload.aps", false, true
	case "pf_id":
		return "apns.payload.pf_id", true, false
	}
	return "", false, false
}

// checkFCM: a raw override may not send the message somewhere else, and the
// parts that the worker also fills are merged member by member.
func checkFCM(key string) (path string, never, mustBeObject bool) {
	switch key {
	case "token":
		return "fcm.token", true, false
	case "fid":
		return "fcm.fid", true, false
	case "topic":
		return "fcm.topic", true, false
	case "condition":
		return "fcm.condition", true, false
	case "name":
		return "fcm.name", true, false
	case "data":
		return "fcm.data", false, true
	case "notification":
		return "fcm.notification", false, true
	case "android":
		return "fcm.android", false, true
	case "apns":
		return "fcm.apns", false, true
	case "webpush":
		return "fcm.webpush", false, true
	}
	return "", false, false
}
