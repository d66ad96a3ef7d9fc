package fcm

import (
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/payload"
	"github.com/pushfleet/pushfleet/push"
)

const (
	// maxPayload is Google's limit for the keys and values that reach the app, in
	// bytes of UTF-8.
	maxPayload = 4096
	maxToken   = 4096
	// maxTTL is Google's longest, in seconds: 4 weeks.
	maxTTL = 2_419_200
)

var jsonType = []byte("application/json")

// Encode implements exchange.Codec.
func (c *codec) Encode(d *pipeline.Delivery, r *exchange.Draft) (push.Result, bool) {
	if !validToken(d.Device.Token) {
		return refused(push.InvalidToken), false
	}
	now := time.Now()
	auth := c.tokens.authorization(now)
	if auth == nil {
		faulty := c.tokens.faulty()
		if faulty {
			c.note(c.tokens.failure().Error(), *c.asked.Load())
		}
		return push.Result{
			Class: push.Again, Scope: push.ScopeRoute, Halt: faulty,
			After: shortest, Reason: string(push.AuthFailed),
		}, false
	}
	r.Path = append(r.Path, c.path...)
	r.Header = append(r.Header,
		h2.Field{Name: "authorization", Value: auth},
		h2.Field{Name: "content-type", Value: jsonType})
	fits, ok := encodeBody(r, d, now)
	switch {
	case !ok:
		return refused(push.InvalidMessage), false
	case !fits:
		return refused(push.PayloadTooLarge), false
	}
	return push.Result{}, true
}

func refused(why push.Reason) push.Result {
	return push.Result{Class: push.Refused, Reason: string(why)}
}

// validToken: [A-Za-z0-9_:%-]{1,4096}.
func validToken(s string) bool {
	if s == "" || len(s) > maxToken {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return true
}

// tokenBytes are the bytes of a token: a look-up each, because a token is long.
var tokenBytes = func() (is [256]bool) {
	for _, b := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:%-") {
		is[b] = true
	}
	return is
}()

// encodeBody writes {"message":…} and reports whether it fits into the size that
// Google limits. ok is false for content that a message cannot carry.
func encodeBody(r *exchange.Draft, d *pipeline.Delivery, now time.Time) (fits, ok bool) {
	m := &d.Item.Message
	b := append(r.Body, `{"message":`...)
	start := len(b)
	b = append(b, `{"token":"`...)
	b = append(b, d.Device.Token...)
	b = append(b, '"')
	shown := m.Title != "" || m.Body != ""
	if shown {
		b = append(payload.AppendName(b, "notification"), '{')
		b = payload.AppendMember(b, "title", m.Title)
		b = payload.AppendMember(b, "body", m.Body)
		b = payload.AppendMember(b, "image", m.Image)
		b = append(b, '}')
	}
	if b, ok = appendData(b, m, shown); !ok {
		return false, false
	}
	expires := d.Expires.Time()
	b = appendAndroid(b, d.Item, shown, expires, now)
	b = appendAPNS(b, m, shown, expires)
	b = append(appendWebpush(b, m, shown, expires, now), '}')
	if len(m.FCM) > 0 {
		if !properRaw(m.FCM) {
			return false, false
		}
		r.Work = append(r.Work[:0], b[start:]...)
		b = payload.AppendMerged(b[:start], r.Work, m.FCM, "token")
	}
	fits = len(b)-start <= maxPayload || countedSize(b[start:]) <= maxPayload // what counts is part of it
	r.Body = append(b, '}')
	return fits, true
}

// countedSize is what Google limits of a message.
func countedSize(message []byte) (size int) {
	for it := payload.Members(message); it.Next(); {
		if it.Is("notification") || it.Is("data") {
			size += textSize(it.Value)
		}
	}
	return size
}

// textSize is the size of an object's keys and values, without what JSON puts
// around them: that is how Google counts.
func textSize(object []byte) (n int) {
	for it := payload.Members(object); it.Next(); {
		n += payload.TextLen(it.Key) + payload.TextLen(it.Value)
	}
	return n
}

// appendData writes the producer's data, pf_id, and the content that has no
// other place. Keys that Google reserves would make every token look invalid.
func appendData(b []byte, m *push.Message, shown bool) ([]byte, bool) {
	b = append(payload.AppendName(b, "data"), '{')
	homeless := [...]struct{ name, value string }{
		{"image", m.Image}, {"video", m.Video}, {"category", m.Category}, {"thread_id", m.ThreadID}, {"locale", m.Locale},
	}
	if shown {
		homeless[0].value = "" // it stands in the notification
	}
	for it := payload.Members(m.Data); it.Next(); {
		switch {
		case it.Is("pf_id"):
			continue // ours
		case reserved(&it):
			return b, false
		}
		for i := range homeless {
			if it.Is(homeless[i].name) {
				homeless[i].value = "" // the producer's stands
			}
		}
		b = payload.AppendRawMember(b, &it)
	}
	for _, h := range homeless {
		b = payload.AppendMember(b, h.name, h.value)
	}
	b = payload.AppendMember(b, "pf_id", m.ID)
	return append(b, '}'), true
}

// properRaw reports whether raw parts may stand in a message. The decoder has
// seen to most of it; messages that did not come from Kafka are checked here. A
// delivery is for one device of the app, and the notification's id is ours.
func properRaw(raw []byte) bool {
	for it := payload.Members(raw); it.Next(); {
		switch {
		case it.Is("topic"), it.Is("condition"), it.Is("fid"):
			return false
		case it.Is("data"):
			if !properData(it.Value, true) {
				return false
			}
		case it.Is("android"):
			if !properPart(it.Value, true) {
				return false
			}
		case it.Is("webpush"), it.Is("apns"):
			if !properPart(it.Value, false) {
				return false
			}
		}
	}
	return true
}

