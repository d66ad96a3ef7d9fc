package sim

import (
	"crypto/ecdsa"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	providerTokenLife = time.Hour
	// A change of the provider token sooner than this after the last change is
	// too many. The first token is no change.
	providerTokenRest = 20 * time.Minute
	tokensRemembered  = 1024
)

// Conn is what the policies remember of one connection. It comes with every
// request, and NewConn makes it. Safe for concurrent use.
type Conn struct {
	id      uint64     // from 1; 0 without a connection
	address netip.Addr // of the client; not valid without a connection
	remote  net.Addr   // the same with its port; nil without a connection

	bound   atomic.Pointer[binding] // the provider token in use
	trusted atomic.Bool             // a request on it was authenticated

	mu     sync.Mutex
	wedged bool // an expired token was seen: Apple refuses all that follow
	bad    window
}

// binding ties a connection to the token, and through it the key and team, of
// its first push.
type binding struct {
	token   *providerToken
	changed time.Time // when it took the place of another one; zero = it is the first
}

// resting reports whether it is too early for another change.
func (b *binding) resting(now time.Time) bool {
	return !b.changed.IsZero() && now.Sub(b.changed) < providerTokenRest
}

// NewConn starts the memory of a new connection.
func NewConn() *Conn { return &Conn{} }

func (c *Conn) trust() {
	if !c.trusted.Load() {
		c.trusted.Store(true)
	}
}

// wedge makes the connection refuse every token from now on.
func (c *Conn) wedge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wedged = true
	c.bound.Store(nil)
}

// tooManyBad counts a bad device token.
func (c *Conn) tooManyBad(l Limit, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bad.over(l, now)
}

// appleKey is a registered signing key with the topics it may push to.
type appleKey struct {
	id, team    string
	public      *ecdsa.PublicKey
	environment string
	topicsOnly  bool
	topics      map[string]bool
	revoked     atomic.Bool
	pushes      atomic.Int64 // that were authenticated by it
}

// providerToken is an APNs JWT with a good signature.
type providerToken struct {
	header   string // the whole authorization value
	key      *appleKey
	issuedAt time.Time
}

func (t *providerToken) fresh(now time.Time) bool {
	age := now.Sub(t.issuedAt)
	return age <= providerTokenLife && age >= -providerTokenLife
}

// appleAuth verifies provider tokens. A signature is checked once per token,
// not once per request.
type appleAuth struct {
	keys        map[string]*appleKey // by key id; guarded by mu once it serves
	environment string
	wrongEnv    Reply
	fate        *fate

	mu       sync.RWMutex
	verified map[string]*providerToken // by authorization value

	addressMu sync.Mutex // taken inside of a Conn's
	addresses map[netip.Addr]*sourceAddress
}

// sourceAddress is what Apple remembers of a client's address.
type sourceAddress struct {
	current map[*appleKey]binding
	blocked time.Time // until then no new token is taken
}

func newAppleAuth(o *Options, f *fate) *appleAuth {
	a := &appleAuth{
		fate: f, addresses: map[netip.Addr]*sourceAddress{},
		keys: map[string]*appleKey{}, verified: map[string]*providerToken{},
		environment: "production", wrongEnv: APNSBadEnvironmentKeyInToken,
	}
	if o.Sandbox {
		a.environment = "sandbox"
	}
	if o.DocumentedSpelling {
		a.wrongEnv = APNSBadEnvironmentKeyIDInToken
	}
	for i := range o.Apps {
		a.trust(&o.Apps[i])
	}
	return a
}

// trust registers an app's key, if it has one.
func (a *appleAuth) trust(app *App) {
	if app.Key == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.keys[app.KeyID]
	if k == nil {
		k = &appleKey{
			id: app.KeyID, team: app.TeamID, public: app.Key,
			environment: app.KeyEnvironment, topicsOnly: app.KeyTopicsOnly, topics: map[string]bool{},
		}
		a.keys[app.KeyID] = k
	}
	for _, t := range app.Topics {
		k.topics[t] = true
	}
}

// revoke ends a key: every token of it is refused from now on, also on connections
// that took one before.
func (a *appleAuth) revoke(keyID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.keys[keyID]; k != nil {
		k.revoked.Store(true)
		delete(a.keys, keyID)
	}
}

