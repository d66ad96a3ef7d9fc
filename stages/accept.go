package stages

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Accept applies the rules of the lane that need no store: known app, not
// expired. It also sets every item's Expires, and the priority that counts.
type Accept struct {
	// Apps are the configured apps.
	Apps map[string]bool
	// GreatestAge is how old a notification of this lane may get, from the
	// Kafka timestamp of its first record. Positive.
	GreatestAge time.Duration
	// DefaultPriority is that of messages which give none.
	DefaultPriority push.Priority
	// MayBeCritical are the senders that may use priority critical; nil = every
	// sender may. A critical message of another sender goes with high: it is
	// limited as usual, and not lost.
	MayBeCritical map[string]bool
	// Lowered, if set, is called with the number of notifications of a batch
	// whose priority was lowered.
	Lowered func(n int)
	// Replace gives each notification without a collapse key one of its own, so
	// that a repeated send replaces the first on the screen instead of appearing
	// next to it: the mode effectively_once.
	Replace bool
}

// Name implements pipeline.Stage.
func (*Accept) Name() pipeline.Step { return StepAccept }

// Apply never fails.
func (s *Accept) Apply(_ context.Context, b *pipeline.Batch) error {
	now, lowered := time.Now(), 0
	needs := func(i int) byte { it := &b.Items[i]; return byte(it.Verdict) + byte(it.Priority) + byte(it.FirstSeen) }
	for i := range push.Prefetching(len(b.Items), needs) {
		it := &b.Items[i]
		if it.Verdict != push.Undecided {
			continue
		}
		if it.Priority == 0 {
			it.SetPriority(s.DefaultPriority)
		}
		if it.Priority == push.Critical && s.MayBeCritical != nil && !s.MayBeCritical[it.SenderID] {
			it.SetPriority(push.High)
			lowered++
		}
		oldest := it.FirstSeen.Time().Add(s.GreatestAge)
		expires := oldest
		if !it.ExpiresAt.IsZero() && it.ExpiresAt.Before(oldest) {
			expires = it.ExpiresAt
		}
		it.Expires = push.At(expires)
		if s.Replace && it.CollapseKey == "" {
			it.CollapseKey, it.Derived = push.DerivedCollapseKey(it.ID), true
		}
		switch {
		case !s.Apps[it.App]:
			it.Decide(push.Dead, push.UnknownApp, "")
		case now.Before(expires):
			if it.NotBefore.After(now) {
				it.Decide(push.Deferred, push.NotDue, "")
			}
		case expires.Equal(oldest):
			it.Decide(push.Expired, push.TooOld, "")
		default:
			it.Decide(push.Expired, push.PastExpiry, "")
		}
	}
	if lowered > 0 && s.Lowered != nil {
		s.Lowered(lowered)
	}
	return nil
}
