package userstest

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/users"
)

// ErrCrash is what every step answers from the crash on.
var ErrCrash = errors.New("crashed")

// Crash ends a process at one of its steps: a step is one round trip to
// Redis, one append, one seek, one look at the spans, or one poll.
type Crash struct {
	at    int
	after bool
	end   context.CancelFunc

	mu    sync.Mutex
	steps int
	dead  bool
}

// NewCrash crashes at step number at, counted from 0: before it is done, or
// after it was done but before its caller learns that. end is called then.
func NewCrash(at int, after bool, end context.CancelFunc) *Crash {
	return &Crash{at: at, after: after, end: end}
}

// Happened reports whether the step was reached.
func (c *Crash) Happened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *Crash) step(do func() error) error {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return ErrCrash
	}
	now := c.steps == c.at
	c.steps++
	c.dead = now
	c.mu.Unlock()
	if now && !c.after {
		c.end()
		return ErrCrash
	}
	err := do()
	if now {
		c.end()
		return ErrCrash
	}
	return err
}

// DialHook implements redis.Hook.
func (c *Crash) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (c *Crash) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := c.step(func() error { return next(ctx, cmd) })
		if errors.Is(err, ErrCrash) {
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *Crash) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := c.step(func() error { return next(ctx, cmds) })
		if errors.Is(err, ErrCrash) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// Log makes appends steps of the process.
func (c *Crash) Log(log users.Log) users.Log { return crashLog{c, log} }

type crashLog struct {
	crash *Crash
	log   users.Log
}

func (l crashLog) Append(ctx context.Context, records []users.Record) error {
	return l.crash.step(func() error { return l.log.Append(ctx, records) })
}

// Follower makes f's calls steps of the process.
func (c *Crash) Follower(f users.Follower) users.Follower { return crashFollower{c, f} }

type crashFollower struct {
	crash    *Crash
	follower users.Follower
}

func (f crashFollower) Spans(ctx context.Context) (spans []users.Span, err error) {
	err = f.crash.step(func() (err error) {
		spans, err = f.follower.Spans(ctx)
		return err
	})
	return spans, err
}

func (f crashFollower) Seek(ctx context.Context, offsets []int64) error {
	return f.crash.step(func() error { return f.follower.Seek(ctx, offsets) })
}

func (f crashFollower) Poll(ctx context.Context) (fetched []users.Fetched, err error) {
	err = f.crash.step(func() (err error) {
		fetched, err = f.follower.Poll(ctx)
		return err
	})
	return fetched, err
}
