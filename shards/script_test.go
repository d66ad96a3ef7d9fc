package shards

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
)

const doubleSource = `return 2 * tonumber(ARGV[1])`

func doubles(t *testing.T, s *Script, n int) []Call {
	t.Helper()
	calls := make([]Call, n)
	for i := range calls {
		calls[i] = s.Call(t.Context(), []any{nil, nil, 1, fmt.Sprint("key", i), i})
	}
	return calls
}

// A server that forgets the script is taught it, and all calls have their answers.
func TestScriptsAreLoadedWhereTheyAreUnknown(t *testing.T) {
	r, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	client := redis.NewClient(&redis.Options{Addr: r.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	pipes := &pipelines{}
	client.AddHook(pipes)
	s := NewScript("doubling", doubleSource)
	for _, want := range []string{"[EVALSHA EVALSHA EVALSHA] [EVAL EVAL EVAL]", "[EVALSHA EVALSHA EVALSHA]"} {
		pipes.sent = nil
		calls := doubles(t, s, 3)
		if err := s.Run(t.Context(), client, calls); err != nil {
			t.Fatal(err)
		}
		for i, c := range calls {
			if n, err := c.Cmd.Int(); err != nil || n != 2*i {
				t.Errorf("call %d: %d, %v", i, n, err)
			}
		}
		if got := strings.Join(pipes.sent, " "); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	}
}

// A server that knows the script for some calls only is asked again for the others;
// what it refuses is an error, in either round trip.
func TestErrorsOfScripts(t *testing.T) {
	noScript, full, cut := reply("NOSCRIPT No matching script."), reply("OOM command not allowed"), errors.New("connection reset")
	for _, c := range []struct {
		why     string
		answers [][]error // per pipeline, per call
		want    string    // "" = all is well
		sent    int
	}{
		{"one is known, one is not", [][]error{{nil, noScript}, {nil}}, "", 2},
		{"refused", [][]error{{nil, full}}, "doubling: OOM", 1},
		{"refused beside an unknown one", [][]error{{noScript, full}}, "doubling: OOM", 1},
		{"refused with the source", [][]error{{noScript, noScript}, {nil, full}}, "doubling: OOM", 2},
		{"unknown with its source", [][]error{{nil, noScript}, {noScript}}, "doubling: NOSCRIPT", 2},
		{"cut off", [][]error{{cut, cut}}, "doubling: connection reset", 1},
		{"cut off the second time", [][]error{{nil, noScript}, {cut}}, "doubling: connection reset", 2},
	} {
		t.Run(c.why, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
			t.Cleanup(func() { _ = client.Close() })
			pipes := &pipelines{answers: c.answers}
			client.AddHook(pipes)
			s := NewScript("doubling", doubleSource)
			err := s.Run(t.Context(), client, doubles(t, s, 2))
			if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if len(pipes.sent) != c.sent {
				t.Errorf("sent %v, want %d round trips", pipes.sent, c.sent)
			}
		})
	}
}

// reply is an error reply of Redis.
type reply string

func (e reply) Error() string { return string(e) }
func (reply) RedisError()     {}

// pipelines is a hook that notes the commands of each pipeline, and gives them
// these answers, if there are some, without a server.
type pipelines struct {
	sent    []string
	answers [][]error
}

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var names []string
		for _, cmd := range cmds {
			names = append(names, cmd.Name())
		}
		p.sent = append(p.sent, strings.ToUpper(fmt.Sprint(names)))
		if p.answers == nil {
			return next(ctx, cmds)
		}
		answers := p.answers[len(p.sent)-1]
		for i, cmd := range cmds {
			cmd.SetErr(answers[i])
		}
		return errors.Join(answers...)
	}
}
