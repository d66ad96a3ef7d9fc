package inbox

import (
	"context"
	"fmt"
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
	Tables      Tables        // required; stays the caller's
	TTL         time.Duration // for which entries are kept, LeastTTL to MostTTL: 30 days
	Concurrency int           // statements in flight at once: 32
	Now         func() time.Time
}

// Store keeps inboxes in Cassandra or Scylla. It is safe for concurrent use, and starts
// nothing. Each statement is tried once: after an error it may have been applied, and the
// call may be repeated.
type Store struct {
	tables Tables
	ttl    time.Duration
	places chan struct{} // each statement in progress has one; never closed
	now    func() time.Time
}

// New makes a Store.
func New(o Options) *Store {
	if o.TTL == 0 {
		o.TTL = 30 * 24 * time.Hour
	}
	if o.Concurrency == 0 {
		o.Concurrency = 32
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{tables: o.Tables, ttl: min(max(o.TTL, LeastTTL), MostTTL), places: make(chan struct{}, o.Concurrency), now: o.Now}
}

const insertEntry = "INSERT INTO inbox (user, app, period, at, id, type, lane, sender, priority, content, expires) " +
	"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?"

// Check reads each table: an error says that one is missing or cannot be read.
func (s *Store) Check(ctx context.Context) error {
	for _, statement := range []string{"SELECT user FROM inbox LIMIT 1", "SELECT user FROM inbox_read LIMIT 1"} {
		var user string
		if err := s.tables.Query(ctx, statement, nil, []any{&user}, func() {}); err != nil {
			return fmt.Errorf("inbox: looking at the tables: %w", err)
		}
	}
	var hash int64
	if err := s.tables.Query(ctx, "SELECT key FROM inbox_news LIMIT 1", nil, []any{&hash}, func() {}); err != nil {
		return fmt.Errorf("inbox: looking at the tables: %w", err)
	}
	return nil
}

// Put writes entries, each by itself, and says of each whether it is durable: nil = it is.
// One that is there already stays one, with the marks that it has. Then it tells those who
// wait for news, which is best effort.
func (s *Store) Put(ctx context.Context, entries []Addressed) []error {
	errs := make([]error, len(entries))
	now := s.now()
	var running sync.WaitGroup
	for i := range entries {
		if errs[i] = s.place(ctx); errs[i] != nil {
			continue
		}
		running.Go(func() {
			defer s.leave()
			errs[i] = s.insert(ctx, &entries[i], now)
		})
	}
	running.Wait()
	var written []Key
	for i := range entries {
		if errs[i] == nil {
			written = append(written, entries[i].Key)
		}
	}
	_ = s.tell(ctx, hashes(written), s.now()) // who waits looks at the end of his wait in any case
	return errs
}

func (s *Store) insert(ctx context.Context, e *Addressed, now time.Time) error {
	err := s.tables.Exec(ctx, insertEntry, e.User, e.App, period(e.At), e.At, e.ID, e.Type, e.Lane, e.Sender, int8(e.Priority), e.Content, e.expiry(), s.left(e.At, now))
	if err != nil {
		return fmt.Errorf("inbox: writing an entry: %w", err)
	}
	return nil
}

// left is for how many seconds what belongs to a time is kept from now on. It is never
// none, so that a clock that is wrong loses nothing at once.
func (s *Store) left(at, now time.Time) int {
	return int(max(at.Add(s.ttl).Sub(now), time.Hour) / time.Second)
}

// place takes a place for a statement, or fails when ctx ends first.
func (s *Store) place(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case s.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) leave() { <-s.places }