// pushes is how many pushes a key has authenticated.
func (a *appleAuth) pushes(keyID string) int64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if k := a.keys[keyID]; k != nil {
		return k.pushes.Load()
	}
	return 0
}

// admit decides whether a request with this authorization may go on, over this
// connection.
func (a *appleAuth) admit(c *Conn, authorization string, now time.Time) (*appleKey, Reply) {
	if b := c.bound.Load(); b != nil && b.token.header == authorization && b.token.fresh(now) && !b.token.key.revoked.Load() {
		c.trust()
		b.token.key.pushes.Add(1)
		return b.token.key, NoReply
	}
	if authorization == "" {
		return nil, APNSMissingProviderToken
	}
	t, reply := a.verify(authorization)
	if reply != NoReply {
		return nil, reply
	}
	return c.bind(t, a, now)
}

func (a *appleAuth) verify(authorization string) (*providerToken, Reply) {
	a.mu.RLock()
	t := a.verified[authorization]
	a.mu.RUnlock()
	if t != nil && !t.key.revoked.Load() {
		return t, NoReply
	}
	scheme, raw, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "bearer") || raw == "" {
		return nil, APNSMissingProviderToken
	}
	parsed, err := parseJWT(raw)
	if err != nil {
		return nil, APNSInvalidProviderToken
	}
	var claims struct {
		Iss string `json:"iss"`
		Iat *int64 `json:"iat"`
	}
	a.mu.RLock()
	key := a.keys[parsed.KeyID]
	a.mu.RUnlock()
	if key == nil || parsed.decode(&claims) != nil || claims.Iat == nil || claims.Iss != key.team || !parsed.signedES256(key.public) {
		return nil, APNSInvalidProviderToken
	}
	t = &providerToken{header: strings.Clone(authorization), key: key, issuedAt: time.Unix(*claims.Iat, 0)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.verified) >= tokensRemembered {
		clear(a.verified)
	}
	a.verified[t.header] = t
	return t, NoReply
}

// bind ties the connection to a token it has not seen before, or says why not.
func (c *Conn) bind(t *providerToken, a *appleAuth, now time.Time) (*appleKey, Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.wedged:
		return nil, APNSExpiredProviderToken
	case now.Sub(t.issuedAt) > providerTokenLife:
		c.wedged = true
		c.bound.Store(nil)
		return nil, APNSExpiredProviderToken
	case !t.fresh(now): // from the future
		return nil, APNSInvalidProviderToken
	case t.key.environment != "" && t.key.environment != a.environment:
		return nil, a.wrongEnv
	}
	changed := time.Time{}
	if b := c.bound.Load(); b != nil && b.token.header == t.header {
		changed = b.changed
	} else if b != nil {
		switch {
		case b.token.key.team != t.key.team:
			return nil, APNSForbidden
		case b.token.key != t.key && (b.token.key.topicsOnly || t.key.topicsOnly):
			return nil, APNSUnrelatedKeyIDInToken
		case b.resting(now):
			return nil, APNSTooManyProviderTokenUpdates
		}
		changed = now
	}
	if a.fate.rules.Load().UpdatesPerAddress && c.address.IsValid() && a.updatesTooOften(c.address, t, now) {
		return nil, APNSTooManyProviderTokenUpdates
	}
	c.bound.Store(&binding{token: t, changed: changed})
	c.trust()
	t.key.pushes.Add(1)
	return t.key, NoReply
}

// updatesTooOften notes the token that an address uses. A change of the token
// of one key within the time of rest after the last one blocks new tokens of
// any key from there, but not the ones that were good before.
func (a *appleAuth) updatesTooOften(from netip.Addr, t *providerToken, now time.Time) bool {
	a.addressMu.Lock()
	defer a.addressMu.Unlock()
	s := a.addresses[from]
	if s == nil {
		s = &sourceAddress{current: map[*appleKey]binding{}}
		a.addresses[from] = s
	}
	b, ok := s.current[t.key]
	switch {
	case ok && b.token.header == t.header:
		return false
	case now.Before(s.blocked):
		return true
	case !ok:
		s.current[t.key] = binding{token: t}
		return false
	case b.resting(now):
		s.blocked = now.Add(providerTokenRest)
		return true
	}
	s.current[t.key] = binding{token: t, changed: now}
	return false
}
