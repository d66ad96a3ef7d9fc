package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Callers that give up take only their own batches with them. Those that rest
// go on resting until they are full or due, and those that are ready go when it
// is their turn.
func TestSweepLeavesWhatIsWanted(t *testing.T) {
	for _, ready := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{answer: func(context.Context, int, int64) error { time.Sleep(10 * time.Second); return nil }}
			g := testMerger(t, s, func(o *mergeOptions) {
				o.rows, o.concurrency, o.timeout, o.linger = 3, 1, time.Minute, 5*time.Second
				if ready {
					o.linger = time.Millisecond
				}
			})
			hasty, giveUp := context.WithCancel(t.Context())
			patient, end := context.WithTimeout(t.Context(), time.Hour)
			defer end()
			var wg sync.WaitGroup
			write := func(ctx context.Context, ids ...string) {
				wg.Go(func() {
					if err := g.write(ctx, rowsOf(ids...)); (err == nil) == (ctx == hasty) {
						t.Errorf("%q: %v", ids, err)
					}
				})
				time.Sleep(100 * time.Millisecond)
			}
			write(patient, "x1", "x2", "x3") // keeps the store busy
			for _, bucket := range []string{"a", "b", "c", "d", "e"} {
				write(map[bool]context.Context{true: hasty, false: patient}[bucket == "a" || bucket == "d"], bucket+"1")
			}
			giveUp()
			synctest.Wait()
			write(patient, "c2", "c3") // full by now
			wg.Wait()
			synctest.Wait() // batches are released after their callers have returned
			got := idsIn(s.batches)
			for _, id := range []string{"b1", "c1", "c2", "c3", "e1"} {
				if !strings.Contains(got, id) {
					t.Errorf("ready %v: batches %q are without %s", ready, got, id)
				}
			}
			if strings.Contains(got, "a1") || strings.Contains(got, "d1") || !strings.Contains(got, "c1 c2 c3") {
				t.Errorf("ready %v: batches %q, want c as one, and neither a nor d", ready, got)
			}
			if left := gauge(t, g.metrics.unacknowledged); left != 0 {
				t.Errorf("ready %v: %v rows are left", ready, left)
			}
		})
	}
}

// The bucket of a batch that was released takes rows again: in a new batch, and
// without the rows that nobody waits for.
func TestBucketOfAnAbandonedBatchTakesRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		g := testMerger(t, s, func(o *mergeOptions) { o.linger = time.Second })
		hasty, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := g.write(hasty, rowsOf("a1")); err == nil {
			t.Error("written before its linger was over")
		}
		patient, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if err := g.write(patient, rowsOf("a2")); err != nil {
			t.Error(err)
		}
		if got := idsIn(s.batches); got != "a2" {
			t.Errorf("batches %q, want the second row alone", got)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.lingering != 0 {
			t.Errorf("%d rows linger at the end", g.lingering)
		}
	})
}

// A missing value is unset, which writes nothing: an empty text or a zero would
// be stored, and read as a value.
func TestWhatARowDoesNotHaveIsNoValue(t *testing.T) {
	for _, tt := range []struct {
		row  push.Row
		want string // the columns that have a value
	}{
		{push.Row{}, "id device step state at user_hash"},
		{push.Row{Platform: push.FCM}, "id device step state at provider user_hash"},
		{push.Row{ProviderID: "p"}, "id device step state at provider_id user_hash"},
		{push.Row{Place: 1}, "id device step state at user_hash place"},
		{push.Row{Reason: "gone"}, "id device step state at reason user_hash"},
		{push.Row{Reason: "\xff"}, "id device step state at user_hash"}, // nothing valid is left of it
	} {
		var e encodedRows
		e.append(&tt.row)
		var have []string
		for i, name := range columns[1:] {
			if name != "details" && e.ends[i] >= 0 {
				have = append(have, name)
			}
		}
		if got := strings.Join(have, " "); got != tt.want || e.ends[valuesOfColumns-1] < 0 {
			t.Errorf("%s: has %s, want %s", fmt.Sprintf("%+v", tt.row), got, tt.want)
		}
		if got := "id device step state " + inDetails(&tt.row); got != tt.want {
			t.Errorf("%s: packed, it has %s, want %s", fmt.Sprintf("%+v", tt.row), got, tt.want)
		}
	}
}

// inDetails names what the column details of a row has.
func inDetails(r *push.Row) string {
	rest := fields{data: appendDetails(nil, r)}
	var have []string
	for _, name := range columns[5:11] {
		if rest.next() != nil {
			have = append(have, name)
		}
	}
	return strings.Join(have, " ")
}

// What nobody waits for any more is not tried again after its back-off, and takes no memory
// meanwhile. What somebody waits for is, in the order of their times.
func TestSweepOfBatchesThatBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		s := newClocked()
		note := s.answer
		s.answer = func(ctx context.Context, n int, bucket int64) error {
			_ = note(ctx, n, bucket)
			s.mu.Lock()
			defer s.mu.Unlock()
			if down {
				return errors.New("not now")
			}
			return nil
		}
		g := testMerger(t, s, func(o *mergeOptions) {
			o.linger, o.backoff = time.Millisecond, push.Backoff{First: time.Second, Longest: time.Second}
		})
		var wg sync.WaitGroup
		for i := range 12 {
			within := 100 * time.Millisecond
			if i%3 == 0 {
				within = time.Minute
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				if err := g.write(ctx, rowsOf(string(rune('a'+i)))); (err == nil) != (i%3 == 0) {
					t.Errorf("row %d: %v", i, err)
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		g.mu.Lock()
		checkLingering(t, g, "after the sweep")
		if len(g.failed) != 4 {
			t.Errorf("%d batches back off, want the 4 that are waited for", len(g.failed))
		}
		g.mu.Unlock()
		s.mu.Lock()
		down = false
		s.mu.Unlock()
		wg.Wait()
		if came := len(s.seen()); came != 12+4 {
			t.Errorf("%d attempts, want one each and one more of those that are waited for", came)
		}
	})
}
