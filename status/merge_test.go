package status

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/pipeline"
)

// server is an executor that keeps what it is sent, and says when it pleases.
type server struct {
	answer func(ctx context.Context, n int, bucket int64) error // nil = ok; n counts from 1

	mu       sync.Mutex
	n        int
	busy     int
	busiest  int
	rows     int // under way
	mostRows int
	batches  [][]pipeline.Row // acknowledged, in order of their acknowledgement
}

func (s *server) insert(ctx context.Context, bucket int64, rows *encodedRows) error {
	s.mu.Lock()
	s.n++
	n := s.n
	s.busy++
	s.busiest = max(s.busiest, s.busy)
	s.rows += rows.len()
	s.mostRows = max(s.mostRows, s.rows)
	s.mu.Unlock()
	var err error
	if s.answer != nil {
		err = s.answer(ctx, n, bucket)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.rows -= rows.len()
	if err == nil {
		s.batches = append(s.batches, decodeRows(rows))
	}
	return err
}

func (s *server) attempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// decodeRows reads values as the server does: by the order of the statement.
func decodeRows(e *encodedRows) (rows []pipeline.Row) {
	start := int32(0)
	next := func(i int) []byte {
		end := e.ends[i]
		if end < 0 {
			start = ^end
			return nil
		}
		v := e.data[start:end]
		start = end
		return v
	}
	for i := 0; i < len(e.ends); i += valuesPerRow {
		r := pipeline.Row{ID: string(next(i)), Device: string(next(i + 1))}
		r.Step = int16(binary.BigEndian.Uint16(next(i + 2)))
		r.State = pipeline.State(next(i + 3)[0])
		r.At = time.UnixMilli(int64(binary.BigEndian.Uint64(next(i + 4))))
		if p := next(i + 5); p != nil {
			r.Platform = pipeline.Platform(p[0])
		}
		r.ProviderID, r.Reason = string(next(i+6)), string(next(i+7))
		r.UserHash = binary.BigEndian.Uint64(next(i + 8))
		if micros := int64(binary.BigEndian.Uint64(next(i + 9))); micros/1000 != r.At.UnixMilli() {
			panic(fmt.Sprintf("write time %d us is not that of the row, %d ms", micros, r.At.UnixMilli()))
		}
		rows = append(rows, r)
	}
	return rows
}

// byFirstLetter puts ids of one first letter into one bucket.
func byFirstLetter(id string) int64 { return int64(id[0]) }

func testMerger(t *testing.T, exec executor, change func(*mergeOptions)) *merger {
	t.Helper()
	opts := mergeOptions{
		rows: 5, bytes: 1 << 20, linger: 10 * time.Millisecond, concurrency: 4, timeout: 5 * time.Second,
		backoffMin: 50 * time.Millisecond, backoffMax: 2 * time.Second,
	}
	if change != nil {
		change(&opts)
	}
	g := newMerger(opts, byFirstLetter, exec, newMetrics(), "cassandra host1 keyspace k", func() error { return nil })
	t.Cleanup(g.close)
	return g
}

func rowsOf(ids ...string) (rows []pipeline.Row) {
	for _, id := range ids {
		rows = append(rows, pipeline.Row{ID: id, Device: "dev", State: pipeline.StateDelivered, At: time.UnixMilli(1_800_000_000_123)})
	}
	return rows
}

func idsIn(batches [][]pipeline.Row) string {
	var b strings.Builder
	for i, batch := range batches {
		if i > 0 {
			b.WriteString(" | ")
		}
		for j, r := range batch {
			if j > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(r.ID)
		}
	}
	return b.String()
}

func TestRowsOfConcurrentWritesAreMergedByBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		g := testMerger(t, s, nil)
		start := time.Now()
		var wg sync.WaitGroup
		for _, ids := range [][]string{{"a1", "b1"}, {"a2"}, {"b2", "a3"}} {
			wg.Go(func() {
				if err := g.write(t.Context(), rowsOf(ids...)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // one after the other, so that the order is known
		}
		wg.Wait()
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("took %v, want the linger of 10 ms", took)
		}
		got := idsIn(s.batches)
		if got != "a1 a2 a3 | b1 b2" && got != "b1 b2 | a1 a2 a3" {
			t.Errorf("batches %q, want one for each bucket", got)
		}
	})
}

