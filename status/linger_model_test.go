package status

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// checkLingering compares the counter with the batches themselves. Called with g.mu held.
func checkLingering(t *testing.T, g *merger, where string) (rows int) {
	t.Helper()
	free := make(map[*batch]bool, len(g.free))
	for _, b := range g.free {
		if free[b] {
			t.Errorf("%s: a batch is free twice", where)
		}
		free[b] = true
	}
	for _, h := range []dueHeap{g.fresh, g.failed} {
		for i, b := range h {
			if b.index != i {
				t.Errorf("%s: the batch at %d of its timers says it is at %d", where, i, b.index)
			}
			if i > 0 && b.due.Before(h[(i-1)/2].due) {
				t.Errorf("%s: the batch at %d of its timers is due before its parent", where, i)
			}
			if free[b] || b.rows.len() == 0 {
				t.Errorf("%s: a batch in timers is free (%v) or empty", where, free[b])
			}
		}
	}
	for _, b := range g.fresh {
		rows += b.rows.len()
		if b.attempts != 0 || g.open[b.bucket] != b {
			t.Errorf("%s: a batch of %d attempts lingers, or takes no rows", where, b.attempts)
		}
	}
	for _, b := range g.failed {
		if b.attempts == 0 || g.open[b.bucket] == b {
			t.Errorf("%s: a batch of %d attempts is in its back-off, or takes rows", where, b.attempts)
		}
	}
	for _, b := range g.ready {
		if b.index != -1 || free[b] {
			t.Errorf("%s: a ready batch is at %d of timers, free %v", where, b.index, free[b])
		}
	}
	for k, b := range g.open {
		if b.bucket != k || free[b] || b.attempts != 0 {
			t.Errorf("%s: open batch of %d: bucket %d, free %v, %d attempts", where, k, b.bucket, free[b], b.attempts)
		}
	}
	if rows != g.lingering {
		t.Errorf("%s: %d rows linger, and %d are counted", where, rows, g.lingering)
	}
	return rows
}

// Whatever happens, the counter is that of the batches, nobody's rows are missing, and
// nothing is left at the end.
func TestTheCountOfLingeringRows(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			var rmu sync.Mutex
			random := func(n int) int { rmu.Lock(); defer rmu.Unlock(); return r.IntN(n) }
			var down atomic.Int64 // bucket that fails; 0 none; -1 all
			s := &server{answer: func(ctx context.Context, _ int, bucket int64) error {
				if n := random(4); n > 0 {
					select {
					case <-time.After(time.Duration(n*random(30)) * time.Millisecond):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				if d := down.Load(); d == -1 || d == bucket || random(20) == 0 {
					return errors.New("not now")
				}
				return nil
			}}
			limit := []int{0, 1, 3, 20, 1 << 20}[random(5)]
			g := testMerger(t, s, func(o *mergeOptions) {
				o.rows, o.concurrency, o.lingering = 1+random(8), 1+random(3), limit
				o.bytes = []int{1, 150, 1000, 1 << 20}[random(4)]
				o.linger = []time.Duration{0, time.Millisecond, 9 * time.Millisecond, 50 * time.Millisecond, time.Second}[random(5)]
				o.backoff = push.Backoff{First: 5 * time.Millisecond, Longest: 80 * time.Millisecond}
				o.timeout = 60 * time.Millisecond
			})
			var mu sync.Mutex
			acknowledged := map[string]bool{}
			var wg sync.WaitGroup
			id := 0
			for op := range 150 {
				switch random(10) {
				case 0:
					down.Store([]int64{0, 0, -1, 'a', 'b'}[random(5)])
				case 1, 2, 3, 4, 5, 6:
					n := 1 + random(7)
					if random(20) == 0 {
						n = push.Stretch + random(40)
					}
					var ids []string
					for range n {
						ids = append(ids, fmt.Sprintf("%c%d", 'a'+random(8), id))
						id++
					}
					rows, prompt := rowsOf(ids...), random(6) == 0
					within := time.Hour
					if random(3) == 0 {
						within = time.Duration(random(80)) * time.Millisecond
					}
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), within)
						defer cancel()
						start := time.Now()
						err := g.add(ctx, rows, prompt)
						if took := time.Since(start); took > within {
							t.Errorf("seed %d: a write took %v of %v", seed, took, within)
						}
						if err == nil {
							mu.Lock()
							defer mu.Unlock()
							for _, id := range ids {
								acknowledged[id] = true
							}
						}
					})
				default:
					time.Sleep(time.Duration(random(30)) * time.Millisecond)
				}
				if random(2) == 0 {
					synctest.Wait()
				}
				g.mu.Lock()
				checkLingering(t, g, fmt.Sprintf("seed %d, operation %d", seed, op))
				g.mu.Unlock()
			}
			down.Store(0)
			wg.Wait()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			g.mu.Lock()
			checkLingering(t, g, "end")
			if n := len(g.open) + len(g.fresh) + len(g.failed) + len(g.ready) + g.flow.busy + g.lingering; n != 0 {
				t.Errorf("seed %d: left over: %d open, %d in timers, %d ready, %d busy, %d linger", seed, len(g.open), len(g.fresh)+len(g.failed), len(g.ready), g.flow.busy, g.lingering)
			}
			g.mu.Unlock()
			stored := map[string]bool{}
			for _, b := range s.batches {
				for _, r := range b {
					stored[r.ID] = true
				}
			}
			for id := range acknowledged {
				if !stored[id] {
					t.Errorf("seed %d: %s is acknowledged and not stored", seed, id)
				}
			}
			if left := gauge(t, g.metrics.unacknowledged); left != 0 {
				t.Errorf("seed %d: %v rows unacknowledged at the end", seed, left)
			}
		})
	}
}

