// Package quiet says whether a message comes at a quiet time of its user, and when
// that ends.
//
// Quiet are the hours that users choose for themselves, and those that the fleet
// keeps for promotional types, by country. What counts is the clock on the wall: an
// instant is quiet if the day of the week and the time that the clock shows then are.
// So an hour that a clock change leaves out is nobody's, one that it repeats is
// quiet both times or neither, and hours from 22:00 to 02:30 end twice in a night in
// which 02:00 comes again at 03:00. It is the user's clock; whose zone is not known, or
// not found, gets that of the country, or else the default.
//
// Nothing here asks for the time, or for anything but the database of zones.
package quiet

import (
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Options are the fleet's part. They must not be changed once a Policy has them.
type Options struct {
	// Default is the zone of users of whom neither zone nor country says one. It
	// must not be nil.
	Default *time.Location
	// Countries are by ISO 3166-1 alpha-2 code. Elsewhere is for all other users.
	Countries map[string]Country
	// Promotional are the message types to which the countries' hours apply.
	Promotional map[string]bool
	// Drop are the types of which nothing is kept for later.
	Drop map[string]bool
}

// Elsewhere is, as a country, for users of one that is not listed or not known.
const Elsewhere = "*"

// Country says what holds for its users.
type Country struct {
	Zone  *time.Location    // of users without one; nil = the default
	Hours []push.QuietHours // for promotional types, of those that Types names; none = all
}

// Action is what is to be done with a message.
type Action uint8

// The actions.
const (
	Send Action = iota // it is not quiet, or that does not matter
	Hold
	Drop
)

// Clock says whose zone the hours were read in.
type Clock uint8

// The clocks, from the best known on.
const (
	UsersClock Clock = iota
	CountrysClock
	DefaultClock
)

var clockNames = [...]string{"the user's zone", "the country's zone", "the default zone"}

func (c Clock) String() string { return clockNames[c] }

// Decision is what a Policy says of one message.
type Decision struct {
	Action Action
	// Until is the first instant that is not quiet any more. With Hold and Drop, the
	// zero time says that there is none up to the time asked about.
	Until time.Time
	Zone  *time.Location // in which the hours were read; nil = none were
	Clock Clock          // whose zone that is
}

// Policy decides. It is safe for concurrent use.
type Policy struct {
	options Options
	zones   zones
}

// New makes a policy.
func New(o Options) *Policy { return &Policy{options: o} }

// Decide says what is to be done at now with a message to a user. What ends after
// latest has no end: nobody would wait for it. Critical messages are never held.
func (p *Policy) Decide(u *push.User, m *push.Message, now, latest time.Time) Decision {
	if m.Priority == push.Critical {
		return Decision{}
	}
	var some [8]*push.QuietHours // most users have fewer, and need no memory
	hours := about(some[:0], u.Preferences.Quiet, m.Type)
	country := p.country(u)
	if p.options.Promotional[m.Type] {
		hours = about(hours, country.Hours, m.Type)
	}
	if len(hours) == 0 {
		return Decision{}
	}
	d := Decision{}
	d.Zone, d.Clock = p.zone(u, country)
	until, quiet := end(hours, now.In(d.Zone), latest)
	switch {
	case !quiet:
	case p.options.Drop[m.Type]:
		d.Action, d.Until = Drop, until
	default:
		d.Action, d.Until = Hold, until
	}
	return d
}

// Zone is the time zone of a user: the user's own, else that of the country, else the
// default.
func (p *Policy) Zone(u *push.User) *time.Location {
	zone, _ := p.ZoneOf(u)
	return zone
}

// ZoneOf is Zone, and says whose it is.
func (p *Policy) ZoneOf(u *push.User) (*time.Location, Clock) { return p.zone(u, p.country(u)) }

func (p *Policy) country(u *push.User) Country {
	if country, known := p.options.Countries[u.Profile.Country]; known {
		return country
	}
	return p.options.Countries[Elsewhere]
}

// about appends the hours that apply to a type.
func about(list []*push.QuietHours, hours []push.QuietHours, messageType string) []*push.QuietHours {
	for i := range hours {
		if h := &hours[i]; len(h.Types) == 0 || slices.Contains(h.Types, messageType) {
			list = append(list, h)
		}
	}
	return list
}

// zone chooses the best known.
func (p *Policy) zone(u *push.User, c Country) (*time.Location, Clock) {
	if name := u.Profile.Zone; name != "" {
		if zone := p.zones.find(name); zone != nil {
			return zone, UsersClock
		}
	}
	if c.Zone != nil {
		return c.Zone, CountrysClock
	}
	return p.options.Default, DefaultClock
}

// end reports whether t is quiet in its zone, and the first instant from which on it
// is not: the zero time if that is after latest.
func end(hours []*push.QuietHours, t, latest time.Time) (until time.Time, quiet bool) {
	t = t.Round(0) // a clock that somebody sets does not move what is on the wall here
	for {
		rest := left(hours, t)
		switch {
		case rest == 0 && quiet:
			return t, true
		case rest == 0:
			return time.Time{}, false
		}
		quiet = true
		next := t.Add(rest)
		if _, change := t.ZoneBounds(); !change.IsZero() && change.Before(next) {
			next = change // from there on the clock shows something else
		}
		if t = next; t.After(latest) {
			return time.Time{}, true
		}
	}
}

const day = 24 * time.Hour

// left is the time until the last of the quiet hours containing t ends, ignoring clock
// changes; 0 = t is in none.
func left(hours []*push.QuietHours, t time.Time) (longest time.Duration) {
	hour, minute, second := t.Clock()
	shown := push.Clock(60*hour + minute)
	since := time.Duration(shown)*time.Minute + time.Duration(second)*time.Second + time.Duration(t.Nanosecond())
	today := t.Weekday()
	yesterday := (today + 6) % 7
	for _, h := range hours {
		begun := func(on time.Weekday) bool { return h.Days == 0 || h.Days.Has(on) }
		within := h.From <= shown && shown < h.To && begun(today)
		if h.To <= h.From {
			within = h.From <= shown && begun(today) || shown < h.To && begun(yesterday)
		}
		if !within {
			continue
		}
		rest := time.Duration(h.To)*time.Minute - since
		if rest <= 0 {
			rest += day
		}
		longest = max(longest, rest)
	}
	return longest
}