func TestFullBatchDoesNotLinger(t *testing.T) {
	for _, tt := range []struct {
		why    string
		change func(*mergeOptions)
		ids    []string
		want   string
	}{
		{"by rows", func(o *mergeOptions) { o.rows = 3 }, []string{"a1", "a2", "a3", "a4", "a5", "a6"}, "a1 a2 a3 | a4 a5 a6"},
		{"by bytes: a row has 32", func(o *mergeOptions) { o.bytes = 60 }, []string{"a1", "a2", "a3", "a4"}, "a1 a2 | a3 a4"},
		{"a row that is too long alone still goes", func(o *mergeOptions) { o.bytes = 1 }, []string{"a1", "a2"}, "a1 | a2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			g := testMerger(t, s, func(o *mergeOptions) { tt.change(o); o.concurrency = 1 })
			start := time.Now()
			if err := g.write(t.Context(), rowsOf(tt.ids...)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("%s: full batches waited %v", tt.why, took)
			}
			if got := idsIn(s.batches); got != tt.want {
				t.Errorf("%s: batches %q, want %q", tt.why, got, tt.want)
			}
		})
	}
}

func TestWriteReturnsOnlyWhenEveryRowIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := map[int64]chan struct{}{'a': make(chan struct{}), 'b': make(chan struct{})}
		s := &server{answer: func(_ context.Context, _ int, bucket int64) error { <-release[bucket]; return nil }}
		g := testMerger(t, s, nil)
		done := make(chan error, 1)
		go func() { done <- g.write(t.Context(), rowsOf("a1", "b1")) }()
		time.Sleep(time.Second)
		close(release['a'])
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("returned %v with one of two batches acknowledged", err)
		default:
		}
		close(release['b'])
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// frame is an error answer of a server.
type frame struct {
	code int
	text string
}

func (f frame) Code() int       { return f.code }
func (f frame) Message() string { return f.text }
func (f frame) Error() string   { return f.text }

// T-26: each of these means "not yet durable", is tried again until it is
// acknowledged, and is never taken for a success; those that speak of too much
// work, or of replicas away, halve the batches under way.
func TestEveryFailureIsTriedAgain(t *testing.T) {
	for _, tt := range []struct {
		err   error
		class failure
		halve bool
	}{
		{frame{gocql.ErrCodeWriteTimeout, "received only 0 of 2"}, timedOut, true},
		{frame{gocql.ErrCodeReadTimeout, "received only 1 of 2"}, timedOut, true},
		{gocql.ErrTimeoutNoResponse, timedOut, true},
		{context.DeadlineExceeded, timedOut, true},
		{gocql.ErrNoStreams, timedOut, true},
		{frame{gocql.ErrCodeOverloaded, "too many requests"}, overloaded, true},
		{frame{gocql.ErrCodeUnavailable, "2 required but only 1 alive"}, unavailable, true},
		{frame{gocql.ErrCodeBootstrapping, "joining"}, unavailable, true},
		{frame{gocql.ErrCodeWriteFailure, "1 failed"}, unavailable, true},
		{gocql.ErrNoConnections, unconnected, false},
		{gocql.ErrConnectionClosed, unconnected, false},
		{gocql.ErrSessionClosed, unconnected, false},
		{fmt.Errorf("write tcp: %w", errors.ErrUnsupported), refused, false},
		{frame{gocql.ErrCodeUnauthorized, "no MODIFY"}, refused, false},
		{frame{gocql.ErrCodeInvalid, "unconfigured table"}, refused, false},
		{frame{gocql.ErrCodeServer, "internal"}, refused, false},
	} {
		t.Run(tt.err.Error(), func(t *testing.T) {
			if got := classify(tt.err); got != tt.class {
				t.Errorf("classify = %v, want %v", got, tt.class)
			}
			synctest.Test(t, func(t *testing.T) {
				s := &server{answer: func(_ context.Context, n int, _ int64) error {
					if n <= 3 {
						return tt.err
					}
					return nil
				}}
				g := testMerger(t, s, func(o *mergeOptions) { o.concurrency = 8 })
				start := time.Now()
				if err := g.write(t.Context(), rowsOf("a1", "a2")); err != nil {
					t.Fatal(err)
				}
				if got := idsIn(s.batches); got != "a1 a2" || s.attempts() != 4 {
					t.Errorf("acknowledged %q after %d attempts, want all rows after 4", got, s.attempts())
				}
				if took := time.Since(start); took < 10*time.Millisecond+(25+50+100)*time.Millisecond {
					t.Errorf("three attempts failed within %v: no back-off", took)
				}
				if got := g.flow.limit < g.flow.most; got != tt.halve {
					t.Errorf("limit is %d of %d, lowered should be %v", g.flow.limit, g.flow.most, tt.halve)
				}
			})
		})
	}
}

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

