package journal

import "time"

// Bounds of journals.
const (
	MaxPage   = 100                 // entries of a page
	LeastKept = 24 * time.Hour      // for which entries are kept at least
	MostKept  = 90 * 24 * time.Hour // and at most
)

// Position is the place of an entry in its journal. Entries are read from the newest to the
// oldest; of one time, from the greatest id to the least.
type Position struct {
	At time.Time // of the notification, in milliseconds: the same whenever its record is read
	ID string    // of the notification
}

// Before reports whether p is read before o.
func (p Position) Before(o Position) bool {
	if !p.At.Equal(o.At) {
		return p.At.After(o.At)
	}
	return p.ID > o.ID
}

// Top is before all entries: clocks of producers may be ahead.
func Top(now time.Time) Position { return Position{At: now.Add(24 * time.Hour)} }

// Entry is a notification that a user was meant to get.
type Entry struct {
	Position
	User, App, Sender, Type, Lane string
	Kept                          time.Duration // for how long from At, LeastKept to MostKept
}

// Question is which entries of a user are read.
type Question struct {
	User   string
	Apps   []string  // of these
	Sender string    // and of this one; empty = of all
	Since  time.Time // not older than this
	Behind Position
	Limit  int // 1 to MaxPage
}

// wants reports whether an entry is among what is asked for.
func (q *Question) wants(e *Entry) bool {
	if q.Sender != "" && q.Sender != e.Sender || e.At.Before(q.Since) || !q.Behind.Before(e.Position) {
		return false
	}
	for _, app := range q.Apps {
		if app == e.App {
			return true
		}
	}
	return false
}
