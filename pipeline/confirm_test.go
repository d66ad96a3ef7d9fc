package pipeline_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// What was confirmed may be sent for the shortest tier (30 s) less the send
// deadline (1 s) and twice the status time-out (1 s): 27 s. Then it is
// confirmed again, once, and only then.
func TestOldConfirmsAreReadAgain(t *testing.T) {
	const reads = 5 + 3 // every fourth of 20, and three of those on two routes
	for _, tt := range []struct {
		why  string
		ago  time.Duration
		once bool
		read int
	}{
		{"just confirmed", time.Millisecond, false, 0},
		{"old, and still good", 26 * time.Second, false, 0},
		{"too old", 28 * time.Second, false, reads},
		{"too old, but committed: nobody else can have it", time.Hour, true, 0},
	} {
		t.Run(tt.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1)
				w.faults, w.once, w.confirmed = false, tt.once, time.Now().Add(-tt.ago)
				w.fill(1, 20)
				p, pr := w.pipeline(t, 50)
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = p.Run(ctx) })
				time.Sleep(10 * time.Second)
				stop()
				run.Wait()
				pr.out.Wait()
				if w.read != tt.read || w.sent() == 0 {
					t.Errorf("%d ids were read, want %d; %d sends", w.read, tt.read, w.sent())
				}
			})
		})
	}
}

// While the store cannot be read, what has to be confirmed again waits, and
// says so. It goes on when the store is back; a partition that leaves meanwhile
// is not held up.
func TestNothingIsSentOnAnOldConfirm(t *testing.T) {
	for _, back := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(2)
			w.faults, w.confirmed = false, time.Now().Add(-time.Hour)
			w.fill(1, 1)
			p, pr := w.pipeline(t, 50)
			down := &downLedger{world: w, down: true}
			p.Options().Ledger = down
			ctx, stop := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = p.Run(ctx) })
			time.Sleep(time.Minute)
			stalls, _ := p.Declared()
			if n := w.sent(); n > 0 || len(stalls) != 1 || stalls[0].Name != "confirm" {
				t.Errorf("%d sent without knowing, stalls %v", n, stalls)
			}
			if back {
				down.set(false)
				w.wait(t)
			} else {
				ended, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				if err := w.trackers[0].Drain(ended); err != nil || w.sent() > 0 {
					t.Errorf("the partition leaves: %v, %d sent", err, w.sent())
				}
			}
			stop()
			run.Wait()
			pr.out.Wait()
		})
	}
}

// downLedger cannot be read while it is down.
type downLedger struct {
	*world
	state sync.Mutex
	down  bool // guarded by state
}

func (l *downLedger) set(down bool) {
	l.state.Lock()
	defer l.state.Unlock()
	l.down = down
}

func (l *downLedger) Read(ctx context.Context, ids []string) ([][]push.Row, error) {
	l.state.Lock()
	down := l.down
	l.state.Unlock()
	if down {
		return nil, errors.New("no hosts available in the pool")
	}
	return l.world.Read(ctx, ids)
}

// orphans decides every tenth item as a copy that has to claim its devices first.
type orphans struct{ *world }

func (s orphans) Apply(ctx context.Context, b *pipeline.Batch) error {
	if err := s.world.Apply(ctx, b); err != nil {
		return err
	}
	for i := range b.Items {
		if it := &b.Items[i]; i%10 == 4 {
			it.Verdict = push.Undecided
			it.Decide(push.Deferred, push.Unclaimed, "")
		}
	}
	return nil
}

// claims keeps when each claim may go on: zero = after its tier.
type claims struct {
	*world
	due []time.Duration
}

func (c *claims) Produce(ctx context.Context, hs []pipeline.Handover) error {
	c.mu.Lock()
	for _, h := range hs {
		switch {
		case h.Reason != push.Unclaimed:
		case h.NotBefore.IsZero():
			c.due = append(c.due, 0)
		default:
			c.due = append(c.due, time.Until(h.NotBefore))
		}
	}
	c.mu.Unlock()
	return c.world.Produce(ctx, hs)
}

// A copy that has claimed its devices must not read before the origin, if it was
// about to be sent, has its row: 1 s that its confirm read is good for, 1 s until its
// answer, and 1 s for each of two rows. A tier of 30 s is long enough for that, one of
// 1 s is not.
func TestAClaimWaitsForASendInProgress(t *testing.T) {
	for tier, want := range map[time.Duration]time.Duration{time.Second: 4 * time.Second, 4*time.Second - 1: 4 * time.Second, 4 * time.Second: 0, 30 * time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			w.faults, w.tier = false, tier
			w.fill(1, 100)
			pr := &provider{w: w}
			p := w.pipelineTo(t, 50, pr, pr)
			c := &claims{world: w}
			p.Options().Stages[0], p.Options().Producer = orphans{w}, c
			stop := w.starts(t, p)
			w.wait(t)
			stop()
			pr.out.Wait()
			if len(c.due) != 10 {
				t.Errorf("tier %v: %d claims, want 10", tier, len(c.due))
			}
			for _, due := range c.due {
				if due != want {
					t.Errorf("tier %v: a claim is due in %v, want %v", tier, due, want)
				}
			}
		})
	}
}
