package users

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/state"
)

// An entry of the token index is written by the script of a shard, and so must be
// on that shard's node.
func TestTokensLieBesideTheirShard(t *testing.T) {
	homes := map[int]bool{}
	for i := range 2000 {
		hash := push.DeviceHash(push.FCM, fmt.Sprint("token-", i))
		home := state.TokenHome(hash)
		if tag := "{" + shards.UserTag(home) + "}"; !strings.Contains(state.TokenKey(hash), tag) || !strings.Contains(state.OpenKey(home), tag) {
			t.Fatalf("%s and %s are not both in %s", state.TokenKey(hash), state.OpenKey(home), tag)
		}
		homes[home] = true
	}
	if len(homes) != shards.Filters {
		t.Errorf("%d shards have entries, want %d", len(homes), shards.Filters)
	}
}

// A length is a line of its own kind; what is cut off anywhere is none.
func TestLengthsOfReplies(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		n    int
		rest string
		good bool
	}{
		{"$3\r\nabc", 3, "abc", true},
		{"$-1\r\n", -1, "", true},
		{"$12345678901\r\n", 12345678901, "", false}, // more than a reply can hold
		{"$1234567890\r\n", 1234567890, "", true},
		{"$-2\r\n", 0, "", false},
		{"$\r\n", 0, "", false},
		{"*3\r\n", 0, "", false},
		{"$3\r", 0, "", false},
		{"$3\rabc", 0, "", false},
		{"$34\nabc", 0, "", false},
		{"$\r\nabc", 0, "", false},
		{"$3:\r\n", 0, "", false}, // the characters beside the digits
		{"$3/\r\n", 0, "", false},
		{"$-1x\nabc", 0, "", false},
		{"$-1\rx", 0, "", false},
		{"$0\r\n", 0, "", true},
	} {
		n, rest, err := length([]byte(tt.raw), '$')
		if (err == nil) != tt.good || tt.good && (n != tt.n || string(rest) != tt.rest) {
			t.Errorf("%q: %d, %q, %v", tt.raw, n, rest, err)
		}
	}
}

// What ends before its line does is no length, wherever it ends.
func TestLengthsThatAreCutOff(t *testing.T) {
	for _, whole := range []string{"$3\r\n", "$-1\r\n", "$123\r\n", "$1234567890\r\n"} {
		for i := range len(whole) {
			if n, _, err := length([]byte(whole[:i]), '$'); err == nil {
				t.Errorf("%q is taken for %d", whole[:i], n)
			}
		}
	}
}

// A reply is an array and nothing else: what stands behind it is of another.
func TestRepliesEndWithTheirLastValue(t *testing.T) {
	for raw, want := range map[string]int{
		"*2\r\n$1\r\na\r\n$-1\r\n":     2,
		"*2\r\n_\r\n$0\r\n\r\n":        2,
		"*1\r\n_\r\n":                  1,
		"*0\r\n":                       0,
		"*1\r\n$1\r\na\r\n$1\r\nb\r\n": -1,
		"*0\r\n*0\r\n":                 -1,
		"*2\r\n$1\r\na\r\n":            -1,
	} {
		if values, err := bulks([]byte(raw), nil); (err == nil) != (want >= 0) || err == nil && len(values) != want {
			t.Errorf("%q: %d values, %v; want %d", raw, len(values), err, want)
		}
	}
}

// A reply that ends before its last value does is none, wherever it ends.
func TestRepliesThatAreCutOff(t *testing.T) {
	for _, whole := range []string{"*3\r\n$3\r\nada\r\n$-1\r\n$0\r\n\r\n", "*1\r\n$12\r\nabcdefghijkl\r\n", "*2\r\n_\r\n_\r\n"} {
		for i := range len(whole) {
			if values, err := bulks([]byte(whole[:i]), nil); err == nil {
				t.Errorf("%q is taken for %q", whole[:i], values)
			}
		}
	}
}

// An answer is taken only as a whole: one that has a value for each key, and something
// besides, is of another command.
func TestAnswersThatAreNotOnes(t *testing.T) {
	client, _ := inProcess(t)
	for _, tt := range []struct {
		why, raw string
		good     bool
	}{
		{"a value for each key", "*2\r\n$1\r\n1\r\n$-1\r\n", true},
		{"nothing", "", false},
		{"a value for one of them", "*1\r\n$1\r\n1\r\n", false},
		{"values for more than were asked for", "*3\r\n$1\r\n1\r\n$-1\r\n$-1\r\n", false},
		{"a number besides", "*3\r\n$1\r\n1\r\n$-1\r\n:1\r\n", false},
		{"another answer behind it", "*2\r\n$1\r\n1\r\n$-1\r\n+OK\r\n", false},
		{"no array", "+OK\r\n", false},
	} {
		cmd := new(mget)
		cmd.ask(t.Context(), 0, []any{"mget", "a", "b"})
		n, _ := cmd.written.WriteString(tt.raw)
		cmd.SetVal(int64(n))
		values, err := NewReader(client, false).values(t.Context(), new(readScratch), cmd)
		if tt.good {
			if err != nil || len(values) != 2 || string(values[0]) != "1" || values[1] != nil {
				t.Errorf("%s: %q, %v", tt.why, values, err)
			}
		} else if !errors.Is(err, errReply) {
			t.Errorf("%s: %q, %v; want %v", tt.why, values, err, errReply)
		}
	}
}

