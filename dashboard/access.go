package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

const (
	// leastKey is the least length of a key in bytes.
	leastKey = 24
	// session is how long a browser need not ask for the key again.
	session = 12 * time.Hour
	// maxForm bounds the body of a form in bytes.
	maxForm = 4 << 10
	// cookieName is the cookie of a browser that has given the key.
	cookieName = "pushfleet_dashboard"
)

// Access decides who may see a fleet: without a key those who are on this machine, with
// one those who give it. Only who gives an admin's key may change something.
type Access struct {
	keys   Keys // nil = there are none
	open   bool // no key is needed to see
	acts   bool // there may be an admin's key
	named  bool // keys have names that say who acts
	secure bool // browsers come by TLS: the cookie goes no other way
}

// Keys are those that open a dashboard. They may change at any time; implementations are safe
// for concurrent use.
type Keys interface {
	// With is who has a key. The error says to who gave it why it opens nothing, or is
	// ErrUnknownKey.
	With(key string) (Holder, error)
	// Named is who has the key of this name now; false = nobody who may see the fleet.
	Named(name string) (Holder, bool)
}

// ErrUnknownKey says that nobody has such a key.
var ErrUnknownKey = errors.New("this key is not known")

// Holder is who has a key.
type Holder struct {
	Name   string // of the key, no secret
	Admin  bool   // may change something
	Secret []byte // signs the sessions of this key, which end when it changes
}

// role is what somebody may do.
type role int

const (
	nobody role = iota
	viewer
	admin // sees what viewers see, too
)

func (h *Holder) role() role {
	if h.Admin {
		return admin
	}
	return viewer
}

// NewAccess returns the access by a key to see the fleet, empty = everybody on this
// machine, and one to change something, empty = nobody. The error says what is wrong with
// them.
func NewAccess(key, adminKey string, secure bool) (*Access, error) {
	for _, k := range []string{key, adminKey} {
		if k != "" && len(k) < leastKey {
			return nil, errors.New("the key is too short: at least 24 characters, as from `openssl rand -base64 24`")
		}
	}
	if key != "" && key == adminKey {
		return nil, errors.New("the admin key must not be the key of those who only look")
	}
	a := &Access{open: key == "", acts: adminKey != "", secure: secure}
	if key != "" || adminKey != "" {
		a.keys = pair{key, adminKey}
	}
	return a, nil
}

// NewNamedAccess returns the access by keys that say who somebody is: nobody sees the fleet
// without one, and what is kept of who acts has its name.
func NewNamedAccess(keys Keys, secure bool) *Access {
	return &Access{keys: keys, acts: true, named: true, secure: secure}
}

// pair are the key of those who see and that of those who act; empty = there is none.
type pair struct{ key, admin string }

// With implements Keys. Keys are compared in a time that does not depend on them.
func (p pair) With(given string) (Holder, error) {
	found, x := "", sha256.Sum256([]byte(given))
	for _, key := range []string{p.key, p.admin} {
		y := sha256.Sum256([]byte(key))
		if subtle.ConstantTimeCompare(x[:], y[:]) == 1 {
			found = key
		}
	}
	if found == "" {
		return Holder{}, ErrUnknownKey
	}
	return p.holder(found), nil
}

// Named implements Keys.
func (p pair) Named(name string) (Holder, bool) {
	for _, key := range []string{p.key, p.admin} {
		if h := p.holder(key); key != "" && h.Name == name {
			return h, true
		}
	}
	return Holder{}, false
}

func (p pair) holder(key string) Holder {
	if key == p.admin {
		return Holder{"admin", true, []byte(key)}
	}
	return Holder{"viewer", false, []byte(key)}
}

// IsLoopback reports whether an address to listen on, host:port, is reached from this
// machine alone.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// host reports whether a request names a host that is served. Without a key only this
// machine's own names are: a name of somebody else's that leads here (DNS rebinding)
// would let any page in the browser read the fleet.
func (a *Access) host(r *http.Request) bool {
	if !a.open {
		return true
	}
	host := r.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	return IsLoopback(host)
}

// visitor is who sends a request.
type visitor struct {
	role role
	key  string // the name of its key; empty = it has none that opens something
	why  error  // why the key that it gave opens nothing; nil = it gave none, or it does
}

