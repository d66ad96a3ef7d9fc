package users

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// changing is a Redis whose answers to single commands are changed.
type changing func(cmd redis.Cmder)

func (changing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c changing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		c(cmd)
		return err
	}
}
func (changing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func lackingOne(cmd redis.Cmder) {
	if values, is := cmd.(*redis.SliceCmd); is && len(values.Val()) > 0 {
		values.SetVal(values.Val()[1:])
	}
}

// counting notes how many arguments the commands of each name have in all.
type counting map[string]int

func (counting) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c[cmd.Name()] += len(cmd.Args()) - 1
		}
		return next(ctx, cmds)
	}
}

// crowd are users of the shard of ada, which is of build 7, and a reader of which each Fetch
// uses the same memory.
func crowd(t *testing.T, n int, limiter bool) (*redis.Client, *Reader, *readScratch, []string) {
	t.Helper()
	client, _ := inProcess(t)
	client.Set(t.Context(), shards.EpochKey(shards.UserShard("ada")), state.FormatBuild(7), 0)
	names := make([]string, n)
	for i, next := 0, 0; i < n; next++ {
		if name := fmt.Sprint("user-", next); shards.UserShard(name) == shards.UserShard("ada") {
			names[i], i = name, i+1
		}
	}
	sc := new(readScratch)
	reader := NewReader(client, limiter)
	reader.scratch.New = func() any { return sc } // a pool may forget what it was given
	return client, reader, sc, names
}

func fetch(t *testing.T, reader *Reader, names []string) []*push.User {
	t.Helper()
	out := make([]*push.User, len(names))
	for i := range out {
		out[i] = new(push.User)
	}
	if err := reader.Fetch(t.Context(), names, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// What was read is the users' alone when a Fetch has ended: nothing else keeps an
// answer alive, and a later Fetch asks for its own owners and no others. The commands'
// arguments have room that is made once.
func TestNothingIsLeftOfAFetch(t *testing.T) {
	for _, limiter := range []bool{false, true} {
		client, reader, sc, names := crowd(t, 12, limiter)
		shard := shards.UserShard("ada")
		for _, name := range names[:6] { // the others have no record
			client.Set(t.Context(), shards.UserKey(shard, name), record.Encode(nil, &push.User{Preferences: push.Preferences{OptOutAll: true}}, 7), 0)
			client.Set(t.Context(), shards.LimiterKey(shard, name), "state", 0)
		}
		asked := counting{}
		client.AddHook(asked)
		for round := range 3 {
			clear(asked)
			for i, u := range fetch(t, reader, names) {
				if u.Preferences.OptOutAll != (i < 6) || u.Quarantine != 0 || (u.Limiter != nil) != (limiter && i < 6) {
					t.Fatalf("round %d: user %d is %+v", round, i, *u)
				}
			}
			keys := 1 + len(names)
			if limiter {
				keys += len(names)
			}
			if asked["mget"] != keys || asked["exists"] != 6 || asked["sadd"] > 0 {
				t.Errorf("round %d: asked for %v, want %d and 6 keys", round, asked, keys)
			}
			if room := cap(sc.args); room < 1+keys {
				t.Errorf("room for %d arguments, and there are %d", room, 1+keys)
			}
		}
		if slices.ContainsFunc(sc.cmds[:cap(sc.cmds)], func(m mget) bool { return m.RawWriteToCmd != nil || m.written.Cap() > 0 }) {
			t.Error("a command holds its answer still")
		}
		if slices.ContainsFunc(sc.values[:cap(sc.values)], func(v []byte) bool { return v != nil }) {
			t.Error("a value is held still")
		}
		if slices.ContainsFunc(sc.answers, func(a answer) bool { return a.record != nil || a.limiter != nil }) {
			t.Error("an owner's answer is held still")
		}
		if slices.ContainsFunc(sc.missing, func(a absent) bool { return a.key != nil }) {
			t.Error("a missing owner is held still")
		}
	}
}

// Answers that are a little longer than those of the last batch find room too.
func TestRoomForLongerAnswers(t *testing.T) {
	client, reader, _, names := crowd(t, 200, true)
	var seen rooms
	client.AddHook(&seen)
	for _, length := range []int{300, 320} {
		pipe := client.Pipeline()
		for _, name := range names {
			pipe.Set(t.Context(), shards.LimiterKey(shards.UserShard("ada"), name), make([]byte, length), 0)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen = rooms{}
		fetch(t, reader, names)
	}
	if seen.made < seen.came {
		t.Errorf("room for %d bytes, and %d came", seen.made, seen.came)
	}
}

// Who asks for commands may take some of them only.
func TestCommandsEndWithTheirReader(t *testing.T) {
	r := NewReader(nil, false)
	r.cluster = true // then each shard has its own
	owners := []string{"ada", "bob", "cy", "dee"}
	var sc readScratch
	sc.groups.Arrange(len(owners), shards.Users, func(i int) int { return shards.UserShard(owners[i]) })
	all, some := 0, 0
	for range r.commands(&sc, owners) {
		all++
	}
	for range r.commands(&sc, owners) {
		some++
		break
	}
	if all < 2 || some != 1 {
		t.Errorf("%d commands, of which %d were taken", all, some)
	}
}

// A command that failed has no answer, whatever of one has come.
func TestACommandThatFailedHasNoAnswer(t *testing.T) {
	client, _ := inProcess(t)
	cmd := new(mget)
	cmd.ask(t.Context(), 0, []any{"mget", "a"})
	_, _ = cmd.written.WriteString("*1\r\n$-1\r\n")
	cmd.SetErr(errAny)
	if raw, err := cmd.answer(); !errors.Is(err, errAny) || raw != nil {
		t.Errorf("its answer is %q, %v", raw, err)
	}
	if values, err := NewReader(client, false).values(t.Context(), new(readScratch), cmd); !errors.Is(err, errAny) || values != nil {
		t.Errorf("its values are %q, %v", values, err)
	}
}

// Who looks at one user whose record cannot be read is told so, and tells the registry.
func TestAStoredUserWhoCannotBeRead(t *testing.T) {
	client, reader, _, _ := crowd(t, 1, false)
	shard := shards.UserShard("ada")
	client.Set(t.Context(), shards.UserKey(shard, "ada"), "garbage", 0)
	ada, err := reader.Stored(t.Context(), "ada")
	told := client.SIsMember(t.Context(), state.OpenKey(shard), record.Doubted+"ada").Val()
	if err != nil || ada.Quarantine != push.RecordUnread || !told {
		t.Errorf("ada is %+v, %v; the registry is told: %v", ada, err, told)
	}
	for _, command := range []string{"exists", "type"} {
		client, reader, _, _ := crowd(t, 1, false)
		client.HSet(t.Context(), shards.UserKey(shard, "ada"), "no", "record")
		client.AddHook(failing(command))
		if ada, err := reader.Stored(t.Context(), "ada"); !errors.Is(err, errAny) {
			t.Errorf("%s fails: ada is %+v, %v", command, ada, err)
		}
	}
}
