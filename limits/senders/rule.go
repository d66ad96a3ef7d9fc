package senders

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushfleet/pushfleet/limits"
)

// Algorithm is how a bucket fills.
type Algorithm string

// The algorithms.
const (
	// TokenBucket lets Burst through at once, and Max in a Window after that.
	TokenBucket Algorithm = "token_bucket"
	// LeakyBucket lets one through every Window/Max, never two at once.
	LeakyBucket Algorithm = "leaky_bucket"
)

// Rule is one limit of senders: each has a bucket of its own. What is over
// it is deferred. A token that is not there yet is taken in advance, and the
// request waits for it; so each knows its time and nobody asks in vain.
type Rule struct {
	Name      string        // unique
	Algorithm Algorithm     // TokenBucket or LeakyBucket
	Max       int           // 1 to 1,000,000
	Window    time.Duration // 1 s to 24 h
	Burst     int           // of a TokenBucket, 1 to Max; 0 = Max
	// Wait bounds how long a request may wait for a token that it has taken, 0 to
	// 24 h. Those beyond it take none and ask again.
	Wait time.Duration

	Senders, Lanes, Types, Apps []string // that it is about; empty = all
}

const (
	maxPerWindow = 1_000_000
	minWindow    = time.Second
	maxWindow    = 24 * time.Hour
	maxRules     = 64
)

func (r *Rule) check() error {
	switch {
	case r.Name == "":
		return errors.New("a rule has no name")
	case r.Algorithm != TokenBucket && r.Algorithm != LeakyBucket:
		return fmt.Errorf("rule %s: algorithm %q, want %q or %q", r.Name, r.Algorithm, TokenBucket, LeakyBucket)
	case r.Max < 1 || r.Max > maxPerWindow:
		return fmt.Errorf("rule %s: max %d, want 1 to %d", r.Name, r.Max, maxPerWindow)
	case r.Window < minWindow || r.Window > maxWindow:
		return fmt.Errorf("rule %s: window %v, want %v to %v", r.Name, r.Window, minWindow, maxWindow)
	case r.Burst < 0 || r.Burst > r.Max || r.Burst > 1 && r.Algorithm == LeakyBucket:
		return fmt.Errorf("rule %s: burst %d, want 1 to max, and 1 for %s", r.Name, r.Burst, LeakyBucket)
	case r.Wait < 0 || r.Wait > maxWindow:
		return fmt.Errorf("rule %s: wait %v, want 0 to %v", r.Name, r.Wait, maxWindow)
	}
	return nil
}

func (r *Rule) about(q *limits.Request) bool {
	return all(r.Senders, q.Sender) && all(r.Lanes, q.Lane) && all(r.Types, q.Type) && all(r.Apps, q.App)
}

func all(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }

// bucket is a Rule in microseconds.
type bucket struct {
	Rule
	hash  uint32
	every int64 // for one token, rounded up
	full  int64 // for a full bucket
	wait  int64
}

// nameHash stands for a rule's name in the keys of its buckets, so it must never
// change.
func nameHash(name string) uint32 { return uint32(xxhash.Sum64String(name)) }

func compile(rules []Rule) ([]bucket, error) {
	if len(rules) == 0 || len(rules) > maxRules {
		return nil, fmt.Errorf("senders: %d rules, want 1 to %d", len(rules), maxRules)
	}
	names := map[string]bool{}
	out := make([]bucket, len(rules))
	for i, r := range rules {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("senders: %w", err)
		}
		if names[r.Name] {
			return nil, fmt.Errorf("senders: two rules are named %s", r.Name)
		}
		names[r.Name] = true
		burst := r.Burst
		switch {
		case r.Algorithm == LeakyBucket:
			burst = 1
		case burst == 0:
			burst = r.Max
		}
		every := (r.Window.Microseconds() + int64(r.Max) - 1) / int64(r.Max)
		out[i] = bucket{r, nameHash(r.Name), every, int64(burst) * every, r.Wait.Microseconds()}
	}
	return out, nil
}
