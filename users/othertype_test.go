package users_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// What somebody else has written in the place of a record is no user without devices, also
// among others of its shard, and the registry builds the record anew.
func TestAKeyOfAnotherTypeInPlaceOfARecord(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		reader := users.NewReader(w.Redis, true)
		names := []string{"nobody", "dee", sameShard("ada"), "ada", "nobody else"}
		look := func(why string, devices int, want ...string) {
			t.Helper()
			out := outOf(len(names))
			w.Must(reader.Fetch(w.Ctx, names, out))
			var unread []string
			for i, u := range out {
				if u.Quarantine == push.RecordUnread {
					unread = append(unread, names[i])
				}
			}
			if !slices.Equal(unread, want) || len(out[3].Devices) != devices || len(out[1].Preferences.Types) != 2 {
				t.Errorf("%s: unread are %q, want %q; ada has %d devices, want %d; dee has %+v", why, unread, want, len(out[3].Devices), devices, out[1].Preferences)
			}
			for _, name := range names {
				if p, err := reader.Stored(w.Ctx, name); err != nil || (p.Quarantine == push.RecordUnread) != slices.Contains(want, name) {
					t.Errorf("%s: %s is stored with quarantine %v, %v", why, name, p.Quarantine, err)
				}
			}
		}
		overwrite := func(name string) {
			key := shards.UserKey(shards.UserShard(name), name)
			w.Must(w.Redis.Del(w.Ctx, key).Err())
			w.Must(w.Redis.HSet(w.Ctx, key, "no", "record").Err())
		}
		look("at first", 2)
		overwrite("ada")
		look("a hash", 0, "ada")
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		w.agree()
		look("built anew", 2)

		overwrite("nobody")
		look("of one who was never registered", 2, "nobody")
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		look("removed", 2)
	})
}

// between does something before the pipelines that begin with a command.
type between struct {
	meanwhile
	command string
	do      func() error
}

func (b between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == b.command {
			if err := b.do(); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// Between the round trips of a read the record may come or go, and Redis may go away. Who
// has a record is asked about once.
func TestWhatHappensWhileAMissingRecordIsLookedFor(t *testing.T) {
	away := errors.New("redis is away")
	const build = 1
	key := shards.UserKey(shards.UserShard("ada"), "ada")
	for _, tt := range []struct {
		why     string
		command string
		do      func(context.Context, *redis.Client) error
		first   func(context.Context, *redis.Client) error // before the read
		unread  bool
		err     error
	}{
		{why: "nothing, and there is nothing", command: "type", do: func(context.Context, *redis.Client) error { return away }},
		{why: "nothing, and there is a record", command: "exists", do: func(context.Context, *redis.Client) error { return away },
			first: func(ctx context.Context, c *redis.Client) error {
				return c.Set(ctx, key, record.Encode(nil, &push.User{}, build), 0).Err()
			}},
		{why: "the record is built anew", command: "exists", unread: true,
			do: func(ctx context.Context, c *redis.Client) error {
				return c.Set(ctx, key, record.Encode(nil, &push.User{}, build), 0).Err()
			}},
		{why: "the key is removed", command: "type",
			first: func(ctx context.Context, c *redis.Client) error { return c.HSet(ctx, key, "no", "record").Err() },
			do:    func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, key).Err() }},
		{why: "Redis goes away", command: "exists", do: func(context.Context, *redis.Client) error { return away }, err: away},
		{why: "Redis goes away after that", command: "type", err: away,
			first: func(ctx context.Context, c *redis.Client) error { return c.HSet(ctx, key, "no", "record").Err() },
			do:    func(context.Context, *redis.Client) error { return away }},
		{why: "Redis goes away before the registry is told", command: "sadd", unread: true,
			first: func(ctx context.Context, c *redis.Client) error { return c.HSet(ctx, key, "no", "record").Err() },
			do:    func(context.Context, *redis.Client) error { return away }},
	} {
		server, err := embedded.StartRedis()
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true})
		if err := client.Set(t.Context(), shards.EpochKey(shards.UserShard("ada")), state.FormatBuild(build), 0).Err(); err != nil {
			t.Fatal(err)
		}
		if tt.first != nil {
			if err := tt.first(t.Context(), client); err != nil {
				t.Fatal(err)
			}
		}
		client.AddHook(between{command: tt.command, do: func() error { return tt.do(t.Context(), client) }})
		out := outOf(1)
		if err := users.NewReader(client, false).Fetch(t.Context(), []string{"ada"}, out); !errors.Is(err, tt.err) {
			t.Errorf("%s: got %v, want %v", tt.why, err, tt.err)
		} else if err == nil && (out[0].Quarantine == push.RecordUnread) != tt.unread {
			t.Errorf("%s: quarantine %v", tt.why, out[0].Quarantine)
		}
		_ = client.Close()
		server.Close()
	}
}
