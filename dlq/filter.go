package dlq

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// OptionError is an option with an invalid value. Nothing was done.
type OptionError struct {
	Option string // its name, as `pushctl dlq` calls it: max-redrives
	Rule   string // the rule that it breaks
}

func (e *OptionError) Error() string { return e.Option + ": " + e.Rule }

// Filter picks dead letters. An empty list lets everything through; a letter
// passes if it passes every list that is set. The zero Filter passes all open
// letters.
type Filter struct {
	Lanes     []string // names, topics or DLQs
	Reasons   []string // codes (docs/reasons.md), or a provider's last word
	Apps      []string
	Senders   []string
	Providers []string // platforms by their names: of those that did not take it, or that it was for
	IDs       []string // of notifications
	// Since and Until bound the time of dead-lettering: from Since on, and before
	// Until. Zero = no bound.
	Since, Until time.Time
	Marked       bool // also those that were redriven or dismissed
}

// Check finds words that can match nothing. The error is an *OptionError.
// Queues.Lanes checks whether the lanes exist.
func (f *Filter) Check() error {
	for _, p := range f.Providers {
		if _, ok := push.ParsePlatform(p); !ok {
			return &OptionError{"provider", fmt.Sprintf("%q is neither %s", p, push.PlatformNames(" nor "))}
		}
	}
	return nil
}

func (f *Filter) passes(r *record) bool {
	switch {
	case r.marked && !f.Marked,
		!f.Since.IsZero() && r.Timestamp.Before(f.Since),
		!f.Until.IsZero() && !r.Timestamp.Before(f.Until),
		!among(f.IDs, r.message.ID),
		!among(f.Apps, r.message.App),
		!among(f.Senders, r.message.SenderID),
		!among(f.Reasons, r.Reason) && !slices.Contains(f.Reasons, cmp.Or(r.lastAnswer(), r.Reason)):
		return false
	}
	return len(f.Providers) == 0 || slices.ContainsFunc(r.providers(), func(p string) bool { return slices.Contains(f.Providers, p) })
}

// among reports whether s is one of the words, or there are none.
func among(words []string, s string) bool { return len(words) == 0 || slices.Contains(words, s) }
