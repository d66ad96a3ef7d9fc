package record

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/push"
)

// ErrInvalid is wrapped by the errors of refused input. Their text names the
// field and the rule, never the content.
var ErrInvalid = errors.New("invalid")

const (
	maxUser   = 128 // bytes, as in the message contract
	maxName   = 64  // app, channel, type
	maxText   = 64  // app version
	maxLocale = 35  // the longest language tag that RFC 5646 4.4.1 asks to support
	maxNames  = 200 // opt-outs or opt-ins of one kind; types of all quiet hours together
	maxQuiet  = 20  // quiet hours: each day of the week its own, twice, and some more
	maxLimits = 100 // personal limits
	maxLimit  = 4096
	hashLen   = 16 // base64url of 12 bytes
)

func invalid(field, rule string) error {
	return fmt.Errorf("%w %s: %s", ErrInvalid, field, rule)
}

// CheckUser: 1 to 128 bytes of UTF-8 without control characters.
func CheckUser(user string) error { return checkText("user", user, maxUser) }

// CheckKeyUser accepts any 1 to 128 bytes: the users that a key may name, whoever wrote it.
func CheckKeyUser(user string) error {
	switch {
	case user == "":
		return invalid("user", "empty")
	case len(user) > maxUser:
		return invalid("user", fmt.Sprintf("longer than %d bytes", maxUser))
	}
	return nil
}

func checkText(field, s string, most int) error {
	switch {
	case s == "":
		return invalid(field, "empty")
	case len(s) > most:
		return invalid(field, fmt.Sprintf("longer than %d bytes", most))
	case !utf8.ValidString(s):
		return invalid(field, "not UTF-8")
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return invalid(field, "control character")
		}
	}
	return nil
}

func checkIfSet(field, s string, most int) error {
	if s == "" {
		return nil
	}
	return checkText(field, s, most)
}

// CheckHash: 16 characters of base64url.
func CheckHash(hash string) error {
	if len(hash) != hashLen {
		return invalid("device hash", "not 16 characters")
	}
	for i := range len(hash) {
		if c := hash[i]; !alphanumeric(c) && c != '-' && c != '_' {
			return invalid("device hash", "not base64url")
		}
	}
	return nil
}

// checkToken is the token grammar of the contract.
func checkToken(p push.Platform, token string) error {
	if !p.Known() {
		return invalid("platform", "neither "+push.PlatformNames(" nor "))
	}
	if fault := p.TokenFault(token); fault != "" {
		return invalid("token", fault)
	}
	return nil
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// maxAhead is how far in the future a registration may be. Clocks differ; but
// the latest registration owns a token, so one from a far year would own it for
// ever, and no provider's report that it is dead would count.
const maxAhead = 24 * time.Hour

// CheckDevice checks d, fills in what has a default, and sets its hash.
func CheckDevice(d *push.Device, now time.Time) error {
	if err := checkToken(d.Platform, d.Token); err != nil {
		return err
	}
	environment, ok := d.Platform.Environment(d.Environment)
	switch all := d.Platform.Environments(); {
	case ok:
		d.Environment = environment
	case len(all) == 0:
		return invalid("environment", strings.ToUpper(d.Platform.String())+" has none")
	default:
		return invalid("environment", "neither "+strings.Join(all, " nor "))
	}
	if err := checkText("app", d.App, maxName); err != nil {
		return err
	}
	if err := checkIfSet("locale", d.Locale, maxLocale); err != nil {
		return err
	}
	if err := checkIfSet("app_version", d.AppVersion, maxText); err != nil {
		return err
	}
	if err := checkRegisteredAt(d.RegisteredAt, now); err != nil {
		return err
	}
	d.RegisteredAt = d.RegisteredAt.UTC().Truncate(time.Millisecond)
	d.Hash = push.DeviceHash(d.Platform, d.Token)
	return nil
}

func checkRegisteredAt(at, now time.Time) error { return checkTime("registered_at", at, now) }

func checkTime(field string, at, now time.Time) error {
	switch {
	case at.Year() < 1970:
		return invalid(field, "missing or before 1970")
	case at.Sub(now) > maxAhead:
		return invalid(field, "more than a day in the future")
	}
	return nil
}
