package stages

import (
	"context"
	"fmt"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Newest knows the newest notification accepted per user, app and collapse
// key. Superseded sets out[i] when there is a newer one than items[i].
type Newest interface {
	Superseded(ctx context.Context, items []*pipeline.Item, out []bool) error
}

// Superseded ends retries that come too late: a newer notification with the
// same collapse key has been accepted, and the older one would replace it on
// the screen. This holds for every priority, critical too: whoever gives two
// notifications one collapse key says that the newer one counts.
//
// What Newest has forgotten lets a retry through. But when it cannot be asked,
// the batch waits, as it would for the user records one stage further on:
// guessing would put an old text over a new one.
type Superseded struct{ Newest Newest }

// Name implements pipeline.Stage.
func (*Superseded) Name() pipeline.Step { return StepSuperseded }

// Apply decides batches of retry, deferral and hold topics, and passes over all others.
func (s *Superseded) Apply(ctx context.Context, b *pipeline.Batch) error {
	if !b.Retry {
		return nil
	}
	items := make([]*pipeline.Item, 0, len(b.Items))
	for i := range b.Items {
		if it := &b.Items[i]; it.Verdict == push.Undecided && it.CollapseKey != "" && !it.Derived {
			items = append(items, it)
		}
	}
	if len(items) == 0 {
		return nil
	}
	superseded := make([]bool, len(items))
	if err := s.Newest.Superseded(ctx, items, superseded); err != nil {
		return fmt.Errorf("looking for newer notifications: %w", err)
	}
	for i, it := range items {
		if superseded[i] {
			it.Decide(push.Suppressed, push.Superseded, "")
		}
	}
	return nil
}
