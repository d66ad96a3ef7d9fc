package status

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/push"
)

// server is an executor that keeps the rows it is sent, and answers when the
// test lets it.
type server struct {
	answer func(ctx context.Context, n int, bucket int64) error // nil = ok; n counts from 1

	mu       sync.Mutex
	n        int
	busy     int
	busiest  int
	rows     int // in flight
	mostRows int
	batches  [][]push.Row // acknowledged, in the order of their acknowledgement
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

// decodeRows reads values as the server does: in the order of the statement.
func decodeRows(e *encodedRows) (rows []push.Row) {
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
	for i := 0; i < len(e.ends); i += e.perRow() {
		values := make([][]byte, e.perRow())
		for j := range values {
			values[j] = next(i + j)
		}
		if e.packed {
			said := wire{values[4]}
			values = slices.Concat(values[:4], [][]byte{said.long(), said.long(), said.long(), said.long(), said.long(), said.long()}, values[5:])
		}
		r := push.Row{ID: string(values[0]), Device: string(values[1]), ProviderID: string(values[6]), Reason: string(values[7])}
		r.Step = int16(binary.BigEndian.Uint16(values[2]))
		r.State = push.State(values[3][0])
		r.At = time.UnixMilli(int64(binary.BigEndian.Uint64(values[4])))
		if p := values[5]; p != nil {
			r.Platform = push.Platform(p[0])
		}
		r.UserHash = binary.BigEndian.Uint64(values[8])
		if p := values[9]; p != nil {
			r.Place = binary.BigEndian.Uint64(p)
		}
		if micros := int64(binary.BigEndian.Uint64(values[10])); micros/1000 != r.At.UnixMilli() {
			panic(fmt.Sprintf("write time %d us is not that of the row, %d ms", micros, r.At.UnixMilli()))
		}
		rows = append(rows, r)
	}
	return rows
}

// byFirstLetter puts ids with the same first letter into one bucket.
func byFirstLetter(id string) int64 { return int64(id[0]) }

func testMerger(t *testing.T, exec executor, change func(*mergeOptions)) *merger {
	t.Helper()
	opts := mergeOptions{
		rows: 5, bytes: 1 << 20, linger: 10 * time.Millisecond, lingering: 1 << 20, concurrency: 4, timeout: 5 * time.Second,
		backoff: push.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second},
	}
	if change != nil {
		change(&opts)
	}
	g := newMerger(opts, byFirstLetter, exec, newMetrics(), "cassandra host1 keyspace k", func() error { return nil })
	t.Cleanup(g.close)
	return g
}

func rowsOf(ids ...string) (rows []push.Row) {
	for _, id := range ids {
		rows = append(rows, push.Row{ID: id, Device: "dev", State: push.StateDelivered, At: time.UnixMilli(1_800_000_000_123)})
	}
	return rows
}

func idsIn(batches [][]push.Row) string {
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
		{"by bytes, to the last one", func(o *mergeOptions) { o.bytes = 64 }, []string{"a1", "a2", "a3", "a4"}, "a1 a2 | a3 a4"},
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

// Rows of an id that follow each other are in one batch, which may be larger for it, but not
// without a bound, and whatever parts a call is taken in.
func TestRowsOfAnIDStayTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		g := testMerger(t, s, nil)
		defer g.close()
		var rows []push.Row
		of := func(id string, n int) {
			for range n {
				rows = append(rows, rowsOf(id)...)
			}
		}
		for i := range 40 { // of one bucket, five rows of which are a batch
			of(fmt.Sprintf("a%02d", i), 1+i%4)
		}
		of("b-many", 200)
		if err := g.write(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		in := map[string]int{} // batches
		for _, batch := range s.batches {
			found := map[string]bool{}
			for _, r := range batch {
				found[r.ID] = true
			}
			for id := range found {
				in[id]++
			}
			if len(batch) > 5+together {
				t.Errorf("a batch of %d rows", len(batch))
			}
		}
		for id, n := range in {
			if id != "b-many" && n != 1 || id == "b-many" && (n < 3 || n > 8) {
				t.Errorf("%s is in %d batches", id, n)
			}
		}
		if len(in) != 41 {
			t.Errorf("%d ids", len(in))
		}
	})
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
		write("a1") // occupies the only worker
		slow.Store(false)
		write("b1") // its linger ends after 10 ms
		write("b2")
		write("b3")
		wg.Wait()
		if got := idsIn(s.batches); got != "a1 | b1 b2 b3" {
			t.Errorf("batches %q: rows that came while the store was slow did not share one", got)
		}
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

func TestCloseEndsWritesInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(ctx context.Context, _ int, _ int64) error {
			<-ctx.Done()
			time.Sleep(time.Second) // while the driver still works on the batch
			return ctx.Err()
		}}
		g := testMerger(t, s, nil)
		done := make(chan error, 2)
		go func() { done <- g.write(t.Context(), rowsOf("a1")) }() // in flight
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

// With many writers and a server that fails at random, and may have applied
// what it fails: every row of a Write that returned nil is stored, and no more
// attempts are in flight than allowed.
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
		g := testMerger(t, s, func(o *mergeOptions) { o.rows, o.concurrency, o.lingering = 20, 6, 50 })
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
		synctest.Wait() // abandoned rows may have been written nevertheless
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
		if len(g.open)+len(g.fresh)+len(g.failed)+len(g.ready)+g.flow.busy+g.lingering != 0 {
			t.Errorf("left over: %d open, %d resting, %d ready, %d under way, %d rows linger", len(g.open), len(g.fresh)+len(g.failed), len(g.ready), g.flow.busy, g.lingering)
		}
		if got := gauge(t, g.metrics.unacknowledged); got != 0 {
			t.Errorf("%v rows unacknowledged at the end", got)
		}
	})
}

// Of rows of an id as many as are promised are in one batch, also where a long call is cut, and
// behind however many others, and where rows are long.
func TestRowsOfAnIDStayTogetherAnywhere(t *testing.T) {
	long := strings.Repeat("x", 700)
	for _, tt := range []struct {
		why         string
		rows, bytes int
		word        string
		most        int // others before it
	}{
		{"short rows", 50, 48 << 10, "", 3 * push.Stretch},
		{"long rows", 200, 48 << 10, long, 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			g := testMerger(t, s, func(o *mergeOptions) { o.rows, o.bytes = tt.rows, tt.bytes })
			defer g.close()
			for others := range tt.most {
				s.batches = nil
				var rows []push.Row
				for i := range others {
					rows = append(rows, rowsOf(fmt.Sprintf("a%03d", i))...)
				}
				for i := range together + 10 { // the last ten are of another one
					rows = append(rows, rowsOf([]string{"a-one", "a-two"}[i/together])...)
				}
				for i := range rows {
					rows[i].ProviderID = tt.word
				}
				if err := g.write(t.Context(), rows); err != nil {
					t.Fatal(err)
				}
				in := map[string]int{}
				for _, batch := range s.batches {
					last := ""
					for _, r := range batch {
						if r.ID != last {
							in[r.ID]++
						}
						last = r.ID
					}
				}
				if in["a-one"] != 1 || in["a-two"] != 1 {
					t.Fatalf("%s behind %d others: %d rows of an id are in %d batches, the ten after them in %d", tt.why, others, together, in["a-one"], in["a-two"])
				}
			}
		})
	}
}
