package stages

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Recheck repeats the checks of Preferences, Devices and Superseded for
// deliveries that have waited: changes that a user made meanwhile count, as do quiet
// hours that have begun, and a token that has moved to another user gets nothing meant
// for the first.
type Recheck struct {
	Users  Users
	Newest Newest
	Rules  func() Rules // as of Preferences
}

// Recheck implements pipeline.Recheck.
func (s *Recheck) Recheck(ctx context.Context, ds []*pipeline.Delivery) error {
	items, rules := itemsOf(ds), inForce(s.Rules)
	users, err := fetch(ctx, s.Users, items)
	unread := err != nil
	if unread && (!rules.Consent.IgnoreBlocked || ctx.Err() != nil) {
		return err
	}
	superseded := make([]bool, len(items))
	if err := s.Newest.Superseded(ctx, items, superseded); err != nil {
		return fmt.Errorf("looking for newer notifications: %w", err)
	}
	at := make(map[*pipeline.Item]int, len(items))
	for i, it := range items {
		at[it] = i
	}
	now := time.Now()
	for _, d := range ds {
		i := at[d.Item]
		if unread {
			users[i] = push.User{}
			if !rules.Consent.NeedsNoRecord(&d.Item.Message) {
				d.Verdict, d.Reason = push.Deferred, push.UserUnavailable
				continue
			}
		}
		switch verdict, reason, _ := rules.verdict(&users[i], &d.Item.Message, now, d.Expires.Time()); {
		case verdict != push.Undecided && reason != push.UserQuarantined: // cannot be read now: what was read before counts
			d.Verdict, d.Reason = verdict, reason
		case !users[i].Preferences.Wants(&d.Item.Message, d.Route.Platform.Channel()):
			d.Verdict, d.Reason = push.Suppressed, push.OptedOutChannel
		case superseded[i] && !d.Item.Derived:
			d.Verdict, d.Reason = push.Suppressed, push.Superseded
		case users[i].Quarantine&(push.DeviceUnread|push.RecordUnread) == 0 && !has(&users[i], d):
			d.Verdict, d.Reason = push.Suppressed, push.TokenGone
		}
	}
	return nil
}

// has reports whether the device is still the user's. A device that the message
// names belongs to no user.
func has(u *push.User, d *pipeline.Delivery) bool {
	return d.Item.Device.Token != "" || slices.ContainsFunc(u.Devices, func(o push.Device) bool {
		return o.Hash == d.Device.Hash && o.App == d.Item.App
	})
}

// itemsOf are the items of deliveries, each once.
func itemsOf(ds []*pipeline.Delivery) (items []*pipeline.Item) {
	seen := make(map[*pipeline.Item]bool, len(ds))
	for _, d := range ds {
		if !seen[d.Item] {
			seen[d.Item] = true
			items = append(items, d.Item)
		}
	}
	return items
}
