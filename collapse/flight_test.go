package collapse_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/collapse"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// What is accepted is noted where an older one may ask for it: it is in flight, or was
// handed over, whenever that was; and nowhere else.
func TestOnlyWhatMayBeAskedForIsNoted(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		why    string
		before func(*world, []*pipeline.Item) // with the older one
		after  func(*world, []*pipeline.Item) // when the newer one was accepted
		want   bool                           // the older one is superseded
		keys   int64
	}{
		{"the older one has ended", func(w *world, old []*pipeline.Item) { w.end(old...) }, nil, false, 0},
		{"it is in flight, and handed over later", nil, func(w *world, old []*pipeline.Item) {
			w.must(w.latest.HandedOver(w.ctx, old))
			w.end(old...)
		}, true, 1},
		{"it was handed over, and has ended here", func(w *world, old []*pipeline.Item) {
			w.must(w.latest.HandedOver(w.ctx, old))
			w.end(old...)
		}, nil, true, 1},
		{"it was handed over, and is in flight", func(w *world, old []*pipeline.Item) { w.must(w.latest.HandedOver(w.ctx, old)) }, nil, true, 1},
		{"it is given back, and read again", func(w *world, old []*pipeline.Item) {
			w.end(old...)
			w.begin(old...)
		}, nil, true, 1},
	} {
		t.Run(tt.why, func(t *testing.T) {
			eachRedis(t, func(t *testing.T, w *world) {
				old, newer := sent("n", "k", now), sent("m", "k", now.Add(time.Second))
				other := sent("o", "other", now) // of the same user, with another key
				w.begin(old, other, newer)
				if tt.before != nil {
					tt.before(w, []*pipeline.Item{old})
				}
				w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{other, newer}))
				w.end(other, newer)
				if tt.after != nil {
					tt.after(w, []*pipeline.Item{old})
				}
				if got := w.superseded(old); got != tt.want {
					t.Errorf("superseded: %v, want %v", got, tt.want)
				}
				if n := w.redis.DBSize(w.ctx).Val(); n != tt.keys {
					t.Errorf("Redis holds %d users, want %d", n, tt.keys)
				}
			})
		})
	}
}

// between does something between the first round trip of a call and the next step.
type between struct{ do func() }

func (b *between) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if do := b.do; do != nil {
			b.do = nil
			do()
		}
		return err
	}
}

// The older one is handed over and ends while the newer one's end is noted: whoever looked
// into Redis first, and only then at what is in flight, would find it in neither.
func TestTheOlderOneEndsMeanwhile(t *testing.T) {
	eachRedis(t, func(t *testing.T, w *world) {
		now := time.Now()
		old, newer := sent("n", "k", now), sent("m", "k", now.Add(time.Second))
		w.begin(old, newer)
		w.redis.AddHook(&between{do: func() {
			w.must(w.latest.HandedOver(w.ctx, []*pipeline.Item{old}))
			w.end(old)
		}})
		w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{newer}))
		if !w.superseded(old) {
			t.Error("the older one is sent over the newer one")
		}
	})
}

// Whatever few users' notifications go through in whatever order: who was handed over is
// superseded if a newer one was accepted while it was in flight or after that, unless the
// bits of their ids agree by chance; and nobody is by none.
func TestWhateverTheOrder(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { inMemory(t, func(w *world) { anyOrder(t, w, seed) }) })
	}
}

// way is how far a notification has come.
type way struct {
	it         *pipeline.Item
	handedOver bool
	superseded bool // must be
	newer      bool // a newer one was accepted at some time
}

