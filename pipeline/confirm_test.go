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
					t.Errorf("got %d ids read, want %d (%d sends)", w.read, tt.read, w.sent())
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
				t.Errorf("got %d sends while the confirm read failed, stalls %v; want 0 and the stall confirm", n, stalls)
			}
			if back {
				down.set(false)
				w.wait(t)
			} else {
				ended, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				if err := w.trackers[0].Drain(ended); err != nil || w.sent() > 0 {
					t.Errorf("draining the leaving partition: got error %v and %d sends, want none", err, w.sent())
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
type orphans struct {
	*world
	until time.Time // when they are due; zero = now
}

func (s orphans) Apply(ctx context.Context, b *pipeline.Batch) error {
	if err := s.world.Apply(ctx, b); err != nil {
		return err
	}
	for i := range b.Items {
		if it := &b.Items[i]; i%10 == 4 {
			it.Verdict, it.NotBefore = push.Undecided, s.until
			it.Decide(push.Deferred, push.Unclaimed, "")
		}
	}
	return nil
}

// claims is a topic that takes nothing until back, and keeps how long after its
// acknowledgement each claim may go on: zero = after its tier.
type claims struct {
	*world
	back time.Time
	due  []time.Duration
}

func (c *claims) Produce(ctx context.Context, hs []pipeline.Handover) error {
	if time.Now().Before(c.back) {
		return errors.New("not enough in-sync replicas")
	}
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
// answer, and 1 s for each of two rows. The claim's row comes after its record was
// acknowledged, however long that took. A tier of 30 s is long enough for that, one
// of 1 s is not.
func TestAClaimWaitsForASendInProgress(t *testing.T) {
	const short, wait = time.Second, 4 * time.Second
	for _, tt := range []struct {
		why                    string
		tier, away, until, due time.Duration
	}{
		{"a short tier", short, 0, 0, wait},
		{"just too short", wait - 1, 0, 0, wait},
		{"just long enough", wait, 0, 0, 0},
		{"the default", 30 * time.Second, 0, 0, 0},
		{"the topic was away for longer than the wait", short, 10 * time.Second, 0, wait},
		{"it was not due for an hour", short, 0, time.Hour, time.Hour},
	} {
		t.Run(tt.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(3)
				w.faults, w.tier = false, tt.tier
				w.fill(1, 100)
				pr := &provider{w: w}
				p := w.pipelineTo(t, 50, pr, pr)
				late := orphans{world: w}
				if tt.until > 0 {
					late.until = time.Now().Add(tt.until)
				}
				c := &claims{world: w, back: time.Now().Add(tt.away)}
				p.Options().Stages[0], p.Options().Producer = late, c
				stop := w.starts(t, p)
				w.wait(t)
				stop()
				pr.out.Wait()
				if len(c.due) != 10 {
					t.Errorf("got %d claims, want 10", len(c.due))
				}
				for _, due := range c.due {
					if due != tt.due {
						t.Errorf("got a claim due %v after its record was produced, want %v", due, tt.due)
					}
				}
			})
		})
	}
}

// awayRecheck cannot be asked for a minute.
type awayRecheck struct{ until time.Time }

func (r awayRecheck) Recheck(context.Context, []*pipeline.Delivery) error {
	if time.Now().Before(r.until) {
		return errors.New("redis is away")
	}
	return nil
}

// timedProvider notes how old the confirm reads were when something was sent.
type timedProvider struct {
	*provider
	oldest func(d *pipeline.Delivery, now time.Time)
}

func (p timedProvider) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.oldest(d, time.Now())
	}
	return p.provider.Submit(ctx, ds, done)
}

// A confirm read is good for 27 s. Redis is away for a minute when the recheck comes:
// the rows are read again before anything is sent.
func TestAConfirmDoesNotAgeDuringTheRecheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.faults, w.confirmed = false, time.Now()
		w.fill(1, 20)
		pr := &provider{w: w}
		read := w.confirmed
		old := time.Duration(0)
		tp := timedProvider{pr, func(d *pipeline.Delivery, now time.Time) {
			if !d.Item.Confirmed.IsZero() {
				w.mu.Lock()
				if w.read == 0 {
					old = max(old, now.Sub(read))
				}
				w.mu.Unlock()
			}
		}}
		p := w.pipelineTo(t, 50, tp, tp)
		p.Options().Recheck, p.Options().RecheckAfter = awayRecheck{time.Now().Add(time.Minute)}, 0
		p.Options().Stages[0] = readLong{w}
		stop := w.starts(t, p)
		w.wait(t)
		stop()
		pr.out.Wait()
		if old > 27*time.Second {
			t.Errorf("sent %v after its confirm read, which is valid for 27s", old)
		}
	})
}

// readLong makes every user read long ago.
type readLong struct{ *world }

func (s readLong) Apply(ctx context.Context, b *pipeline.Batch) error {
	if err := s.world.Apply(ctx, b); err != nil {
		return err
	}
	for i := range b.Items {
		b.Items[i].Read = pipeline.UptimeAt(time.Now().Add(-time.Hour))
		b.Items[i].User = &push.User{}
	}
	return nil
}
