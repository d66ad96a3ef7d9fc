package senders

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/shards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func under(t testing.TB, client shards.Client, rules ...Rule) *Limits {
	t.Helper()
	l, err := New(client, rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func hourly(wait time.Duration) Rule {
	return Rule{Name: "hourly", Algorithm: TokenBucket, Max: 60, Window: time.Hour, Burst: 2, Wait: wait}
}

// from makes n requests of one sender.
func from(sender string, n int, at time.Time) []*limits.Request {
	reqs := make([]*limits.Request, n)
	for i := range reqs {
		reqs[i] = &limits.Request{Sender: sender, ID: fmt.Sprint(i), At: at, Priority: 3}
	}
	return reqs
}

func inWords(reqs []*limits.Request) string {
	var out []string
	for _, r := range reqs {
		word := "no " + r.Rule
		switch {
		case r.Allowed && r.Sender != "" && !r.Paid:
			word = "ok and has no token"
		case r.Allowed:
			word = "ok"
		case r.Deferred:
			word = "wait " + r.RetryAfter.String()
		}
		if r.Paid && !r.Allowed {
			word += " paid"
		}
		out = append(out, word)
	}
	return strings.Join(out, ", ")
}

// scripts is a hook that counts the scripts of pipelines, and answers them without
// a server if it has an answer: a reply, or an error.
type scripts struct {
	calls  int
	answer any
}

func (s *scripts) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (s *scripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *scripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Args()[0] == "EVALSHA" {
				s.calls++
			}
			switch answer := s.answer.(type) {
			case nil:
			case error:
				cmd.SetErr(answer)
				return answer
			default:
				cmd.(*redis.Cmd).SetVal(answer)
			}
		}
		if s.answer != nil {
			return nil
		}
		return next(ctx, cmds)
	}
}
