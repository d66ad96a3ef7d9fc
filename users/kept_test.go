package users_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// people writes n users, each with one device and a limiter state, and returns their names.
func people(t *testing.T, client shards.Client, n int) (names []string) {
	t.Helper()
	pipe := client.Pipeline()
	for i := range n {
		name := fmt.Sprint("user", i)
		s := shards.UserShard(name)
		pipe.MSet(t.Context(), shards.EpochKey(s), state.FormatBuild(7), shards.UserKey(s, name), string(record.Encode(nil, userWith("token of "+name), 7)),
			shards.LimiterKey(s, name), "state of "+name)
		names = append(names, name)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	return names
}

// What is kept of a batch stays as it was read, while others read into memory that is used
// again.
func TestWhatIsKeptOfABatchStays(t *testing.T) {
	client := shardstest.Start(t)
	names := people(t, client, 200)
	reader := users.NewReader(client, true)
	var readers sync.WaitGroup
	for r := range 4 {
		readers.Go(func() {
			kept := map[string]push.User{}
			for round := range 10 {
				var some []string
				for i := (r + round) % 3; i < len(names); i += 1 + round%4 {
					some = append(some, names[i])
				}
				out := outOf(len(some))
				if err := reader.Fetch(t.Context(), some, out); err != nil {
					t.Error(err)
					return
				}
				for i, name := range some {
					kept[fmt.Sprint(name, "/", round)] = *out[i]
				}
				for of, u := range kept {
					name, _, _ := strings.Cut(of, "/")
					if len(u.Devices) != 1 || u.Devices[0].Token != "token of "+name || string(u.Limiter) != "state of "+name {
						t.Errorf("%s: %+v and the state %q", of, u.Devices, u.Limiter)
						return
					}
				}
			}
		})
	}
	readers.Wait()
}

// A reader that no longer reads limiter states finds none of an earlier batch.
func TestLimiterStatesOfAnEarlierBatch(t *testing.T) {
	client := shardstest.Start(t)
	names := people(t, client, 20)
	reader := users.NewReader(client, true)
	for _, read := range []bool{true, false, true} {
		reader.ReadLimiter(read)
		out := outOf(len(names))
		if err := reader.Fetch(t.Context(), names, out); err != nil {
			t.Fatal(err)
		}
		for i, u := range out {
			if (u.Limiter != nil) != read {
				t.Fatalf("%s: the state %q, read: %t", names[i], u.Limiter, read)
			}
		}
	}
}

// The registry is told of each record that cannot be read, and of no other.
func TestWhoseRecordCannotBeReadIsTold(t *testing.T) {
	client := shardstest.Start(t)
	names := people(t, client, 20)
	bad := map[string]bool{names[3]: true, names[11]: true}
	for name := range bad {
		if err := client.Set(t.Context(), shards.UserKey(shards.UserShard(name), name), "no record", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	out := outOf(len(names))
	if err := users.NewReader(client, false).Fetch(t.Context(), names, out); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		told, err := client.SIsMember(t.Context(), state.OpenKey(shards.UserShard(name)), record.Doubted+name).Result()
		if err != nil || told != bad[name] || (out[i].Quarantine == push.RecordUnread) != bad[name] {
			t.Errorf("%s: told %t, quarantine %v, %v", name, told, out[i].Quarantine, err)
		}
	}
}
