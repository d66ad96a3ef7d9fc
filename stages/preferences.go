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
// after it, and suppresses what the user forbids for all devices. What comes in quiet
// hours waits for their end, or is dropped. Notifications of a user in quarantine
// wait if what is forbidden cannot be known.
//
// While records cannot be read, the batch waits. With Rules.Consent.IgnoreBlocked it
// does not: what needs no record goes on without, and all else is put off, so
// that it is not in the way.
type Preferences struct {
	Users Users
	// Rules returns those that are in force, once for each batch. It is called by
	// several goroutines at once; nil = none.
	Rules func() Rules
}

// Name implements pipeline.Stage.
func (*Preferences) Name() pipeline.Step { return StepPreferences }

// Apply reads the records of all undecided items at once.
func (s *Preferences) Apply(ctx context.Context, b *pipeline.Batch) error {
	items := b.Undecided(make([]*pipeline.Item, 0, len(b.Items)))
	if len(items) == 0 {
		return nil
	}
	rules, asked := inForce(s.Rules), pipeline.UptimeAt(time.Now())
	users, err := fetch(ctx, s.Users, items)
	if err != nil && (!rules.Consent.IgnoreBlocked || ctx.Err() != nil) {
		return err
	}
	now := time.Now()
	needs := func(i int) byte {
		it, u := items[i], &users[i]
		return byte(it.Verdict) + byte(it.Priority) + byte(it.Read) + byte(len(u.Devices)) + byte(len(u.Preferences.Quiet))
	}
	for i := range push.Prefetching(len(items), needs) {
		it := items[i]
		it.User, it.Read = &users[i], asked
		if err != nil {
			if *it.User = (push.User{Quarantine: push.RecordUnread}); !rules.Consent.NeedsNoRecord(&it.Message) {
				holdForUser(it, push.UserUnavailable, now)
			}
			continue
		}
		switch verdict, reason, until := rules.verdict(it.User, &it.Message, now, it.Expires.Time()); {
		case verdict == push.Deferred && until.IsZero():
			holdForUser(it, reason, now)
		case verdict != push.Undecided:
			it.NotBefore = until
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
func holdForUser(it *pipeline.Item, why push.Reason, now time.Time) {
	wait := firstUserLook
	if it.Hops > 0 {
		wait = laterUserLook
	}
	it.NotBefore = now.Add(wait)
	if expires := it.Expires.Time(); it.NotBefore.After(expires) {
		it.NotBefore = expires
	}
	it.Decide(push.Deferred, why, "")
}

// fetch reads the record of each item's user. After an error the records mean nothing,
// but there is one for each.
func fetch(ctx context.Context, from Users, items []*pipeline.Item) ([]push.User, error) {
	owners, records, users := make([]string, len(items)), make([]push.User, len(items)), make([]*push.User, len(items))
	for i := range push.Prefetching(len(items), func(i int) byte { return push.Ends(items[i].UserID) }) {
		owners[i], users[i] = items[i].Owner(), &records[i]
	}
	if err := from.Fetch(ctx, owners, users); err != nil {
		return records, fmt.Errorf("reading user records: %w", err)
	}
	return records, nil
}
