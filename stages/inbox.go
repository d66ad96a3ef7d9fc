package stages

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Inboxes keep messages for users who look for them. Writing one again changes nothing.
type Inboxes interface {
	// Put says of each entry whether it is durable: nil = it is. It keeps nothing after
	// the call.
	Put(ctx context.Context, entries []inbox.Addressed) []error
}

// Inbox ends notifications INBOX, and keeps them where their users look: of users without
// a device, and of those who are not active. It comes behind Devices, which knows, and
// before Limits, which are asked when the user reads.
//
// An item ends so only when its entry is durable: so it is written before the row, and a
// store that is away makes the batch wait. Repeated after an error, it writes what was not
// durable, and a record that comes again after a crash writes the same entry.
type Inbox struct {
	Inboxes Inboxes
	Lane    string
	// After is how long ago a user was active for whom nothing is pushed any more; 0 = all
	// who have a device get it there. Nothing is known of users whose activity was never
	// told: they get pushes.
	After time.Duration
}

// Name implements pipeline.Stage.
func (*Inbox) Name() pipeline.Step { return StepInbox }

// Apply writes the entries of a batch, side by side.
func (s *Inbox) Apply(ctx context.Context, b *pipeline.Batch) error {
	now := time.Now()
	var items []*pipeline.Item
	var reasons []push.Reason
	var entries []inbox.Addressed
	for i := range b.Items {
		it := &b.Items[i]
		reason, keep := s.keeps(it, now)
		if !keep {
			continue
		}
		if inbox.IsNotice(&it.Message) { // what it tells of can be read already
			kept(it, reason)
			continue
		}
		content, readable := inbox.ContentOf(&it.Message)
		if !readable {
			continue
		}
		items, reasons = append(items, it), append(reasons, reason)
		entries = append(entries, inbox.Addressed{Key: inbox.Key{User: it.UserID, App: it.App}, Entry: inbox.Entry{
			Position: inbox.PositionOf(it.ID, it.FirstSeen.Time()), Type: it.Type, Lane: s.Lane, Sender: it.SenderID, Priority: it.Priority,
			Content: content, Expires: it.ExpiresAt,
		}})
	}
	if len(entries) == 0 {
		return nil
	}
	var first error
	for i, err := range s.Inboxes.Put(ctx, entries) {
		if err != nil {
			first = cmp.Or(first, err)
			continue
		}
		kept(items[i], reasons[i])
	}
	if first != nil {
		return fmt.Errorf("writing inboxes: %w", first)
	}
	return nil
}

// kept ends an item, also where Devices had decided.
func kept(it *pipeline.Item, reason push.Reason) {
	it.Decide(push.Kept, reason, "")
	it.Verdict, it.Reason, it.Deliveries = push.Kept, reason, nil
}

// keeps reports whether an item belongs into its user's inbox, and why.
func (s *Inbox) keeps(it *pipeline.Item, now time.Time) (push.Reason, bool) {
	switch {
	case it.UserID == "" || it.Message.Device.Token != "":
		return "", false
	case it.Verdict == push.Suppressed && it.Reason == push.NoDevice:
		return push.NoDevice, true
	case it.Verdict == push.Undecided && s.idle(it, now):
		return push.Inactive, true
	}
	return "", false
}

// idle reports whether an item's user is not active, and no device has been tried so far:
// what was begun is finished. What is critical is pushed to whoever may see it.
func (s *Inbox) idle(it *pipeline.Item, now time.Time) bool {
	if s.After == 0 || it.Priority == push.Critical || it.User == nil || len(it.Devices) > 0 || it.History != nil && it.History.HasDevices() {
		return false
	}
	last := it.User.Profile.LastActivity
	return !last.IsZero() && now.Sub(last) > s.After
}
