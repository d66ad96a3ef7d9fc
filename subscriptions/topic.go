package subscriptions

import (
	"regexp"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// topicName is what a topic may be called: 1 to 128 characters that need no escape in a
// path. There are no capitals, so that no two names differ only by them.
var topicName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)

// word is the grammar of names of apps and service types, as the configuration has it.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Bounds of a topic's senders.
const (
	MaxSender     = 128 // bytes of CreatedBy
	MaxPublishers = 100
)

// CheckName is nil if a topic may be called so, or an *InvalidError.
func CheckName(name string) error {
	var e InvalidError
	if !topicName.MatchString(name) {
		e.add("name", "want 1 to 128 of the letters a to z, digits, dots, underscores and dashes, beginning with a letter or a digit")
	}
	return e.orNil()
}

// Security says who may do what with a topic.
type Security uint8

// The securities. Numbers are in the tables.
const (
	Open         Security = 1 // users join and leave by themselves
	Restricted   Security = 2 // only holders of keys add and remove users
	Confidential Security = 3 // as Restricted, and a push says no more than that there is something
)

var securities = words[Security]{{Open, "open"}, {Restricted, "restricted"}, {Confidential, "confidential"}}

func (s Security) String() string { return securities.of(s) }

// ParseSecurity finds a security by its word.
func ParseSecurity(s string) (Security, bool) { return securities.find(s) }

// Mode is how a subscriber hears of what is sent to a topic.
type Mode uint8

// The modes. Numbers are in the tables; Left is a subscription that has ended.
const (
	Left Mode = 0
	Push Mode = 1 // as a push on his devices
	Pull Mode = 2 // in his inbox, when he looks there
)

var modes = words[Mode]{{Push, "push"}, {Pull, "pull"}, {Left, "left"}}

func (m Mode) String() string { return modes.of(m) }

// ParseMode finds push and pull by their words.
func ParseMode(s string) (Mode, bool) {
	m, ok := modes.find(s)
	return m, ok && m != Left
}

// Modes is a set of modes: the sum of 1 for push and 2 for pull.
type Modes uint8

// ModesOf is a set; Left is in none.
func ModesOf(list ...Mode) (m Modes) {
	for _, one := range list {
		m |= Modes(one)
	}
	return m
}

// Has reports whether push or pull is in the set.
func (m Modes) Has(mode Mode) bool { return (mode == Push || mode == Pull) && m&Modes(mode) != 0 }

// Words are the words of the set, push first.
func (m Modes) Words() []string {
	list := make([]string, 0, 2)
	for _, one := range []Mode{Push, Pull} {
		if m.Has(one) {
			list = append(list, one.String())
		}
	}
	return list
}

// Size is about how many subscribers a topic will have: a hint by which its partitions are
// chosen once. A wrong one costs time, and nothing is lost.
type Size uint8

// The sizes. Numbers are in the tables.
const (
	Small  Size = 1 // to about 100,000: one partition
	Medium Size = 2 // to about 6 million: 64
	Large  Size = 3 // to about 100 million: 1,024, which a fan-out reads for ten subscribers too
)

var sizes = words[Size]{{Small, "small"}, {Medium, "medium"}, {Large, "large"}}

func (s Size) String() string { return sizes.of(s) }

// ParseSize finds a size by its word.
func ParseSize(s string) (Size, bool) { return sizes.find(s) }

// buckets is how many partitions a topic of that size gets: each has at most about
// 100,000 rows of 70 bytes then.
func (s Size) buckets() int {
	switch s {
	case Small:
		return 1
	case Large:
		return Slices
	}
	return 64
}

// State says whether a topic takes subscribers and messages.
type State uint8

// The states. A closed topic is not opened again: its name stays taken.
const (
	Opened State = 1
	Closed State = 2
)

var states = words[State]{{Opened, "open"}, {Closed, "closed"}}

func (s State) String() string { return states.of(s) }

// words are the words of a type's values.
type words[T ~uint8] []struct {
	value T
	word  string
}

func (w words[T]) of(value T) string {
	for _, pair := range w {
		if pair.value == value {
			return pair.word
		}
	}
	return "unknown"
}