// A redirect of the cluster comes as an error in place of the answer. The answer that is
// asked for then is not mixed with that of an earlier command.
func TestAnswersAfterARedirectAreTheirs(t *testing.T) {
	client, _ := inProcess(t)
	client.MSet(t.Context(), "a", "1", "b", "2")
	cmd := new(mget)
	cmd.ask(t.Context(), 0, []any{"mget", "a", "b"})
	n, _ := cmd.written.WriteString("-MOVED 1 127.0.0.1:1\r\n")
	cmd.SetVal(int64(n))
	sc := &readScratch{values: [][]byte{[]byte("old"), []byte("old"), []byte("old")}}
	got, err := NewReader(client, false).values(t.Context(), sc, cmd)
	if err != nil || len(got) != 2 || string(got[0]) != "1" || string(got[1]) != "2" {
		t.Errorf("got %q, %v; want 1 and 2", got, err)
	}
}

// refusing answers an error to each MGET of a batch, as a server that loads its data does.
type refusing struct{ counting }

func (refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if m, is := cmd.(*mget); is {
				n, _ := m.written.WriteString("-LOADING the data set\r\n")
				m.SetVal(int64(n))
			}
		}
		return err
	}
}

// An error in place of an answer concerns all shards that were asked for by the command. When
// it is asked again, each owner has what is his.
func TestSeveralShardsAreAskedForAgain(t *testing.T) {
	client, server := inProcess(t)
	owners := []string{"ada", "bob", "cy", "dee"}
	first, last := shards.Users, 0
	for _, owner := range owners {
		s := shards.UserShard(owner)
		first, last = min(first, s), max(last, s)
		client.MSet(t.Context(), shards.EpochKey(s), state.FormatBuild(7), shards.LimiterKey(s, owner), "state of "+owner)
	}
	client.AddHook(refusing{})
	out := []*push.User{{}, {}, {}, {}}
	if err := NewReader(client, true).Fetch(t.Context(), owners, out); err != nil {
		t.Fatal(err)
	}
	for i, u := range out {
		if string(u.Limiter) != "state of "+owners[i] {
			t.Errorf("%s has %q", owners[i], u.Limiter)
		}
	}
	server.Mini.SetError("ERR not now")
	err := NewReader(client, true).Fetch(t.Context(), owners, out)
	if want := fmt.Sprintf("reading users: user shards %d to %d: ERR not now", first, last); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// A write is done only on the state that it was made for, and who comes late
// believes nothing of what he wrote.
func TestWritesAreFenced(t *testing.T) {
	client, server := inProcess(t)
	registry := func() *Registry {
		r, err := NewRegistry(client, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	write := func(r *Registry, w *shardWrite) bool {
		t.Helper()
		fenced, err := r.write(t.Context(), []*shardWrite{w})
		if err != nil {
			t.Fatal(err)
		}
		return len(fenced) == 0
	}
	begin := func() *shardWrite {
		return &shardWrite{shard: 7, reset: true, next: state.Begin(), at: time.UnixMilli(1e12), offsets: []int64{0}}
	}
	first, second := registry(), registry()
	if !write(first, begin()) {
		t.Fatal("a shard that is not there cannot be begun")
	}
	if write(second, begin()) || second.shards[7].Version != (state.Version{}) || second.shards[7].Applied != nil {
		t.Errorf("a shard that somebody has begun was begun anew; believes %+v", second.shards[7])
	}
	second.shards[7] = first.shards[7]
	second.shards[7].Applied = []int64{0}
	if !write(first, &shardWrite{shard: 7, offsets: []int64{10}, keys: []string{"u:{x}:ada"}, values: [][]byte{[]byte("1")}}) {
		t.Error("the owner of the latest write cannot write")
	}
	if write(second, &shardWrite{shard: 7, offsets: []int64{20}, keys: []string{"u:{x}:ada"}, values: [][]byte{[]byte("2")}}) || second.shards[7].Applied[0] != 0 {
		t.Errorf("a write went through that somebody else's had overtaken; believes %+v", second.shards[7])
	}
	if got := client.Get(t.Context(), "u:{x}:ada").Val(); got != "1" {
		t.Errorf("%q is stored", got)
	}
	server.Mini.SetError("OOM command not allowed")
	if _, err := first.write(t.Context(), []*shardWrite{{shard: 7, offsets: []int64{30}}}); err == nil || first.shards[7].Applied[0] != 10 {
		t.Errorf("a write that a server refuses: %v; believes %+v", err, first.shards[7])
	}
}
