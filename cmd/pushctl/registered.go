package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

const (
	registeredLook  = 5000                   // users per read of Redis
	registeredPause = 100 * time.Millisecond // between two reads
	registeredStall = 30 * time.Second       // without progress, until an error
)

// userReader is the part of users.Reader that awaitRegistered needs.
type userReader interface {
	Fetch(ctx context.Context, owners []string, out []*push.User) error
}

func (a *app) crowdReader(ctx context.Context) (userReader, error) {
	client, err := a.reachRedis(ctx)
	if err != nil {
		return nil, err
	}
	return users.NewReader(client, false), nil
}

// awaitRegistered waits until Redis has every user of the crowd as it was
// registered. It also waits for shards that are not built yet and for a Redis
// that does not answer. It fails after registeredStall without progress.
func awaitRegistered(ctx context.Context, reader userReader, people *crowd.Crowd, show *progress) error {
	moved := time.Now()
	var last error
	for next := 0; next < people.Users; {
		n, err := registeredFrom(ctx, reader, people, next)
		if n > 0 {
			next, moved = next+n, time.Now()
			show.line("%d of %d users are in Redis", next, people.Users)
		}
		if n == registeredLook || next == people.Users {
			continue
		}
		last = err
		if time.Since(moved) > registeredStall {
			return errors.Join(fmt.Errorf("%d of %d users are in Redis, and none was added in %v: is `pushworker registry` running?", next, people.Users, registeredStall), last)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(registeredPause):
		}
	}
	return nil
}

// registeredFrom counts the users in Redis from first up to the first missing
// one, at most registeredLook.
func registeredFrom(ctx context.Context, reader userReader, people *crowd.Crowd, first int) (int, error) {
	n := min(registeredLook, people.Users-first)
	want, ids, got := make([]crowd.User, n), make([]string, n), make([]*push.User, n)
	for i := range want {
		want[i] = people.User(first + i)
		ids[i], got[i] = want[i].ID, new(push.User)
	}
	if err := reader.Fetch(ctx, ids, got); err != nil {
		return 0, err
	}
	for i := range want {
		if !registeredAs(want[i], got[i]) {
			return i, nil
		}
	}
	return n, nil
}

// registeredAs reports whether Redis has at least what was registered. It may
// have more: a crowd of another seed may have left devices of the same user.
func registeredAs(want crowd.User, got *push.User) bool {
	for _, d := range want.Devices {
		if !slices.ContainsFunc(got.Devices, func(h push.Device) bool { return h.Hash == d.Hash }) {
			return false
		}
	}
	if want.Kind != crowd.OptedOut {
		return true
	}
	p, q := want.Preferences, got.Preferences
	return p.OptOutAll == q.OptOutAll && sameNames(p.Channels, q.Channels) && sameNames(p.Types, q.Types)
}

func sameNames(x, y []string) bool {
	x, y = slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y))
	return slices.Equal(slices.Compact(x), slices.Compact(y))
}
