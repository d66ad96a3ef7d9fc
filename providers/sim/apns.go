package sim

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	payloadLimit     = 4096
	payloadLimitVoIP = 5120
	collapseLimit    = 64
	topicLimit       = 255
	tokenLimit       = 512 // hexadecimal digits; Apple says not to assume a length
)

// apple is the policy of APNs.
type apple struct {
	auth      *appleAuth
	topics    map[string]bool // of all apps: one of another team is disallowed, not unknown
	fate      *fate
	malformed Reply
	sandbox   bool
	upper     bool
	raw       bool
	scratch   sync.Pool // of *notification
}

func newApple(o *Options, f *fate) *apple {
	a := &apple{
		auth: newAppleAuth(o, f), topics: map[string]bool{}, fate: f,
		malformed: o.Malformed, sandbox: o.Sandbox, upper: o.UpperCaseIDs, raw: o.Raw,
	}
	a.scratch.New = func() any { return new(notification) }
	for i := range o.Apps {
		for _, t := range o.Apps[i].Topics {
			a.topics[t] = true
		}
	}
	return a
}

// notification is an APNs request, taken apart once for all checks.
type notification struct {
	req   *Request
	token string
	key   *appleKey // known once authenticated
	base  string    // the topic without its suffix, known once it is allowed

	authorization, id, topic, pushType, priority, expiration, collapse string
	repeated, hasCollapse                                              bool

	payload payload
	scanned bool
	since   time.Time // of a dead token
}

// apnsChecks are the validation of a request, in the order in which its faults
// win. Apple publishes none. Authentication comes before anything that would
// tell a stranger about topics or tokens.
var apnsChecks = [...]func(*apple, *notification) Reply{
	(*apple).checkPath,
	(*apple).checkMethod,
	(*apple).checkRepeats,
	(*apple).checkID,
	(*apple).checkTopic,
	(*apple).checkExpiration,
	(*apple).checkPriority,
	(*apple).checkCollapseID,
	(*apple).checkPushType,
	(*apple).checkAuthorization,
	(*apple).checkTopicAllowed,
	(*apple).checkToken,
	(*apple).checkPayload,
}

// answer decides one request.
func (a *apple) answer(req *Request, ans *Answer) {
	n := a.scratch.Get().(*notification)
	defer a.scratch.Put(n)
	n.take(req)
	reply, by := NoReply, ""
	if a.raw {
		req.Conn.trust()
	} else {
		for _, check := range apnsChecks {
			if reply = check(a, n); reply != NoReply {
				by = byValidation
				break
			}
		}
	}
	if reply == NoReply && a.fate.overDevice(n.token, req.now) {
		reply, by = APNSTooManyRequests, byRule
	}
	n.scan()
	device := req.device[:0]
	if len(n.payload.id) > 0 {
		device = deviceHash(device, APNS, n.token)
	}
	p := push{provider: APNS, req: req, id: n.payload.id, device: device, token: n.token, home: n.base}
	c := a.fate.choose(&p, reply, by)
	if c.reply == NoReply {
		c.reply = APNSAccepted
	}
	n.since = c.since
	a.write(n, c.reply, ans)
	a.fate.finish(&p, &c, ans)
	*n = notification{} // the request's memory is the engine's again
}

func (a *apple) write(n *notification, r Reply, ans *Answer) {
	ans.Reply, ans.Status = r, r.Status()
	id := n.id
	if r == APNSBadMessageID || id == "" || !isUUID(id) {
		id = a.newID(ans)
	}
	ans.field("apns-id", id)
	if r == APNSAccepted {
		if a.sandbox {
			ans.field("apns-unique-id", a.newID(ans))
		}
		return
	}
	ans.field("content-type", "application/json")
	ans.Body = append(ans.Body, `{"reason":"`...)
	ans.Body = append(ans.Body, r.String()...)
	ans.Body = append(ans.Body, '"')
	if r.Status() == 410 {
		ans.Body = append(ans.Body, `,"timestamp":`...)
		since := n.since
		if since.IsZero() {
			since = n.req.now
		}
		ans.Body = strconv.AppendInt(ans.Body, since.UnixMilli(), 10)
	}
	ans.Body = append(ans.Body, '}')
}

// newID makes a version 4 UUID, in the memory of an answer.
func (a *apple) newID(ans *Answer) string {
	digits := "0123456789abcdef"
	if a.upper {
		digits = "0123456789ABCDEF"
	}
	hi, lo := rand.Uint64()&^0xf000|0x4000, rand.Uint64()&^(3<<62)|2<<62
	var b [36]byte
	for i, at := 0, 0; i < 32; i, at = i+1, at+1 {
		if i == 8 || i == 12 || i == 16 || i == 20 {
			b[at] = '-'
			at++
		}
		word := hi
		if i >= 16 {
			word = lo
		}
		b[at] = digits[word>>(60-4*(i%16))&15]
	}
	return ans.Keep(b[:])
}

// take reads the header fields.
func (n *notification) take(req *Request) {
	n.req = req
	n.token, _ = strings.CutPrefix(req.Path, "/3/device/")
	var seen uint16
	for i := range req.Fields {
		f := &req.Fields[i]
		bit := uint16(0)
		switch f.Name {
		case "authorization":
			n.authorization, bit = f.Value, 1
		case "apns-id":
			n.id, bit = f.Value, 2
		case "apns-topic":
			n.topic, bit = f.Value, 4
		case "apns-push-type":
			n.pushType, bit = f.Value, 8
		case "apns-priority":
			n.priority, bit = f.Value, 16
		case "apns-expiration":
			n.expiration, bit = f.Value, 32
		case "apns-collapse-id":
			n.collapse, n.hasCollapse, bit = f.Value, true, 64
		}
		n.repeated = n.repeated || seen&bit != 0
		seen |= bit
	}
}

// scan reads the payload, at most once.
func (n *notification) scan() {
	if !n.scanned {
		n.scanned = true
		n.payload = scanPayload(n.req.Body)
	}
}
