package subscriptions

import (
	"time"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/push"
)

// Bounds of subscriptions.
const (
	MaxTopics  = 2000 // topics that a user may have subscribed to at once
	MaxChanges = 1000 // changes of one call
	MaxUser    = 128  // bytes of a user's id
	MaxPage    = 5000 // subscriptions or topics of a page
)

// Subscription is what a user has to do with a topic.
type Subscription struct {
	User     string
	Mode     Mode          // Left = no more
	Priority push.Priority // the highest of what he gets by it; 0 = the topic's
	// Since is when he joined, in milliseconds: what was accepted before is not for him. A
	// new mode or priority leaves it as it is. Zero = he has only ever left.
	Since time.Time
	Left  time.Time // when he left last, in milliseconds; it says nothing unless Mode is Left
}

// Membership is a Subscription as the user's list has it.
type Membership struct {
	Topic    string
	App      string
	Security Security
	Subscription
}

// Change is what a user's subscription is to become.
type Change struct {
	User     string
	Mode     Mode          // Left = he leaves
	Priority push.Priority // 0 = the topic's; nothing when he leaves
	// At is the time of the request, in microseconds: of two changes the later stands,
	// whichever is made first. Repeat a change with the same time.
	At time.Time
}

// Result is what became of a Change.
type Result struct {
	Subscription Subscription
	Err          error // nil = it is durable; else it may have been made, unless it is one of fault.go
}

// CheckUser is nil if a user may be called so, or an *InvalidError.
func CheckUser(user string) error {
	var e InvalidError
	switch {
	case user == "":
		e.add("user", "empty")
	case len(user) > MaxUser:
		e.add("user", "longer than 128 bytes")
	case !utf8.ValidString(user):
		e.add("user", "not UTF-8")
	default:
		for i := range len(user) {
			if user[i] < 0x20 || user[i] == 0x7f {
				e.add("user", "control character")
				break
			}
		}
	}
	return e.orNil()
}

// Admits is nil if the topic takes the change; else an *InvalidError, or ErrTopicClosed.
// Everybody may always leave.
func (t *Topic) Admits(c *Change) error {
	var e InvalidError
	if err := CheckUser(c.User); err != nil {
		e.Faults = append(e.Faults, err.(*InvalidError).Faults...)
	}
	if c.Mode != Left {
		if !t.Modes.Has(c.Mode) {
			e.add("mode", "want one of the topic's modes")
		}
		if c.Priority > t.Priority {
			e.add("priority", "want none that is higher than the topic's")
		}
	}
	if err := e.orNil(); err != nil {
		return err
	}
	if c.Mode != Left && t.State == Closed {
		return ErrTopicClosed
	}
	return nil
}
