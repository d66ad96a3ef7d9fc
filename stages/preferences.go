package stages

import (
	"context"
	"fmt"

	"github.com/pushfleet/pushfleet/pipeline"
)

// Users reads what the registry knows. Fetch fills users[i] for owners[i]; an
// owner without a record gets an empty User. A shard that was wiped, or is not
// built yet, is an error: it never means that a user has no device.
type Users interface {
	Fetch(ctx context.Context, owners []string, users []*pipeline.User) error
}

// Preferences reads every item's user record, once for this stage and the two
// after it, and suppresses what the user opted out of.
type Preferences struct{ Users Users }

// Name implements pipeline.Stage.
func (*Preferences) Name() string { return "preferences" }

// Apply reads the records of all undecided items at once.
func (s *Preferences) Apply(ctx context.Context, b *pipeline.Batch) error {
	items := b.Undecided(make([]*pipeline.Item, 0, len(b.Items)))
	if len(items) == 0 {
		return nil
	}
	owners, records, users := make([]string, len(items)), make([]pipeline.User, len(items)), make([]*pipeline.User, len(items))
	for i, it := range items {
		owners[i], users[i] = it.Owner(), &records[i]
	}
	if err := s.Users.Fetch(ctx, owners, users); err != nil {
		return fmt.Errorf("reading user records: %w", err)
	}
	for i, it := range items {
		it.User = users[i]
		if reason, out := it.User.Preferences.OptedOut(it.Type); out {
			it.Decide(pipeline.Suppressed, reason, "")
		}
	}
	return nil
}
