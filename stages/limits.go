package stages

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Limiter decides requests by all its rules together. Asking again about an id
// that was allowed spends nothing, so the stage may be repeated.
type Limiter interface {
	Decide(ctx context.Context, reqs []*limits.Request) error
}

// Limits suppresses notifications over a user's limits. Critical messages pass,
// and so does what was allowed before: an earlier record says so, or it is a retry
// (of an earlier version, which did not say so), whose first attempt was allowed. It comes after Devices,
// so that a notification without a device spends nothing.
//
// Limiter returns the limiter of the rules that are in force, nil where there are none;
// nil = there never are any. The rules of a batch do not change.
type Limits struct{ Limiter func() Limiter }

// Name implements pipeline.Stage.
func (*Limits) Name() string { return "limits" }

// Apply decides all items that have something to send at once.
func (s *Limits) Apply(ctx context.Context, b *pipeline.Batch) error {
	if s.Limiter == nil {
		return nil
	}
	limiter := s.Limiter()
	if limiter == nil {
		return nil
	}
	now := time.Now()
	slab := make([]limits.Request, 0, len(b.Items))
	items := make([]*pipeline.Item, 0, len(b.Items))
	for i := range b.Items {
		it := &b.Items[i]
		if it.Verdict != push.Undecided || it.Priority == push.Critical || it.Allowed || it.Attempt > 0 || !slices.ContainsFunc(it.Deliveries, isOpen) {
			continue
		}
		items = append(items, it)
		slab = append(slab, limits.Request{Owner: it.Owner(), ID: it.ID, Type: it.Type, State: it.User.Limiter, At: now})
	}
	if len(items) == 0 {
		return nil
	}
	reqs := make([]*limits.Request, len(slab))
	for i := range slab {
		reqs[i] = &slab[i]
	}
	if err := limiter.Decide(ctx, reqs); err != nil {
		return fmt.Errorf("checking limits: %w", err)
	}
	for i, it := range items {
		if it.Allowed = reqs[i].Allowed; !it.Allowed {
			it.Decide(push.Suppressed, push.Limited, reqs[i].Rule)
			it.Deliveries = nil
		}
	}
	return nil
}

func isOpen(d pipeline.Delivery) bool { return d.Verdict == push.Undecided }
