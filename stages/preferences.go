package stages

import (
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Users reads what the registry knows. Fetch fills users[i] for owners[i]; an
// owner without a record gets an empty User. A shard that was wiped, or is not
// built yet, is an error: it never means that a user has no device.
type Users interface {
	Fetch(ctx context.Context, owners []string, users []*push.User) error
}

// Preferences reads every item's user record, once for this stage and the two
// after it, and suppresses what the user opted out of for all devices.
// Notifications of a user in quarantine wait if that cannot be known.
type Preferences struct{ Users Users }

// Name implements pipeline.Stage.
func (*Preferences) Name() string { return "preferences" }

// Apply reads the records of all undecided items at once.
func (s *Preferences) Apply(ctx context.Context, b *pipeline.Batch) error {
	items := b.Undecided(make([]*pipeline.Item, 0, len(b.Items)))
	if len(items) == 0 {
		return nil
	}
	asked := time.Now()
	users, err := fetch(ctx, s.Users, items)
	if err != nil {
		return err
	}
	now := time.Now()
	for i, it := range items {
		it.User, it.Read = &users[i], asked
		switch verdict, reason := it.User.Verdict(&it.Message); verdict {
		case push.Undecided:
		case push.Deferred:
			holdForUser(it, now)
		default:
			it.Decide(verdict, reason, "")
		}
	}
	return nil
}

// When a user that cannot be read is tried again: soon at first, because stored
// records are repaired within minutes, then rarely, because the rest needs a
// person.
const (
	firstUserLook = 30 * time.Second
	laterUserLook = 5 * time.Minute
)

// holdForUser puts an item off until its user may be readable, and no longer
// than it may still be sent.
func holdForUser(it *pipeline.Item, now time.Time) {
	wait := firstUserLook
	if it.Hops > 0 {
		wait = laterUserLook
	}
	it.NotBefore = now.Add(wait)
	if it.NotBefore.After(it.Expires) {
		it.NotBefore = it.Expires
	}
	it.Decide(push.Deferred, push.UserQuarantined, "")
}

// fetch reads the record of each item's user.
func fetch(ctx context.Context, from Users, items []*pipeline.Item) ([]push.User, error) {
	owners, records, users := make([]string, len(items)), make([]push.User, len(items)), make([]*push.User, len(items))
	for i, it := range items {
		owners[i], users[i] = it.Owner(), &records[i]
	}
	if err := from.Fetch(ctx, owners, users); err != nil {
		return nil, fmt.Errorf("reading user records: %w", err)
	}
	return records, nil
}
