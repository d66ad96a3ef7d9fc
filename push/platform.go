package push

import (
	"slices"
	"strings"
)

// Platform is a provider of a channel. Its number is stored in the status table
// and in user records.
type Platform uint8

// The platforms. A new one gets the next number and a row of the table.
const (
	NoPlatform Platform = iota
	APNS
	FCM
)

// ChannelPush is the name of this fleet's channel in a user's preferences.
const ChannelPush = "push"

// ChannelInbox is the channel of what users read when they look. No platform has it: it is
// a name for limits and opt-outs.
const ChannelInbox = "inbox"

// APNs has two environments; a token belongs to one of them.
const (
	Production = "production"
	Sandbox    = "sandbox"
)

// traits are what the fleet knows of a platform without its provider's package.
type traits struct {
	name         string   // in configuration, messages, topics and metrics
	channel      string   // what a user opts out of
	environments []string // the default first; nil = it has none
	foldsTokens  bool     // tokens that differ only by case are the same
	tokens       string   // their grammar, in words
	tokenFault   func(token string) string
}

// platforms is the one table of platforms: decoder, devices, topics and tools
// read it, by the methods below. It is never changed.
var platforms = [...]traits{
	APNS: {name: "apns", channel: ChannelPush, environments: []string{Production, Sandbox}, foldsTokens: true, tokens: "64 to 512 hex digits", tokenFault: apnsTokenFault},
	FCM:  {name: "fcm", channel: ChannelPush, tokens: "as the app got it", tokenFault: fcmTokenFault},
}

// Platforms are all known platforms, in the order of their numbers.
func Platforms(yield func(Platform) bool) {
	for p := range platforms {
		if p != int(NoPlatform) && !yield(Platform(p)) {
			return
		}
	}
}

// PlatformNames are the names of all, by their numbers, with sep between them.
func PlatformNames(sep string) string {
	var names []string
	for p := range Platforms {
		names = append(names, p.String())
	}
	return strings.Join(names, sep)
}

// Known reports whether the table has p: a stored number may come from a later
// version.
func (p Platform) Known() bool { return p != NoPlatform && int(p) < len(platforms) }

func (p Platform) traits() *traits {
	if !p.Known() {
		return &traits{name: "none", tokenFault: func(string) string { return "of no platform" }}
	}
	return &platforms[p]
}

// String gives the name used in configuration, messages, topics and metrics.
func (p Platform) String() string { return p.traits().name }

// ParsePlatform is the inverse of String.
func ParsePlatform(s string) (Platform, bool) {
	for p := range Platforms {
		if platforms[p].name == s {
			return p, true
		}
	}
	return NoPlatform, false
}

// Channel is the channel whose messages it carries.
func (p Platform) Channel() string { return p.traits().channel }

// Environments are those that a token may belong to, the default first. The
// caller does not change them.
func (p Platform) Environments() []string { return p.traits().environments }

// Environment is the environment named s; the empty string names the default,
// or none if the platform has no environments. ok is false if p has no
// environment of that name.
func (p Platform) Environment(s string) (environment string, ok bool) {
	all := p.Environments()
	if s == "" && len(all) > 0 {
		return all[0], true
	}
	return s, s == "" || slices.Contains(all, s)
}

// IsEnvironment reports whether any platform has an environment of this name.
func IsEnvironment(s string) bool {
	for p := range Platforms {
		if slices.Contains(p.Environments(), s) {
			return true
		}
	}
	return false
}

// TokenGrammar says in words what a token is.
func (p Platform) TokenGrammar() string { return p.traits().tokens }

// TokenFault says how token violates the platform's grammar; empty = not at
// all. It never contains any part of the token.
func (p Platform) TokenFault(token string) string { return p.traits().tokenFault(token) }

// apnsTokenFault: hexadecimal digits, of a length that Apple does not promise.
func apnsTokenFault(token string) string {
	if len(token) < 64 || len(token) > 512 || len(token)%2 != 0 {
		return "not 64 to 512 hex digits, an even number"
	}
	for i := range len(token) {
		if c := token[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return "not hexadecimal"
		}
	}
	return ""
}

func fcmTokenFault(token string) string {
	if len(token) < 1 || len(token) > 4096 {
		return "not 1 to 4096 characters"
	}
	for i := range len(token) {
		c := token[i]
		alphanumeric := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alphanumeric && c != '_' && c != ':' && c != '%' && c != '-' {
			return "a character that no token has"
		}
	}
	return ""
}
