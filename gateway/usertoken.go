package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// pass is what a user's token says: with it an app's client may do for its one user what
// the key that made it may.
type pass struct {
	key   string // the name of the key that made it
	app   string
	user  string
	until time.Time // in seconds; it is no longer good then
}

// A user's token is passPrefix + base64url of: version, key name, app and user, each with
// its length before it, Unix seconds as a varint, and 16 bytes of HMAC-SHA-256 over all
// that and the hash of the key: when the key is gone, so are the tokens that it made.
const (
	passPrefix  = "pfu."
	passVersion = 1
	forPasses   = "pushfleet user token"
	maxPassTime = 24 * time.Hour
)

// signPass makes the token. c made it.
func (s *Signer) signPass(c *Caller, p *pass) string {
	b := []byte{passVersion}
	for _, text := range []string{c.Name, p.app, p.user} {
		b = appendText(b, text)
	}
	b = binary.AppendUvarint(b, uint64(p.until.Unix()))
	return passPrefix + base64.RawURLEncoding.EncodeToString(s.signed(b, forPasses, string(c.hash[:])))
}

// cutPass takes a token apart, whoever has signed it.
func cutPass(token string) (b []byte, p *pass, ok bool) {
	body, is := strings.CutPrefix(token, passPrefix)
	if !is || strings.ContainsAny(body, "\r\n") { // over which the decoder passes
		return nil, nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil || len(b) < 1+macBytes || b[0] != passVersion {
		return nil, nil, false
	}
	r, p := claimReader{b: b[1 : len(b)-macBytes]}, &pass{}
	for _, to := range []*string{&p.key, &p.app, &p.user} {
		*to = r.text()
	}
	p.until = time.Unix(int64(r.number(1<<40)), 0).UTC()
	return b, p, !r.bad && len(r.b) == 0
}

// openPass reads a token, and finds the caller whose key has made it; false = nobody's
// has, or it has no right to users of that app any more.
func (s *Signer) openPass(callers *Callers, token string) (*Caller, *pass, bool) {
	b, p, ok := cutPass(token)
	if !ok {
		return nil, nil, false
	}
	c := callers.Named(p.key)
	if c == nil {
		c = &Caller{} // it takes as long as for one that there is
	}
	if _, valid := s.verified(b, forPasses, string(c.hash[:])); !valid || c.Name == "" || !c.may(Manage) || !c.apps[p.app] {
		return nil, nil, false
	}
	return c, p, true
}

// passRequest is the body of POST /v1/users/{user}/tokens.
type passRequest struct {
	App       string `json:"app"`
	ExpiresIn *int   `json:"expires_in"` // seconds; nil = an hour
}

var passFields = []string{"app", "expires_in"}

// passAnswer is the answer.
type passAnswer struct {
	Token     string    `json:"token"`
	UserID    string    `json:"user_id"`
	App       string    `json:"app"`
	ExpiresAt time.Time `json:"expires_at"`
}

// ownApp is what is wrong with an app for which a key makes something; nil = nothing.
func (g *Gateway) ownApp(v *visitor, app string) *Problem {
	switch {
	case app == "":
		return newProblem(codeInvalidField, "want the app that it is for").at("/app")
	case !v.has(app):
		return newProblem(codeForeignApp, "this key is not for the app").at("/app")
	case !g.knows(app):
		return refused(&push.Defect{Reason: push.UnknownApp, Field: "app"})
	}
	return nil
}

// makePass answers POST /v1/users/{user}/tokens.
func (g *Gateway) makePass(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	var q passRequest
	if problem := g.readObject(r, 1<<10, &q, passFields); problem != nil {
		return problem
	}
	within := time.Hour
	if q.ExpiresIn != nil {
		if *q.ExpiresIn < 1 || *q.ExpiresIn > int(maxPassTime/time.Second) {
			return newProblem(codeInvalidField, fmt.Sprintf("want 1 to %d seconds", maxPassTime/time.Second)).at("/expires_in")
		}
		within = time.Duration(*q.ExpiresIn) * time.Second
	}
	if problem := g.ownApp(v, q.App); problem != nil {
		return problem
	}
	p := &pass{key: v.caller.Name, app: q.App, user: v.user, until: clock().Add(within).Truncate(time.Second)}
	answer(w, http.StatusCreated, "application/json", passAnswer{Token: g.o.Signer.signPass(v.caller, p), UserID: p.user, App: p.app, ExpiresAt: p.until})
	return nil
}