// One bucket is down, its batches come back from their back-off one after the other.
// The rows of healthy buckets must linger no more than the bound says.
func TestTheBoundHoldsWhileABucketIsDown(t *testing.T) {
	for _, down := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{answer: func(_ context.Context, _ int, bucket int64) error {
				if down && bucket == 'z' {
					return errors.New("replicas are down")
				}
				return nil
			}}
			const bound, perMS = 10, 4
			g := testMerger(t, s, func(o *mergeOptions) {
				o.linger, o.lingering, o.rows = 50*time.Millisecond, bound, 50
				o.backoff = push.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second} // as OpenCassandra has it
			})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			write := func(ids ...string) {
				wg.Go(func() { _ = g.write(ctx, rowsOf(ids...)) })
			}
			for i := range 400 { // full batches of the bucket that is down, so that they rest at different times
				ids := make([]string, 50)
				for j := range ids {
					ids[j] = fmt.Sprintf("z%d-%d", i, j)
				}
				write(ids...)
				time.Sleep(5 * time.Millisecond)
			}
			most, sum := 0, 0
			for i := range 500 {
				for j := range perMS {
					write(fmt.Sprintf("%c%d", 'A'+(i*perMS+j)%50, i)) // 50 healthy buckets
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				g.mu.Lock()
				rows := checkLingering(t, g, "")
				g.mu.Unlock()
				most, sum = max(most, rows), sum+rows
			}
			cancel()
			wg.Wait()
			t.Logf("a bucket is down %v: at most %d rows linger, %d on average; the bound is %d", down, most, sum/500, bound)
			if most > bound {
				t.Errorf("a bucket is down %v: %d rows linger, want at most %d", down, most, bound)
			}
		})
	}
}

// closedLoop is how many rows a second so many deliveries write, each in a bucket of its own,
// if each is sent again (which takes as long as pushed says) when its row is durable: a window of the
// pipeline, which has send.in_flight + status.unacknowledged places.
func closedLoop(t *testing.T, window int, pushed, latency time.Duration, change func(*mergeOptions)) (perSecond int) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(context.Context, int, int64) error { time.Sleep(latency); return nil }}
		g := testMerger(t, s, func(o *mergeOptions) { o.concurrency = 512; change(o) })
		g.bucket = func(id string) int64 { n, _ := strconv.ParseInt(id, 10, 64); return n }
		var n atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range window {
			wg.Go(func() {
				rows := rowsOf(strconv.Itoa(i))
				time.Sleep(time.Duration(i%50) * time.Millisecond)
				for g.write(ctx, rows) == nil {
					n.Add(1)
					time.Sleep(pushed)
				}
			})
		}
		wg.Wait()
		perSecond = int(n.Load())
	})
	return perSecond
}