// properPart is the same for one platform's part. Google reserves keys of what
// Android gets only.
func properPart(raw []byte, android bool) bool {
	for it := payload.Members(raw); it.Next(); {
		switch {
		case it.Is("live_activity_token"), it.Is("liveActivityToken"):
			return false
		case it.Is("data"), it.Is("payload"):
			if !properData(it.Value, android) {
				return false
			}
		}
	}
	return true
}

func properData(raw []byte, android bool) bool {
	for it := payload.Members(raw); it.Next(); {
		if it.Is("pf_id") || android && reserved(&it) {
			return false
		}
	}
	return true
}

func reserved(it *payload.Iterator) bool {
	return it.Is("from") || it.Is("message_type") ||
		it.Begins("google") || it.Begins("gcm")
}

func appendAndroid(b []byte, it *pipeline.Item, shown bool, expires, now time.Time) []byte {
	m := &it.Message
	b = append(payload.AppendName(b, "android"), '{')
	if m.Priority.Urgent() {
		b = append(b, `"priority":"HIGH"`...)
	} else {
		b = append(b, `"priority":"NORMAL"`...)
	}
	if !expires.IsZero() {
		b = append(payload.AppendName(b, "ttl"), '"')
		b = append(strconv.AppendInt(b, timeToLive(expires, now), 10), 's', '"')
	}
	// Without text it is a data message: the app shows something, or nothing.
	if !shown {
		// Google keeps four keys a device and slows down what has one, so a key
		// that no other message has would lose messages rather than merge them.
		if !it.Derived {
			b = payload.AppendMember(b, "collapse_key", m.CollapseKey)
		}
		return append(b, '}')
	}
	at := len(b)
	b = append(payload.AppendName(b, "notification"), '{')
	empty := len(b)
	b = payload.AppendMember(b, "tag", m.CollapseKey)
	b = payload.AppendMember(b, "sound", m.Sound)
	if m.HasBadge {
		b = strconv.AppendInt(payload.AppendName(b, "notification_count"), int64(m.Badge), 10)
	}
	if len(b) == empty {
		b = b[:at]
	} else {
		b = append(b, '}')
	}
	return append(b, '}')
}

// timeToLive is in whole seconds.
func timeToLive(expires, now time.Time) int64 {
	return min(max(int64(expires.Sub(now)/time.Second), 0), maxTTL)
}

// appendAPNS writes for devices of Apple's behind FCM what apns tells Apple
// itself. Google makes the alert of the notification, and the topic.
func appendAPNS(b []byte, m *push.Message, shown bool, expires time.Time) []byte {
	silent := !shown && (m.PushType == "background" || m.PushType == "") && !rawAlert(m.FCM)
	b = append(payload.AppendName(b, "apns"), `{"headers":{`...)
	switch {
	case silent: // 10 is an error to Apple
		b = append(b, `"apns-push-type":"background","apns-priority":"5"`...)
	case m.Priority.Urgent():
		b = append(b, `"apns-priority":"10"`...)
	default:
		b = append(b, `"apns-priority":"5"`...)
	}
	if !expires.IsZero() {
		b = append(payload.AppendName(b, "apns-expiration"), '"')
		b = append(strconv.AppendInt(b, expires.Unix(), 10), '"')
	}
	if payload.IsCollapseID(m.CollapseKey) {
		b = payload.AppendMember(b, "apns-collapse-id", m.CollapseKey)
	} else if m.CollapseKey != "" {
		b = append(payload.AppendName(b, "apns-collapse-id"), '"')
		b = append(payload.AppendKeyHash(b, m.CollapseKey), '"')
	}
	b = append(b, '}')
	at := len(b)
	b = append(b, `,"payload":{"aps":{`...)
	empty := len(b)
	if silent {
		b = append(b, `"content-available":1`...)
	} else {
		b = payload.AppendContent(b, m)
	}
	if len(b) == empty {
		return append(b[:at], '}')
	}
	return append(b, '}', '}', '}')
}

// rawAlert reports whether raw parts have something for Apple's devices to show,
// or say themselves what kind of push it is. Apple may drop an alert that calls
// itself silent.
func rawAlert(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	if kind := payload.Find(raw, "apns", "headers", "apns-push-type"); kind != nil {
		return string(kind) != `"background"`
	}
	aps := payload.Find(raw, "apns", "payload", "aps")
	return payload.Find(raw, "notification") != nil || payload.Find(aps, "alert") != nil ||
		payload.Find(aps, "sound") != nil || payload.Find(aps, "badge") != nil
}

// appendWebpush writes for browsers: the headers of RFC 8030, and the tag by
// which a shown notification is replaced.
func appendWebpush(b []byte, m *push.Message, shown bool, expires, now time.Time) []byte {
	b = append(payload.AppendName(b, "webpush"), `{"headers":{`...)
	switch {
	case m.Priority.Urgent():
		b = append(b, `"Urgency":"high"`...)
	case m.Priority > push.Bulk:
		b = append(b, `"Urgency":"normal"`...)
	default:
		b = append(b, `"Urgency":"low"`...)
	}
	if !expires.IsZero() {
		b = append(payload.AppendName(b, "TTL"), '"')
		b = append(strconv.AppendInt(b, timeToLive(expires, now), 10), '"')
	}
	if m.CollapseKey != "" {
		b = append(payload.AppendName(b, "Topic"), '"')
		b = append(payload.AppendKeyHash(b, m.CollapseKey), '"')
	}
	b = append(b, '}')
	if shown && m.CollapseKey != "" {
		b = append(payload.AppendName(b, "notification"), '{')
		b = append(payload.AppendMember(b, "tag", m.CollapseKey), '}')
	}
	return append(b, '}')
}
