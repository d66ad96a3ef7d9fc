package journal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tables is a session of Cassandra or Scylla, such as status.Session, in the keyspace that
// has the tables of deploy/cassandra/schema.cql, which reads and writes with LOCAL_QUORUM
// (or ONE where there is one replica). It is safe for concurrent use.
type Tables interface {
	// Exec runs an idempotent statement.
	Exec(ctx context.Context, statement string, values ...any) error
	// Query reads each row into dest, which are pointers, and calls row after it.
	Query(ctx context.Context, statement string, values, dest []any, row func()) error
}

// Options are what a Store is made of.
type Options struct {
	Tables      Tables // required; stays the caller's
	Concurrency int    // statements of one Put in flight at once: 32
	Now         func() time.Time
}

// Store keeps journals in Cassandra or Scylla. It is safe for concurrent use, and starts
// nothing. Each statement is tried once: after an error it may have been applied, and the
// call may be repeated.
type Store struct {
	tables      Tables
	concurrency int
	now         func() time.Time
}

// New makes a Store.
func New(o Options) *Store {
	if o.Concurrency == 0 {
		o.Concurrency = 32
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{tables: o.Tables, concurrency: o.Concurrency, now: o.Now}
}

const (
	selectAny    = "SELECT user FROM user_messages LIMIT 1"
	insertEntry  = "INSERT INTO user_messages (user, period, at, id, app, sender, type, lane) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?"
	valuesOfOne  = 9
	selectPage   = "SELECT at, id, app, sender, type, lane FROM user_messages WHERE user = ? AND period = ? AND (at, id) < (?, ?) LIMIT ?"
	selectIDs    = "SELECT id FROM user_messages WHERE user = ? AND period = ?"
	deletePeriod = "DELETE FROM user_messages WHERE user = ? AND period = ?"
)

// together is how many entries one statement writes. They are of as many partitions, and more
// than ten in a batch Cassandra calls a mistake in its log: its coordinator passes each on. What
// a statement costs besides is most of what one entry costs.
const together = 10

// insertTogether writes so many.
var insertTogether = "BEGIN UNLOGGED BATCH " + strings.Repeat(insertEntry+"; ", together) + "APPLY BATCH"

// Check reads the table: an error says that it is missing or cannot be read.
func (s *Store) Check(ctx context.Context) error {
	var user string
	if err := s.tables.Query(ctx, selectAny, nil, []any{&user}, func() {}); err != nil {
		return fmt.Errorf("journal: looking at the table: %w", err)
	}
	return nil
}

// Put writes entries, some with each statement, and says of the first that failed why. With
// nil all are durable, but for those older than anything that is kept, which are left out. What
// is there already stays as it is.
func (s *Store) Put(ctx context.Context, entries []Entry) error {
	now := s.now()
	oldest := now.Add(-MostKept)
	if old := func(e Entry) bool { return e.At.Before(oldest) }; slices.ContainsFunc(entries, old) {
		entries = slices.DeleteFunc(slices.Clone(entries), old)
	}
	of, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan []Entry) // closed when there are no more
	var running sync.WaitGroup
	for range min(s.concurrency, len(entries)) {
		running.Go(func() {
			for some := range next {
				if err := s.insert(of, some, now); err != nil {
					cancel(err)
				}
			}
		})
	}
	for len(entries) > 0 && of.Err() == nil {
		n := 1
		if len(entries) >= together {
			n = together
		}
		select {
		case next <- entries[:n]:
			entries = entries[n:]
		case <-of.Done():
		}
	}
	close(next)
	running.Wait()
	return context.Cause(of)
}