// role is what the sender of a request may do.
func (a *Access) role(r *http.Request, now time.Time) role { return a.who(r, now).role }

// who is the sender of a request, as its key stands now.
func (a *Access) who(r *http.Request, now time.Time) (v visitor) {
	if a.open {
		v.role = viewer
	}
	if given, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		h, err := a.of(given)
		if err != nil {
			v.why = err
			return v
		}
		return visitor{role: h.role(), key: h.Name}
	}
	c, err := r.Cookie(cookieName)
	if err != nil || a.keys == nil {
		return v
	}
	until, rest, _ := strings.Cut(c.Value, ".")
	mac, name, _ := strings.Cut(rest, ".")
	at, err := strconv.ParseInt(until, 10, 64)
	if err != nil || !now.Before(time.Unix(at, 0)) {
		return v
	}
	h, known := a.keys.Named(name)
	if !known || subtle.ConstantTimeCompare([]byte(mac), []byte(sign(h.Secret, until))) != 1 {
		return v
	}
	return visitor{role: h.role(), key: h.Name}
}

// of is who has a key.
func (a *Access) of(given string) (Holder, error) {
	if a.keys == nil {
		return Holder{}, ErrUnknownKey
	}
	return a.keys.With(given)
}

// signature is what is kept of who acts: the name that was typed, and that of the key if it
// says more.
func (a *Access) signature(typed string, v visitor) string {
	if a.named {
		return typed + " (dashboard, key " + v.key + ")"
	}
	return typed + " (dashboard)"
}

// sign signs the end of a session by the secret of the key that began it. Sessions depend on
// nothing else, so that they outlive a restart, and end when the key is changed.
func sign(secret []byte, until string) string {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("pushfleet dashboard session until " + until))
	return hex.EncodeToString(m.Sum(nil))
}

// cookie is the cookie of a session that ends at a time. Behind a proxy that has TLS the
// browser says of its form that the page came so.
func (a *Access) cookie(r *http.Request, value string, seconds int) *http.Cookie {
	secure := a.secure || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode, MaxAge: seconds}
}

func (s *Site) askKey(w http.ResponseWriter, r *http.Request) { s.pages.serve(w, r, loginPage) }

// login begins a session. CrossOriginProtection has seen to it that the form is ours.
func (s *Site) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTime)); err != nil {
		s.log.Debug("no deadline for a form", "error", err)
	}
	if s.access.keys == nil {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	holder, err := s.access.of(r.PostFormValue("key"))
	switch {
	case errors.Is(err, ErrUnknownKey):
		s.log.Warn("a wrong key for the dashboard", "from", r.RemoteAddr)
		http.Redirect(w, r, "/login?wrong=1", http.StatusSeeOther)
		return
	case err != nil:
		s.log.Warn("a key that opens no dashboard", "from", r.RemoteAddr, "error", err)
		s.refuseKey(w, r, err)
		return
	}
	until := strconv.FormatInt(time.Now().Add(session).Unix(), 10)
	http.SetCookie(w, s.access.cookie(r, until+"."+sign(holder.Secret, until)+"."+holder.Name, int(session/time.Second)))
	s.tellSession(w, r, "1", int(session/time.Second))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// refuseKey says why a key opens nothing, and what to do: in the page that asks for another
// one, or to a program that asks for JSON as a problem (RFC 9457).
func (s *Site) refuseKey(w http.ResponseWriter, r *http.Request, why error) {
	if strings.Contains(r.Header.Get("Accept"), "json") {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"title": "This key does not open the dashboard", "status": http.StatusForbidden, "detail": why.Error()}) // who has gone needs no answer
		return
	}
	s.pages.refuse(w, why.Error())
}

func (s *Site) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, s.access.cookie(r, "", -1))
	s.tellSession(w, r, "", -1)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// tellSession lets the page see that there is a session to end, which its own cookie
// does not.
func (s *Site) tellSession(w http.ResponseWriter, r *http.Request, value string, seconds int) {
	c := s.access.cookie(r, value, seconds)
	c.Name, c.HttpOnly = cookieName+"_in", false
	http.SetCookie(w, c)
}
