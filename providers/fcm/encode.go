package fcm

import (
	"bytes"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/payload"
)

const (
	// maxPayload is Google's limit for what reaches the app, in bytes.
	maxPayload = 4096
	maxToken   = 4096
	// maxTTL is Google's longest, in seconds: 4 weeks.
	maxTTL = 2_419_200
)

var jsonType = []byte("application/json")

// Encode implements exchange.Codec.
func (c *codec) Encode(d *pipeline.Delivery, r *exchange.Draft) (pipeline.Result, bool) {
	if !validToken(d.Device.Token) {
		return refused(pipeline.InvalidToken), false
	}
	now := time.Now()
	auth := c.tokens.authorization(now)
	if auth == nil {
		return pipeline.Result{
			Class: pipeline.Again, Scope: pipeline.ScopeRoute, Halt: c.tokens.faulty(),
			After: shortest, Reason: string(pipeline.AuthFailed),
		}, false
	}
	r.Path = append(r.Path, c.path...)
	r.Header = append(r.Header,
		h2.Field{Name: "authorization", Value: auth},
		h2.Field{Name: "content-type", Value: jsonType})
	size, ok := encodeBody(r, d, now)
	switch {
	case !ok:
		return refused(pipeline.InvalidMessage), false
	case size > maxPayload:
		return refused(pipeline.PayloadTooLarge), false
	}
	return pipeline.Result{}, true
}

func refused(why pipeline.Reason) pipeline.Result {
	return pipeline.Result{Class: pipeline.Refused, Reason: string(why)}
}

// validToken: [A-Za-z0-9_:%-]{1,4096}.
func validToken(s string) bool {
	if s == "" || len(s) > maxToken {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '_', b == ':', b == '%', b == '-':
		default:
			return false
		}
	}
	return true
}

// encodeBody writes {"message":…} and returns the size that Google limits. It
// reports false for what cannot stand in a message.
func encodeBody(r *exchange.Draft, d *pipeline.Delivery, now time.Time) (size int, ok bool) {
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
		return 0, false
	}
	b = append(appendAndroid(b, m, shown, d.Expires, now), '}')
	if len(m.FCM) > 0 {
		for it := payload.Members(m.FCM); it.Next(); {
			if it.Is("topic") || it.Is("condition") || it.Is("fid") {
				return 0, false // a delivery is for one device
			}
		}
		r.Work = append(r.Work[:0], b[start:]...)
		b = payload.AppendMerged(b[:start], r.Work, m.FCM, "token")
	}
	for it := payload.Members(b[start:]); it.Next(); {
		if it.Is("notification") || it.Is("data") {
			size += len(it.Value)
		}
	}
	r.Body = append(b, '}')
	return size, true
}

// appendData writes the producer's data, pf_id, and the content that has no
// other place. Keys that Google reserves would make every token look invalid.
func appendData(b []byte, m *pipeline.Message, shown bool) ([]byte, bool) {
	b = append(payload.AppendName(b, "data"), '{')
	image, video := !shown && m.Image != "", m.Video != ""
	for it := payload.Members(m.Data); it.Next(); {
		switch {
		case it.Is("pf_id"):
			continue // ours
		case reserved(&it):
			return b, false
		case it.Is("image"):
			image = false
		case it.Is("video"):
			video = false
		}
		b = append(payload.Comma(b), it.Key...)
		b = append(b, ':')
		b = append(b, it.Value...)
	}
	if image {
		b = payload.AppendMember(b, "image", m.Image)
	}
	if video {
		b = payload.AppendMember(b, "video", m.Video)
	}
	b = payload.AppendMember(b, "pf_id", m.ID)
	return append(b, '}'), true
}

func reserved(it *payload.Iterator) bool {
	return it.Is("from") || it.Is("message_type") ||
		bytes.HasPrefix(it.Key, []byte(`"google`)) || bytes.HasPrefix(it.Key, []byte(`"gcm`))
}

func appendAndroid(b []byte, m *pipeline.Message, shown bool, expires, now time.Time) []byte {
	b = append(payload.AppendName(b, "android"), '{')
	if m.Priority.Urgent() {
		b = append(b, `"priority":"HIGH"`...)
	} else {
		b = append(b, `"priority":"NORMAL"`...)
	}
	if !expires.IsZero() {
		left := min(max(int64(expires.Sub(now)/time.Second), 0), maxTTL)
		b = append(payload.AppendName(b, "ttl"), '"')
		b = append(strconv.AppendInt(b, left, 10), 's', '"')
	}
	// Without text it is a data message: the app shows something, or nothing.
	if shown {
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
	}
	return append(b, '}')
}
