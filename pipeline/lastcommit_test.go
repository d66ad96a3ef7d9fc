package pipeline_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// silentFrom answers what lies before an offset, and never the rest.
type silentFrom struct {
	*slow
	n int
}

func (p silentFrom) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		if i, _ := strconv.Atoi(d.Item.ID[strings.LastIndex(d.Item.ID, "-")+1:]); i < p.n {
			_, _ = p.slow.Submit(ctx, []*pipeline.Delivery{d}, done)
		}
	}
	return len(ds), nil
}

// strictSource commits nothing in the name of a context that has ended, as Kafka's
// client does. While it hangs, it answers no commit.
type strictSource struct {
	*world
	hangs   bool
	refuses int64 // so many commits, from the first on
	calls   atomic.Int64
}

func (s *strictSource) Commit(ctx context.Context) error {
	calls := s.calls.Add(1)
	if s.hangs {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if calls <= s.refuses {
		return errors.New("not the coordinator")
	}
	return s.world.Commit(ctx)
}

// TestLastCommit: the drain was not long enough for a provider that is silent. What is
// done is committed all the same, and a commit that hangs does not hold up the end.
func TestLastCommit(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := calm(3, 1, 300)
			pr := silentFrom{&slow{w: w, wait: 50 * time.Millisecond}, 10}
			p := w.pipelineTo(t, 1200, pr, pr)
			source := &strictSource{world: w, hangs: hangs}
			p.Options().Source, p.Options().CommitInterval = source, time.Hour
			stop := w.starts(t, p)
			time.Sleep(2 * time.Second)
			if took := stop(); took > p.Options().Drain {
				t.Errorf("hangs %v: stopping took %v, the drain budget is %v", hangs, took, p.Options().Drain)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if got := w.commits[0]; !hangs && got == 0 {
				t.Errorf("nothing is committed, want what is done")
			}
			if len(w.early) > 0 {
				t.Errorf("committed without an end: %v", w.early)
			}
		})
	}
}

// lateFilter takes ids only a while after it is told to give up.
type lateFilter struct{ *world }

func (f lateFilter) Add(ctx context.Context, ids []string) error {
	<-ctx.Done()
	time.Sleep(100 * time.Millisecond)
	return f.world.Add(ctx, ids)
}

// TestTheLastCommitComesAfterTheFilter: what the filter takes at the last moment is
// committed too, and nothing of it goes on after Run has returned.
func TestTheLastCommitComesAfterTheFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 1, 300)
		pr := &slow{w: w, wait: 50 * time.Millisecond}
		p := w.pipelineTo(t, 1200, pr, pr)
		p.Options().Seen = lateFilter{w}
		stop := w.starts(t, p)
		time.Sleep(10 * time.Second)
		if took := stop(); took > p.Options().Drain {
			t.Errorf("stopping took %v, the drain budget is %v", took, p.Options().Drain)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if got, want := w.commits[0], int64(2*299+1); got != want {
			t.Errorf("committed up to %d, want %d: all of it had its rows and was in the filter", got, want)
		}
	})
}

// TestARefusedCommitWaitsForTheInterval: while the coordinator is away, much that is
// done makes no commit come sooner. Once it is back, it does again.
func TestARefusedCommitWaitsForTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 1, 4000)
		pr := &slow{w: w, wait: 50 * time.Millisecond}
		p := w.pipelineTo(t, 50, pr, pr)
		source := &strictSource{world: w, refuses: 1}
		p.Options().Source, p.Options().CommitInterval = source, 4*time.Second
		stop := w.starts(t, p)
		time.Sleep(4*time.Second - time.Millisecond)
		w.mu.Lock()
		done, _ := w.undone()
		w.mu.Unlock()
		if calls := source.calls.Load(); calls != 1 || done < 1500 {
			t.Errorf("%d commits with %d done before the interval is over, want one, which is refused", calls, done)
		}
		time.Sleep(4*time.Second - time.Millisecond)
		if calls := source.calls.Load(); calls < 3 {
			t.Errorf("%d commits before the second interval is over, want that of the first and an early one", calls)
		}
		stop()
		pr.out.Wait()
	})
}

// TestOnceStopWithASlowStore: what is committed is submitted after the stop only as long
// as its row can still be written, although the answer takes all of its deadline and the
// row most of its time-out.
func TestOnceStopWithASlowStore(t *testing.T) {
	for shift := range 8 {
		synctest.Test(t, func(t *testing.T) {
			w := calm(3, 3, 2000)
			w.once = true
			pr := &slow{w: w, wait: 990 * time.Millisecond}
			p := w.pipelineTo(t, 20, pr, pr)
			p.Options().Status = sluggishStatus{w}
			stop := w.starts(t, p)
			time.Sleep(6*time.Second + time.Duration(shift)*217*time.Millisecond)
			if took := stop(); took > p.Options().Drain {
				t.Errorf("stopping took %v, the drain budget is %v", took, p.Options().Drain)
			}
			pr.out.Wait()
			w.checkStopped(t)
		})
	}
}
