package users

import (
	"encoding/binary"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// stored is a user as the registry keeps it.
type stored struct {
	push.User
	kept
}

// kept is what a record holds beside what the pipeline reads of it.
type kept struct {
	// prefsSet: preferences are set, if only to nothing.
	prefsSet bool
	// unread are the parts whose latest record cannot be read, in the order of
	// their hashes; preferences, without one, come first.
	unread  []unreadPart
	dropped dropped
	// foreign are the devices of platforms that this version does not know, in
	// the order of their hashes.
	foreign []foreign
	// extra are optional sections of a newer registry, kept as they are.
	extra []byte
}

// dropped are devices of a user that were left out as too many.
type dropped struct {
	devices uint64    // how often that was done
	upTo    time.Time // the latest registration of them
}

// unreadPart is a part of a user in quarantine.
type unreadPart struct {
	hash    string // of the device; empty = preferences
	version bool   // it has an unknown version; else it breaks a rule
	stands  bool   // what was there before it stands
	// Its place in push.users.
	partition int
	offset    int64
}

// maxUnread bounds the devices in quarantine that are remembered of one user.
const maxUnread = 20

// empty reports whether there is nothing to keep of the user.
func (s *stored) empty() bool {
	return len(s.Devices) == 0 && !s.prefsSet && len(s.unread) == 0 && len(s.foreign) == 0 && len(s.extra) == 0
}

// unreadAt is the place of a part's entry, or -1.
func (k *kept) unreadAt(hash string) int {
	for i := range k.unread {
		if k.unread[i].hash == hash {
			return i
		}
	}
	return -1
}

// quarantine is what the pipeline has to know of these parts.
func quarantine(parts []unreadPart) (q push.Quarantine) {
	for i := range parts {
		q |= parts[i].mark()
	}
	return q
}

func (p *unreadPart) mark() push.Quarantine {
	switch {
	case p.stands:
		return 0
	case p.hash != "":
		return push.DeviceUnread
	case p.version:
		return push.PreferencesUnknown
	}
	return push.PreferencesBroken
}

// Flags of an unreadPart in a record.
const (
	unreadVersion = 1 << iota
	unreadStands
	unreadFlags = 1<<iota - 1
)

func appendUnread(b []byte, parts []unreadPart) []byte {
	b = binary.AppendUvarint(b, uint64(len(parts)))
	for i := range parts {
		p := &parts[i]
		flags := byte(0)
		if p.version {
			flags |= unreadVersion
		}
		if p.stands {
			flags |= unreadStands
		}
		b = appendString(append(b, flags), p.hash)
		b = binary.AppendUvarint(b, uint64(p.partition))
		b = binary.AppendUvarint(b, uint64(p.offset))
	}
	return b
}

func appendDropped(b []byte, d dropped) []byte {
	return binary.AppendVarint(binary.AppendUvarint(b, d.devices), d.upTo.UnixMilli())
}

func (c *cursor) dropped() dropped {
	return dropped{devices: c.uvarint(), upTo: time.UnixMilli(c.varint()).UTC()}
}

// unread reads what appendUnread wrote: into k if it is not nil.
func (c *cursor) unread(k *kept) (q push.Quarantine) {
	const least = 4 // flags, empty hash, partition, offset
	for range c.count(least) {
		flags := c.byte()
		p := unreadPart{version: flags&unreadVersion != 0, stands: flags&unreadStands != 0,
			hash: c.string(), partition: int(c.uvarint()), offset: int64(c.uvarint())}
		if c.bad || flags > unreadFlags || p.partition < 0 || p.offset < 0 {
			c.fail()
			return 0
		}
		q |= p.mark()
		if k != nil {
			k.unread = append(k.unread, p)
		}
	}
	return q
}
