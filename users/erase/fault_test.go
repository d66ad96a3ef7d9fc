package erase_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/erase"
	"github.com/pushfleet/pushfleet/users/userstest"
)

var errFault = errors.New("a fault")

// fault makes one step of an erasure fail, once: a read of the topic, an append, or
// a round trip to Redis.
type fault struct {
	topic  *userstest.Topic
	at     int // which step, counted from 1; 0 = none
	steps  int // begun until now
	failed bool
}

func (f *fault) step() error {
	if f.steps++; f.steps != f.at {
		return nil
	}
	f.failed = true
	return errFault
}

// Read implements erase.History.
func (f *fault) Read(ctx context.Context, user string, from int64, each func(users.FetchedRecord) error) (int32, int64, error) {
	if err := f.step(); err != nil {
		return 0, 0, err
	}
	return f.topic.Read(ctx, user, from, each)
}

// Append implements users.Log.
func (f *fault) Append(ctx context.Context, records []users.Record) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.topic.Append(ctx, records)
}

// DialHook implements redis.Hook.
func (f *fault) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (f *fault) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f.step(); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (f *fault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := f.step(); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// An error at any step is told by the call that it came in, and what it ended can be
// begun again with the same Erasure.
func TestEraseTellsOfErrors(t *testing.T) {
	userstest.Virtual(t, in(func(w *world) {
		w.Run(userstest.RegistryOptions())
		client := w.Open()
		f := &fault{topic: w.Topic}
		client.AddHook(f)
		calls := []struct {
			name string
			do   func(e *erase.Erasure) error
		}{
			{"Look", func(e *erase.Erasure) error { _, err := e.Look(w.Ctx); return err }},
			{"Append", func(e *erase.Erasure) error { _, err := e.Append(w.Ctx); return err }},
			{"Await", func(e *erase.Erasure) error { return e.Await(w.Ctx) }},
		}
		failed := map[string]bool{}
		for at := 1; ; at++ {
			w.Register("uma", 1, at)
			w.OptOut("uma", "promo")
			w.Settle()
			*f = fault{topic: w.Topic, at: at}
			e, err := erase.New(f, f, client, "uma")
			w.Must(err)
			for _, call := range calls {
				if err := call.do(e); f.failed != errors.Is(err, errFault) || !f.failed && err != nil {
					t.Errorf("step %d failed in %s, which says %v", at, call.name, err)
				}
				if f.failed {
					failed[call.name] = true
					break
				}
			}
			if !f.failed {
				break // every step has failed once
			}
			for _, call := range calls {
				w.Must(call.do(e))
			}
			if key := w.namesUser("uma"); key != "" || w.topicNames("uma") != "" {
				t.Errorf("after an error at step %d Redis keeps %q, push.users %q", at, key, w.topicNames("uma"))
			}
		}
		if len(failed) != len(calls) {
			t.Errorf("errors came in %v only", failed)
		}
		w.Must(client.Close())
	}))
}

// Whoever waits for long asks Redis once a second, not more often and not later.
func TestEraseWaitsWithPauses(t *testing.T) {
	userstest.Virtual(t, in(func(w *world) {
		w.Register("uma", 1, 1)
		client := w.Open()
		f := &fault{topic: w.Topic}
		client.AddHook(f)
		e, err := erase.New(f, f, client, "uma")
		w.Must(err)
		_, err = e.Look(w.Ctx)
		w.Must(err)
		before := f.steps
		ctx, cancel := context.WithTimeout(w.Ctx, 30*time.Second)
		defer cancel()
		if err := e.Await(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		// The pauses up to 640 ms take 1.26 s; one of a second follows each of 29 questions.
		if looks := f.steps - before; looks != 6+29 {
			t.Errorf("asked %d times in 30 s, want 35 times", looks)
		}
		w.Must(client.Close())
	}))
}