func (w words[T]) find(word string) (value T, ok bool) {
	for _, pair := range w {
		if pair.word == word {
			return pair.value, true
		}
	}
	return value, false
}

// Topic is a subject to which users subscribe and messages are sent.
type Topic struct {
	Name     string
	App      string        // whose users they are
	Service  string        // service type of its messages
	Priority push.Priority // default of its messages, and the highest that they and subscribers may have
	Security Security
	Modes    Modes // by which one may subscribe
	Size     Size
	// Publishers are the senders who may send to it, in order, up to MaxPublishers; none = each
	// sender whose keys are for the app. An open topic names none.
	Publishers []string

	// What a store sets.
	State     State
	Layout    Layout
	CreatedBy string    // the sender whose key has made it
	CreatedAt time.Time // in milliseconds
	ClosedAt  time.Time // zero = it is not
	Version   int       // counts changes: 1 as made, 2 closed
}

// Check is nil if there may be such a topic, or an *InvalidError with all that is wrong
// with what a caller sets.
func (t *Topic) Check() error {
	var e InvalidError
	if err := CheckName(t.Name); err != nil {
		e.Faults = append(e.Faults, err.(*InvalidError).Faults...)
	}
	const name = "want 1 to 64 letters, digits, dots, underscores and dashes, beginning with a letter or a digit"
	if !word.MatchString(t.App) {
		e.add("app", name)
	}
	if !word.MatchString(t.Service) {
		e.add("service_type", name)
	}
	if t.Priority < push.Bulk || t.Priority > push.Critical {
		e.add("metadata/priority", "want critical, high, medium, low or bulk")
	}
	if t.Security < Open || t.Security > Confidential {
		e.add("metadata/security", "want open, restricted or confidential")
	}
	if t.Modes == 0 || t.Modes > ModesOf(Push, Pull) {
		e.add("modes", "want push, pull or both")
	}
	if t.Size < Small || t.Size > Large {
		e.add("size", "want small, medium or large")
	}
	t.checkPublishers(&e)
	if len(t.CreatedBy) > MaxSender {
		e.add("created_by", "longer than 128 bytes")
	}
	return e.orNil()
}

func (t *Topic) checkPublishers(e *InvalidError) {
	const field = "metadata/publishers"
	switch {
	case len(t.Publishers) == 0:
	case t.Security == Open:
		e.add(field, "an open topic takes messages of each sender of the app: want security restricted or confidential")
	case len(t.Publishers) > MaxPublishers:
		e.add(field, "more than 100 senders")
	case slices.ContainsFunc(t.Publishers, func(sender string) bool { return !word.MatchString(sender) }):
		e.add(field, "want senders of 1 to 64 letters, digits, dots, underscores and dashes, beginning with a letter or a digit")
	case !slices.IsSorted(t.Publishers) || len(slices.Compact(slices.Clone(t.Publishers))) < len(t.Publishers):
		e.add(field, "want each sender once, in order")
	}
}

// Publishes reports whether a sender may send to the topic, if his key is for its app.
func (t *Topic) Publishes(sender string) bool {
	return len(t.Publishers) == 0 || slices.Contains(t.Publishers, sender)
}

// sameSettings reports whether callers have set the same for both.
func (t *Topic) sameSettings(o *Topic) bool {
	return t.Name == o.Name && t.App == o.App && t.Service == o.Service && t.Priority == o.Priority && t.Security == o.Security &&
		t.Modes == o.Modes && t.Size == o.Size && slices.Equal(t.Publishers, o.Publishers)
}

// asMade is the topic as a store keeps it first.
func (t *Topic) asMade(now time.Time) Topic {
	made := *t
	made.Publishers = slices.Clone(t.Publishers)
	made.State, made.Version, made.ClosedAt = Opened, 1, time.Time{}
	made.CreatedAt, made.Layout = now.UTC().Truncate(time.Millisecond), Layout{Number: 1, Buckets: t.Size.buckets()}
	return made
}

// close marks it closed.
func (t *Topic) close(at time.Time) {
	t.State, t.ClosedAt, t.Version = Closed, at.UTC().Truncate(time.Millisecond), 2
}
