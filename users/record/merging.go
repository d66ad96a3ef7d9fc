package record

import (
	"cmp"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// DeviceLimits are how many devices of a user are kept, the latest registered
// ones: in all, and for one app. Older ones are removed from the topic too.
type DeviceLimits struct{ User, App int }

// Merging applies changes to the users and tokens of one shard, and collects what
// follows from them. Both maps are the caller's, and made.
type Merging struct {
	// Ready: the shard is complete. While it is built, records may be missing
	// that compaction took away, and what only repeats them counts in full.
	Ready bool
	// Open: the shard may have cases, which any further record of what they are
	// about closes.
	Open  bool
	Most  DeviceLimits
	Cases map[string]bool // true = opened, false = closed
	// Unread are the keys of parts that got into quarantine (true) or out.
	Unread map[string]bool
}

// User applies c to its user.
func (m *Merging) User(u *User, c *Change) {
	if c.unread != nil {
		m.quarantine(u, c.unread, c)
		return
	}
	hash := c.Hash()
	if f := c.foreign; f != nil && !u.hasRoom(hash) && m.counts(c, u.registeredAt(hash)) {
		m.quarantine(u, &unreadPart{part: c.Part, version: true, partition: f.partition, offset: f.offset}, c)
		return
	}
	if !c.Repeats || !m.Ready {
		m.release(u, c) // what only repeats makes nothing readable that came before it
	}
	if hash == "" {
		u.set(c)
		return
	}
	if kase := Overtaken + c.key(); m.counts(c, u.registeredAt(hash)) {
		m.apply(u, c)
		m.close(kase)
		m.evict(c.User, u)
	} else {
		m.Cases[kase] = true
	}
}

// set replaces a part of which there is one.
func (s *User) set(c *Change) {
	switch c.Part {
	case PreferencesPart:
		s.Preferences, s.prefsSet = push.Preferences{}, c.preferences != nil
		if s.prefsSet {
			s.Preferences = *c.preferences
		}
	case ProfilePart:
		s.Profile = push.Profile{}
		if c.profile != nil {
			s.Profile = *c.profile
		}
	case LimitsPart:
		s.Limits = c.limits
	}
}

// has reports whether there is something of a part.
func (s *User) has(part Part) bool {
	switch part {
	case PreferencesPart:
		return s.prefsSet
	case ProfilePart:
		return s.Profile != push.Profile{}
	case LimitsPart:
		return len(s.Limits) > 0
	}
	return DeviceOf(&s.User, part.Hash()) != nil
}

// counts reports whether c changes what is there of a device: its
// registered_at, or the zero time when nothing is. What does not count must
// not stay the latest record of its part, or compaction would keep it alone.
//
// A removal may be limited to earlier registrations; an older registration
// does not replace a newer one; and what repeats what was there must still
// find it.
func (m *Merging) counts(c *Change, at time.Time) bool {
	there := !at.IsZero()
	registered, ok := c.registration()
	switch {
	case c.Repeats && m.Ready && !ok:
		return !there
	case c.Repeats && m.Ready:
		return there && sameMilli(at, registered)
	case !ok:
		return !there || c.removes(at)
	}
	return !there || at.UnixMilli() <= registered.UnixMilli()
}

func sameMilli(a, b time.Time) bool { return a.UnixMilli() == b.UnixMilli() }

// apply applies a record of a device that counts. A foreign one leaves the known
// device of the same token, which was there before it, in its place: to that
// something can be sent.
func (m *Merging) apply(u *User, c *Change) {
	was, hash := u.aside(c.Part), c.Hash()
	if c.foreign == nil {
		applyDevice(&u.User, hash, c.device)
	}
	u.setForeign(hash, c.foreign)
	if was || c.foreign != nil {
		m.told(u, c)
	}
}

// told notes whether the part of c can be read now, and opens the case that tells
// the quarantine's topic.
func (m *Merging) told(u *User, c *Change) {
	m.Unread[c.key()], m.Cases[Quarantined+c.key()] = u.aside(c.Part), true
}

func (m *Merging) close(kase string) {
	if _, ours := m.Cases[kase]; ours || m.Open {
		m.Cases[kase] = false
	}
}

// Token applies c to the claims of its token, and returns what they are then. It
// may change cs.
func (m *Merging) Token(cs Claims, c *Change) Claims {
	if c.unread != nil {
		return cs // what was claimed stands
	}
	before := len(cs)
	var at time.Time
	if i := slices.IndexFunc(cs, func(x Claim) bool { return x.User == c.User }); i >= 0 {
		at = time.UnixMilli(cs[i].At)
	}
	if m.counts(c, at) {
		cs = cs.without(c.User)
		if registered, ok := c.registration(); ok {
			cs = append(cs, Claim{User: c.User, At: registered.UnixMilli()})
		}
	} else if registered, ok := c.registration(); ok && at.IsZero() {
		// What it repeats was removed meanwhile. The user's shard may just be built,
		// and count it: then two users would have the token, and only one claims it.
		m.Cases[dated(Stray, registered, c.key())] = true
	}
	switch after := len(cs); {
	case after > 1 && before <= 1:
		m.Cases[Contested+c.Hash()] = true
	case after <= 1 && before > 1:
		m.Cases[Contested+c.Hash()] = false
	}
	return cs
}

// quarantine keeps what is there of a part whose new record cannot be read,
// and remembers where that is. What holds is not repeated behind it: then
// compaction would take away what a newer fleet may read.
func (m *Merging) quarantine(u *User, as *unreadPart, c *Change) {
	m.close(Overtaken + c.key())
	part := *as
	part.stands = u.has(c.Part)
	i, found := slices.BinarySearchFunc(u.unread, c.Part, func(p unreadPart, part Part) int { return cmp.Compare(p.part, part) })
	switch {
	case found:
		u.unread[i] = part
	case c.Hash() == "" || len(u.unread) < maxUnread:
		u.unread = slices.Insert(u.unread, i, part)
	default:
		return
	}
	u.Quarantine = quarantine(u.unread)
	m.told(u, c)
}

// release takes the part of c out of quarantine: its latest record can be read.
func (m *Merging) release(u *User, c *Change) {
	i := u.unreadAt(c.Part)
	if i < 0 {
		return
	}
	u.unread = slices.Delete(u.unread, i, i+1)
	u.Quarantine = quarantine(u.unread)
	m.told(u, c)
}

// evict leaves the latest registered devices, as many as there may be. Of
// those registered in the same millisecond the greater hash is the later one,
// so that the order of the records does not matter.
func (m *Merging) evict(user string, u *User) {
	if len(u.Devices) <= min(m.Most.User, m.Most.App) {
		return
	}
	latest := make([]int, len(u.Devices))
	for i := range latest {
		latest[i] = i
	}
	slices.SortFunc(latest, func(i, j int) int {
		a, b := &u.Devices[i], &u.Devices[j]
		return cmp.Or(b.RegisteredAt.Compare(a.RegisteredAt), cmp.Compare(b.Hash, a.Hash))
	})
	all, of := 0, make(map[string]int)
	drop := make(map[string]bool)
	for _, i := range latest {
		d := &u.Devices[i]
		if all < m.Most.User && of[d.App] < m.Most.App {
			all++
			of[d.App]++
			continue
		}
		drop[d.Hash] = true
		u.dropped.devices++
		if d.RegisteredAt.After(u.dropped.upTo) {
			u.dropped.upTo = d.RegisteredAt
		}
		m.Cases[dated(Evicted, d.RegisteredAt, DeviceKey(user, d.Hash))] = true
	}
	u.Devices = slices.DeleteFunc(u.Devices, func(d push.Device) bool { return drop[d.Hash] })
}