func anyOrder(t *testing.T, w *world, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	var flying, waiting []*way // in flight; handed over
	n := 0
	for range 600 {
		time.Sleep(time.Millisecond)
		switch {
		case len(flying) == 0 || r.IntN(3) == 0:
			n++
			it := sent(fmt.Sprint("id-", n), fmt.Sprint(r.IntN(3)), time.Now(), func(it *pipeline.Item) { it.UserID = fmt.Sprint("user-", r.IntN(3)) })
			w.begin(it)
			flying = append(flying, &way{it: it})
		case len(waiting) > 0 && r.IntN(4) == 0: // its record is read
			i := r.IntN(len(waiting))
			again := waiting[i]
			waiting = append(waiting[:i], waiting[i+1:]...)
			got := w.superseded(again.it)
			if again.superseded && !got || got && !again.newer {
				t.Fatalf("seed %d, notification %d: %s is superseded: %v; a newer one was accepted: %v", seed, n, again.it.ID, got, again.newer)
			}
			if !got {
				w.begin(again.it)
				flying = append(flying, again)
			}
		default:
			i := r.IntN(len(flying))
			now := flying[i]
			flying = append(flying[:i], flying[i+1:]...)
			one := []*pipeline.Item{now.it}
			switch r.IntN(3) {
			case 0:
				now.handedOver = true
				w.must(w.latest.HandedOver(w.ctx, one))
				waiting = append(waiting, now)
			case 1:
				w.must(w.latest.Accepted(w.ctx, one))
				for _, older := range append(flying[:len(flying):len(flying)], waiting...) {
					if o := older.it; o.UserID == now.it.UserID && o.CollapseKey == now.it.CollapseKey && o.FirstSeen < now.it.FirstSeen {
						older.newer = true
						older.superseded = older.superseded || collapse.Bits(o) != collapse.Bits(now.it)
					}
				}
			}
			w.end(one...)
		}
	}
	var last []*pipeline.Item
	for _, f := range flying {
		last = append(last, f.it)
	}
	w.end(last...)
	w.must(w.redis.FlushAll(w.ctx).Err())
	for i := range 9 { // nothing is in flight any more
		it := sent("last", fmt.Sprint(i/3), time.Now(), func(it *pipeline.Item) { it.UserID = fmt.Sprint("user-", i%3) })
		w.begin(it)
		w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{it}))
		w.end(it)
	}
	if n := w.redis.DBSize(w.ctx).Val(); n != 0 {
		t.Errorf("seed %d: %d users are noted although nothing older is in flight", seed, n)
	}
}

// What has no collapse key is in nobody's way.
func TestWithoutACollapseKeyNothingIsCounted(t *testing.T) {
	eachRedis(t, func(t *testing.T, w *world) {
		now := time.Now()
		plain, other, it := sent("a", "", now), sent("b", "", now), sent("m", "k", now)
		w.begin(plain, other, it)
		if plain.Place != 0 || it.Place == 0 {
			t.Errorf("places %d and %d", plain.Place, it.Place)
		}
		w.end(plain, other, it)
		again := []pipeline.Item{*it, {Message: push.Message{UserID: "ada", CollapseKey: "k", App: "shop"}}}
		w.latest.Begin(again)
		w.end(&again[1])
		w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{&again[0]}))
		if n := w.redis.DBSize(w.ctx).Val(); n != 0 {
			t.Errorf("%d users are noted, want none: nothing else is in flight", n)
		}
	})
}

// Two devices that messages name without a user, and two users, do not contest each other.
func TestWhoContests(t *testing.T) {
	bare := func(token string) func(*pipeline.Item) {
		return func(it *pipeline.Item) {
			it.UserID, it.Message.Device = "", push.Target{Platform: push.APNS, Token: token}
		}
	}
	for _, tt := range []struct {
		why       string
		one, two  func(*pipeline.Item)
		contested bool
	}{
		{"a user", func(*pipeline.Item) {}, func(*pipeline.Item) {}, true},
		{"two users", func(*pipeline.Item) {}, func(it *pipeline.Item) { it.UserID = "bob" }, false},
		{"a device", bare("aa"), bare("aa"), true},
		{"two devices", bare("aa"), bare("bb"), false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			eachRedis(t, func(t *testing.T, w *world) {
				one, two := sent("n", "k", time.Now(), tt.one), sent("m", "k", time.Now(), tt.two)
				w.begin(one, two)
				w.must(w.latest.Accepted(w.ctx, []*pipeline.Item{two}))
				if n := w.redis.DBSize(w.ctx).Val(); (n > 0) != tt.contested {
					t.Errorf("%d users are noted, want some: %v", n, tt.contested)
				}
			})
		})
	}
}
