package stages

import (
	"context"
	"errors"
	"time"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
)

// mayGoOn reports whether a lane need not wait for what has failed: a store is away,
// and not only one user's state broken, which does not pass by itself.
func (s *Limits) mayGoOn(ctx context.Context, err error) bool {
	_, broken := errors.AsType[*limits.StateError](err)
	return s.Consent.IgnoreBlocked && !broken && ctx.Err() == nil
}

// goOn does what Preferences does while users' records cannot be read: what needs no
// record goes on, uncounted, and all else that was asked about is put off. Senders'
// limits are obeyed: it is an error if they cover what would go on, and cannot answer.
func (s *Limits) goOn(ctx context.Context, asked *asking, senders Senders, now time.Time) error {
	again := &asking{bypassed: asked.bypassed, uncounted: asked.uncounted}
	for i, it := range asked.items {
		if r := asked.reqs[i]; it.Verdict == push.Undecided && s.Consent.NeedsNoRecord(&it.Message) {
			if !r.Exempt {
				again.uncounted++
			}
			r.Exempt, r.Decision = true, limits.Decision{Allowed: true} // unless its sender's limits say otherwise
			again.items, again.reqs = append(again.items, it), append(again.reqs, r)
		}
	}
	var err error
	if senders != nil {
		err = senders.Decide(ctx, again.reqs)
	}
	for i, it := range again.items {
		r := again.reqs[i]
		if it.Paid = r.Paid; bySender(r) {
			settle(it, r)
		}
	}
	s.Checks.decided(again, err)
	if err != nil {
		return err
	}
	for _, it := range asked.items {
		if it.Verdict == push.Undecided && !s.Consent.NeedsNoRecord(&it.Message) {
			it.Deliveries = nil
			holdForUser(it, push.UserUnavailable, now)
		}
	}
	return nil
}
