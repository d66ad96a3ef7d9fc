package journal_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/journal/journaltest"
)

// fake is the table in memory: what the statements of a Store come to. It forgets nothing by
// age.
type fake struct {
	mu      sync.Mutex
	rows    map[string][]row // guarded by mu; by partition, in the order in which they are read
	queries int              // guarded by mu
}

// row is the values of an INSERT behind those of its partition.
type row []any

func (r row) before(at time.Time, id string) bool {
	if own := r[0].(time.Time); !own.Equal(at) {
		return own.After(at)
	}
	return r[1].(string) > id
}

func partition(user, period any) string { return fmt.Sprintf("%v/%v", user, period) }

func (f *fake) Exec(_ context.Context, statement string, values ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.HasPrefix(statement, "DELETE") {
		delete(f.rows, partition(values[0], values[1]))
		return nil
	}
	for one := range slices.Chunk(values, 9) {
		at, added := partition(one[0], one[1]), row(one[2:])
		i, there := slices.BinarySearchFunc(f.rows[at], added, func(r, o row) int {
			switch {
			case r.before(o[0].(time.Time), o[1].(string)):
				return -1
			case o.before(r[0].(time.Time), r[1].(string)):
				return 1
			}
			return 0
		})
		if there {
			f.rows[at][i] = added
			continue
		}
		f.rows[at] = slices.Insert(f.rows[at], i, added)
	}
	return nil
}

func (f *fake) Query(_ context.Context, statement string, values, dest []any, each func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries++
	if len(values) < 2 {
		return nil
	}
	left := len(f.rows[partition(values[0], values[1])])
	if len(values) > 4 {
		left = values[4].(int)
	}
	for _, r := range f.rows[partition(values[0], values[1])] {
		if left == 0 {
			break
		}
		if len(dest) == 1 {
			*dest[0].(*string) = r[1].(string)
		} else if at := values[2].(time.Time); r[0].(time.Time).Equal(at) && r[1].(string) == values[3].(string) || r.before(at, values[3].(string)) {
			continue
		} else {
			*dest[0].(*time.Time) = r[0].(time.Time)
			for i := 1; i < len(dest); i++ {
				*dest[i].(*string) = r[i].(string)
			}
		}
		left--
		each()
	}
	return nil
}

func newFake() *fake { return &fake{rows: map[string][]row{}} }

// The statements of a Store, without a server.
func TestStatements(t *testing.T) {
	journaltest.Run(t, journal.New(journal.Options{Tables: newFake()}))
}

// Whatever clocks say, users erase finds what was written; what is older than anything that is
// kept is not.
func TestEraseFindsAll(t *testing.T) {
	const day = 24 * time.Hour
	written := time.Date(2026, 11, 27, 23, 30, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]int{-23 * time.Hour: 1, 0: 1, 89 * day: 1, 90 * day: 1, 90*day + time.Second: 0, 101 * day: 0, written.Sub(time.UnixMilli(0)): 0} {
		for later := range 11 { // days, so that a border of periods is between
			now := written.AddDate(0, 0, later)
			at := now.Add(-ago)
			f := newFake()
			s := journal.New(journal.Options{Tables: f, Now: func() time.Time { return now }})
			if err := s.Put(t.Context(), []journal.Entry{{Position: journal.Position{At: at, ID: "a"}, User: "u", App: "shop", Kept: journal.MostKept}}); err != nil {
				t.Fatal(err)
			}
			now = now.Add(59 * time.Minute) // it lives for an hour at least
			n, err := s.Count(t.Context(), "u")
			if err != nil || n != want || len(f.rows) != want {
				t.Errorf("of %s ago, %d days on: %d of %d entries, %v", ago, later, n, len(f.rows), err)
			}
			if err := s.Forget(t.Context(), "u"); err != nil || len(f.rows) > 0 {
				t.Errorf("of %s ago: %v is left, %v", ago, f.rows, err)
			}
		}
	}
}

// An entry whose time is ahead is read, also where a period begins between now and then.
func TestEntriesAhead(t *testing.T) {
	for later := range 11 {
		now := time.Date(2026, 11, 27, 23, 59, 30, 0, time.UTC).AddDate(0, 0, later)
		s := journal.New(journal.Options{Tables: newFake(), Now: func() time.Time { return now }})
		if err := s.Put(t.Context(), []journal.Entry{{Position: journal.Position{At: now.Add(time.Minute), ID: "a"}, User: "u", App: "shop"}}); err != nil {
			t.Fatal(err)
		}
		page, _, err := s.Page(t.Context(), &journal.Question{User: "u", Apps: []string{"shop"}, Since: now.Add(-time.Hour), Behind: journal.Top(now), Limit: 10})
		if err != nil || len(page) != 1 {
			t.Errorf("%d days on: %d entries, %v", later, len(page), err)
		}
	}
}

// What is older than what is asked for is not read to its end.
func TestPageEndsAtSince(t *testing.T) {
	f := newFake()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	s := journal.New(journal.Options{Tables: f, Now: func() time.Time { return now }})
	var all []journal.Entry
	for i := range 5000 {
		all = append(all, journal.Entry{Position: journal.Position{At: now.Add(-time.Duration(i) * time.Second), ID: fmt.Sprint(i)}, User: "u", App: "shop"})
	}
	if err := s.Put(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	f.queries = 0
	page, next, err := s.Page(t.Context(), &journal.Question{User: "u", Apps: []string{"shop"}, Since: now.Add(-49 * time.Second), Behind: journal.Top(now), Limit: 100})
	if err != nil || len(page) != 50 || next != nil || f.queries > 2 {
		t.Errorf("%d entries, next %v, by %d queries, %v", len(page), next, f.queries, err)
	}
}
