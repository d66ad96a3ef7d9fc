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
	Hash string // of the device's token; empty: preferences

	device      *push.Device      // nil = removed, or foreign
	foreign     *foreign          // set: the device is of an unknown platform
	preferences *push.Preferences // nil = removed
	unread      *unreadPart       // set: the value cannot be read
}

// Read decodes the record; a value of nil is a removal. now bounds how far ahead a
// registration may be. The change keeps the value. After an error it puts its part
// in quarantine, unless it has no user. The error never quotes the content.
func (c *Change) Read(key string, value []byte, now time.Time) (err error) {
	if c.User, c.Hash, err = PartOf(key); err != nil {
		return err
	}
	if err = c.read(value, now); err != nil {
		c.unread = &unreadPart{hash: c.Hash, version: errors.Is(err, ErrVersion), partition: c.Partition, offset: c.Offset}
	}
	return err
}

// Foreign reports whether it registers a device of a platform that is not known.
func (c *Change) Foreign() bool { return c.foreign != nil }

// key is that of the record in the topic.
func (c *Change) key() string { return Key(c.User, c.Hash) }

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
	if c.Hash == "" {
		p, err := parsePreferences(value)
		if err == nil {
			c.preferences = &p
		}
		return err
	}
	d, err := parseDevice(value, c.Hash, now)
	switch {
	case err == nil:
		c.device = &d
	case errors.Is(err, errForeign):
		if err = ofItsToken(value, c.Hash); err != nil {
			return err
		}
		if c.foreign, err = parseForeign(value, c.Hash, now); err == nil {
			c.foreign.partition, c.foreign.offset = c.Partition, c.Offset
		}
	}
	return err
}
