package inbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	markRead   = "UPDATE inbox USING TTL ? AND TIMESTAMP ? SET read = ? WHERE user = ? AND app = ? AND period = ? AND at = ? AND id = ?"
	markUnread = "UPDATE inbox USING TTL ? AND TIMESTAMP ? SET unread = ? WHERE user = ? AND app = ? AND period = ? AND at = ? AND id = ?"
	markShown  = "UPDATE inbox USING TTL ? AND TIMESTAMP ? SET shown = ? WHERE user = ? AND app = ? AND period = ? AND at = ? AND id = ?"
	// The timestamp is the time up to which it is read: of two the one that goes further
	// stands, and of equals the later request, as its value is greater. That holds for what
	// does not expire: so the row, one of an inbox, lives until its user is erased.
	setUpTo = "INSERT INTO inbox_read (user, app, at, set_at) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"

	selectIDs     = "SELECT id FROM inbox WHERE user = ? AND app = ? AND period = ?"
	deleteEntries = "DELETE FROM inbox WHERE user = ? AND app = ? AND period = ?"
	deleteUpTo    = "DELETE FROM inbox_read USING TIMESTAMP ? WHERE user = ? AND app = ?"
)

// Mark marks entries of an inbox, and tells those who wait for news of it. After an error
// some may be marked; the call may be repeated with the same time.
func (s *Store) Mark(ctx context.Context, k Key, m *Marks) error {
	if err := m.Check(); err != nil {
		return err
	}
	if err := s.update(ctx, markRead, k, m.Read, m.At); err != nil {
		return err
	}
	if err := s.update(ctx, markUnread, k, m.Unread, m.At); err != nil {
		return err
	}
	if up := m.UpTo.At; !up.IsZero() {
		if err := s.tables.Exec(ctx, setUpTo, k.User, k.App, up, m.At, up.UnixMicro()); err != nil {
			return fmt.Errorf("inbox: marking all as read: %w", err)
		}
	}
	_ = s.tell(ctx, hashes([]Key{k}), s.now()) // best effort, as Put does it
	return nil
}

// Show notes that these entries have been shown: limits have let them through, and are not
// asked about them again.
func (s *Store) Show(ctx context.Context, k Key, shown []Position, at time.Time) error {
	return s.update(ctx, markShown, k, shown, at)
}

// update runs an UPDATE of each entry.
func (s *Store) update(ctx context.Context, statement string, k Key, positions []Position, at time.Time) error {
	var running sync.WaitGroup
	errs := make([]error, len(positions))
	for i, p := range positions {
		if errs[i] = s.place(ctx); errs[i] != nil {
			break
		}
		running.Go(func() {
			defer s.leave()
			errs[i] = s.tables.Exec(ctx, statement, s.left(p.At, at), at.UnixMicro(), at, k.User, k.App, period(p.At), p.At, p.ID)
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("inbox: marking an entry: %w", err)
		}
	}
	return nil
}

// Count is how many rows there are of an inbox: entries, marks of what has died, and one
// of how far it is read. It reads what Forget removes.
func (s *Store) Count(ctx context.Context, k Key) (rows int, err error) {
	now := s.now()
	for p := period(now.Add(-s.ttl - behindSlack)); p <= period(now.Add(ahead)); p++ {
		var id string
		if err := s.tables.Query(ctx, selectIDs, []any{k.User, k.App, p}, []any{&id}, func() { rows++ }); err != nil {
			return rows, fmt.Errorf("inbox: counting entries: %w", err)
		}
	}
	u, err := s.upTo(ctx, k)
	if !u.at.IsZero() {
		rows++
	}
	return rows, err
}

// Forget removes an inbox: for users who are erased. What is written meanwhile may stay.
// How far the inbox is read can be a little ahead of the clock, and goes too: who says so
// anew counts from a minute later on.
func (s *Store) Forget(ctx context.Context, k Key) error {
	now := s.now()
	for p := period(now.Add(-s.ttl - behindSlack)); p <= period(now.Add(ahead)); p++ {
		if err := s.tables.Exec(ctx, deleteEntries, k.User, k.App, p); err != nil {
			return fmt.Errorf("inbox: removing entries: %w", err)
		}
	}
	if err := s.tables.Exec(ctx, deleteUpTo, now.Add(ahead).UnixMicro(), k.User, k.App); err != nil {
		return fmt.Errorf("inbox: removing how far it is read: %w", err)
	}
	return nil
}

// newsBatch is how many lines of news one statement has.
const newsBatch = 100

// tell writes news for these keys.
func (s *Store) tell(ctx context.Context, keys []uint64, now time.Time) error {
	for len(keys) > 0 {
		n := min(len(keys), newsBatch)
		if err := s.place(ctx); err != nil {
			return err
		}
		statement, values := newsStatement(keys[:n], now)
		err := s.tables.Exec(ctx, statement, values...)
		s.leave()
		if err != nil {
			return fmt.Errorf("inbox: telling news: %w", err)
		}
		keys = keys[n:]
	}
	return nil
}

// newsStatement is one batch of one partition. Its text depends on how many there are, in
// powers of two, so that a server prepares few: the last key fills it up.
func newsStatement(keys []uint64, now time.Time) (string, []any) {
	n := 1
	for n < len(keys) {
		n *= 2
	}
	var b strings.Builder
	b.WriteString("BEGIN UNLOGGED BATCH ")
	values := make([]any, 0, 3*n)
	for i := range n {
		b.WriteString("INSERT INTO inbox_news (slot, key, at) VALUES (?, ?, ?); ")
		values = append(values, slotOf(now), int64(keys[min(i, len(keys)-1)]), now)
	}
	b.WriteString("APPLY BATCH")
	return b.String(), values
}
