package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
	"github.com/pushfleet/pushfleet/wiring"
)

// registry reads users from Redis, and from push.users what Redis may not have yet. It is
// safe for concurrent use.
type registry struct {
	*users.Reader
	client  shards.Client
	turn    chan struct{}        // capacity 1: who reads history has one in it
	history *wiring.UsersHistory // guarded by turn
}

// openRegistry connects to nothing yet. The caller closes it.
func openRegistry(c *configs.Config, options kafka.Options) (*registry, error) {
	o, err := wiring.Redis(c)
	if err != nil {
		return nil, err
	}
	client, err := shards.Open(o)
	if err != nil {
		return nil, err
	}
	history, err := wiring.NewUsersHistory(options)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &registry{Reader: users.NewReader(client, false), client: client, turn: make(chan struct{}, 1), history: history}, nil
}

func (r *registry) close() {
	r.history.Close()
	_ = r.client.Close()
}

// errUnread says that what a user wants cannot be read by this version, or by any.
var errUnread = errors.New("preferences cannot be read: pushctl users quarantine ls")

// Preferences implements gateway.Registry: those in Redis, and then the records that the
// user's shard may not have applied, up to the topic's end. A shard without news says
// only every half minute how far it is, so that some records are read in vain.
func (r *registry) Preferences(ctx context.Context, user string) (push.Preferences, error) {
	list, err := state.Load(ctx, r.client, []int{shards.UserShard(user)})
	if err != nil {
		return push.Preferences{}, err
	}
	applied := list[0].Applied
	u, err := r.Stored(ctx, user) // it may be further than that, which does no harm
	switch {
	case err != nil:
		return push.Preferences{}, err
	case len(applied) == 0:
		return push.Preferences{}, fmt.Errorf("reading users: %w", &users.UnbuiltError{Shard: shards.UserShard(user)})
	}
	unread := u.Quarantine&(push.PreferencesBroken|push.PreferencesUnknown|push.RecordUnread) != 0
	merged := record.User{User: push.User{Preferences: u.Preferences}}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return push.Preferences{}, ctx.Err()
	}
	m := record.Merging{Ready: true, Cases: map[string]bool{}, Unread: map[string]bool{}}
	_, _, err = r.history.Read(ctx, user, applied[kafka.PartitionOf([]byte(user), len(applied))], func(f users.FetchedRecord) error {
		if f.Key != record.PreferencesKey(user) {
			return nil
		}
		var c record.Change
		if unread = c.Read(f.Key, f.Value, time.Now()) != nil; !unread {
			m.User(&merged, &c)
		}
		return nil
	})
	if err == nil && unread {
		err = errUnread
	}
	return merged.Preferences, err
}