// insert writes one entry, or as many as go together.
func (s *Store) insert(ctx context.Context, entries []Entry, now time.Time) error {
	values := make([]any, 0, valuesOfOne*len(entries))
	for i := range entries {
		e := &entries[i]
		values = append(values, e.User, periodOf(e.At), e.At, e.ID, e.App, e.Sender, e.Type, e.Lane, left(e, now))
	}
	statement := insertEntry
	if len(entries) == together {
		statement = insertTogether
	}
	if err := s.tables.Exec(ctx, statement, values...); err != nil {
		return fmt.Errorf("journal: writing an entry: %w", err)
	}
	return nil
}

// left is for how many seconds an entry is kept from now on. It is never none, so that a clock
// that is wrong loses nothing at once.
func left(e *Entry, now time.Time) int {
	kept := min(max(e.Kept, LeastKept), MostKept)
	return int(min(max(e.At.Add(kept).Sub(now), time.Hour), MostKept) / time.Second)
}

// mostLooked is how many rows one call of Page reads at the most, whoever's they are.
const mostLooked = 20 * MaxPage

// Page returns the next entries of a journal, the newest first. next is where to go on, also
// when the page is not full; nil = there are no more. An id comes once in a page.
func (s *Store) Page(ctx context.Context, q *Question) (page []Entry, next *Position, err error) {
	at, looked := q.Behind, 0
	seen := make(map[string]bool)
	first := s.now().Add(ahead)
	if at.At.Before(first) {
		first = at.At
	}
	for p, last := periodOf(first), periodOf(q.Since); p >= last; {
		rows, err := s.rows(ctx, q.User, p, at)
		if err != nil {
			return nil, nil, err
		}
		for i := range rows {
			e := &rows[i]
			if at = e.Position; at.At.Before(q.Since) {
				return page, nil, nil
			}
			if !q.wants(e) || seen[e.ID] {
				continue
			}
			seen[e.ID] = true
			if page = append(page, *e); len(page) == q.Limit {
				return page, &at, nil
			}
		}
		if looked += len(rows); len(rows) < MaxPage {
			p--
		} else if looked >= mostLooked {
			return page, &at, nil
		}
	}
	return page, nil, nil
}

// rows reads those of one period behind a place.
func (s *Store) rows(ctx context.Context, user string, period int, behind Position) (rows []Entry, err error) {
	e := Entry{User: user}
	err = s.tables.Query(ctx, selectPage, []any{user, period, behind.At, behind.ID, MaxPage}, []any{&e.At, &e.ID, &e.App, &e.Sender, &e.Type, &e.Lane}, func() {
		e.At = e.At.UTC()
		rows = append(rows, e)
	})
	if err != nil {
		return nil, fmt.Errorf("journal: reading a user's messages: %w", err)
	}
	return rows, nil
}

// Count is how many entries there are of a user. It reads what Forget removes.
func (s *Store) Count(ctx context.Context, user string) (rows int, err error) {
	for _, p := range s.periods() {
		var id string
		if err := s.tables.Query(ctx, selectIDs, []any{user, p}, []any{&id}, func() { rows++ }); err != nil {
			return rows, fmt.Errorf("journal: counting entries: %w", err)
		}
	}
	return rows, nil
}

// Forget removes all entries of a user: for users who are erased.
func (s *Store) Forget(ctx context.Context, user string) error {
	for _, p := range s.periods() {
		if err := s.tables.Exec(ctx, deletePeriod, user, p); err != nil {
			return fmt.Errorf("journal: removing entries: %w", err)
		}
	}
	return nil
}

// A period is ten days since 1970: a partition has those of one user.
const period = 10 * 24 * time.Hour

func periodOf(at time.Time) int { return int(at.Unix() / int64(period/time.Second)) }

// ahead is by how much the clock of a producer may be ahead of ours.
const ahead = 24 * time.Hour

// periods are all that can have rows, however long these are kept: an hour longer than that
// at least (left).
func (s *Store) periods() (list []int) {
	now := s.now()
	for p := periodOf(now.Add(ahead)); p >= periodOf(now.Add(-MostKept-2*time.Hour)); p-- {
		list = append(list, p)
	}
	return list
}
