//go:build unix

package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// await asks until it is so, a process ends unasked, or ctx ends. The last
// error says what was missing.
func (f *Fleet) await(ctx context.Context, what string, look func(context.Context) error) error {
	for {
		last := look(ctx)
		if last == nil {
			return nil
		}
		if err := f.failure(); err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w: %w%s", what, context.Cause(ctx), last, f.Logs())
		case <-time.After(pollPause):
		}
	}
}

// AwaitAccepted waits until the providers have accepted n pushes.
func (f *Fleet) AwaitAccepted(ctx context.Context, n uint64) error {
	return f.await(ctx, fmt.Sprintf("%d pushes are accepted", n), func(context.Context) error {
		if t := f.Sim.Ledger().Totals(); t.Accepted < n {
			return fmt.Errorf("%d are", t.Accepted)
		}
		return nil
	})
}

// Resent is how many pushes the providers have accepted so far more than once per
// notification and device.
func (f *Fleet) Resent() uint64 { return f.Sim.Ledger().Totals().Duplicates }

// AwaitDone waits until the committed offsets of every lane's topic, and then
// of its retry topic, are the ends of their logs. Nothing may be produced
// meanwhile but by the workers.
func (f *Fleet) AwaitDone(ctx context.Context) error {
	return f.await(ctx, "every record is committed", func(ctx context.Context) error {
		// In this order: a record is in the retry topic before the record it
		// came from is committed.
		for _, l := range f.Config.Lanes {
			if err := f.behind(ctx, f.Config.Kafka.LaneGroup(l.Name), l.Topic); err != nil {
				return err
			}
			for _, t := range wiring.RetryTopics(f.Config, l) {
				if err := f.behind(ctx, f.Config.Kafka.RetryGroup(l.Name), t.Name); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Committed is how many records of the lane's topic are committed.
func (f *Fleet) Committed(ctx context.Context) (n int64, err error) {
	offsets, err := f.admin.Committed(ctx, f.Config.Kafka.LaneGroup(f.Config.Lanes[0].Name), f.topic())
	for _, o := range offsets {
		n += o
	}
	return n, err
}

// AwaitCommitted waits until the first lane's group has committed n records.
func (f *Fleet) AwaitCommitted(ctx context.Context, n int64) error {
	return f.await(ctx, fmt.Sprintf("%d records are committed", n), func(ctx context.Context) error {
		switch done, err := f.Committed(ctx); {
		case err != nil:
			return err
		case done < n:
			return fmt.Errorf("%d are", done)
		}
		return nil
	})
}

// behind is an error that names the partitions that are not committed up to
// their end. What was committed is asked first: if it is an end that was read
// later, then nothing came in between.
func (f *Fleet) behind(ctx context.Context, group, topic string) error {
	committed, err := f.admin.Committed(ctx, group, topic)
	if err != nil {
		return err
	}
	ends, err := f.admin.EndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	var late []string
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		if committed[p] != ends[p] {
			late = append(late, fmt.Sprintf("%s/%d is committed to %d of %d", topic, p, committed[p], ends[p]))
		}
	}
	if len(late) > 0 {
		return errors.New(strings.Join(late, ", "))
	}
	return nil
}

// AwaitUsers waits until Redis holds every user of the crowd as it was
// registered.
func (f *Fleet) AwaitUsers(ctx context.Context, c *crowd.Crowd) error {
	there := 0 // they stay, and of millions not all are read again
	return f.await(ctx, "all users are in Redis", func(ctx context.Context) (err error) {
		there, err = f.eachUser(ctx, c, there, func(want *crowd.User, got *push.User) error {
			w, g := &want.Preferences, &got.Preferences
			if len(got.Devices) != len(want.Devices) || w.OptOutAll != g.OptOutAll || len(w.Channels) != len(g.Channels) || len(w.Types) != len(g.Types) {
				return fmt.Errorf("user %s has %d devices of %d, or other preferences", want.ID, len(got.Devices), len(want.Devices))
			}
			return nil
		})
		return err
	})
}

// awaitOptedOut waits until Redis says of all these users that they have opted
// out of everything.
func (f *Fleet) awaitOptedOut(ctx context.Context, ids []string) error {
	reader := users.NewReader(f.redis, false)
	return f.await(ctx, "opt-outs are in Redis", func(ctx context.Context) error {
		records, found := make([]push.User, len(ids)), make([]*push.User, len(ids))
		for i := range found {
			found[i] = &records[i]
		}
		if err := reader.Fetch(ctx, ids, found); err != nil {
			return err
		}
		for i := range records {
			if !records[i].Preferences.OptOutAll {
				return fmt.Errorf("user %s has not", ids[i])
			}
		}
		return nil
	})
}

// AwaitPruned waits until the registry has removed from Redis all tokens that
// a provider has called dead, and checks that it removed no others.
func (f *Fleet) AwaitPruned(ctx context.Context, c *crowd.Crowd) error {
	dead := map[string]bool{}
	f.Sim.Ledger().Each(func(e sim.Entry) bool {
		if e.Last == sim.APNSUnregistered || e.Last == sim.FCMUnregistered {
			dead[e.Device] = true
		}
		return true
	})
	if len(dead) == 0 {
		return errors.New("no provider has called a token dead: there is nothing to wait for")
	}
	return f.await(ctx, "dead tokens are removed from Redis", func(ctx context.Context) error {
		_, err := f.eachUser(ctx, c, 0, func(want *crowd.User, got *push.User) error {
			has := map[string]bool{}
			for _, d := range got.Devices {
				has[d.Hash] = true
			}
			for _, d := range want.Devices {
				if has[d.Hash] == dead[d.Hash] {
					return fmt.Errorf("device %s of user %s: dead %v, in Redis %v", d.Hash, want.ID, dead[d.Hash], has[d.Hash])
				}
			}
			return nil
		})
		return err
	})
}

// eachUser reads the crowd's users from Redis, from one number on, until one is not as it should
// be: there is the number of that one's group.
func (f *Fleet) eachUser(ctx context.Context, c *crowd.Crowd, from int, check func(want *crowd.User, got *push.User) error) (there int, err error) {
	reader := users.NewReader(f.redis, false)
	const group = 5000
	for ; from < c.Users; from += group {
		n := min(group, c.Users-from)
		ids, records, found := make([]string, n), make([]push.User, n), make([]*push.User, n)
		want := make([]crowd.User, n)
		for i := range ids {
			want[i] = c.User(from + i)
			ids[i], found[i] = want[i].ID, &records[i]
		}
		if err := reader.Fetch(ctx, ids, found); err != nil {
			return from, err
		}
		for i := range ids {
			if err := check(&want[i], found[i]); err != nil {
				return from, err
			}
		}
	}
	return from, nil
}
