package apns

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/providers/payload"
	"github.com/pushfleet/pushfleet/push"
)

// pushTypes are Apple's eleven and what each adds to the topic. The topic of
// mdm is a certificate's, to be set as a raw header.
var pushTypes = map[string]string{
	"alert": "", "background": "", "mdm": "",
	"location":     ".location-query",
	"voip":         ".voip",
	"complication": ".complication",
	"fileprovider": ".pushkit.fileprovider",
	"liveactivity": ".push-type.liveactivity",
	"pushtotalk":   ".voip-ptt",
	"widgets":      ".push-type.widgets",
	"controls":     ".push-type.controls",
}

// Apple's longest payloads, in bytes.
const (
	maxPayload     = 4096
	maxVoIPPayload = 5120
	maxCollapseID  = 64
)

// Names of the headers.
const (
	headerAuthorization = "authorization"
	headerTopic         = "apns-topic"
	headerPushType      = "apns-push-type"
	headerPriority      = "apns-priority"
	headerExpiration    = "apns-expiration"
	headerID            = "apns-id"
	headerCollapseID    = "apns-collapse-id"
)

// Encode implements exchange.Codec.
func (c *codec) Encode(d *pipeline.Delivery, r *exchange.Draft) (push.Result, bool) {
	m := &d.Item.Message
	if !validToken(d.Device.Token) {
		return refused(push.InvalidToken), false
	}
	pushType := pushTypeOf(m)
	topic, known := c.topics[pushType]
	if !known {
		return refused(push.InvalidMessage), false
	}
	auth, identity, err := c.tokens.authorization(time.Now())
	if err != nil {
		return push.Result{Class: push.Again, Scope: push.ScopeRoute, Halt: true, Reason: string(push.AuthFailed)}, false
	}
	r.Identity = identity
	r.Path = append(r.Path, "/3/device/"...)
	r.Path = appendLower(r.Path, d.Device.Token)
	r.Header = append(r.Header,
		h2.Field{Name: headerAuthorization, Value: auth},
		h2.Field{Name: headerTopic, Value: topic})
	setText(r, headerPushType, pushType, h2.Indexed)
	setText(r, headerPriority, priority(pushType, m.Priority), h2.Indexed)
	if !d.Expires.IsZero() {
		at := len(r.Values)
		r.Values = strconv.AppendInt(r.Values, d.Expires.Time().Unix(), 10)
		set(r, headerExpiration, at, h2.NotIndexed)
	}
	at := len(r.Values)
	r.Values = appendID(r.Values, m.ID, d.Device.Hash, d.Item.Step())
	set(r, headerID, at, h2.NotIndexed)
	if m.CollapseKey != "" {
		at := len(r.Values)
		r.Values = appendCollapseID(r.Values, m.CollapseKey)
		set(r, headerCollapseID, at, h2.NotIndexed)
	}
	if !overrideHeaders(r, m) || !encodePayload(r, m, pushType) {
		return refused(push.InvalidMessage), false
	}
	limit := maxPayload
	if pushType == "voip" {
		limit = maxVoIPPayload
	}
	if len(r.Body) > limit {
		return refused(push.PayloadTooLarge), false
	}
	return push.Result{}, true
}

func refused(why push.Reason) push.Result {
	return push.Result{Class: push.Refused, Reason: string(why)}
}

// validToken: 64 to 512 hex digits, an even number. Nothing else may get into a
// path.
func validToken(s string) bool {
	if len(s) < 64 || len(s) > 512 || len(s)%2 != 0 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !hexDigits[s[i]] {
			return false
		}
	}
	return true
}

// hexDigits are the bytes of a token: a look-up each, because a token is long.
var hexDigits = func() (is [256]bool) {
	for _, b := range []byte("0123456789abcdefABCDEF") {
		is[b] = true
	}
	return is
}()

func appendLower(dst []byte, token string) []byte {
	for i := 0; i < len(token); i++ {
		b := token[i]
		if b >= 'A' && b <= 'F' {
			b |= 0x20
		}
		dst = append(dst, b)
	}
	return dst
}

// priority: a background push with 10 is an error to Apple.
func priority(pushType string, p push.Priority) string {
	if pushType == "background" || !p.Urgent() {
		return "5"
	}
	return "10"
}

