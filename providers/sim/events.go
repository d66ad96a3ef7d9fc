package sim

import (
	"context"
	"sync"
	"time"
)

// Event is something the simulator did other than accept: an answer that is no
// acceptance, one that was asked for, or something done to a connection. What
// a client did against HTTP/2 is there as "protocol_error".
type Event struct {
	Seq       uint64    `json:"seq"`              // from 1, without gaps
	At        time.Time `json:"at"`               // by the simulated clock
	Provider  string    `json:"provider"`         // "none" where it is not known
	Conn      uint64    `json:"conn"`             // from 1, in the order of arrival; 0 for none
	Stream    uint32    `json:"stream,omitempty"` // 0 for a whole connection
	Behaviour int       `json:"behaviour"`        // see Behaviours
	Do        string    `json:"do"`
	Reply     string    `json:"reply,omitempty"`
	By        string    `json:"by"` // validation, rule, token, chance, command, schedule
	Detail    string    `json:"detail,omitempty"`
}

// What brings an event about.
const (
	byValidation = "validation"
	byRule       = "rule"
	byToken      = "token"
	byChance     = "chance"
	byCommand    = "command"
	bySchedule   = "schedule"
)

// eventsKept are the newest events that are remembered: about 10 MB.
const eventsKept = 1 << 16

// Events is the simulator's log, of which the newest 65,536 entries are kept.
// Safe for concurrent use.
type Events struct {
	clock *Clock

	mu    sync.Mutex
	ring  []Event
	last  uint64        // Seq of the newest
	added chan struct{} // closed and replaced when somebody waits and one is added
}

func newEvents(c *Clock) *Events { return &Events{clock: c} }

func (l *Events) add(e Event) {
	e.At = l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.Seq = l.last
	if len(l.ring) < eventsKept {
		l.ring = append(l.ring, e)
	} else {
		l.ring[(e.Seq-1)%eventsKept] = e
	}
	if l.added != nil {
		close(l.added)
		l.added = nil
	}
}

// After returns the events that are still known with a greater Seq than after,
// oldest first, of one behaviour, or of all when it is 0.
func (l *Events) After(after uint64, behaviour int) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := []Event{}
	for seq := max(after+1, l.last+1-uint64(len(l.ring))); seq <= l.last; seq++ {
		if e := l.ring[(seq-1)%eventsKept]; behaviour == 0 || e.Behaviour == behaviour {
			found = append(found, e)
		}
	}
	return found
}

// Of returns all known events of one behaviour.
func (l *Events) Of(behaviour int) []Event { return l.After(0, behaviour) }

// Wait returns the first event that satisfies match, waiting for it until ctx
// ends. match must not call Events.
func (l *Events) Wait(ctx context.Context, match func(Event) bool) (Event, error) {
	seen := uint64(0)
	for {
		l.mu.Lock()
		for seq := max(seen+1, l.last+1-uint64(len(l.ring))); seq <= l.last; seq++ {
			if e := l.ring[(seq-1)%eventsKept]; match(e) {
				l.mu.Unlock()
				return e, nil
			}
		}
		seen = l.last
		if l.added == nil {
			l.added = make(chan struct{})
		}
		added := l.added
		l.mu.Unlock()
		select {
		case <-added:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}
