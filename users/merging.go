package users

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Open cases: the work that is still to be done about a shard, by the kind of case
// and its subject. A case is opened in the same write as its cause.
const (
	contested   = "c:" // device hash: more than one user claims the token
	overtaken   = "o:" // key of a part: its latest record is not what holds
	evicted     = "e:" // Unix ms ":" key of a part: it is too many, and up to then to be removed
	stray       = "s:" // Unix ms ":" key of a part: repeated as of then, though its token is not claimed
	quarantined = "q:" // key of a part: the quarantine's topic is to be told
	doubted     = "d:" // user: a reader could not read the record
	lostUser    = "u:" // user: the record is to be rebuilt from the topic
	lostToken   = "t:" // device hash: its entry is to be rebuilt
)

// merging applies changes to the users and tokens of one shard.
type merging struct {
	// ready: the shard is complete. While it is built, records may be missing
	// that compaction took away, and what only repeats them counts in full.
	ready bool
	// open: the shard may have cases, which any further record of what they are
	// about closes.
	open  bool
	most  DeviceLimits
	cases map[string]bool // true = opened, false = closed
	// unread are the keys of parts that got into quarantine (true) or out.
	unread map[string]bool
}

func (r *Registry) merging(st *shardState) *merging {
	return &merging{ready: st.ready, open: st.open, most: r.options.Devices, cases: map[string]bool{}, unread: map[string]bool{}}
}

// user applies c to its user.
func (m *merging) user(u *stored, c *change) {
	if c.unread != nil {
		m.quarantine(u, c.unread, c)
		return
	}
	if f := c.foreign; f != nil && !u.hasRoom(c.hash) && m.counts(c, u.registeredAt(c.hash)) {
		m.quarantine(u, &unreadPart{hash: c.hash, version: true, partition: f.partition, offset: f.offset}, c)
		return
	}
	if !c.repeats || !m.ready {
		m.release(u, c) // what only repeats makes nothing readable that came before it
	}
	if c.hash == "" {
		u.Preferences, u.prefsSet = push.Preferences{}, c.preferences != nil
		if u.prefsSet {
			u.Preferences = *c.preferences
		}
		return
	}
	if kase := overtaken + c.key(); m.counts(c, u.registeredAt(c.hash)) {
		m.apply(u, c)
		m.close(kase)
		m.evict(c.user, u)
	} else {
		m.cases[kase] = true
	}
}

// counts reports whether c changes what is there of a device: its
// registered_at, or the zero time when nothing is. What does not count must
// not stay the latest record of its part, or compaction would keep it alone.
//
// A removal may be limited to earlier registrations; an older registration
// does not replace a newer one; and what repeats what was there must still
// find it.
func (m *merging) counts(c *change, at time.Time) bool {
	there := !at.IsZero()
	registered, ok := c.registration()
	switch {
	case c.repeats && m.ready && !ok:
		return !there
	case c.repeats && m.ready:
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
func (m *merging) apply(u *stored, c *change) {
	was := u.aside(c.hash)
	if c.foreign == nil {
		applyDevice(&u.User, c.hash, c.device)
	}
	u.setForeign(c.hash, c.foreign)
	if was || c.foreign != nil {
		m.told(u, c)
	}
}

// told notes whether the part of c can be read now, and opens the case that tells
// the quarantine's topic.
func (m *merging) told(u *stored, c *change) {
	m.unread[c.key()], m.cases[quarantined+c.key()] = u.aside(c.hash), true
}

// registeredAt returns the zero time if u has no such device.
func (u *stored) registeredAt(hash string) time.Time {
	if f := u.foreignAt(hash); f != nil {
		return f.at
	}
	if d := deviceByHash(&u.User, hash); d != nil {
		return d.RegisteredAt
	}
	return time.Time{}
}

func (m *merging) close(kase string) {
	if _, ours := m.cases[kase]; ours || m.open {
		m.cases[kase] = false
	}
}

// token applies c to the claims of its token.
func (m *merging) token(cs claims, c *change) claims {
	if c.unread != nil {
		return cs // what was claimed stands
	}
	before := len(cs)
	var at time.Time
	if i := slices.IndexFunc(cs, func(x claim) bool { return x.user == c.user }); i >= 0 {
		at = time.UnixMilli(cs[i].at)
	}
	if m.counts(c, at) {
		cs = cs.without(c.user)
		if registered, ok := c.registration(); ok {
			cs = append(cs, claim{user: c.user, at: registered.UnixMilli()})
		}
	} else if registered, ok := c.registration(); ok && at.IsZero() {
		// What it repeats was removed meanwhile. The user's shard may just be built,
		// and count it: then two users would have the token, and only one claims it.
		m.cases[dated(stray, registered, c.key())] = true
	}
	switch after := len(cs); {
	case after > 1 && before <= 1:
		m.cases[contested+c.hash] = true
	case after <= 1 && before > 1:
		m.cases[contested+c.hash] = false
	}
	return cs
}

// quarantine keeps what is there of a part whose new record cannot be read,
// and remembers where that is. What holds is not repeated behind it: then
// compaction would take away what a newer fleet may read.
func (m *merging) quarantine(u *stored, as *unreadPart, c *change) {
	m.close(overtaken + c.key())
	part := *as
	part.stands = u.prefsSet
	if c.hash != "" {
		part.stands = deviceByHash(&u.User, c.hash) != nil
	}
	i, found := slices.BinarySearchFunc(u.unread, c.hash, func(p unreadPart, hash string) int { return cmp.Compare(p.hash, hash) })
	switch {
	case found:
		u.unread[i] = part
	case c.hash == "" || len(u.unread) < maxUnread:
		u.unread = slices.Insert(u.unread, i, part)
	default:
		return
	}
	u.Quarantine = quarantine(u.unread)
	m.told(u, c)
}

// release takes the part of c out of quarantine: its latest record can be read.
func (m *merging) release(u *stored, c *change) {
	i := u.unreadAt(c.hash)
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
func (m *merging) evict(user string, u *stored) {
	if len(u.Devices) <= min(m.most.User, m.most.App) {
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
		if all < m.most.User && of[d.App] < m.most.App {
			all++
			of[d.App]++
			continue
		}
		drop[d.Hash] = true
		u.dropped.devices++
		if d.RegisteredAt.After(u.dropped.upTo) {
			u.dropped.upTo = d.RegisteredAt
		}
		m.cases[dated(evicted, d.RegisteredAt, DeviceKey(user, d.Hash))] = true
	}
	u.Devices = slices.DeleteFunc(u.Devices, func(d push.Device) bool { return drop[d.Hash] })
}

// dated is a case about a device as it was registered then.
func dated(kind string, registered time.Time, key string) string {
	return kind + strconv.FormatInt(registered.UnixMilli(), 10) + ":" + key
}