// Rows that are acknowledged as their caller's time ends are acknowledged.
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

// Some memory is kept for the batches to come, and not that of a whole outage.
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

func TestBucketThatIsDownHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s := &server{answer: func(_ context.Context, _ int, bucket int64) error {
			if bucket == 'a' && down.Load() {
				return frame{gocql.ErrCodeUnavailable, "down"}
			}
			return nil
		}}
		g := testMerger(t, s, func(o *mergeOptions) { o.concurrency = 2 })
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if err := g.write(t.Context(), rowsOf(fmt.Sprint("a", i))); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(20 * time.Millisecond) // each its own batch
		}
		start := time.Now()
		if err := g.write(t.Context(), rowsOf("b1")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("a healthy bucket waited %v behind one that is down", took)
		}
		down.Store(false)
		wg.Wait()
		if got := len(s.batches); got != 11 {
			t.Errorf("%d batches acknowledged, want all 11", got)
		}
	})
}

func TestReadyBatchTakesMoreRowsUntilAWorkerComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		slow.Store(true)
		s := &server{answer: func(context.Context, int, int64) error {
			if slow.Load() {
				time.Sleep(time.Second)
			}
			return nil
		}}
		g := testMerger(t, s, func(o *mergeOptions) { o.concurrency = 1; o.rows = 100 })
		g.flow = flow{most: 1, limit: 1} // of single batches
		var wg sync.WaitGroup
		write := func(id string) {
			wg.Go(func() {
				if err := g.write(t.Context(), rowsOf(id)); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
		write("a1") // occupies the one worker
		slow.Store(false)
		write("b1") // its linger is over after 10 ms
		write("b2")
		write("b3")
		wg.Wait()
		if got := idsIn(s.batches); got != "a1 | b1 b2 b3" {
			t.Errorf("batches %q: rows that came while the store was slow did not share one", got)
		}
	})
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
		rows[0].ID = "a!" // the caller uses its memory again
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
		if got := gauge(t, g.metrics.unacknowledged); got != 0 {
			t.Errorf("%v rows unacknowledged at the end", got)
		}
	})
}

// A server that stands still for three minutes, and callers that give up after
// five seconds and come again, as the pipeline does: what is held stays what
// they wait for, and afterwards each row is there.
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
			rows := make([]pipeline.Row, each)
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
		// Some more, for batches that are shared with those who still wait, or
		// under way, while their callers come again; it does not grow with time.
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
		if left := gauge(t, g.metrics.unacknowledged); left != 0 || len(g.open)+len(g.timers)+len(g.ready)-g.head != 0 {
			t.Errorf("%v rows are left, %d batches open, %d resting, %d ready", left, len(g.open), len(g.timers), len(g.ready)-g.head)
		}
	})
}

// Ids that are no UUIDv7 have a partition each, so a group of them is as many
// inserts, and takes far longer than the time-out of one. Each goes once, in
// the time that the store needs for it, also where some are not acknowledged.
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
		// One place at the least, and a time-out for each row that was lost.
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

func TestCloseEndsWritesInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(ctx context.Context, _ int, _ int64) error {
			<-ctx.Done()
			time.Sleep(time.Second) // what the driver still does with the batch
			return ctx.Err()
		}}
		g := testMerger(t, s, nil)
		done := make(chan error, 2)
		go func() { done <- g.write(t.Context(), rowsOf("a1")) }() // under way
		time.Sleep(time.Second)
		go func() { done <- g.write(t.Context(), rowsOf("b1")) }() // lingering
		synctest.Wait()
		g.close()
		s.mu.Lock()
		if s.n == 0 || s.busy > 0 {
			t.Errorf("%d batches were sent, %d are under way after the end", s.n, s.busy)
		}
		s.mu.Unlock()
		for range 2 {
			if err := <-done; !errors.Is(err, ErrClosed) {
				t.Errorf("write in progress at close: %v, want ErrClosed", err)
			}
		}
		if err := g.write(t.Context(), rowsOf("c1")); !errors.Is(err, ErrClosed) {
			t.Errorf("write after close: %v, want ErrClosed", err)
		}
		g.close() // may be called twice
	})
}

func TestWriteOfNothingAndWithAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		g := testMerger(t, s, nil)
		if err := g.write(t.Context(), nil); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("worker stops"))
		if err := g.write(ctx, rowsOf("a1")); !errors.Is(err, context.Canceled) {
			t.Errorf("write with an ended context: %v", err)
		}
		if n := s.attempts(); n != 0 {
			t.Errorf("%d batches sent", n)
		}
	})
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
		writeMany()
		if s.busiest != 8 {
			t.Errorf("%d batches at once, want 8", s.busiest)
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

// Batches of one row cost the server little, and where each row has a partition
// of its own there are no others: as many as come to the full ones are under way.
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

// The place of a full batch is room for eight small ones, which have waited and
// all go when it ends.
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
	f.end(1, f.start(1), unconnected)
	if f.limit != 16*fullWeight {
		t.Errorf("limit %d: a lost connection is no overload", f.limit)
	}
}

// Many writers, a server that fails at random and may have applied what it
// fails: every row of a Write that returned nil is there, and no more attempts
// are under way than allowed.
func TestWhatIsAcknowledgedIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 7))
		var mu sync.Mutex
		random := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
		failures := []error{gocql.ErrTimeoutNoResponse, gocql.ErrNoConnections, frame{gocql.ErrCodeOverloaded, ""}, frame{gocql.ErrCodeUnavailable, ""}}
		s := &server{answer: func(context.Context, int, int64) error {
			time.Sleep(time.Duration(random(5000)) * time.Microsecond)
			if random(3) == 0 {
				return failures[random(len(failures))]
			}
			return nil
		}}
		g := testMerger(t, s, func(o *mergeOptions) { o.rows = 20; o.concurrency = 6 })
		acknowledged := make(map[string]bool)
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 50 {
					var ids []string
					for j := range 1 + random(40) {
						ids = append(ids, fmt.Sprintf("%c-%d-%d-%d", 'a'+rune(random(8)), w, i, j))
					}
					most := time.Duration(20+random(500)) * time.Millisecond
					ctx, cancel := context.WithTimeout(t.Context(), most)
					begin := time.Now()
					err := g.write(ctx, rowsOf(ids...))
					if took := time.Since(begin); took > most {
						t.Errorf("took %v, its context lasts %v", took, most)
					}
					if err == nil {
						mu.Lock()
						for _, id := range ids {
							acknowledged[id] = true
						}
						mu.Unlock()
					}
					cancel()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		synctest.Wait() // what was given up may have gone all the same
		stored := make(map[string]bool)
		for _, b := range s.batches {
			for _, r := range b {
				stored[r.ID] = true
				if len(b) > 20 {
					t.Fatalf("a batch of %d rows", len(b))
				}
				if r.ID[0] != b[0].ID[0] {
					t.Fatalf("rows of two buckets in one batch: %s and %s", r.ID, b[0].ID)
				}
			}
		}
		for id := range acknowledged {
			if !stored[id] {
				t.Errorf("%s was acknowledged and is not stored", id)
			}
		}
		if len(acknowledged) < 1000 || s.mostRows > 6*20 || s.busiest > 6*fullWeight {
			t.Errorf("%d rows acknowledged, %d batches with %d rows at once", len(acknowledged), s.busiest, s.mostRows)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.open)+len(g.timers)+len(g.ready)+g.flow.busy != 0 {
			t.Errorf("left over: %d open, %d resting, %d ready, %d under way", len(g.open), len(g.timers), len(g.ready), g.flow.busy)
		}
		if got := gauge(t, g.metrics.unacknowledged); got != 0 {
			t.Errorf("%v rows unacknowledged at the end", got)
		}
	})
}
