package record

import (
	"errors"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Change is one record of the topic. Whoever has read it sets its place and what
// its headers say; Read sets the rest.
type Change struct {
	Partition  int
	Offset     int64
	IfNotAfter time.Time // of a removal: of registrations that are not later; zero = of any
	Repeats    bool      // it only repeats what was there

	User string // empty: the key cannot be read, and the record is nobody's
	Part Part

	// What it says of the part; nil = removed, or something else is set.
	device      *push.Device
	foreign     *foreign // the device is of an unknown platform
	preferences *push.Preferences
	profile     *push.Profile
	limits      []push.PersonalLimit
	unread      *unreadPart // the value cannot be read
}

// Hash is the one of the device's token; empty if it is about no device.
func (c *Change) Hash() string { return c.Part.Hash() }

// Read decodes the record; a value of nil is a removal. now bounds how far ahead a
// registration may be. The change keeps the value. After an error it puts its part
// in quarantine, unless it has no user. The error never quotes the content.
func (c *Change) Read(key string, value []byte, now time.Time) (err error) {
	if c.User, c.Part, err = PartOf(key); err != nil {
		return err
	}
	if err = c.read(value, now); err != nil {
		c.unread = &unreadPart{part: c.Part, version: errors.Is(err, ErrVersion), partition: c.Partition, offset: c.Offset}
	}
	return err
}

// Foreign reports whether it registers a device of a platform that is not known.
func (c *Change) Foreign() bool { return c.foreign != nil }

// App is the app of the device that it registers; empty if it registers none that this
// version knows.
func (c *Change) App() string {
	if c.device == nil {
		return ""
	}
	return c.device.App
}

// key is that of the record in the topic.
func (c *Change) key() string { return Key(c.User, c.Part) }

// registration is when the device was registered; ok is false for a removal.
func (c *Change) registration() (at time.Time, ok bool) {
	switch {
	case c.device != nil:
		return c.device.RegisteredAt, true
	case c.foreign != nil:
		return c.foreign.at, true
	}
	return time.Time{}, false
}

// removes reports whether a removal takes away a registration of this time.
func (c *Change) removes(registered time.Time) bool {
	return c.IfNotAfter.IsZero() || registered.UnixMilli() <= c.IfNotAfter.UnixMilli()
}

// read decodes the value; nil = a removal.
func (c *Change) read(value []byte, now time.Time) error {
	if value == nil {
		return nil
	}
	switch c.Part {
	case PreferencesPart:
		p, err := parsePreferences(value)
		if err == nil {
			c.preferences = &p
		}
		return err
	case ProfilePart:
		p, err := parseProfile(value, now)
		if err == nil {
			c.profile = &p
		}
		return err
	case LimitsPart:
		limits, err := parseLimits(value)
		c.limits = limits
		return err
	}
	return c.readDevice(value, now)
}

func (c *Change) readDevice(value []byte, now time.Time) error {
	hash := c.Hash()
	d, err := parseDevice(value, hash, now)
	switch {
	case err == nil:
		c.device = &d
	case errors.Is(err, errForeign):
		if err = ofItsToken(value, hash); err != nil {
			return err
		}
		if c.foreign, err = parseForeign(value, hash, now); err == nil {
			c.foreign.partition, c.foreign.offset = c.Partition, c.Offset
		}
	}
	return err
}
