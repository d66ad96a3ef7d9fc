package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/push"
)

func TestWriteGivesUpOnlyWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(context.Context, int, int64) error { return gocql.ErrNoConnections }}
		g := testMerger(t, s, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		err := g.write(ctx, rowsOf("a-secret-id"))
		if took := time.Since(start); took != time.Hour {
			t.Errorf("gave up after %v, want not before its context", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, gocql.ErrNoConnections) {
			t.Errorf("error %q does not say that time is up and what the last attempt met", err)
		}
		for _, want := range []string{"1 status rows", "host1", "keyspace k"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("error %q tells a row", err)
		}
		if n := s.attempts(); n < 1000 || n > 4000 {
			t.Errorf("%d attempts in an hour, want about one in 1.5 s", n)
		}
	})
}

// Rows that are acknowledged just as their caller's time ends count as
// acknowledged.
func TestLastRowAndEndOfTimeAtOnce(t *testing.T) {
	g := testMerger(t, &server{}, nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.abandon(over, &call{left: 0}, 3); err != nil {
		t.Errorf("all three rows are durable, and it says %v", err)
	}
	if err := g.abandon(over, &call{left: 1}, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("one of three rows is not durable, and it says %v", err)
	}
}

func TestAbandonedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s := &server{answer: func(context.Context, int, int64) error {
			if down.Load() {
				return gocql.ErrNoConnections
			}
			return nil
		}}
		g := testMerger(t, s, nil)
		hasty, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		rows := rowsOf("a1")
		patient, lonely := make(chan error, 1), make(chan error, 1)
		go func() { patient <- g.write(t.Context(), rowsOf("a2")) }()
		go func() { lonely <- g.write(hasty, rowsOf("b1")) }()
		if err := g.write(hasty, rows); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hasty write: %v", err)
		}
		if err := <-lonely; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lonely write: %v", err)
		}
		rows[0].ID = "a!" // the caller reuses its memory
		time.Sleep(10 * time.Second)
		before := s.attempts()
		down.Store(false)
		if err := <-patient; err != nil {
			t.Errorf("the write that shared a batch with one that gave up: %v", err)
		}
		if got := idsIn(s.batches); got != "a1 a2" && got != "a2 a1" {
			t.Errorf("batches %q, want the shared one as it was handed over, and not one that nobody waits for", got)
		}
		if before == 0 {
			t.Error("nothing was tried")
		}
		synctest.Wait() // the batch is released after its callers have returned
		if got := gauge(t, g.metrics.unacknowledged); got != 0 {
			t.Errorf("%v rows unacknowledged at the end", got)
		}
	})
}

// A server hangs for three minutes, and callers give up after five seconds and
// come again, as the pipeline does. The store holds no more than what they wait
// for, and afterwards every row is stored.
func TestRowsDoNotPileUpWhileTheServerStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var still atomic.Bool
		still.Store(true)
		s := &server{answer: func(ctx context.Context, _ int, _ int64) error {
			if still.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		g := testMerger(t, s, func(o *mergeOptions) { o.rows, o.concurrency = 200, 32 })
		const callers, each = 16, 100
		var wg sync.WaitGroup
		for c := range callers {
			rows := make([]push.Row, each)
			for i := range rows {
				rows[i] = rowsOf(fmt.Sprintf("%c-%d-%d", 'a'+i%20, c, i))[0] // 20 buckets
			}
			wg.Go(func() {
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					err := g.write(ctx, rows)
					cancel()
					if err == nil {
						return
					}
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					time.Sleep(time.Duration(c+1) * 100 * time.Millisecond)
				}
			})
		}
		most := 0.0
		for range 180 {
			time.Sleep(time.Second)
			most = max(most, gauge(t, g.metrics.unacknowledged))
		}
		// Somewhat more, for batches shared with callers that still wait, or in
		// flight while their callers come again. It does not grow with time.
		if most > 4*callers*each {
			t.Errorf("%v rows were held, the callers had %d", most, callers*each)
		}
		still.Store(false)
		wg.Wait()
		synctest.Wait()
		stored := map[string]bool{}
		for _, b := range s.batches {
			for _, r := range b {
				stored[r.ID] = true
			}
		}
		if len(stored) != callers*each {
			t.Errorf("%d rows are stored, %d were acknowledged", len(stored), callers*each)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if left := gauge(t, g.metrics.unacknowledged); left != 0 || len(g.open)+len(g.fresh)+len(g.failed)+len(g.ready) != 0 {
			t.Errorf("%v rows are left, %d batches open, %d resting, %d ready", left, len(g.open), len(g.fresh)+len(g.failed), len(g.ready))
		}
	})
}

// Some memory is kept for the next batches, but not that of a whole outage.
func TestMemoryOfBatchesIsKeptAndBounded(t *testing.T) {
	g := testMerger(t, &server{}, nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range 2 * freeBatches {
		g.release(new(batch))
		if want := min(i+1, freeBatches); len(g.free) != want {
			t.Fatalf("of %d batches %d are kept, want %d", i+1, len(g.free), want)
		}
	}
}
