package status

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
)

func TestFlowHalvesOncePerOverload(t *testing.T) {
	f := newFlow(16)
	var marks []int
	for range 16 {
		marks = append(marks, f.start(fullWeight))
	}
	if f.fits(1) {
		t.Error("16 of 16 under way, and one more fits")
	}
	for _, m := range marks {
		f.end(fullWeight, m, overloaded)
	}
	if f.limit != 8*fullWeight || f.busy != 0 {
		t.Errorf("limit %d, busy %d after one overload of 16 batches, want 8 batches and 0", f.limit, f.busy)
	}
	for range 10 {
		f.end(1, f.start(1), timedOut)
	}
	if f.limit != 1 || !f.fits(fullWeight) {
		t.Errorf("limit %d after ten overloads in a row, want 1, and room for one batch all the same", f.limit)
	}
	for range 1000 {
		f.end(fullWeight, f.start(fullWeight), unconnected)
	}
	if f.limit != 1 {
		t.Errorf("limit %d: lost connections are no successes", f.limit)
	}
	steps := []int{f.limit}
	for range 1000 {
		f.end(fullWeight, f.start(fullWeight), noFailure)
		if f.limit != steps[len(steps)-1] {
			steps = append(steps, f.limit)
		}
	}
	if f.limit != 16*fullWeight || len(steps) != 17 {
		t.Errorf("limit %d in steps %v, want back at 16 batches by single ones", f.limit, steps)
	}
	f.end(fullWeight, f.start(fullWeight), overloaded)
	for i := range 8 { // as many as there is room for, and not one less
		if f.limit != 8*fullWeight {
			t.Errorf("limit %d after %d successes of 8", f.limit, i)
		}
		f.end(fullWeight, f.start(fullWeight), noFailure)
	}
	if f.limit != 9*fullWeight {
		t.Errorf("limit %d after 8 successes of 8, want one more", f.limit)
	}
	f = newFlow(4)
	for range 3 {
		f.end(fullWeight, f.start(fullWeight), noFailure)
	}
	f.end(fullWeight, f.start(fullWeight), overloaded)
	if f.end(fullWeight, f.start(fullWeight), noFailure); f.limit != 2*fullWeight {
		t.Errorf("limit %d: what succeeded before an overload counts after it", f.limit)
	}
	f = newFlow(16)
	f.end(1, f.start(1), unconnected)
	if f.limit != 16*fullWeight {
		t.Errorf("limit %d: a lost connection is no overload", f.limit)
	}
}

func TestConcurrencyIsBoundedAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tooMuch atomic.Bool
		s := &server{answer: func(context.Context, int, int64) error {
			time.Sleep(10 * time.Millisecond)
			if tooMuch.Load() {
				return frame{gocql.ErrCodeOverloaded, "overloaded"}
			}
			return nil
		}}
		g := testMerger(t, s, func(o *mergeOptions) { o.concurrency = 8; o.rows = 1 })
		writeMany := func() {
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					if err := g.write(t.Context(), rowsOf(fmt.Sprint(i%10, "-", i))); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		if shown := gauge(t, g.metrics.concurrency); shown != 8 {
			t.Errorf("%v batches at once are shown before the first, want 8", shown)
		}
		writeMany()
		if shown := gauge(t, g.metrics.concurrency); s.busiest != 8 || shown != 8 {
			t.Errorf("%d batches at once, %v are shown, want 8", s.busiest, shown)
		}
		tooMuch.Store(true)
		go func() { time.Sleep(500 * time.Millisecond); tooMuch.Store(false) }()
		writeMany()
		synctest.Wait()
		if got := len(s.batches); got != 400 {
			t.Errorf("%d batches acknowledged, want 400", got)
		}
		writeMany()
		if g.flow.limit != 8*fullWeight {
			t.Errorf("limit is %d after 200 successes, want 8 batches again", g.flow.limit)
		}
	})
}

// Ids that are not UUIDv7 have a partition each, so a group of them is as many
// inserts, and takes far longer than the timeout of one. Each row is sent once,
// in the time that the store needs for it, even if some are not acknowledged.
func TestManyPartitionsGoAtTheStoresSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows, lost = 10_000, 100
		s := &server{answer: func(ctx context.Context, n int, _ int64) error {
			if n%lost == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(20 * time.Millisecond)
			return nil
		}}
		g := testMerger(t, s, func(o *mergeOptions) { o.timeout = time.Second })
		g.bucket = DefaultLayouts().Bucket
		ids := make([]string, rows)
		for i := range ids {
			ids[i] = fmt.Sprint("campaign-", i)
		}
		start := time.Now()
		if err := g.write(t.Context(), rowsOf(ids...)); err != nil {
			t.Fatal(err)
		}
		// At least one place, and a timeout for each lost row.
		if took, most := time.Since(start), rows*20*time.Millisecond+2*rows/lost*time.Second; took > most {
			t.Errorf("took %v, want at most %v", took, most)
		}
		if n := s.attempts(); n > rows+2*rows/lost {
			t.Errorf("%d inserts for %d rows of which one in %d was not acknowledged", n, rows, lost)
		}
		if len(s.batches) != rows {
			t.Errorf("%d inserts were acknowledged for %d rows", len(s.batches), rows)
		}
	})
}

// Batches of one row cost the server little, and if each row has its own
// partition there are no others. So as many are in flight as equal the full
// ones.
func TestSmallBatchesDoNotLeaveTheStoreIdle(t *testing.T) {
	for _, tt := range []struct {
		why           string
		rows, busiest int
	}{
		{"full at one row", 1, 4},
		{"a quarter full", 4, 16},
		{"nearly empty", 200, 32},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{answer: func(context.Context, int, int64) error { time.Sleep(20 * time.Millisecond); return nil }}
			g := testMerger(t, s, func(o *mergeOptions) { o.concurrency, o.rows = 4, tt.rows })
			g.bucket = DefaultLayouts().Bucket
			ids := make([]string, 1000)
			for i := range ids {
				ids[i] = fmt.Sprint("campaign-", i)
			}
			start := time.Now()
			if err := g.write(t.Context(), rowsOf(ids...)); err != nil {
				t.Fatal(err)
			}
			rounds := (len(ids) + tt.busiest - 1) / tt.busiest
			if took, most := time.Since(start), 10*time.Millisecond+time.Duration(rounds)*20*time.Millisecond; s.busiest != tt.busiest || took > most {
				t.Errorf("%s: %d at once, took %v; want %d and at most %v", tt.why, s.busiest, took, tt.busiest, most)
			}
		})
	}
}

// The place of a full batch has room for eight small ones, which have waited
// and all go when it ends.
func TestSmallBatchesGoTogetherWhenAFullOneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(context.Context, int, int64) error { time.Sleep(time.Second); return nil }}
		g := testMerger(t, s, func(o *mergeOptions) { o.concurrency, o.rows = 1, 8 })
		var wg sync.WaitGroup
		write := func(ids ...string) {
			wg.Go(func() {
				if err := g.write(t.Context(), rowsOf(ids...)); err != nil {
					t.Error(err)
				}
			})
		}
		start := time.Now()
		write("a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8")
		synctest.Wait()
		for _, id := range []string{"b", "c", "d", "e", "f", "g", "h", "i"} {
			write(id)
		}
		wg.Wait()
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %v, want two rounds of a second", took)
		}
	})
}