// A route's window full of deliveries is not much slower than with a constant linger of
// 10 ms, also where lingering brings nothing: each row has a bucket of its own. Of the default window two
// fifteenths may linger.
func TestLingeringTakesNoThroughput(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		inFlight, rows, unacknowledged int // the configuration
		pushed, latency                time.Duration
	}{
		{1000, 20, 500, 50 * ms, 5 * ms},   // the default's, a tenth of it each
		{1000, 20, 500, 50 * ms, 100 * ms}, // at a slow store
		{1000, 20, 500, 5 * ms, 30 * ms},   // at a fast provider
		{500, 200, 250, 50 * ms, 5 * ms},   // bench/fleet's
		{100, 200, 200, 50 * ms, 5 * ms},   // the least that a configuration may have unacknowledged
		{10, 200, 200, 5 * ms, 5 * ms},
	} {
		lingering := (2*tt.unacknowledged + 4) / 5 // as wiring has it
		window := tt.inFlight + tt.unacknowledged
		before := closedLoop(t, window, tt.pushed, tt.latency, func(o *mergeOptions) { o.rows, o.linger = tt.rows, 10*ms })
		now := closedLoop(t, window, tt.pushed, tt.latency, func(o *mergeOptions) { o.rows, o.linger, o.lingering = tt.rows, 50*ms, lingering })
		t.Logf("%+v: %d/s before, %d/s now", tt, before, now)
		if now < before*85/100 {
			t.Errorf("%+v: %d rows/s, %d with a linger of 10 ms", tt, now, before)
		}
	}
}

// An intent goes 10 ms after it came, whatever else happens to its batch.
func TestIntentsAreNeverLate(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := &server{}
			g := testMerger(t, s, func(o *mergeOptions) {
				o.linger, o.rows, o.concurrency = 50*time.Millisecond, 2+r.IntN(10), 32
				o.lingering = []int{2, 10, 1 << 20}[r.IntN(3)]
			})
			var wg sync.WaitGroup
			for i := range 300 {
				rows := rowsOf(fmt.Sprintf("%c%d", 'a'+r.IntN(12), i))
				intent := r.IntN(3) == 0
				limit, within := 50*time.Millisecond, time.Hour
				if intent {
					limit = promptly
				} else if r.IntN(3) == 0 {
					within = time.Duration(r.IntN(40)) * time.Millisecond // gives up while it lingers: sweep
				}
				at := time.Duration(r.IntN(400_000)) * time.Microsecond
				wg.Go(func() {
					time.Sleep(at)
					ctx, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					start := time.Now()
					err := g.add(ctx, rows, intent)
					if took := time.Since(start); err == nil && took > limit {
						t.Errorf("seed %d: intent %v took %v, want %v at most", seed, intent, took, limit)
					}
				})
			}
			wg.Wait()
		})
	}
}

// A close while rows linger ends all writes at once.
func TestCloseWhileLingering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testMerger(t, &server{}, func(o *mergeOptions) { o.linger = time.Second })
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if err := g.write(t.Context(), rowsOf(fmt.Sprintf("%c", 'a'+i))); !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		g.close()
		wg.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("closed after %v", took)
		}
	})
}

// Without a bubble, for the race detector.
func TestLingeringInRealTime(t *testing.T) {
	var n atomic.Int64
	s := &server{answer: func(context.Context, int, int64) error {
		if n.Add(1)%7 == 0 {
			return errors.New("not now")
		}
		return nil
	}}
	g := testMerger(t, s, func(o *mergeOptions) {
		o.linger, o.lingering, o.concurrency = 5*time.Millisecond, 10, 2
		o.backoff = push.Backoff{First: time.Millisecond, Longest: 3 * time.Millisecond}
	})
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(w*i)%9)*time.Millisecond)
				rows := rowsOf(fmt.Sprintf("%c%d-%d", 'a'+(w+i)%9, w, i), fmt.Sprintf("%c%d-%d", 'a'+(w*i)%9, w, i))
				_ = g.add(ctx, rows, i%3 == 0)
				cancel()
				g.mu.Lock()
				checkLingering(t, g, "race")
				g.mu.Unlock()
			}
		})
	}
	wg.Wait()
}
