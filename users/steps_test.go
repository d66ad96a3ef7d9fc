package users_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// picky is a Redis that refuses the commands of one kind.
type picky struct{ kind *atomic.Pointer[string] }

var errPicky = errors.New("READONLY You can't write against a read only replica")

func (p picky) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (p picky) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if kindOf(cmd) == *p.kind.Load() {
			cmd.SetErr(errPicky)
			return errPicky
		}
		return next(ctx, cmd)
	}
}

func (p picky) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if kindOf(cmd) != *p.kind.Load() {
				continue
			}
			for _, cmd := range cmds {
				cmd.SetErr(errPicky)
			}
			return errPicky
		}
		return next(ctx, cmds)
	}
}

// kindOf says what a command is for: its name, and of a shard's script what it
// writes. Behind the script's keys stand the expected and the next version,
// whether it resets, the marker, the fields of the offsets and the values.
func kindOf(cmd redis.Cmder) string {
	args := cmd.Args()
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return cmd.Name()
	}
	rest := args[3+args[2].(int):]
	fields := rest[4].(int)
	switch {
	case rest[2] == "1":
		return "begin"
	case rest[3] != "":
		return "complete"
	case rest[5+fields] != 0:
		return "apply"
	case slices.Contains(rest[5:5+fields], any("at")):
		return "beat"
	}
	return "close"
}

// Each step of a check and of applying that fails shows, is tried again after a
// rest, and holds up nothing once it works.
func TestStepsThatFailShow(t *testing.T) {
	virtual(t, func(w *world) {
		var kind atomic.Pointer[string]
		refuse := func(of string) { kind.Store(&of) }
		open := w.Open
		w.Open = func() redis.UniversalClient {
			client := open()
			client.AddHook(picky{&kind})
			return client
		}
		var failed atomic.Int64
		w.Progress = func(p users.Progress) {
			if p.Err == nil {
				return
			}
			failed.Add(1)
			if !errors.Is(p.Err, errPicky) {
				t.Errorf("%s is refused, and it says %v", *kind.Load(), p.Err)
			}
		}
		refuse("begin")
		w.fill()
		o := userstest.RegistryOptions()
		o.BeatInterval, o.RetryDelay = o.CheckInterval, o.MaxRetryDelay // 100 ms
		w.Run(o)
		for _, step := range []struct {
			of string
			do func()
		}{
			{"begin", func() {}},
			{"complete", func() { w.Must(w.Redis.FlushAll(w.Ctx).Err()) }},
			{"beat", func() {}},
			{"hgetall", func() {}},
			{"apply", func() { w.OptOut("dee") }},
			{"smembers", func() { w.Register("cy", 5, 50) }}, // the token is eve's
			{"mget", func() { w.Register("ada", 5, 51) }},
			{"close", func() { // a doubt about a record that can be read is only closed
				w.Must(w.Redis.SAdd(w.Ctx, "t:{"+shards.UserTag(shards.UserShard("ada"))+"}:open", "d:ada").Err())
			}},
		} {
			refuse(step.of)
			step.do()
			failed.Store(0)
			time.Sleep(5 * o.RetryDelay)
			if n := failed.Load(); n < 2 || n > 10 { // up to a half of each rest is random
				t.Errorf("%s failed %d times in five rests", step.of, n)
			}
			refuse("nothing")
			w.agree()
		}
	})
}

// So does a rebuilt record that cannot be written.
func TestARebuildThatCannotBeWrittenShows(t *testing.T) {
	virtual(t, func(w *world) {
		var kind atomic.Pointer[string]
		refuse := func(of string) { kind.Store(&of) }
		open := w.Open
		w.Open = func() redis.UniversalClient {
			client := open()
			client.AddHook(picky{&kind})
			return client
		}
		var failed atomic.Int64
		w.Progress = func(p users.Progress) {
			if errors.Is(p.Err, errPicky) {
				failed.Add(1)
			}
		}
		refuse("nothing")
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		refuse("apply")
		w.spoil("ada")
		w.Look("ada")
		time.Sleep(10 * userstest.RegistryOptions().CheckInterval)
		if failed.Load() == 0 {
			t.Error("nobody hears of it")
		}
		refuse("nothing")
		time.Sleep(3 * userstest.RegistryOptions().CheckInterval)
		w.agree()
	})
}

// What can be done is done at once, and does not wait for the next look.
func TestWhatIsOpenIsSettledAtOnce(t *testing.T) {
	virtual(t, func(w *world) {
		o := userstest.RegistryOptions()
		o.CheckInterval = time.Hour
		w.fill()
		w.Run(o)
		for i, what := range []string{"building", "a token that moves"} {
			if i == 1 {
				w.Register("cy", 5, 50)
			}
			time.Sleep(time.Second)
			if why := w.Incomplete(); why != "" {
				t.Errorf("%s: after a second %s", what, why)
			}
		}
		if got := w.Fetch("eve")["eve"]; got != nil && len(got.Devices) > 0 {
			t.Errorf("eve has the token that is cy's by now: %+v", got)
		}
	})
}
