package audiences

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/fanout"
)

// Tables is a session of Cassandra or Scylla, such as status.Session, in the keyspace that
// has the table of deploy/cassandra/schema.cql, which reads and writes with LOCAL_QUORUM
// (or ONE where there is one replica). It is safe for concurrent use.
type Tables interface {
	// Exec runs an idempotent statement.
	Exec(ctx context.Context, statement string, values ...any) error
	// Query reads each row into dest, which are pointers, and calls row after it.
	Query(ctx context.Context, statement string, values, dest []any, row func()) error
}

// Options are what a Store is made of.
type Options struct {
	Tables      Tables           // required; stays the caller's
	Concurrency int              // users that are noted at once; 0 = 32
	Now         func() time.Time // nil = time.Now
}

// Store keeps members in Cassandra or Scylla. It is safe for concurrent use, and starts
// nothing that outlives a call. Each statement is tried once: after an error it may have
// been applied, and the call may be repeated.
type Store struct {
	tables      Tables
	concurrency int
	now         func() time.Time
}

// New makes a Store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{tables: o.Tables, concurrency: max(1, cmp.Or(o.Concurrency, 32)), now: o.Now}
}

const (
	anyMember    = "SELECT user FROM app_users LIMIT 1"
	selectMember = "SELECT since FROM app_users WHERE app = ? AND slice = ? AND user = ?"
	insertMember = "INSERT INTO app_users (app, slice, user, since) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
	selectPage   = "SELECT user, since FROM app_users WHERE app = ? AND slice = ? AND user > ? LIMIT ?"
)

// Check reads the table: an error says that it is missing or cannot be read.
func (s *Store) Check(ctx context.Context) error {
	var user string
	if err := s.tables.Query(ctx, anyMember, nil, []any{&user}, func() {}); err != nil {
		return fmt.Errorf("audiences: looking at the table: %w", err)
	}
	return nil
}

// Add notes uses: who is a member stays so, since when he was. added is how many were none
// before. With nil all are there. Of a user who is in there twice the later use should come
// alone, as nobody knows which of them is noted.
func (s *Store) Add(ctx context.Context, uses []Use) (added int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		mu      sync.Mutex
		failed  []error // guarded by mu
		next    = make(chan *Use)
		running sync.WaitGroup
	)
	for range min(s.concurrency, len(uses)) {
		running.Go(func() {
			for u := range next {
				isNew, err := s.add(ctx, u)
				mu.Lock()
				if isNew {
					added++
				}
				if err != nil {
					failed = append(failed, err)
					cancel() // the others end soon, and nothing more begins
				}
				mu.Unlock()
			}
		})
	}
	for i := range uses {
		if ctx.Err() != nil {
			break
		}
		next <- &uses[i]
	}
	close(next)
	running.Wait()
	if len(failed) > 0 {
		return added, failed[0] // the others may be its consequence
	}
	return added, ctx.Err()
}

// add notes a use. Reading first spares the write, and what comes of it later, of all who
// register again, and keeps since; a row that was lost is written anew.
func (s *Store) add(ctx context.Context, u *Use) (added bool, err error) {
	if err := checkNames(u.App, u.User); err != nil {
		return false, err
	}
	if _, there, err := s.Since(ctx, u.App, u.User); there || err != nil {
		return false, err
	}
	now := s.now()
	err = s.tables.Exec(ctx, insertMember, u.App, int16(fanout.SliceOf(u.User)), u.User, now.UTC().Truncate(time.Millisecond), u.written(now))
	if err != nil {
		return false, fmt.Errorf("audiences: noting a user of an app: %w", err)
	}
	return true, nil
}

// Since is since when a user is a member; there is false if the user is none.
func (s *Store) Since(ctx context.Context, app, user string) (since time.Time, there bool, err error) {
	if err := checkNames(app, user); err != nil {
		return time.Time{}, false, err
	}
	err = s.tables.Query(ctx, selectMember, []any{app, int16(fanout.SliceOf(user)), user}, []any{&since}, func() { there = true })
	if err != nil {
		return time.Time{}, false, fmt.Errorf("audiences: reading a user of an app: %w", err)
	}
	return since.UTC(), there, nil
}

// Page are members of an app in slices of fan-outs from first up to the one before end,
// behind a user in there, at most limit of them (1 to MaxPage): in the order of slices and,
// in a slice, of the bytes of their ids. after "" = from the first on. A page can be short;
// none = there are no more.
func (s *Store) Page(ctx context.Context, app string, first, end int, after string, limit int) ([]Member, error) {
	if err := checkPage(first, end, limit, fanout.Slices); err != nil {
		return nil, err
	}
	at := first
	if after != "" {
		if at = fanout.SliceOf(after); at < first || at >= end {
			return nil, errors.New("audiences: a page behind a user of other slices")
		}
	}
	var m Member
	var page []Member
	for ; at < end && len(page) == 0; at++ {
		err := s.tables.Query(ctx, selectPage, []any{app, int16(at), after, limit}, []any{&m.User, &m.Since}, func() {
			page = append(page, Member{m.User, m.Since.UTC()})
		})
		if err != nil {
			return nil, fmt.Errorf("audiences: reading users of an app: %w", err)
		}
		after = ""
	}
	return page, nil
}
