package sim

import (
	"strings"
	"time"
)

// The paths that are served.
const (
	tokenPath  = "/token"
	applePath  = "/3/"
	googlePath = "/v1/projects/"
)

// policy decides what requests are answered. Answer may be called by many
// goroutines at once.
type policy struct {
	*fate
	apple  *apple
	google *google
	oauth  *oauth
	dates  *dates // nil: answers have no date
}

// newPolicy makes the policy of complete options.
func newPolicy(o *Options) *policy {
	p := &policy{fate: newFate(o)}
	p.setFaults(APNS, o.Faults.APNS)
	p.setFaults(FCM, o.Faults.FCM)
	p.setFaults(OAuth, o.Faults.OAuth)
	p.apple = newApple(o, p.fate)
	p.oauth = newOAuth(o, p.fate)
	p.google = newGoogle(o, p.fate, p.oauth)
	if !o.Raw && !o.NoDate {
		p.dates = &dates{skew: o.DateSkew}
	}
	return p
}

func (p *policy) setFaults(who Provider, f Faults) { p.chance.routes[who].Store(&f) }

// Answer decides a request, and writes it down in the ledger.
func (p *policy) Answer(req *Request, ans *Answer) {
	ans.reset()
	if req.now.IsZero() {
		req.now = p.clock.Now()
	}
	switch providerOf(req.Path) {
	case APNS:
		p.apple.answer(req, ans)
	case FCM:
		p.google.answer(req, ans)
	case OAuth:
		p.oauth.answer(req, ans)
	default:
		ans.decided = p.ledger.observe(nil, nil, NotOurPath)
		ans.Reply, ans.Status = NotOurPath, NotOurPath.Status()
	}
	if p.dates != nil {
		ans.field("date", p.dates.at(req.now))
	}
	req.now = time.Time{} // the same request may come again
}

// providerOf says whose path it is.
func providerOf(path string) Provider {
	switch {
	case strings.HasPrefix(path, applePath):
		return APNS
	case path == tokenPath:
		return OAuth
	case strings.HasPrefix(path, googlePath):
		if _, ok := sendProject(path); ok {
			return FCM
		}
	}
	return Nobody
}

// http2Only says why a path is not served over HTTP/1.1, which Google speaks,
// and OAuth clients often do.
func http2Only(path string) string {
	if providerOf(path) == APNS {
		return "APNs speaks HTTP/2 only"
	}
	return ""
}
