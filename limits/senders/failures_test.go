package senders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

func TestUnreadableAnswersAboutSenders(t *testing.T) {
	for _, row := range []struct {
		answer any
		want   string
	}{
		{[]any{int64(1), int64(0)}, ""},
		{[]any{int64(1)}, "answer with 1 numbers"},
		{[]any{int64(2), int64(0)}, "2 tokens for 1"},
		{[]any{int64(-1), int64(0)}, "-1 tokens for 1"},
		{[]any{"x", int64(0)}, `"x"`},
		{refusal("OOM"), "OOM"},
	} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
		client.AddHook(&scripts{answer: row.answer})
		err := under(t, client, hourly(0)).Decide(t.Context(), from("a", 1, start))
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("got %v, want %q", err, row.want)
		}
		_ = client.Close()
	}
}

// breaking answers the calls about some senders in their place.
type breaking struct {
	scripts // for its other hooks
	senders []string
	err     error
}

func (b *breaking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var rest []redis.Cmder
		for _, cmd := range cmds {
			if slices.ContainsFunc(b.senders, func(name string) bool { return strings.HasSuffix(fmt.Sprint(cmd.Args()[3]), ":"+name) }) {
				cmd.SetErr(b.err)
			} else {
				rest = append(rest, cmd)
			}
		}
		switch {
		case len(rest) == 0:
			return b.err
		case len(rest) < len(cmds):
			return cmp.Or(next(ctx, rest), b.err)
		}
		return next(ctx, rest)
	}
}

// One bucket fails, or one server of a cluster. What the others gave is kept: a stage
// that is repeated all the while takes no second token of theirs.
func TestAFailureKeepsTheTokensOfOtherSenders(t *testing.T) {
	for _, err := range []error{refusal("OOM"), errors.New("connection refused")} {
		client := shardstest.Start(t)
		if err := client.ScriptLoad(t.Context(), bucketSource).Err(); err != nil {
			t.Fatal(err)
		}
		client.AddHook(&breaking{senders: []string{"first", "last"}, err: err})
		s := under(t, client, hourly(time.Hour))
		reqs := slices.Concat(from("first", 1, start), from("orders", 3, start), from("last", 1, start))
		if got := s.Decide(t.Context(), reqs); !errors.Is(got, err) {
			t.Fatalf("%v, want %v", got, err)
		}
		if got, want := inWords(reqs), "ok and has no token, ok, ok, wait 1m0s paid, ok and has no token"; got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
		for range 3 {
			if got := s.Decide(t.Context(), reqs); !errors.Is(got, err) {
				t.Fatalf("%v, want %v", got, err)
			}
		}
		next := from("orders", 1, start)
		if err := s.Decide(t.Context(), next); err != nil || inWords(next) != "wait 2m0s paid" {
			t.Errorf("the next one: %s, %v, want the fourth token", inWords(next), err)
		}
	}
}

// A key that is no time, as somebody else may have written it, is replaced: it stalls
// no lane.
func TestABucketThatIsNone(t *testing.T) {
	client := shardstest.Start(t)
	s := under(t, client, hourly(time.Hour))
	key := shards.BucketKey(shards.UserShard("orders"), nameHash("hourly"), "orders")
	for why, write := range map[string]func() error{
		"hash":  func() error { return client.HSet(t.Context(), key, "no", "bucket").Err() },
		"text":  func() error { return client.Set(t.Context(), key, "soon", 0).Err() },
		"empty": func() error { return client.Set(t.Context(), key, "", 0).Err() },
		"nan":   func() error { return client.Set(t.Context(), key, "nan", 0).Err() },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if look := from("orders", 1, start); s.Preview(t.Context(), look) != nil || !look[0].Allowed {
			t.Errorf("%s: a preview says %s", why, inWords(look))
		}
		for _, want := range []string{"ok, ok, wait 1m0s paid", "wait 2m0s paid, wait 3m0s paid, wait 4m0s paid"} {
			reqs := from("orders", 3, start)
			if err := s.Decide(t.Context(), reqs); err != nil || inWords(reqs) != want {
				t.Errorf("%s: %s, %v, want %s", why, inWords(reqs), err, want)
			}
		}
		if err := client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// refusal is an error reply of Redis.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}
