package stages

import (
	"context"
	"fmt"
	"slices"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Recheck repeats the checks of Preferences, Devices and Superseded for
// deliveries that have waited: changes that a user made meanwhile count, and a
// token that has moved to another user gets nothing meant for the first.
type Recheck struct {
	Users  Users
	Newest Newest
}

// Recheck implements pipeline.Recheck.
func (s *Recheck) Recheck(ctx context.Context, ds []*pipeline.Delivery) error {
	items := itemsOf(ds)
	users, err := fetch(ctx, s.Users, items)
	if err != nil {
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
	for _, d := range ds {
		i := at[d.Item]
		switch verdict, reason := users[i].Verdict(&d.Item.Message); {
		case verdict != push.Undecided && verdict != push.Deferred: // cannot be read now: what was read before counts
			d.Verdict, d.Reason = verdict, reason
		case users[i].Preferences.OptedOutOf(d.Device.Platform.Channel()):
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
		return o.Hash == d.Device.Hash && o.App == d.Device.App
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
