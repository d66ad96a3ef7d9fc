package subscriptionstest

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// change is one of the model, with its rank in time.
type change struct {
	user     int
	mode     subscriptions.Mode
	priority push.Priority
	at       int // ms after start, of one user each once
}

// model holds a store against a plain map: changes that are made in any order, and more
// than once, leave what the latest of each user says.
func model(t *testing.T, s Store) {
	rapid.Check(t, func(r *rapid.T) {
		const users = 3
		of, prefix := made(t, s, func(t *subscriptions.Topic) {
			t.Size = rapid.SampledFrom([]subscriptions.Size{1, 2, 3}).Draw(r, "size")
		}), name()
		var changes []change
		for i := range rapid.IntRange(1, 10).Draw(r, "changes") {
			changes = append(changes, change{user: rapid.IntRange(0, users-1).Draw(r, "user"), at: i,
				mode:     rapid.SampledFrom([]subscriptions.Mode{subscriptions.Left, subscriptions.Push, subscriptions.Pull}).Draw(r, "mode"),
				priority: rapid.SampledFrom([]push.Priority{0, push.Bulk, push.Medium}).Draw(r, "priority")})
		}
		latest := map[int]change{}
		for _, c := range changes { // in the order of their times
			latest[c.user] = c
		}
		order := rapid.Permutation(append(changes, changes[:rapid.IntRange(0, len(changes)).Draw(r, "repeated")]...)).Draw(r, "order")
		joined := map[string]bool{}
		for _, c := range order {
			user := fmt.Sprint(prefix, "-", c.user)
			at := start.Add(time.Duration(c.at) * time.Millisecond)
			got := apply(t, s, of, subscriptions.Change{User: user, Mode: c.mode, Priority: c.priority, At: at})
			if got.Mode != c.mode {
				r.Errorf("answered %s for %s", got.Mode, c.mode)
			}
			joined[user] = joined[user] || c.mode != subscriptions.Left
		}
		for user, want := range latest {
			id := fmt.Sprint(prefix, "-", user)
			got := one(t, s, of, id)
			at := start.Truncate(time.Millisecond).Add(time.Duration(want.at) * time.Millisecond)
			if got.Mode != want.mode || want.mode != subscriptions.Left && got.Priority != want.priority {
				r.Errorf("%d has %s with %s, want %s with %s", user, got.Mode, got.Priority, want.mode, want.priority)
			}
			switch {
			case want.mode == subscriptions.Left && !got.Left.Equal(at):
				r.Errorf("%d has left at %s, want %s", user, got.Left, at)
			case want.mode != subscriptions.Left && (got.Since.IsZero() || got.Since.After(at)):
				r.Errorf("%d is there since %s, and joined at %s at the latest", user, got.Since, at)
			case !joined[id] && !got.Since.IsZero():
				r.Errorf("%d has never joined, and is there since %s", user, got.Since)
			}
		}
	})
}
