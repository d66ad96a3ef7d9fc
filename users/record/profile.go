package record

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

type profilePartJSON struct {
	V            int        `json:"v"`
	Locale       string     `json:"locale,omitempty"`
	Zone         string     `json:"time_zone,omitempty"`
	Country      string     `json:"country,omitempty"`
	Number       *uint32    `json:"user_number,omitempty"`
	LastActivity *time.Time `json:"last_activity,omitempty"`
}

// CheckProfile checks p for writing it, and cuts its time to whole milliseconds: the
// zone is one of the database that comes with the program.
func CheckProfile(p *push.Profile, now time.Time) error {
	if p.Zone != "" {
		if _, err := push.LoadZone(p.Zone); err != nil {
			return invalid("time_zone", err.Error())
		}
	}
	return checkProfile(p, now)
}

// checkProfile does not look up the zone: the database of the program that wrote it may
// be newer than ours, and so may the workers'.
func checkProfile(p *push.Profile, now time.Time) error {
	if err := checkIfSet("locale", p.Locale, maxLocale); err != nil {
		return err
	}
	if p.Zone != "" && !push.ZoneLike(p.Zone) {
		return invalid("time_zone", "not like an IANA name")
	}
	if c := p.Country; c != "" && !push.CountryLike(c) {
		return invalid("country", "not two capital letters (ISO 3166-1 alpha-2)")
	}
	if !p.HasNumber && p.Number != 0 {
		return invalid("user_number", "not marked as set")
	}
	if p.LastActivity.IsZero() {
		return nil
	}
	if err := checkTime("last_activity", p.LastActivity, now); err != nil {
		return err
	}
	p.LastActivity = p.LastActivity.UTC().Truncate(time.Millisecond)
	return nil
}

func parseProfile(value []byte, now time.Time) (push.Profile, error) {
	var p profilePartJSON
	if err := parsePart(value, &p, &p.V, partVersion); err != nil {
		return push.Profile{}, err
	}
	profile := push.Profile{Locale: p.Locale, Zone: p.Zone, Country: p.Country}
	if p.Number != nil {
		profile.Number, profile.HasNumber = *p.Number, true
	}
	if p.LastActivity != nil {
		profile.LastActivity = *p.LastActivity
	}
	if err := checkProfile(&profile, now); err != nil {
		return push.Profile{}, fmt.Errorf("%w: %w", errPart, err)
	}
	return profile, nil
}

// ProfileValue is the value of the record that sets a checked profile; nil, which
// removes what was set, if nothing is known.
func ProfileValue(p *push.Profile) ([]byte, error) {
	if *p == (push.Profile{}) {
		return nil, nil
	}
	v := profilePartJSON{V: partVersion, Locale: p.Locale, Zone: p.Zone, Country: p.Country}
	if p.HasNumber {
		v.Number = &p.Number
	}
	if !p.LastActivity.IsZero() {
		v.LastActivity = &p.LastActivity
	}
	value, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding a profile: %w", err)
	}
	return value, nil
}

type limitsPartJSON struct {
	V      int            `json:"v"`
	Limits map[string]int `json:"limits"`
}

// CheckLimits checks personal limits, and puts them in the order of their names: at
// most 100 of different names, each from 1 to 4096. To get nothing at all is an
// opt-out.
func CheckLimits(limits []push.PersonalLimit) error {
	if len(limits) > maxLimits {
		return invalid("limits", fmt.Sprintf("more than %d", maxLimits))
	}
	slices.SortFunc(limits, func(a, b push.PersonalLimit) int { return cmp.Compare(a.Name, b.Name) })
	for i, l := range limits {
		if err := checkText("limits", l.Name, maxName); err != nil {
			return err
		}
		if l.Max < 1 || l.Max > maxLimit {
			return invalid("limits", fmt.Sprintf("not from 1 to %d", maxLimit))
		}
		if i > 0 && limits[i-1].Name == l.Name {
			return invalid("limits", "the same name twice")
		}
	}
	return nil
}

func parseLimits(value []byte) ([]push.PersonalLimit, error) {
	var p limitsPartJSON
	if err := parsePart(value, &p, &p.V, partVersion); err != nil {
		return nil, err
	}
	limits := make([]push.PersonalLimit, 0, len(p.Limits))
	for name, most := range p.Limits {
		limits = append(limits, push.PersonalLimit{Name: name, Max: most})
	}
	if err := CheckLimits(limits); err != nil {
		return nil, fmt.Errorf("%w: %w", errPart, err)
	}
	return limits, nil
}

// LimitsValue is the value of the record that sets checked limits; nil, which
// removes what was set, if there are none.
func LimitsValue(limits []push.PersonalLimit) ([]byte, error) {
	if len(limits) == 0 {
		return nil, nil
	}
	v := limitsPartJSON{V: partVersion, Limits: make(map[string]int, len(limits))}
	for _, l := range limits {
		v.Limits[l.Name] = l.Max
	}
	value, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding personal limits: %w", err)
	}
	return value, nil
}

// appendProfile appends a profile as a section, if anything is known.
func appendProfile(dst []byte, p *push.Profile) []byte {
	if *p == (push.Profile{}) {
		return dst
	}
	return appendSection(dst, profileSection, func(b []byte) []byte {
		b = appendString(appendString(appendString(b, p.Locale), p.Zone), p.Country)
		number, activity := uint64(0), int64(0)
		if p.HasNumber {
			number = 1 + uint64(p.Number)
		}
		if !p.LastActivity.IsZero() {
			activity = p.LastActivity.UnixMilli()
		}
		return binary.AppendVarint(binary.AppendUvarint(b, number), activity)
	})
}

func (c *cursor) profile(p *push.Profile) {
	p.Locale, p.Zone, p.Country = c.string(), c.string(), c.string()
	switch n := c.uvarint(); {
	case n > 1+math.MaxUint32:
		c.fail()
	case n > 0:
		p.Number, p.HasNumber = uint32(n-1), true
	}
	if at := c.varint(); at != 0 {
		p.LastActivity = time.UnixMilli(at).UTC()
	}
}

// appendLimits appends personal limits as a section, if there are any.
func appendLimits(dst []byte, limits []push.PersonalLimit) []byte {
	if len(limits) == 0 {
		return dst
	}
	return appendSection(dst, limitsSection, func(b []byte) []byte {
		b = binary.AppendUvarint(b, uint64(len(limits)))
		for _, l := range limits {
			b = binary.AppendUvarint(appendString(b, l.Name), uint64(l.Max))
		}
		return b
	})
}

func (c *cursor) limits(limits []push.PersonalLimit) []push.PersonalLimit {
	const least = 2 // empty name, number
	for range c.count(least) {
		name, most := c.string(), c.uvarint()
		if most > math.MaxInt32 {
			c.fail()
			return limits
		}
		limits = append(limits, push.PersonalLimit{Name: name, Max: int(most)})
	}
	return limits
}
