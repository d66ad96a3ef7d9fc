package push

import (
	"slices"
	"time"
)

// Device is one registered device of a user.
type Device struct {
	Platform     Platform
	Environment  string // one of its platform's; empty = the platform has none
	App          string
	Token        string
	Hash         string // DeviceHash(Platform, Token): names it in the status table and logs
	Locale       string
	AppVersion   string // of the app there; empty = not told
	RegisteredAt time.Time
}

// User is what the registry knows of a user: one packed record in Redis feeds
// preferences, limits and the device look-up.
type User struct {
	Devices     []Device
	Preferences Preferences
	Profile     Profile
	// Limits are the user's personal limits, in the order of their names.
	Limits     []PersonalLimit
	Quarantine Quarantine
	// Limiter is the user's packed limiter state as it was read together with
	// the record; nil when there is none. Only package limits reads it.
	Limiter []byte
}

// Preferences are what a user forbids, and what he agrees to.
type Preferences struct {
	Blocked   bool // nothing at all, not even what is critical
	OptOutAll bool
	Channels  []string // opted out of these channels: what a Platform's Channel says
	Types     []string // opted out of these message types
	Senders   []string // opted out of what these sender ids send
	OptIns    []string // agrees to these message types, where consent is needed
	Quiet     []QuietHours
}

// QuietHours are hours in which a user wants nothing, by the clock of the user's
// time zone. They begin at From on each of the Days and end at the next To: on the
// following day unless To is later than From, after 24 hours if they are equal.
type QuietHours struct {
	From, To Clock
	Days     Weekdays // on which they begin; none = every day
	Types    []string // of messages they are about; none = all
}

// Profile is what is known of a user besides. Of each field the zero value says
// that it is not known.
type Profile struct {
	Locale       string    // language tag
	Zone         string    // IANA's name of the time zone; a database may not have it
	Country      string    // ISO 3166-1 alpha-2, capital letters
	Number       uint32    // stands for the user in segments
	HasNumber    bool      // Number is set: 0 is one
	LastActivity time.Time // in whole milliseconds, UTC
}

// PersonalLimit is how much of something one user gets, instead of what the rule
// says.
type PersonalLimit struct {
	Name string // of a rule, or a message type
	Max  int    // notifications in the rule's window: 1 to 4096
}

// Quarantine says which parts of a user cannot be read and have no earlier
// valid state to fall back on; zero = none.
type Quarantine uint8

const (
	// PreferencesBroken: the user's first preferences break a rule. They forbid
	// something unknown: everything is kept back, and what is critical waits for
	// better ones.
	PreferencesBroken Quarantine = 1 << iota
	// PreferencesUnknown: they are of an unknown version, which will be known
	// after an upgrade. Everything waits for it.
	PreferencesUnknown
	// DeviceUnread: a device. Notifications wait if the user has no other device
	// for the app.
	DeviceUnread
	// RecordUnread: the whole stored record, so nothing is known of the user.
	RecordUnread
)

// Consent is what the fleet asks for before it sends. The zero value asks for
// nothing but what users forbid.
type Consent struct {
	OptIn         map[string]bool // message types to which a user must have agreed
	IgnoreBlocked bool            // critical messages go to users who are blocked, too
}

// NeedsNoRecord reports whether nothing that a user's record could say matters for
// sending a message: nobody can forbid it, and it names its device.
func (c *Consent) NeedsNoRecord(m *Message) bool {
	return c.IgnoreBlocked && m.Priority == Critical && m.Device.Token != ""
}

// Verdict is what the user's record means for a message, apart from quiet hours:
// Undecided = it may be sent, to the devices of the channels that the preferences want, Suppressed, or Deferred
// until the record can be read. Critical messages pass everything but "blocked"; they
// wait if that cannot be read.
func (u *User) Verdict(m *Message, c *Consent) (Verdict, Reason) {
	unread := u.Quarantine&(PreferencesBroken|PreferencesUnknown) != 0
	switch critical := m.Priority == Critical; {
	case c.NeedsNoRecord(m):
	case u.Quarantine&RecordUnread != 0:
		return Deferred, UserQuarantined
	case critical && c.IgnoreBlocked:
	case u.Preferences.Blocked:
		return Suppressed, Blocked
	case critical && unread:
		return Deferred, UserQuarantined
	case !critical:
		return u.ordinary(m, c)
	}
	return Undecided, ""
}

// ordinary is the verdict about a message that is not critical.
func (u *User) ordinary(m *Message, c *Consent) (Verdict, Reason) {
	p := &u.Preferences
	switch {
	case p.OptOutAll:
		return Suppressed, OptedOutAll
	case p.leavesNoChannel() && u.Quarantine&DeviceUnread == 0: // else the device may be of another channel
		return Suppressed, OptedOutChannel
	case slices.Contains(p.Types, m.Type):
		return Suppressed, OptedOutType
	case slices.Contains(p.Senders, m.SenderID):
		return Suppressed, OptedOutSender
	case u.Quarantine&PreferencesBroken != 0:
		return Suppressed, PreferencesUnread
	case u.Quarantine&PreferencesUnknown != 0:
		return Deferred, UserQuarantined
	case c.OptIn[m.Type] && !slices.Contains(p.OptIns, m.Type):
		return Suppressed, NotOptedIn
	}
	return Undecided, ""
}

// Wants reports whether a message may be sent to the user's devices of this channel,
// if to any.
func (p *Preferences) Wants(m *Message, channel string) bool {
	return m.Priority == Critical || !slices.Contains(p.Channels, channel)
}

// leavesNoChannel reports whether the user has opted out of all that there are.
func (p *Preferences) leavesNoChannel() bool {
	if len(p.Channels) == 0 {
		return false
	}
	for platform := range Platforms {
		if !slices.Contains(p.Channels, platform.Channel()) {
			return false
		}
	}
	return true
}
