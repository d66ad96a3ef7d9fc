package collapse_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/collapse"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/shards"
)

var errCut = errors.New("connection reset by peer")

// cut is a connection that breaks at a round trip.
type cut struct {
	at    int             // the round trip, from 1 on; 0 = none
	trips int             // so far
	last  context.Context // of the last one
}

func (c *cut) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.trips++
		c.last = ctx
		if c.trips != c.at {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errCut)
		}
		return errCut
	}
}

// Whatever keeps one user's notification from being noted is said, and those of the
// others are noted.
func TestWhatIsNotNotedIsSaid(t *testing.T) {
	for _, tt := range []struct {
		why    string
		broken bool // ada's key is none of ours
		cut    int
		fails  bool
		bob    bool // is noted
	}{
		{"all is well", false, 0, false, true},
		{"a key of another type", true, 0, true, true},
		{"the connection breaks at the question", false, 1, true, false},
		{"the connection breaks at the note", false, 2, true, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			eachRedis(t, func(t *testing.T, w *world) {
				now := time.Now()
				bob := func(it *pipeline.Item) { it.UserID = "bob" }
				old := sent("n", "k", now.Add(-time.Second), bob)
				w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{old}))
				if tt.broken {
					w.must(w.redis.Set(w.ctx, shards.CollapseKey(shards.UserShard("ada"), "ada"), "x", 0).Err())
				}
				c := &cut{at: tt.cut}
				w.redis.AddHook(c)
				err := w.latest.Accepted(w.ctx, []*pipeline.Item{sent("m", "k", now), sent("m", "k", now, bob)})
				if (err != nil) != tt.fails || tt.cut > 0 && !errors.Is(err, errCut) {
					t.Errorf("got error %v, want one: %v", err, tt.fails)
				}
				if c.trips > 2 || c.trips < 2 && tt.cut != 1 {
					t.Errorf("%d round trips for two users, want 2", c.trips)
				}
				if c.last.Err() == nil {
					t.Error("the call's time-out goes on after it")
				}
				c.at = 0
				if got := w.superseded(old); got != tt.bob {
					t.Errorf("the other user's is noted: %v, want %v", got, tt.bob)
				}
			})
		})
	}
}

// Of what is contested or handed over the same is true.
func TestWhatIsNotAddedIsSaid(t *testing.T) {
	for name, add := range map[string]func(*world, []*pipeline.Item) error{
		"handed over": func(w *world, items []*pipeline.Item) error { return w.latest.HandedOver(w.ctx, items) },
		"contested": func(w *world, items []*pipeline.Item) error {
			w.contest(items...)
			return w.latest.Accepted(w.ctx, items)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachRedis(t, func(t *testing.T, w *world) {
				bob := shards.CollapseKey(shards.UserShard("bob"), "bob")
				items := func() []*pipeline.Item {
					return []*pipeline.Item{sent("m", "k", time.Now()), sent("m", "k", time.Now(), func(it *pipeline.Item) { it.UserID = "bob" })}
				}
				w.must(w.redis.Set(w.ctx, shards.CollapseKey(shards.UserShard("ada"), "ada"), "x", 0).Err())
				if err := add(w, items()); err == nil {
					t.Error("a key of another type is no error")
				}
				if n := w.redis.ZCard(w.ctx, bob).Val(); n != 1 {
					t.Errorf("the other user has %d keys, want 1", n)
				}
				w.must(w.redis.Del(w.ctx, bob).Err())
				c := &cut{at: 1}
				w.redis.AddHook(c)
				if err := add(w, items()); !errors.Is(err, errCut) {
					t.Errorf("got error %v, want %v", err, errCut)
				}
				if c.trips != 1 || c.last.Err() == nil {
					t.Errorf("%d round trips, want 1; the call's time-out has ended: %v", c.trips, c.last.Err() != nil)
				}
			})
		})
	}
}

// What fails in the first round trip is said, also when the second one is well.
func TestWhatFailsFirstIsSaid(t *testing.T) {
	eachRedis(t, func(t *testing.T, w *world) {
		now := time.Now()
		bob := func(it *pipeline.Item) { it.UserID = "bob" }
		old := sent("n", "k", now.Add(-time.Second), bob)
		w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{old}))
		w.must(w.redis.Set(w.ctx, shards.CollapseKey(shards.UserShard("ada"), "ada"), "x", 0).Err())
		ada := sent("m", "k", now)
		w.contest(ada) // so it is noted in the first one
		if err := w.latest.Accepted(w.ctx, []*pipeline.Item{ada, sent("m", "k", now, bob)}); err == nil {
			t.Error("got no error")
		}
		if !w.superseded(old) {
			t.Error("the other user's is not noted")
		}
	})
}

// What has no collapse key is superseded by nothing, whatever the answer was before,
// and gets nobody else's answer.
func TestSupersededAnswersForEach(t *testing.T) {
	eachRedis(t, func(t *testing.T, w *world) {
		now := time.Now()
		old := now.Add(-time.Second)
		w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{sent("n", "k", old)}))
		w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{sent("m", "k", now)}))
		out := []bool{true, false, true}
		w.must(w.latest.Superseded(w.ctx, []*pipeline.Item{sent("a", "", old), sent("n", "k", old), sent("b", "none", old)}, out))
		if out[0] || !out[1] || out[2] {
			t.Errorf("got %v, want only the second", out)
		}
	})
}

// Forget that is cut short says how many it has forgotten until then.
func TestForgetCutShort(t *testing.T) {
	eachRedis(t, func(t *testing.T, w *world) {
		first := func(it *pipeline.Item) { it.UserID = "user-0" }
		w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{sent("m", "k", time.Now(), first)}))
		w.redis.AddHook(&cut{at: 2})
		owners := make([]string, 1500) // two round trips
		for i := range owners {
			owners[i] = fmt.Sprint("user-", i)
		}
		if n, err := collapse.Forget(w.ctx, w.redis, owners...); n != 1 || !errors.Is(err, errCut) {
			t.Errorf("got %d forgotten and error %v, want 1 and %v", n, err, errCut)
		}
	})
}
