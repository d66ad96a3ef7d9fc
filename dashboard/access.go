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
// one those who give it.
type Access struct {
	key    string // empty = none is needed
	secure bool   // browsers come by TLS: the cookie goes no other way
}

// NewAccess returns the access by a key; empty = everybody on this machine. The error
// says what is wrong with the key.
func NewAccess(key string, secure bool) (*Access, error) {
	if key != "" && len(key) < leastKey {
		return nil, errors.New("the key is too short: at least 24 characters, as from `openssl rand -base64 24`")
	}
	return &Access{key: key, secure: secure}, nil
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

// admits reports whether a request comes from somebody who may see the fleet.
func (a *Access) admits(r *http.Request, now time.Time) bool {
	if a.key == "" {
		return true
	}
	if given, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		return a.is(given)
	}
	c, err := r.Cookie(cookieName)
	if err != nil {
		return false
	}
	until, mac, _ := strings.Cut(c.Value, ".")
	at, err := strconv.ParseInt(until, 10, 64)
	return err == nil && now.Before(time.Unix(at, 0)) && subtle.ConstantTimeCompare([]byte(mac), []byte(a.sign(until))) == 1
}

// is compares a key in a time that does not depend on it.
func (a *Access) is(given string) bool {
	x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(a.key))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// sign signs the end of a session. Sessions depend on nothing but the key, so that they
// outlive a restart, and end when the key is changed.
func (a *Access) sign(until string) string {
	m := hmac.New(sha256.New, []byte(a.key))
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
	if s.access.key == "" {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	if !s.access.is(r.PostFormValue("key")) {
		s.log.Warn("a wrong key for the dashboard", "from", r.RemoteAddr)
		http.Redirect(w, r, "/login?wrong=1", http.StatusSeeOther)
		return
	}
	until := strconv.FormatInt(time.Now().Add(session).Unix(), 10)
	http.SetCookie(w, s.access.cookie(until+"."+s.access.sign(until), int(session/time.Second)))
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