// appendID appends the apns-id: a UUID (version 8) of the notification, the
// device and the step, so that a re-send of the same attempt has the same one
// and Apple's logs join with ours.
func appendID(dst []byte, id, device string, step int16) []byte {
	var buf [192]byte
	in := append(buf[:0], id...)
	in = append(in, 0)
	in = append(in, device...)
	in = append(in, 0, byte(step>>8), byte(step))
	sum := sha256.Sum256(in)
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	dst = hex.AppendEncode(dst, sum[0:4])
	for _, part := range [][2]int{{4, 6}, {6, 8}, {8, 10}, {10, 16}} {
		dst = append(dst, '-')
		dst = hex.AppendEncode(dst, sum[part[0]:part[1]])
	}
	return dst
}

// appendCollapseID appends the key or what stands for it.
func appendCollapseID(dst []byte, key string) []byte {
	if payload.IsCollapseID(key) {
		return append(dst, key...)
	}
	return payload.AppendKeyHash(dst, key)
}

// set gives a header the value that was appended to r.Values from at on. The
// value's capacity is cut, so that what follows cannot grow into it.
func set(r *exchange.Draft, name string, at int, ix h2.Indexing) {
	value := r.Values[at:len(r.Values):len(r.Values)]
	for i := range r.Header {
		if r.Header[i].Name == name {
			r.Header[i].Value = value
			return
		}
	}
	r.Header = append(r.Header, h2.Field{Name: name, Value: value, Indexing: ix})
}

func setText(r *exchange.Draft, name, value string, ix h2.Indexing) {
	at := len(r.Values)
	r.Values = append(r.Values, value...)
	set(r, name, at, ix)
}

// settable are the headers a producer may set: Apple's list without the
// credentials.
var settable = [...]string{headerTopic, headerPushType, headerPriority, headerExpiration, headerID, headerCollapseID}

func rawHeader(m *push.Message, name string) (string, bool) {
	for _, h := range m.APNSHeaders {
		if strings.EqualFold(h.Name, name) {
			return h.Value, true
		}
	}
	return "", false
}

// pushTypeOf is a raw header's, the message's own, or alert.
func pushTypeOf(m *push.Message) string {
	if h, ok := rawHeader(m, headerPushType); ok {
		return h
	}
	if m.PushType == "" {
		return "alert"
	}
	return m.PushType
}

// overrideHeaders puts the producer's raw headers over ours and reports false
// for one that is not a producer's to set.
func overrideHeaders(r *exchange.Draft, m *push.Message) bool {
	for _, h := range m.APNSHeaders {
		known := false
		for _, name := range settable {
			if strings.EqualFold(h.Name, name) {
				setText(r, name, h.Value, h2.NotIndexed)
				known = true
			}
		}
		if !known {
			return false
		}
	}
	return true
}

// encodePayload writes the body, and reports false for data that cannot stand
// in a payload.
func encodePayload(r *exchange.Draft, m *push.Message, pushType string) bool {
	b := append(r.Body, '{')
	b = appendAPS(b, m, pushType)
	// What Apple has no field for is the app's to read, unless data has it.
	homeless := [...]struct{ name, value string }{{"image", m.Image}, {"video", m.Video}, {"locale", m.Locale}}
	for it := payload.Members(m.Data); it.Next(); {
		switch {
		case it.Is("aps"):
			return false // it would replace what Apple reads
		case it.Is("pf_id"):
			continue // ours
		}
		for i := range homeless {
			if it.Is(homeless[i].name) {
				homeless[i].value = ""
			}
		}
		b = payload.AppendRawMember(b, &it)
	}
	for _, h := range homeless {
		b = payload.AppendMember(b, h.name, h.value)
	}
	if len(m.APNSPayload) > 0 {
		b = append(b, '}')
		r.Work = append(r.Work[:0], b...)
		b = payload.AppendMerged(b[:0], r.Work, m.APNSPayload, "pf_id")
		b = b[:len(b)-1]
	}
	b = payload.AppendMember(b, "pf_id", m.ID)
	r.Body = append(b, '}')
	return true
}

// appendAPS writes the part that Apple reads. A background push has
// content-available alone, and mdm has none.
func appendAPS(b []byte, m *push.Message, pushType string) []byte {
	if pushType == "mdm" {
		return b
	}
	start := len(b)
	b = append(payload.AppendName(b, "aps"), '{')
	empty := len(b)
	if pushType == "background" {
		b = append(b, `"content-available":1}`...)
		return b
	}
	if m.Title != "" || m.Body != "" {
		b = append(payload.AppendName(b, "alert"), '{')
		b = payload.AppendMember(b, "title", m.Title)
		b = payload.AppendMember(b, "body", m.Body)
		b = append(b, '}')
	}
	b = payload.AppendContent(b, m)
	if len(b) == empty {
		return b[:start] // nothing to say
	}
	return append(b, '}')
}
