package inbox

import (
	"context"
	"fmt"
	"time"
)

// Bounds of counting what is not read.
const (
	MostUnread = 100   // that are counted
	mostLooks  = 1_000 // entries that are looked at for it
)

// selectMarks is selectPage without contents.
const selectMarks = "SELECT at, id, type, expires, read, unread, WRITETIME(type) FROM inbox " +
	"WHERE user = ? AND app = ? AND period = ? AND (at, id) < (?, ?) LIMIT ?"

// Unread counts the entries that are not read and have not expired, of those that Page would
// have: the newest MostUnread of them, among the newest 1,000. more = there may be others.
func (s *Store) Unread(ctx context.Context, k Key, follows []Follow) (n int, more bool, err error) {
	if err := checkPage(follows, MaxPage); err != nil {
		return 0, false, err
	}
	now, looks := s.now(), 0
	end, err := s.walk(ctx, k, follows, Top(now), s.markRows, func() int { return min(MaxPage, mostLooks-looks) }, func(f *found) bool {
		looks++
		if f.unseen(now) {
			n++
		}
		return n < MostUnread && looks < mostLooks
	})
	return n, !end, err
}

// unseen reports whether an entry counts as one that is to be read.
func (e *Entry) unseen(now time.Time) bool {
	return !e.Read && (e.Expires.IsZero() || now.Before(e.Expires))
}

// markRows reads rows of a user without what their messages say.
func (s *Store) markRows(ctx context.Context, k Key, period int, behind Position, want int) (rows []found, more bool, err error) {
	var row entryRow
	err = s.tables.Query(ctx, selectMarks, []any{k.User, k.App, period, behind.At, behind.ID, want}, []any{&row.at, &row.id, &row.entryType, &row.expires, &row.read, &row.unread, &row.written}, func() {
		rows = append(rows, row.found())
		row = entryRow{}
	})
	if err != nil {
		return nil, false, fmt.Errorf("inbox: counting entries: %w", err)
	}
	return rows, len(rows) >= want, nil
}
