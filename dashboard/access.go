package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
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
// one those who give it. Only who gives the admin key may change something.
type Access struct {
	key    string // empty = none is needed to see
	admin  string // empty = nobody may change anything
	secure bool   // browsers come by TLS: the cookie goes no other way
}

// role is what somebody may do.
type role int

const (
	nobody role = iota
	viewer
	admin // sees what viewers see, too
)

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
	return &Access{key: key, admin: adminKey, secure: secure}, nil
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
	if a.key != "" {
		return true
	}
	host := r.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	return IsLoopback(host)
}

// role is what the sender of a request may do.
func (a *Access) role(r *http.Request, now time.Time) role {
	least := nobody
	if a.key == "" {
		least = viewer
	}
	if given, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		return max(least, a.of(given))
	}
	c, err := r.Cookie(cookieName)
	if err != nil {
		return least
	}
	until, mac, _ := strings.Cut(c.Value, ".")
	at, err := strconv.ParseInt(until, 10, 64)
	if err != nil || !now.Before(time.Unix(at, 0)) {
		return least
	}
	for key, role := range a.roles() {
		if subtle.ConstantTimeCompare([]byte(mac), []byte(sign(key, until))) == 1 {
			least = max(least, role)
		}
	}
	return least
}

// roles are the keys that there are, and what they are for.
func (a *Access) roles() map[string]role {
	roles := map[string]role{a.key: viewer, a.admin: admin}
	delete(roles, "")
	return roles
}

// of is what a key is for. It is compared in a time that does not depend on it.
func (a *Access) of(given string) role {
	found, x := nobody, sha256.Sum256([]byte(given))
	for key, role := range a.roles() {
		y := sha256.Sum256([]byte(key))
		if subtle.ConstantTimeCompare(x[:], y[:]) == 1 {
			found = role
		}
	}
	return found
}

// sign signs the end of a session by the key that began it, which says what the session
// is for. Sessions depend on nothing else, so that they outlive a restart, and end when the
// key is changed.
func sign(key, until string) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte("pushfleet dashboard session until " + until))
	return hex.EncodeToString(m.Sum(nil))
}

// cookie is the cookie of a session that ends at a time.
func (a *Access) cookie(value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", HttpOnly: true, Secure: a.secure, SameSite: http.SameSiteStrictMode, MaxAge: seconds}
}

func (s *Site) askKey(w http.ResponseWriter, r *http.Request) { s.pages.serve(w, r, "login.html") }

// login begins a session. CrossOriginProtection has seen to it that the form is ours.
func (s *Site) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTime)); err != nil {
		s.log.Debug("no deadline for a form", "error", err)
	}
	if len(s.access.roles()) == 0 {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	key := r.PostFormValue("key")
	role := s.access.of(key)
	if role == nobody {
		s.log.Warn("a wrong key for the dashboard", "from", r.RemoteAddr)
		http.Redirect(w, r, "/login?wrong=1", http.StatusSeeOther)
		return
	}
	until := strconv.FormatInt(time.Now().Add(session).Unix(), 10)
	http.SetCookie(w, s.access.cookie(until+"."+sign(key, until), int(session/time.Second)))
	s.tellSession(w, "1", int(session/time.Second))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Site) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, s.access.cookie("", -1))
	s.tellSession(w, "", -1)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// tellSession lets the page see that there is a session to end, which its own cookie
// does not.
func (s *Site) tellSession(w http.ResponseWriter, value string, seconds int) {
	c := s.access.cookie(value, seconds)
	c.Name, c.HttpOnly = cookieName+"_in", false
	http.SetCookie(w, c)
}
