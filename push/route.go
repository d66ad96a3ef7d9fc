package push

import "strings"

// Route is one pool of connections: a provider, an app and, where the platform
// has some, its environment. Apple binds a connection to one team, Google to one project.
type Route struct {
	Platform    Platform
	App         string
	Environment string // empty = the platform has none
}

// String is the route's name in logs and metrics: "apns/shop/production".
func (r Route) String() string {
	s := r.Platform.String() + "/" + r.App
	if r.Environment != "" {
		s += "/" + r.Environment
	}
	return s
}

// ParseRoute is the inverse of Route's String.
func ParseRoute(s string) (Route, bool) {
	name, rest, _ := strings.Cut(s, "/")
	platform, ok := ParsePlatform(name)
	r := Route{Platform: platform, App: rest}
	if at := strings.LastIndexByte(rest, '/'); at >= 0 {
		r.App, r.Environment = rest[:at], rest[at+1:]
	}
	return r, ok && r.App != "" && r.String() == s
}
