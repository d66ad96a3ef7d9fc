package sim

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	grantType       = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	googleAudience  = "https://oauth2.googleapis.com/token"
	assertionLife   = time.Hour
	clockTolerance  = 5 * time.Minute
	messagingScope  = "https://www.googleapis.com/auth/firebase.messaging"
	platformScope   = "https://www.googleapis.com/auth/cloud-platform"
	grantsPruneFrom = 1024
)

// account is a registered service account.
type account struct {
	email    string
	keys     []*rsa.PublicKey // guarded by the oauth's mu
	projects map[string]bool
	denied   bool
}

// grant is an access token that was handed out.
type grant struct {
	account *account
	scoped  bool // for messaging
	expires time.Time
}

// oauth is Google's token endpoint, and the memory of the tokens it gave.
type oauth struct {
	accounts map[string]*account // never changed, but for their keys
	life     time.Duration
	fate     *fate
	raw      bool

	mu        sync.RWMutex
	audiences map[string]bool
	grants    map[string]grant // by access token
}

func newOAuth(o *Options, f *fate) *oauth {
	a := &oauth{
		accounts: map[string]*account{}, life: o.AccessTokenLife, fate: f, raw: o.Raw,
		audiences: map[string]bool{googleAudience: true}, grants: map[string]grant{},
	}
	if o.Audience != "" {
		a.audiences[o.Audience] = true
	}
	for i := range o.Apps {
		app := &o.Apps[i]
		if app.AccountKey == nil {
			continue
		}
		acc := a.accounts[app.Account]
		if acc == nil {
			acc = &account{email: app.Account, keys: []*rsa.PublicKey{app.AccountKey}, projects: map[string]bool{}, denied: app.AccountDenied}
			a.accounts[app.Account] = acc
		}
		acc.projects[app.Project] = true
	}
	return a
}

// trust adds a key to an account that there is.
func (a *oauth) trust(app *App) {
	acc := a.accounts[app.Account]
	if acc == nil || app.AccountKey == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	acc.keys = append(slices.Clone(acc.keys), app.AccountKey)
}

// distrust deletes a key of an account. The access tokens that it got stay good, as
// Google's do.
func (a *oauth) distrust(app *App) {
	acc := a.accounts[app.Account]
	if acc == nil || app.AccountKey == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	acc.keys = slices.DeleteFunc(slices.Clone(acc.keys), func(k *rsa.PublicKey) bool { return k.Equal(app.AccountKey) })
}

// signedBy reports whether one of the account's keys has signed.
func (a *oauth) signedBy(acc *account, t *jwt) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.ContainsFunc(acc.keys, t.signedRS256)
}

// address adds a name under which the endpoint is reached.
func (a *oauth) address(uri string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.audiences[uri] = true
}

func (a *oauth) answer(req *Request, ans *Answer) {
	p := push{provider: OAuth, req: req}
	c := a.fate.choose(&p, NoReply, "")
	body := oauthFailure{c.reply.String(), ""}
	if c.reply == NoReply || c.reply == OAuthGranted {
		if c.reply, body = a.check(req); c.reply != OAuthGranted {
			c.by = byValidation
		}
	}
	ans.Reply, ans.Status = c.reply, c.reply.Status()
	ans.field("content-type", "application/json; charset=utf-8")
	defer a.fate.finish(&p, &c, ans)
	if c.reply == OAuthGranted {
		req.Conn.trust()
		ans.Body = append(ans.Body, body.Error...)
		return
	}
	c.faults.retryAfter(ans, req.now)
	// Two strings always encode.
	text, _ := json.MarshalIndent(body, "", "  ")
	ans.Body = append(ans.Body, text...)
}

type oauthFailure struct {
	Error       string `json:"error"`
	Description string `json:"error_description,omitempty"`
}

// check decides; with OAuthGranted the Error holds the whole answer.
func (a *oauth) check(req *Request) (Reply, oauthFailure) {
	if req.Method != "POST" {
		return OAuthMethodNotAllowed, oauthFailure{"method_not_allowed", ""}
	}
	form, err := url.ParseQuery(string(req.Body))
	if err != nil {
		return OAuthInvalidRequest, oauthFailure{"invalid_request", "The body is no form."}
	}
	if t := form.Get("grant_type"); t != grantType {
		return OAuthUnsupportedGrantType, oauthFailure{"unsupported_grant_type", "Invalid grant_type: " + t}
	}
	g, problem := a.verify(form.Get("assertion"))
	if problem != "" {
		return OAuthInvalidGrant, oauthFailure{"invalid_grant", problem}
	}
	token := "ya29." + rand.Text() + rand.Text()
	a.keep(token, g)
	text, _ := json.Marshal(struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
		TokenType   string `json:"token_type"`
	}{token, int(a.life/time.Second) - 1, "Bearer"})
	return OAuthGranted, oauthFailure{Error: string(text)}
}

// verify checks an assertion; the problem is Google's wording.
func (a *oauth) verify(assertion string) (g grant, problem string) {
	now := a.fate.clock.Now()
	g.expires = now.Add(a.life)
	if a.raw {
		g.account, g.scoped = &account{}, true
		return g, ""
	}
	t, err := parseJWT(assertion)
	if err != nil {
		return g, "Bad Request"
	}
	var claims struct {
		Iss   string  `json:"iss"`
		Scope string  `json:"scope"`
		Aud   string  `json:"aud"`
		Iat   float64 `json:"iat"`
		Exp   float64 `json:"exp"`
	}
	if t.decode(&claims) != nil {
		return g, "Bad Request"
	}
	g.account = a.accounts[claims.Iss]
	if g.account == nil {
		return g, "Invalid grant: account not found"
	}
	if !a.signedBy(g.account, t) {
		return g, "Invalid JWT Signature."
	}
	issued, expires := time.Unix(int64(claims.Iat), 0), time.Unix(int64(claims.Exp), 0)
	if expires.Sub(issued) > assertionLife || expires.Before(now) || issued.After(now.Add(clockTolerance)) || !expires.After(issued) {
		return g, "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim."
	}
	a.mu.RLock()
	known := a.audiences[claims.Aud]
	a.mu.RUnlock()
	if !known {
		return g, "Invalid JWT: Failed audience check."
	}
	for _, s := range strings.Fields(claims.Scope) {
		g.scoped = g.scoped || s == messagingScope || s == platformScope
	}
	return g, ""
}

func (a *oauth) keep(token string, g grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.grants) >= grantsPruneFrom {
		for t, old := range a.grants {
			if old.expires.Before(a.fate.clock.Now()) {
				delete(a.grants, t)
			}
		}
	}
	a.grants[token] = g
}

// bearer finds out who sends. ok is false for a token that is missing, not
// ours, or expired.
func (a *oauth) bearer(authorization string, now time.Time) (grant, bool) {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return grant{}, false
	}
	a.mu.RLock()
	g, ok := a.grants[token]
	a.mu.RUnlock()
	return g, ok && g.expires.After(now)
}

// revoke ends all access tokens, as when an account's key is rolled.
func (a *oauth) revoke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.grants)
}
