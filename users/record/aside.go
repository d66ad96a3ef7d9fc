package record

import (
	"encoding/binary"

	"github.com/pushfleet/pushfleet/push"
)

// Aside is why a part of a user stands aside, and where its record is: it cannot be
// read, or is a device to which nothing can be sent.
type Aside struct {
	Reason    string // UnknownVersion, UnknownPlatform or BrokenRule
	Partition int    // of push.users
	Offset    int64
	Stands    bool // what was there of the part before holds
}

// The reasons why a part stands aside.
const (
	UnknownVersion  = "unknown_version"
	UnknownPlatform = "unknown_platform"
	BrokenRule      = "broken_rule"
)

// Aside says why a part is told as one that cannot be read; ok is false when it is
// not. hash is that of the device, empty for the preferences.
func (s *User) Aside(hash string) (why Aside, ok bool) {
	if i := s.unreadAt(hash); i >= 0 {
		p := &s.unread[i]
		why = Aside{BrokenRule, p.partition, p.offset, p.stands}
		if p.version {
			why.Reason = UnknownVersion
		}
		return why, true
	}
	if f := s.foreignAt(hash); f != nil && f.value != nil {
		return Aside{UnknownPlatform, f.partition, f.offset, DeviceOf(&s.User, hash) != nil}, true
	}
	return Aside{}, false
}

// aside reports only whether it is.
func (s *User) aside(hash string) bool {
	_, ok := s.Aside(hash)
	return ok
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
