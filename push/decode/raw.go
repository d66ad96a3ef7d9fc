package decode

import (
	"encoding/json"
	"strings"

	"github.com/pushfleet/pushfleet/push"
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
			d.apnsHeaders("")
		case "payload":
			d.once(&seen, fPayload, "apns.payload")
			d.m.APNSPayload = d.raw(apnsPayload)
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
// within is "" or "fcm.": what stands before "apns" in the path.
func (d *decoder) apnsHeaders(within string) {
	o, ok := d.enter()
	if !ok {
		return
	}
	for name, ok := d.member(&o); ok; name, ok = d.member(&o) {
		d.unique(&o, name)
		path, valid := apnsHeader(name)
		path = within + path
		if valid == nil {
			d.refuse(push.BadValue, path)
			d.skip()
			continue
		}
		if d.path = path; d.next() != '"' {
			d.wrongType()
			d.path = within + "apns.headers"
			continue
		}
		v := d.text()
		d.path = within + "apns.headers"
		switch {
		case d.reason != "":
		case !valid(v):
			d.refuse(push.BadValue, path)
		case within != "":
			// It stays where it is. Only the push type is the message's own too.
			if name == "apns-push-type" {
				d.fcmPushType = v
			}
		case name == "apns-push-type":
			d.setPushType(v, path)
		default:
			d.m.APNSHeaders = append(d.m.APNSHeaders, push.Header{Name: name, Value: v})
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

// isCollapseID accepts values that an HTTP/2 header can carry unchanged:
// printable ASCII without spaces at either end.
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

// rawRule is what the contract says about a member of a raw object. The zero
// value lets it pass as it is.
type rawRule struct {
	path    string                   // its name in a Defect
	never   bool                     // a producer may not set it
	object  func(key string) rawRule // it must be an object, and these are the rules of its members
	headers bool                     // it must be an object of Apple's headers
}

// free is an object that may hold anything.
func free(string) rawRule { return rawRule{} }

// raw reads an object that is merged into the provider's body as it is.
func (d *decoder) raw(rules func(key string) rawRule) json.RawMessage {
	o, ok := d.enter()
	if !ok {
		return nil
	}
	start := d.i - 1
	d.rawMembers(&o, rules)
	return d.cut(start)
}

func (d *decoder) rawMembers(o *object, rules func(key string) rawRule) {
	for key, ok := d.member(o); ok; key, ok = d.member(o) {
		d.unique(o, key)
		switch r := rules(key); {
		case r.never:
			d.refuse(push.BadValue, r.path)
			d.skip()
		case r.object == nil && !r.headers:
			d.skip()
		case d.next() != '{':
			d.skip()
			d.refuse(push.WrongType, r.path)
		case r.headers:
			outer := d.path
			d.path = r.path
			d.apnsHeaders("fcm.")
			d.path = outer
		default:
			inner := d.open()
			d.rawMembers(&inner, r.object)
		}
	}
}

// apnsPayload: pf_id is the notification's id, and aps is merged member by
// member.
func apnsPayload(key string) rawRule {
	switch key {
	case "aps":
		return rawRule{path: "apns.payload.aps", object: free}
	case "pf_id":
		return rawRule{path: "apns.payload.pf_id", never: true}
	}
	return rawRule{}
}

// fcmMessage: a raw override may not send the message somewhere else, nor give
// it another id, and the parts that the worker also fills are merged member by
// member.
func fcmMessage(key string) rawRule {
	switch key {
	case "token":
		return rawRule{path: "fcm.token", never: true}
	case "fid":
		return rawRule{path: "fcm.fid", never: true}
	case "topic":
		return rawRule{path: "fcm.topic", never: true}
	case "condition":
		return rawRule{path: "fcm.condition", never: true}
	case "name":
		return rawRule{path: "fcm.name", never: true}
	case "data":
		return rawRule{path: "fcm.data", object: withoutID("fcm.data.pf_id")}
	case "notification":
		return rawRule{path: "fcm.notification", object: free}
	case "android":
		return rawRule{path: "fcm.android", object: fcmAndroid}
	case "apns":
		return rawRule{path: "fcm.apns", object: fcmAPNS}
	case "webpush":
		return rawRule{path: "fcm.webpush", object: fcmWebpush}
	}
	return rawRule{}
}

// withoutID are the rules of an object that holds data for the app.
func withoutID(path string) func(string) rawRule {
	return func(key string) rawRule { return rawRule{path: path, never: key == "pf_id"} }
}

func fcmAndroid(key string) rawRule {
	if key == "data" { // replaces the message's
		return rawRule{path: "fcm.android.data", object: withoutID("fcm.android.data.pf_id")}
	}
	return rawRule{}
}

func fcmWebpush(key string) rawRule {
	if key == "data" {
		return rawRule{path: "fcm.webpush.data", object: withoutID("fcm.webpush.data.pf_id")}
	}
	return rawRule{}
}

// fcmAPNS is for devices of Apple's behind FCM: the rules of apns hold there.
// Google reads its own names in either spelling.
func fcmAPNS(key string) rawRule {
	switch key {
	case "headers":
		return rawRule{path: "fcm.apns.headers", headers: true}
	case "payload":
		return rawRule{path: "fcm.apns.payload", object: fcmAPNSPayload}
	case "live_activity_token", "liveActivityToken":
		return rawRule{path: "fcm.apns.live_activity_token", never: true}
	}
	return rawRule{}
}

func fcmAPNSPayload(key string) rawRule {
	r := apnsPayload(key)
	r.path = "fcm." + r.path
	return r
}
