package sim

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// google is the policy of FCM HTTP v1.
type google struct {
	oauth    *oauth
	projects map[string]bool
	schema   *fcmField
	bodies   [replyCount][]byte
	fate     *fate
	raw      bool
	sent     atomic.Uint64 // makes message names unique
}

func newGoogle(o *Options, f *fate, auth *oauth) *google {
	g := &google{
		oauth: auth, projects: map[string]bool{}, schema: fcmSchema(), bodies: fcmBodies(),
		fate: f, raw: o.Raw,
	}
	for i := range o.Apps {
		if o.Apps[i].Project != "" {
			g.projects[o.Apps[i].Project] = true
		}
	}
	return g
}

// sendProject takes the project out of the path of messages:send.
func sendProject(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "/v1/projects/")
	if !ok {
		return "", false
	}
	project, ok := strings.CutSuffix(rest, "/messages:send")
	return project, ok && project != "" && !strings.ContainsAny(project, "/?")
}

// answer decides one request.
func (g *google) answer(req *Request, ans *Answer) {
	var m fcmMessage
	project, _ := sendProject(req.Path)
	f, by := fault{reply: g.checkSender(req, project)}, byValidation
	known := f.reply == NoReply
	if known {
		req.Conn.trust()
	}
	if known && g.fate.overProject(project, req.now) {
		f.reply, by = FCMProjectQuota, byRule
	}
	if f.reply == NoReply && !g.raw {
		f = m.parse(g.schema, req.Body)
	}
	if f.reply != NoReply || g.raw {
		m.find(req.Body)
	}
	token := view(m.token)
	device := req.device[:0]
	if len(m.id) > 0 {
		device = deviceHash(device, FCM, token)
	}
	id := m.id
	if m.validateOnly {
		id = nil
	}
	if f.reply == NoReply {
		if f.reply = g.fate.overTarget(token, view(m.topic), req.now); f.reply != NoReply {
			by = byRule
		} else {
			by = ""
		}
	}
	p := push{provider: FCM, req: req, id: id, device: device, token: token, home: project}
	c := g.fate.choose(&p, f.reply, by)
	if c.reply == NoReply {
		c.reply = FCMAccepted
		if m.validateOnly {
			c.reply = FCMValidated
		}
	}
	f.reply = c.reply
	if known && c.reply.Status() == 429 && by != byRule {
		g.fate.rates.refund(projectKey(project)) // a 429 does not count
	}
	g.write(&f, project, req.now, ans)
	c.faults.retryAfter(ans, req.now)
	g.quotaRetryAfter(req.now, ans)
	if known {
		g.announce(project, req.now, ans)
	}
	g.fate.finish(&p, &c, ans)
}

// quotaRetryAfter says when the window of the project's quota ends, if that is
// the rule and nothing else has been said.
func (g *google) quotaRetryAfter(now time.Time, ans *Answer) {
	rules := g.fate.rules.Load()
	if ans.Reply != FCMProjectQuota || !rules.QuotaRetryAfter || ans.has("retry-after") {
		return
	}
	wait := windowEnd(g.fate.projectQuota().Per, now, g.fate.offset).Sub(now)
	ans.field("retry-after", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
}

// checkSender decides what can be said before the body is read.
func (g *google) checkSender(req *Request, project string) Reply {
	if g.raw {
		return NoReply
	}
	if req.Method != "POST" {
		return FCMNotFound
	}
	authorization := ""
	for i := range req.Fields {
		if req.Fields[i].Name == "authorization" {
			authorization = req.Fields[i].Value
			break
		}
	}
	who, ok := g.oauth.bearer(authorization, req.now)
	switch {
	case !ok:
		return FCMUnauthenticated
	case !g.projects[project]:
		return FCMNotFound
	case !who.scoped || who.account.denied || !who.account.projects[project]:
		return FCMPermissionDenied
	}
	return NoReply
}

func (g *google) write(f *fault, project string, now time.Time, ans *Answer) {
	ans.Reply, ans.Status = f.reply, f.reply.Status()
	switch {
	case f.reply == FCMBadGateway:
		ans.field("content-type", "text/html; charset=UTF-8")
	default:
		ans.field("content-type", "application/json; charset=UTF-8")
	}
	switch {
	case f.reply == FCMAccepted:
		ans.Body = append(ans.Body, "{\n  \"name\": \"projects/"...)
		ans.Body = append(ans.Body, project...)
		ans.Body = append(ans.Body, "/messages/0:"...)
		ans.Body = strconv.AppendInt(ans.Body, now.UnixMicro(), 10)
		ans.Body = append(ans.Body, '%')
		ans.Body = appendHex(ans.Body, uint32(g.sent.Add(1)))
		ans.Body = appendHex(ans.Body, rand.Uint32())
		ans.Body = append(ans.Body, "\"\n}\n"...)
	case f.reply == FCMValidated:
		ans.Body = append(ans.Body, "{\n  \"name\": \"projects/"...)
		ans.Body = append(ans.Body, project...)
		ans.Body = append(ans.Body, "/messages/fake_message_id\"\n}\n"...)
	case f.description != "":
		ans.Body = append(ans.Body, f.body()...)
	default:
		ans.Body = append(ans.Body, g.bodies[f.reply]...)
	}
}

func appendHex(b []byte, n uint32) []byte {
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[n>>shift&15])
	}
	return b
}
