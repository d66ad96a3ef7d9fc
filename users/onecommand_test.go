package users_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// longest is how many keys the MGET of several shards may have.
const longest = 500

// sent are the keys of each command with a name that is sent in a pipeline.
type sent struct {
	meanwhile
	name string
	keys [][]string
}

func (s *sent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() != s.name {
				continue
			}
			var keys []string
			for _, arg := range cmd.Args()[1:] {
				keys = append(keys, *arg.(*string))
			}
			s.keys = append(s.keys, keys)
		}
		return next(ctx, cmds)
	}
}

// keysOf are the keys that a shard is asked for, in their order.
func keysOf(shard int, owners []string, limiter bool) []string {
	keys := []string{shards.EpochKey(shard)}
	for _, owner := range owners {
		keys = append(keys, shards.UserKey(shard, owner))
	}
	if limiter {
		for _, owner := range owners {
			keys = append(keys, shards.LimiterKey(shard, owner))
		}
	}
	return keys
}

// byShard groups owners as they are asked for.
func byShard(owners []string) (of [shards.Users][]string) {
	for _, owner := range owners {
		s := shards.UserShard(owner)
		of[s] = append(of[s], owner)
	}
	return of
}

// inShard are n owners of a shard.
func inShard(shard, n int) (owners []string) {
	for i := 0; len(owners) < n; i++ {
		if name := fmt.Sprint("of-", shard, "-", i); shards.UserShard(name) == shard {
			owners = append(owners, name)
		}
	}
	return owners
}

// built marks all shards as built.
func built(t *testing.T, client shards.Client) {
	t.Helper()
	pipe := client.Pipeline()
	for s := range shards.Users {
		pipe.Set(t.Context(), shards.EpochKey(s), state.FormatBuild(7), 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Of a single server one command asks for as many shards as it has room for, each as a whole
// and in its order.
func TestSeveralShardsInOneCommand(t *testing.T) {
	client := shardstest.Start(t)
	built(t, client)
	some := func(n int) (owners []string) {
		for i := range n {
			owners = append(owners, fmt.Sprint("user", i))
		}
		return owners
	}
	for _, tt := range []struct {
		why     string
		owners  []string
		limiter bool
		want    []int // keys of each command; nil = as many as there is room for
	}{
		{why: "a small batch", owners: some(60)},
		{why: "a small batch with limiter states", owners: some(60), limiter: true},
		{why: "a batch that touches all shards", owners: some(2000)},
		{why: "a batch that touches all shards, with limiter states", owners: some(2000), limiter: true},
		{why: "as many as there is room for", owners: slices.Concat(inShard(3, 249), inShard(200, 249)), want: []int{500}},
		{why: "one more", owners: slices.Concat(inShard(3, 249), inShard(200, 250)), want: []int{250, 251}},
		{why: "with limiter states", owners: slices.Concat(inShard(3, 125), inShard(4, 124)), limiter: true, want: []int{500}},
		{why: "one more with its limiter state", owners: slices.Concat(inShard(3, 125), inShard(4, 125)), limiter: true, want: []int{251, 251}},
		{why: "a shard with more than there is room for", owners: slices.Concat(inShard(255, 1), inShard(7, 600), inShard(0, 2)), want: []int{3, 601, 2}},
	} {
		asked := &sent{name: "mget"}
		client := shardstest.Connect(t, addrOf(client))
		client.AddHook(asked)
		if err := users.NewReader(client, tt.limiter).Fetch(t.Context(), tt.owners, outOf(len(tt.owners))); err != nil {
			t.Fatal(err)
		}
		var keys []string
		var want []int
		for s, of := range byShard(tt.owners) {
			if len(of) == 0 {
				continue
			}
			theirs := keysOf(s, of, tt.limiter)
			keys = append(keys, theirs...)
			if n := len(want); n > 0 && want[n-1]+len(theirs) <= longest {
				want[n-1] += len(theirs)
			} else {
				want = append(want, len(theirs))
			}
		}
		if tt.want != nil {
			want = tt.want
		}
		var got []int
		for _, k := range asked.keys {
			got = append(got, len(k))
		}
		if !slices.Equal(got, want) || !slices.Equal(slices.Concat(asked.keys...), keys) {
			t.Errorf("%s: commands of %v keys, want %v; all in their order: %t", tt.why, got, want, slices.Equal(slices.Concat(asked.keys...), keys))
		}
	}
}

func addrOf(client shards.Client) string { return client.(*redis.Client).Options().Addr }

// A cluster refuses a command for keys of different slots. TestOnACluster reads from a real
// one.
func TestACommandForEachShardOfACluster(t *testing.T) {
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client := redis.NewClusterClient(&redis.ClusterOptions{Protocol: 2, DisableIdentity: true, Addrs: []string{server.Addr()},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: server.Addr()}}}}, nil
		}})
	t.Cleanup(func() { _ = client.Close() })
	names := people(t, client, 100)
	asked := &sent{name: "mget"}
	client.AddHook(asked)
	out := outOf(len(names))
	if err := users.NewReader(client, true).Fetch(t.Context(), names, out); err != nil {
		t.Fatal(err)
	}
	var want [][]string
	for s, of := range byShard(names) {
		if len(of) > 0 {
			want = append(want, keysOf(s, of, true))
		}
	}
	if !reflect.DeepEqual(asked.keys, want) {
		t.Errorf("%d commands, want %d, one for each shard", len(asked.keys), len(want))
	}
	for i, u := range out {
		if len(u.Devices) != 1 || u.Devices[0].Token != "token of "+names[i] || string(u.Limiter) != "state of "+names[i] {
			t.Errorf("%s: %+v", names[i], *u)
		}
	}
}

