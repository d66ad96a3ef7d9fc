package limits

import (
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Per is what a rule counts together.
type Per string

// The scopes of a rule.
const (
	PerUser     Per = "user"      // all notifications of a user that the rule is about
	PerUserType Per = "user_type" // each type of a user by itself
)

// Rule is one limit: at most Max notifications in any stretch of Window.
type Rule struct {
	Name   string        // in the reason of what it suppresses; unique
	Per    Per           //
	Types  []string      // the message types it is about; empty = all
	Max    int           // 1 to 4,096
	Window time.Duration // 1 s to 31 days; it slides
}

const (
	maxPerRule = 4096
	minWindow  = time.Second
	maxWindow  = 31 * 24 * time.Hour
	// skew is by how much the clocks of two workers may differ without an event
	// being forgotten before the slower one is done with it.
	skew = time.Minute
	// farFuture is how far an event may lie ahead of the clock of the next worker
	// that decides.
	farFuture = 24 * time.Hour
	// maxEvents bounds a state (64 KiB): per-type rules alone do not, because
	// types are free names. Beyond it the oldest events are forgotten.
	maxEvents = 4096
)

func (r *Rule) check() error {
	switch {
	case r.Name == "":
		return errors.New("a rule has no name")
	case r.Per != PerUser && r.Per != PerUserType:
		return fmt.Errorf("rule %s: per %q, want %q or %q", r.Name, r.Per, PerUser, PerUserType)
	case r.Max < 1 || r.Max > maxPerRule:
		return fmt.Errorf("rule %s: max %d, want 1 to %d", r.Name, r.Max, maxPerRule)
	case r.Window < minWindow || r.Window > maxWindow:
		return fmt.Errorf("rule %s: window %v, want %v to %v", r.Name, r.Window, minWindow, maxWindow)
	}
	return nil
}

// rule is a Rule as it is applied: to hashes and milliseconds.
type rule struct {
	name    string
	perType bool
	types   []uint32 // hashes; nil = all
	max     int
	window  int64 // ms
}

func compile(rules []Rule) ([]rule, error) {
	names := map[string]bool{}
	out := make([]rule, len(rules))
	for i := range rules {
		r := &rules[i]
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
		if names[r.Name] {
			return nil, fmt.Errorf("limits: two rules are named %s", r.Name)
		}
		names[r.Name] = true
		out[i] = rule{name: r.Name, perType: r.Per == PerUserType, max: r.Max, window: r.Window.Milliseconds()}
		for _, t := range r.Types {
			out[i].types = append(out[i].types, typeHash(t))
		}
	}
	return out, nil
}

// about reports whether the rule counts this type.
func (r *rule) about(kind uint32) bool {
	if r.types == nil {
		return true
	}
	for _, t := range r.types {
		if t == kind {
			return true
		}
	}
	return false
}

// spent counts the events that stand against a notification of this type at
// this time. It counts those of the future too (another worker's clock), so
// whatever the order of decisions, no window ever holds more than max.
func (r *rule) spent(events []event, kind uint32, at int64) int {
	n := 0
	for i := range events {
		e := &events[i]
		if e.at > at-r.window && (e.kind == kind || !r.perType && r.about(e.kind)) {
			n++
		}
	}
	return n
}

func typeHash(name string) uint32 { return uint32(xxhash.Sum64String(name)) }

func idHash(id string) uint64 { return xxhash.Sum64String(id) }
