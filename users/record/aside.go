package record

import (
	"encoding/binary"
	"slices"

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
// not.
func (s *User) Aside(part Part) (why Aside, ok bool) {
	if i := s.unreadAt(part); i >= 0 {
		p := &s.unread[i]
		why = Aside{BrokenRule, p.partition, p.offset, p.stands}
		if p.version {
			why.Reason = UnknownVersion
		}
		return why, true
	}
	if f := s.foreignAt(part.Hash()); f != nil && f.value != nil {
		return Aside{UnknownPlatform, f.partition, f.offset, s.has(part)}, true
	}
	return Aside{}, false
}

// aside reports whether the part stands aside.
func (s *User) aside(part Part) bool {
	_, ok := s.Aside(part)
	return ok
}

// unreadPart is a part of a user in quarantine.
type unreadPart struct {
	part    Part
	version bool // it has an unknown version; else it breaks a rule
	stands  bool // what was there before it stands
	// Its place in push.users.
	partition int
	offset    int64
}

// maxUnread bounds the devices in quarantine that are remembered of one user.
const maxUnread = 20

// unreadAt is the place of a part's entry, or -1.
func (k *kept) unreadAt(part Part) int {
	for i := range k.unread {
		if k.unread[i].part == part {
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
	case p.stands, p.part == ProfilePart, p.part == LimitsPart: // they forbid nothing
		return 0
	case p.part != PreferencesPart:
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

// appendUnread appends parts, each by its name in the section.
func appendUnread(b []byte, parts []unreadPart, name func(Part) string) []byte {
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
		b = appendString(append(b, flags), name(p.part))
		b = binary.AppendUvarint(b, uint64(p.partition))
		b = binary.AppendUvarint(b, uint64(p.offset))
	}
	return b
}

// byHash is the section of those that all versions know: preferences, without a
// hash, come first.
func (k *kept) byHash() (parts []unreadPart) {
	for i := range k.unread {
		switch p := k.unread[i]; {
		case p.part == PreferencesPart:
			parts = slices.Insert(parts, 0, p)
		case p.part.Hash() != "":
			parts = append(parts, p)
		}
	}
	return parts
}

// byName are the others.
func (k *kept) byName() (parts []unreadPart) {
	for i := range k.unread {
		if p := k.unread[i]; p.part != PreferencesPart && p.part.Hash() == "" {
			parts = append(parts, p)
		}
	}
	return parts
}

// partOfHash is the inverse of Part.Hash where preferences are the only other part.
func partOfHash(hash string) Part {
	if hash == "" {
		return PreferencesPart
	}
	return DevicePart(hash)
}

// unread reads what appendUnread wrote: into k if it is not nil.
func (c *cursor) unread(k *kept, part func(name string) Part) (q push.Quarantine) {
	const least = 4 // flags, empty name, partition, offset
	for range c.count(least) {
		flags, name := c.byte(), c.string()
		p := unreadPart{version: flags&unreadVersion != 0, stands: flags&unreadStands != 0,
			partition: int(c.uvarint()), offset: int64(c.uvarint())}
		if c.bad || flags > unreadFlags || p.partition < 0 || p.offset < 0 {
			c.fail()
			return 0
		}
		p.part = part(name)
		q |= p.mark()
		if k != nil {
			k.unread = append(k.unread, p)
		}
	}
	return q
}