// Whoever else is in a batch, and in which shards, an owner gets what he gets alone, and the
// registry is told of the same.
func TestABatchIsAsItsOwnersOneByOne(t *testing.T) {
	eachRedis(t, func(w *world) {
		built(w.T, w.Redis)
		names := people(w.T, w.Redis, 400)
		var unread, lost, absent []string // in each of many shards
		for i, name := range names {
			s := shards.UserShard(name)
			key := shards.UserKey(s, name)
			switch i % 8 {
			case 1:
				unread = append(unread, name)
				w.Must(w.Redis.Set(w.Ctx, key, "no record", 0).Err())
			case 3:
				lost = append(lost, name)
				w.Must(w.Redis.Del(w.Ctx, key).Err())
				w.Must(w.Redis.HSet(w.Ctx, key, "no", "record").Err())
			case 4:
				absent = append(absent, name)
				w.Must(w.Redis.Del(w.Ctx, key).Err())
			case 6:
				w.Must(w.Redis.Del(w.Ctx, shards.LimiterKey(s, name)).Err())
			}
		}
		batch := slices.Concat(names, []string{"nobody", "nobody else"}, names[100:200], names[:10])
		asked, looked := &sent{name: "mget"}, &sent{name: "exists"}
		w.Redis.AddHook(asked)
		w.Redis.AddHook(looked)
		for _, limiter := range []bool{true, false} {
			reader := users.NewReader(w.Redis, limiter)
			alone := outOf(len(batch))
			for i, name := range batch {
				w.Must(reader.Fetch(w.Ctx, []string{name}, alone[i:i+1]))
			}
			told := w.open()
			for s := range shards.Users {
				w.Must(w.Redis.Del(w.Ctx, state.OpenKey(s)).Err())
			}
			asked.keys, looked.keys = nil, nil
			out := outOf(len(batch))
			w.Must(reader.Fetch(w.Ctx, batch, out))
			for i, name := range batch {
				if !reflect.DeepEqual(out[i], alone[i]) {
					w.T.Errorf("%s, limiter %t: %+v, want as alone: %+v", name, limiter, *out[i], *alone[i])
				}
				is := func(of []string) bool { return slices.Contains(of, name) }
				here := !is(unread) && !is(lost) && !is(absent) && !strings.HasPrefix(name, "nobody")
				if got := len(out[i].Devices) == 1 && out[i].Devices[0].Token == "token of "+name; got != here {
					w.T.Errorf("%s has %+v", name, out[i].Devices)
				}
				if got := out[i].Quarantine == push.RecordUnread; got != (is(unread) || is(lost)) {
					w.T.Errorf("%s: quarantine %v", name, out[i].Quarantine)
				}
			}
			if got := w.open(); !reflect.DeepEqual(got, told) || len(got) != len(unread)+len(lost) {
				w.T.Errorf("limiter %t: the registry is told of %q, want %q", limiter, got, told)
			}
			if len(asked.keys) > 6 {
				w.T.Errorf("limiter %t: %d commands", limiter, len(asked.keys))
			}
			var want []string
			for s, of := range byShard(batch) {
				for _, name := range of {
					if slices.Contains(lost, name) || slices.Contains(absent, name) || strings.HasPrefix(name, "nobody") {
						want = append(want, shards.UserKey(s, name))
					}
				}
			}
			if got := slices.Concat(looked.keys...); !slices.Equal(got, want) {
				w.T.Errorf("limiter %t: looked for %q, want %q", limiter, got, want)
			}
		}
	})
}

// open are all cases that the registry is told of.
func (w *world) open() (cases []string) {
	w.T.Helper()
	for s := range shards.Users {
		theirs, err := w.Redis.SMembers(w.Ctx, state.OpenKey(s)).Result()
		w.Must(err)
		for _, c := range theirs {
			cases = append(cases, fmt.Sprint(s, " ", c))
		}
	}
	slices.Sort(cases)
	return cases
}

// A shard that is not complete, and one whose marker is not known, is named, wherever it is in
// a command.
func TestAShardThatIsNotBuiltAmongOthers(t *testing.T) {
	eachRedis(t, func(w *world) {
		built(w.T, w.Redis)
		touched := []int{3, 4, 90, 91, 255}
		var owners []string
		for _, s := range touched {
			owners = append(owners, inShard(s, 1+s%3)...)
		}
		asked := &sent{name: "mget"}
		w.Redis.AddHook(asked)
		reader := users.NewReader(w.Redis, true)
		for _, s := range touched {
			key := shards.EpochKey(s)
			w.Must(w.Redis.Del(w.Ctx, key).Err())
			err := reader.Fetch(w.Ctx, owners, outOf(len(owners)))
			if got, is := users.IsUnbuilt(err); !is || got != s {
				w.T.Errorf("shard %d is not built: %v", s, err)
			}
			w.Must(w.Redis.Set(w.Ctx, key, "newer", 0).Err())
			err = reader.Fetch(w.Ctx, owners, outOf(len(owners)))
			if !errors.Is(err, record.ErrVersion) || !strings.Contains(err.Error(), fmt.Sprintf("user shard %d: ", s)) {
				w.T.Errorf("the marker of shard %d is not known: %v", s, err)
			}
			w.Must(w.Redis.Set(w.Ctx, key, state.FormatBuild(7), 0).Err())
		}
		if len(asked.keys) != 2*len(touched) {
			w.T.Errorf("%d commands for %d batches", len(asked.keys), 2*len(touched))
		}
		w.Must(reader.Fetch(w.Ctx, owners, outOf(len(owners))))
	})
}
