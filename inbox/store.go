package inbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
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

const (
	insertEntry = "INSERT INTO inbox (user, app, period, at, id, type, lane, sender, priority, content, expires) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?"
	selectPage = "SELECT at, id, type, lane, sender, priority, content, expires, read, unread, shown FROM inbox " +
		"WHERE user = ? AND app = ? AND period = ? AND (at, id) < (?, ?) LIMIT ?"
	selectUpTo = "SELECT at, set_at FROM inbox_read WHERE user = ? AND app = ?"
)

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
	expires := time.UnixMilli(0) // never: a null would be a tombstone
	if !e.Expires.IsZero() {
		expires = e.Expires
	}
	err := s.tables.Exec(ctx, insertEntry, e.User, e.App, period(e.At), e.At, e.ID, e.Type, e.Lane, e.Sender, int8(e.Priority), e.Content, expires, s.left(e.At, now))
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

// chunk is how many entries one query asks for: contents have up to 64 KiB.
const chunk = 20

// Page reads the entries behind a position, the newest first: limit of them, or fewer if
// their contents have MaxBytes together. end = there are no older ones.
func (s *Store) Page(ctx context.Context, k Key, behind Position, limit int) (page []Entry, end bool, err error) {
	if err := checkPage(limit); err != nil {
		return nil, false, err
	}
	if err := s.place(ctx); err != nil {
		return nil, false, err
	}
	defer s.leave()
	u, err := s.upTo(ctx, k)
	if err != nil {
		return nil, false, err
	}
	now := s.now()
	oldest, bytes := period(now.Add(-s.ttl-behindSlack)), 0
	for p := min(period(behind.At), period(now.Add(ahead))); p >= oldest; {
		want := min(limit-len(page), chunk)
		var row entryRow
		found := 0
		last := behind
		err := s.tables.Query(ctx, selectPage, []any{k.User, k.App, p, behind.At, behind.ID, want}, row.dest(), func() {
			found++
			last = Position{row.at.UTC(), row.id}
			if row.entryType != "" && bytes <= MaxBytes { // else nobody has written it: a mark of what has died
				e := row.entry(u)
				page, bytes = append(page, e), bytes+len(e.Content)
			}
			row.clear()
		})
		if err != nil {
			return nil, false, fmt.Errorf("inbox: reading entries: %w", err)
		}
		if behind = last; found < want {
			p--
		}
		if len(page) == limit || bytes > MaxBytes {
			return cut(page), false, nil
		}
	}
	return page, true, nil
}

// behindSlack is added to what is read of the past, where an entry may have been kept
// longer than its time says.
const behindSlack = 2 * time.Hour

// cut takes the last entry away if the page has too many bytes with it, and others.
func cut(page []Entry) []Entry {
	bytes := 0
	for i := range page {
		if bytes += len(page[i].Content); bytes > MaxBytes && i > 0 {
			return page[:i]
		}
	}
	return page
}

func checkPage(limit int) error {
	if limit < 1 || limit > MaxPage {
		return fmt.Errorf("inbox: a page of %d, want 1 to %d", limit, MaxPage)
	}
	return nil
}

// upTo reads how far an inbox is read as a whole.
func (s *Store) upTo(ctx context.Context, k Key) (u upTo, err error) {
	if err := s.tables.Query(ctx, selectUpTo, []any{k.User, k.App}, []any{&u.at, &u.set}, func() {}); err != nil {
		return upTo{}, fmt.Errorf("inbox: reading how far it is read: %w", err)
	}
	return u, nil
}

// entryRow is a row of inbox. Columns that are null leave what was there.
type entryRow struct {
	at, expires, read, unread, shown time.Time
	id, entryType, lane, sender      string
	priority                         int8
	content                          []byte
}

func (r *entryRow) dest() []any {
	return []any{&r.at, &r.id, &r.entryType, &r.lane, &r.sender, &r.priority, &r.content, &r.expires, &r.read, &r.unread, &r.shown}
}

// clear forgets the row, whose content belongs to its entry by now.
func (r *entryRow) clear() { *r = entryRow{} }

func (r *entryRow) entry(u upTo) Entry {
	e := Entry{Position: Position{r.at.UTC(), r.id}, Type: r.entryType, Lane: r.lane, Sender: r.sender, Priority: push.Priority(r.priority), Content: r.content,
		Read: marked{r.read, r.unread}.isRead(r.at, u), Shown: r.shown.UTC()}
	if r.expires.UnixMilli() > 0 {
		e.Expires = r.expires.UTC()
	}
	return e
}
