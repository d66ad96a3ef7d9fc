package record

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/pushfleet/pushfleet/push"
)

// prefsVersion is of preferences that say what the first version has no word for.
// Who knows only that one must not read them as if the rest were all.
const prefsVersion = 2

type prefsPartJSON struct {
	V        int         `json:"v"`
	Blocked  bool        `json:"blocked,omitempty"`
	All      bool        `json:"opt_out_all"`
	Channels []string    `json:"opt_out_channels,omitempty"`
	Types    []string    `json:"opt_out_types,omitempty"`
	Senders  []string    `json:"opt_out_senders,omitempty"`
	OptIns   []string    `json:"opt_in_types,omitempty"`
	Quiet    []quietJSON `json:"quiet_hours,omitempty"`
}

type quietJSON struct {
	From  string   `json:"from"`
	To    string   `json:"to"`
	Days  []string `json:"days,omitempty"`
	Types []string `json:"types,omitempty"`
}

// CheckPreferences: at most 200 names of 1 to 64 bytes in each list, and in the quiet
// hours together, of which there are at most 20.
func CheckPreferences(p *push.Preferences) error {
	for _, list := range []struct {
		field string
		names []string
	}{{"opt_out_channels", p.Channels}, {"opt_out_types", p.Types}, {"opt_out_senders", p.Senders}, {"opt_in_types", p.OptIns}} {
		if err := checkNames(list.field, list.names); err != nil {
			return err
		}
	}
	if len(p.Quiet) > maxQuiet {
		return invalid("quiet_hours", fmt.Sprintf("more than %d", maxQuiet))
	}
	types := 0
	for i := range p.Quiet {
		q := &p.Quiet[i]
		if q.From >= push.MinutesOfDay || q.To >= push.MinutesOfDay {
			return invalid("quiet_hours", "no time of day")
		}
		if q.Days > push.EveryDay {
			return invalid("quiet_hours", "no day of the week")
		}
		if types += len(q.Types); types > maxNames {
			return invalid("quiet_hours", fmt.Sprintf("more than %d types", maxNames))
		}
		if err := checkNames("quiet_hours", q.Types); err != nil {
			return err
		}
	}
	return nil
}

func checkNames(field string, names []string) error {
	if len(names) > maxNames {
		return invalid(field, fmt.Sprintf("more than %d", maxNames))
	}
	for _, n := range names {
		if err := checkText(field, n, maxName); err != nil {
			return err
		}
	}
	return nil
}

func parsePreferences(value []byte) (push.Preferences, error) {
	var p prefsPartJSON
	if err := parsePart(value, &p, &p.V, prefsVersion); err != nil {
		return push.Preferences{}, err
	}
	prefs := push.Preferences{Blocked: p.Blocked, OptOutAll: p.All, Channels: p.Channels, Types: p.Types, Senders: p.Senders, OptIns: p.OptIns}
	if len(p.Quiet) > maxQuiet {
		return push.Preferences{}, fmt.Errorf("%w: more than %d quiet hours", errPart, maxQuiet)
	}
	for i := range p.Quiet {
		q, ok := p.Quiet[i].hours()
		if !ok {
			return push.Preferences{}, fmt.Errorf("%w: quiet hours without times of day, or of other days", errPart)
		}
		prefs.Quiet = append(prefs.Quiet, q)
	}
	if err := CheckPreferences(&prefs); err != nil {
		return push.Preferences{}, fmt.Errorf("%w: %w", errPart, err)
	}
	return prefs, nil
}

func (q *quietJSON) hours() (h push.QuietHours, ok bool) {
	from, good := push.ParseClock(q.From)
	to, also := push.ParseClock(q.To)
	days, and := push.ParseWeekdays(q.Days)
	return push.QuietHours{From: from, To: to, Days: days, Types: q.Types}, good && also && and
}

// PreferencesValue is the value of the record that sets checked preferences; nil,
// which removes what was set, if they say nothing.
func PreferencesValue(p *push.Preferences) ([]byte, error) {
	if noPreferences(p) {
		return nil, nil
	}
	v := prefsPartJSON{V: partVersion, Blocked: p.Blocked, All: p.OptOutAll, Channels: p.Channels, Types: p.Types, Senders: p.Senders, OptIns: p.OptIns}
	if forbidsMore(p) || len(p.OptIns) > 0 {
		v.V = prefsVersion
	}
	for i := range p.Quiet {
		q := &p.Quiet[i]
		v.Quiet = append(v.Quiet, quietJSON{From: q.From.String(), To: q.To.String(), Days: q.Days.Names(), Types: q.Types})
	}
	value, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding preferences: %w", err)
	}
	return value, nil
}

func noPreferences(p *push.Preferences) bool {
	return !p.OptOutAll && len(p.Channels) == 0 && len(p.Types) == 0 && len(p.OptIns) == 0 && !forbidsMore(p)
}

// forbidsMore reports whether p forbids what section 2 has no place for.
func forbidsMore(p *push.Preferences) bool {
	return p.Blocked || len(p.Senders) > 0 || len(p.Quiet) > 0
}

// appendPreferences appends the sections of preferences that are set.
func appendPreferences(dst []byte, p *push.Preferences) []byte {
	dst = appendSection(dst, preferencesSection, func(b []byte) []byte {
		return appendStrings(appendStrings(append(b, flag(p.OptOutAll)), p.Channels), p.Types)
	})
	if forbidsMore(p) {
		dst = appendSection(dst, forbiddenSection, func(b []byte) []byte {
			b = appendStrings(append(b, flag(p.Blocked)), p.Senders)
			b = binary.AppendUvarint(b, uint64(len(p.Quiet)))
			for i := range p.Quiet {
				q := &p.Quiet[i]
				b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(q.From)), uint64(q.To))
				b = appendStrings(append(b, byte(q.Days)), q.Types)
			}
			return b
		})
	}
	if len(p.OptIns) > 0 {
		dst = appendSection(dst, optInsSection, func(b []byte) []byte { return appendStrings(b, p.OptIns) })
	}
	return dst
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func (c *cursor) flag() bool {
	b := c.byte()
	if b > 1 {
		c.fail()
	}
	return b == 1
}

// preferences reads section 2.
func (c *cursor) preferences(p *push.Preferences) {
	p.OptOutAll = c.flag()
	p.Channels = c.strings(p.Channels)
	p.Types = c.strings(p.Types)
}

// forbidden reads section 4.
func (c *cursor) forbidden(p *push.Preferences) {
	p.Blocked = c.flag()
	p.Senders = c.strings(p.Senders)
	const least = 4 // two times, days, no types
	for range c.count(least) {
		from, to, days := c.uvarint(), c.uvarint(), push.Weekdays(c.byte())
		if c.bad || from >= push.MinutesOfDay || to >= push.MinutesOfDay || days > push.EveryDay {
			c.fail()
			return
		}
		p.Quiet = append(p.Quiet, push.QuietHours{From: push.Clock(from), To: push.Clock(to), Days: days, Types: c.strings(nil)})
	}
}
