package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// tables notes what is executed, and fails or waits as a test wants.
type tables struct {
	mu    sync.Mutex
	done  []string
	wrong bool // guarded by mu; a statement had more or fewer values than it takes
	under int  // guarded by mu; statements in flight, and the most of them
	most  int
	fails func(values []any) error
	takes time.Duration
}

func (f *tables) Exec(ctx context.Context, statement string, values ...any) error {
	f.mu.Lock()
	f.done = append(f.done, fmt.Sprint(statement, values))
	f.wrong = f.wrong || strings.Count(statement, "?") != len(values)
	f.under++
	f.most = max(f.most, f.under)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.under--
		f.mu.Unlock()
	}()
	select {
	case <-time.After(f.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.fails != nil {
		return f.fails(values)
	}
	return nil
}

func (f *tables) Query(context.Context, string, []any, []any, func()) error {
	return errors.New("away")
}

var at = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func entries(n int) (list []Entry) {
	for i := range n {
		list = append(list, Entry{Position: Position{At: at, ID: fmt.Sprint("n", i)}, User: "u", App: "shop", Kept: 7 * 24 * time.Hour})
	}
	return list
}

// So many statements are under way at once as may be, of ten entries while there are as many.
func TestPutAtOnce(t *testing.T) {
	for n, want := range map[int]int{1005: 105, 1000: 100, 10: 1, 9: 9} {
		synctest.Test(t, func(t *testing.T) {
			f := &tables{takes: time.Millisecond}
			began := time.Now()
			if err := New(Options{Tables: f, Concurrency: 10}).Put(t.Context(), entries(n)); err != nil {
				t.Fatal(err)
			}
			if len(f.done) != want || f.most != min(10, want) || f.wrong || time.Since(began) != time.Duration((want+9)/10)*time.Millisecond {
				t.Errorf("%d entries: %d statements, %d at once, with values that do not fit: %t, %s", n, len(f.done), f.most, f.wrong, time.Since(began))
			}
			all := strings.Join(f.done, "\n")
			for i := range n {
				if strings.Count(all, fmt.Sprintf(" n%d ", i)) != 1 {
					t.Errorf("n%d is not written once", i)
				}
			}
		})
	}
}

// The first that fails is told of, and what waits is not begun.
func TestPutFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("no hosts available")
		f := &tables{takes: time.Millisecond, fails: func(values []any) error {
			if slices.Contains(values, any("n420")) {
				return away
			}
			return nil
		}}
		err := New(Options{Tables: f, Concurrency: 4}).Put(t.Context(), entries(10_000))
		if !errors.Is(err, away) || !strings.HasPrefix(err.Error(), "journal: writing an entry: ") || strings.Contains(err.Error(), "n420") {
			t.Error(err)
		}
		if len(f.done) < 43 || len(f.done) > 50 {
			t.Errorf("%d statements", len(f.done))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := New(Options{Tables: &tables{takes: time.Hour}}).Put(ended, entries(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("ended: %v", err)
		}
	})
}

// An entry lives from its time on, within bounds, and is never gone at once.
func TestHowLongEntriesLive(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		kept, ago time.Duration
		want      time.Duration
	}{
		{7 * day, 0, 7 * day}, {7 * day, 2 * day, 5 * day}, {7 * day, 30 * day, time.Hour}, {time.Minute, 0, day}, {1000 * day, 0, MostKept}, {MostKept, -day, MostKept},
	} {
		e := &Entry{Position: Position{At: at.Add(-tt.ago)}, Kept: tt.kept}
		if got := left(e, at); got != int(tt.want/time.Second) {
			t.Errorf("kept for %s, of %s ago: %d s, want %s", tt.kept, tt.ago, got, tt.want)
		}
	}
}

// A call that reads many rows of others ends, and says where to go on.
func TestPageOfAnothersRows(t *testing.T) {
	s := New(Options{Tables: endless{}, Now: func() time.Time { return at }})
	page, next, err := s.Page(t.Context(), &Question{User: "u", Apps: []string{"shop"}, Since: at.Add(-time.Hour), Behind: Top(at), Limit: 10})
	if err != nil || len(page) > 0 || next == nil || !next.At.Equal(at.Add(-mostLooked*time.Millisecond)) {
		t.Errorf("%v, %+v, %v", page, next, err)
	}
	if _, _, err := New(Options{Tables: &tables{}}).Page(t.Context(), &Question{User: "u", Since: at, Behind: Top(at)}); err == nil || !strings.HasPrefix(err.Error(), "journal: reading") {
		t.Error(err)
	}
}

// endless has rows of another app without end, one each millisecond.
type endless struct{ Tables }

func (endless) Query(_ context.Context, _ string, values, dest []any, row func()) error {
	from := values[2].(time.Time)
	if from.After(at) {
		from = at
	}
	for i := range values[4].(int) {
		*dest[0].(*time.Time) = from.Add(-time.Duration(i+1) * time.Millisecond)
		*dest[1].(*string), *dest[2].(*string) = fmt.Sprint(i), "bank"
		row()
	}
	return nil
}
