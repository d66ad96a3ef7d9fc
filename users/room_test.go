package users

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/state"
)

// rooms notes how much memory each answer to an MGET finds, and how long it is, in bytes.
type rooms struct{ made, came int }

func (*rooms) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*rooms) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (r *rooms) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if m, is := cmd.(*mget); is {
				r.made += m.written.Cap()
			}
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if m, is := cmd.(*mget); is {
				r.came += m.written.Len()
			}
		}
		return err
	}
}

// The memory of an answer is made once, as large as those of the last batch were on average,
// and a batch of few large ones makes no batch of many take what none of them needs.
func TestRoomForAnswers(t *testing.T) {
	client, _ := inProcess(t)
	shard := shards.UserShard("ada")
	var many []string
	for i := 0; len(many) < 50; i++ {
		if user := fmt.Sprint("user-", i); shards.UserShard(user) == shard {
			many = append(many, user)
		}
	}
	pipe := client.Pipeline()
	pipe.Set(t.Context(), shards.EpochKey(shard), state.FormatBuild(7), 0)
	pipe.Set(t.Context(), shards.LimiterKey(shard, "ada"), strings.Repeat("s", 100_000), 0)
	for _, user := range many {
		pipe.Set(t.Context(), shards.LimiterKey(shard, user), strings.Repeat("s", 300), 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	var seen rooms
	client.AddHook(&seen)
	reader := NewReader(client, true)
	sc := new(readScratch)
	reader.scratch.New = func() any { return sc } // a pool may forget what it was given
	read := func(owners []string) (made, came int) {
		t.Helper()
		seen = rooms{}
		out := make([]*push.User, len(owners))
		for i := range out {
			out[i] = new(push.User)
		}
		if err := reader.Fetch(t.Context(), owners, out); err != nil {
			t.Fatal(err)
		}
		return seen.made, seen.came
	}
	read(many)
	if made, came := read(many); made < came || made > 2*came {
		t.Errorf("room for %d bytes, and %d came", made, came)
	}
	read([]string{"ada"})
	if made, came := read(many); made < came || made > 2*len(many)*mostExpected {
		t.Errorf("after a large answer room for %d bytes, and %d came", made, came)
	}
}

// The answer of a command for several shards has room for the owners of all of them.
func TestRoomForSeveralShards(t *testing.T) {
	client, _ := inProcess(t)
	pipe := client.Pipeline()
	owners := make([]string, 200)
	for i := range owners {
		owners[i] = fmt.Sprint("user-", i)
		s := shards.UserShard(owners[i])
		pipe.MSet(t.Context(), shards.EpochKey(s), state.FormatBuild(7), shards.LimiterKey(s, owners[i]), strings.Repeat("s", 300))
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	var seen rooms
	client.AddHook(&seen)
	reader := NewReader(client, true)
	sc := new(readScratch)
	reader.scratch.New = func() any { return sc } // a pool may forget what it was given
	for range 2 {
		seen = rooms{}
		fetch(t, reader, owners)
	}
	if seen.made < seen.came || seen.made > 2*seen.came {
		t.Errorf("room for %d bytes, and %d came", seen.made, seen.came)
	}
}
