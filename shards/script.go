package shards

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script that servers know by its hash once they have run it:
// many calls of it share a round trip. It is safe for concurrent use.
type Script struct {
	doing  string
	source string
	sha    string
}

// NewScript makes one. Its errors begin with what it is doing ("writing states").
func NewScript(doing, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{doing, source, hex.EncodeToString(sum[:])}
}

// Call is one call of a Script.
type Call struct {
	// Cmd has the answer, or the error of this call, when Run has returned.
	Cmd  *redis.Cmd
	args []any
}

// Call makes a call, which Run sends. args are two places for the script's name,
// which are set here, then the number of keys, the keys, which a cluster wants in
// one slot, and the arguments. They belong to the call until its answer is read.
func (s *Script) Call(ctx context.Context, args []any) Call {
	args[0], args[1] = "EVALSHA", &s.sha
	return Call{redis.NewCmd(ctx, args...), args}
}

// Run sends all calls in one pipelined round trip, and a second one for calls
// to a server that does not know the script (restarted, failed over, new in the
// cluster): these carry the source, which loads it. After an error other
// calls may have their answers.
func (s *Script) Run(ctx context.Context, client Client, calls []Call) error {
	if err := s.exec(ctx, client, calls); err != nil {
		return err
	}
	var unknown []Call
	for i := range calls {
		c := &calls[i]
		switch err := c.Cmd.Err(); {
		case err == nil:
		case strings.HasPrefix(err.Error(), "NOSCRIPT"):
			c.args[0], c.args[1] = "EVAL", s.source
			c.Cmd = redis.NewCmd(ctx, c.args...)
			unknown = append(unknown, *c)
		default:
			return fmt.Errorf("%s: %w", s.doing, err)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	if err := s.exec(ctx, client, unknown); err != nil {
		return err
	}
	for i := range unknown {
		if err := unknown[i].Cmd.Err(); err != nil {
			return fmt.Errorf("%s: %w", s.doing, err)
		}
	}
	return nil
}

// exec returns an error only when there were no answers; each command has its
// own.
func (s *Script) exec(ctx context.Context, client Client, calls []Call) error {
	pipe := client.Pipeline()
	for i := range calls {
		if err := pipe.Process(ctx, calls[i].Cmd); err != nil {
			return fmt.Errorf("%s: %w", s.doing, err)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !Answered(err) {
		return fmt.Errorf("%s: %w", s.doing, err)
	}
	return nil
}
