package inbox

import (
	"errors"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Bounds of inboxes.
const (
	MaxPage  = 100                 // entries of a page
	MaxMarks = 100                 // marks of one call
	MaxBytes = 1 << 20             // bytes of a page's contents, unless its first entry has more
	LeastTTL = 24 * time.Hour      // for which entries are kept at least
	MostTTL  = 90 * 24 * time.Hour // and at most
)

// Key names an inbox: that of a user of an app.
type Key struct{ User, App string }

// Position is the place of an entry in its inbox. Entries are read from the newest to the
// oldest; of one time, from the greatest id to the least.
type Position struct {
	At time.Time // in milliseconds
	ID string    // of the notification, or of the message to a topic
}

// Top is before all entries, of which none is from the future.
func Top(now time.Time) Position {
	return Position{At: now.Add(24 * time.Hour).Truncate(time.Millisecond)}
}

// Before reports whether p is read before o.
func (p Position) Before(o Position) bool {
	if !p.At.Equal(o.At) {
		return p.At.After(o.At)
	}
	return p.ID > o.ID
}

// compare is below 0 if p is read before o, and above if behind it.
func (p Position) compare(o Position) int {
	switch {
	case p.Before(o):
		return -1
	case o.Before(p):
		return 1
	}
	return 0
}

// The times of ids that are believed, compared with when the notification was first seen.
// Ids of a fan-out are up to 18 minutes behind their message.
const (
	behind = time.Hour
	ahead  = time.Minute
)

// PositionOf is where a notification belongs, the same at each repeat of it: at the time
// in its id if it is a UUIDv7 of about that time, else at seen, when its first record was.
func PositionOf(id string, seen time.Time) Position {
	p := Position{At: seen.UTC().Truncate(time.Millisecond), ID: id}
	if at, ok := push.MintedAt(id); ok && at.After(seen.Add(-behind)) && at.Before(seen.Add(ahead)) {
		p.At = at.UTC()
	}
	return p
}

// Entry is a message in an inbox.
type Entry struct {
	Position
	// Topic is by which topic it came: then the place has the message's id, which is the same
	// for all who follow the topic. Empty = it is for its user alone.
	Topic              string
	Type, Lane, Sender string
	Priority           push.Priority
	// Content is a JSON object, as it is shown. Stores do not look into it.
	Content []byte
	Expires time.Time // from when on it is not shown; zero = it is as long as it is there

	// What its user has done with it, which Put leaves as it is.
	Read  bool
	Shown time.Time // when it first was; zero = never. Limits have allowed it then
}

// Addressed is an entry and the inbox that it is for.
type Addressed struct {
	Key
	Entry
}

// Marks is what becomes of entries of one inbox. They take the time of the request: of
// two marks of an entry the later stands, whichever is written first.
type Marks struct {
	At           time.Time
	Read, Unread []Position
	// UpTo has this entry and all older ones read; zero = none. One that is older than
	// another call's changes nothing.
	UpTo Position
}

// Check is nil if a store takes the marks.
func (m *Marks) Check() error {
	if len(m.Read)+len(m.Unread) > MaxMarks {
		return errors.New("inbox: more marks than one call may have")
	}
	return nil
}

// marked is what an entry's row and its inbox say of whether it is read.
type marked struct {
	came         time.Time // when the entry was written
	read, unread time.Time // when it was marked so last; zero = never
}

// upTo is how far an inbox is read as a whole.
type upTo struct {
	at  time.Time // entries of this time and older ones
	set time.Time // by a request of this time
}

// clocks is how far the clocks of those who write entries and marks may differ.
const clocks = 10 * time.Second

// isRead reports whether the last that was done with an entry was to read it. What comes
// later than a request about all up to a time is not read by it, however old it is: nobody
// has seen it. What is written again after a crash has come then: rather unread twice than
// never seen.
func (m marked) isRead(at time.Time, u upTo) bool {
	read := m.read
	if !u.at.IsZero() && !at.After(u.at) && u.set.After(read) && !m.came.After(u.set.Add(clocks)) {
		read = u.set
	}
	return !read.IsZero() && !read.Before(m.unread)
}

// periodDays is how much time one partition of an inbox has.
const periodDays = 10

// period is the partition of a time.
func period(at time.Time) int { return int(at.Unix() / (periodDays * 24 * 60 * 60)) }
