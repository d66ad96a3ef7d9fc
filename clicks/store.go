package clicks

import (
	"context"
	"fmt"
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
	Kept        time.Duration // from a notification's Sent on, LeastKept to MostKept: 90 days
	Concurrency int           // statements in flight at once: 32
	Now         func() time.Time
}

// Store keeps reports in Cassandra or Scylla. It is safe for concurrent use, and starts
// nothing. Each statement is tried once: after an error it may have been applied, and the
// call may be repeated.
type Store struct {
	tables Tables
	kept   time.Duration
	places chan struct{} // each statement in progress has one; never closed
	now    func() time.Time
}

// New makes a Store.
func New(o Options) *Store {
	if o.Kept == 0 {
		o.Kept = 90 * 24 * time.Hour
	}
	if o.Concurrency == 0 {
		o.Concurrency = 32
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{tables: o.Tables, kept: min(max(o.Kept, LeastKept), MostKept), places: make(chan struct{}, o.Concurrency), now: o.Now}
}

const (
	selectAny    = "SELECT user FROM clicks LIMIT 1"
	insertReport = "INSERT INTO clicks (user, period, app, id, event, type, sender, sent, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
	selectNoted  = "SELECT event, at FROM clicks WHERE user = ? AND period = ? AND app = ? AND id = ?"
	selectEvents = "SELECT event FROM clicks WHERE user = ? AND period = ?"
	deletePeriod = "DELETE FROM clicks USING TIMESTAMP ? WHERE user = ? AND period = ?"
)

// Check reads the table: an error says that it is missing or cannot be read.
func (s *Store) Check(ctx context.Context) error {
	var user string
	if err := s.tables.Query(ctx, selectAny, nil, []any{&user}, func() {}); err != nil {
		return fmt.Errorf("clicks: looking at the table: %w", err)
	}
	return nil
}

// Note keeps a report. With nil it is durable. Of one that is kept already nothing changes.
func (s *Store) Note(ctx context.Context, r *Report) error {
	leave, err := s.place(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = s.tables.Exec(ctx, insertReport, r.User, periodOf(r.ID), r.App, r.ID, int8(r.Event), r.Type, r.Sender, r.Sent, r.At, s.left(r.Sent), r.stamp())
	if err != nil {
		return fmt.Errorf("clicks: writing a report: %w", err)
	}
	return nil
}

// left is for how many seconds a report of a notification is kept from now on. It is never
// none, so that a clock that is wrong loses nothing at once.
func (s *Store) left(sent time.Time) int {
	return int(min(max(sent.Add(s.kept).Sub(s.now()), time.Hour), MostKept) / time.Second)
}

// Of is what was reported of a notification, the first event first.
func (s *Store) Of(ctx context.Context, k Key) (list []Noted, err error) {
	leave, err := s.place(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var event int8
	var at time.Time
	err = s.tables.Query(ctx, selectNoted, []any{k.User, periodOf(k.ID), k.App, k.ID}, []any{&event, &at}, func() {
		list = append(list, Noted{Event(event), at.UTC()})
	})
	if err != nil {
		return nil, fmt.Errorf("clicks: reading what was reported: %w", err)
	}
	return list, nil
}

// Count is how many reports there are of a user. It reads what Forget removes.
func (s *Store) Count(ctx context.Context, user string) (rows int, err error) {
	for _, p := range s.periods() {
		var event int8
		if err := s.tables.Query(ctx, selectEvents, []any{user, p}, []any{&event}, func() { rows++ }); err != nil {
			return rows, fmt.Errorf("clicks: counting reports: %w", err)
		}
	}
	return rows, nil
}

// Forget removes all reports of a user: for users who are erased. What is reported after it
// of a notification from before may be kept again: tokens are good until they end.
func (s *Store) Forget(ctx context.Context, user string) error {
	// Ids may be a minute ahead of our clock.
	for _, p := range s.periods() {
		if err := s.tables.Exec(ctx, deletePeriod, s.now().Add(ahead).UnixMicro(), user, p); err != nil {
			return fmt.Errorf("clicks: removing reports: %w", err)
		}
	}
	return nil
}

// ahead is by how much the time in an id may be later than our clock, and some more.
const ahead = 2 * time.Minute

// periods are all that can have rows, however long these are kept.
func (s *Store) periods() []int {
	now := s.now()
	return append(between(now.Add(-MostKept), now.Add(ahead)), timeless)
}

// between are the periods of some time, the latest first.
func between(from, to time.Time) (list []int) {
	for p := periodAt(to); p >= periodAt(from); p-- {
		list = append(list, p)
	}
	return list
}

// place takes a place for a statement, or fails when ctx ends first.
func (s *Store) place(ctx context.Context) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case s.places <- struct{}{}:
		return func() { <-s.places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
